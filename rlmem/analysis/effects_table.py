"""What the thresholds do: in words, on the page, and as effects.csv."""

import csv
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

from rlmem.analysis.csv_files import interval
from rlmem.analysis.statistics import Estimate
from rlmem.analysis.thresholds import TERMS, Effect, Effects, Measure
from rlmem.units import readable_bytes

HEADER = (
    *("env_id", "grid", "part", "measure", "measure_is", "term", "lowest", "highest", "n"),
    *("effect", "effect_low95", "effect_high95", "percent", "percent_low95", "percent_high95"),
    *("spearman", "in_words"),
)


def signed(value: float) -> str:
    """+1,234 or -0.056."""
    return f"{value:+,.0f}" if abs(value) >= 1000 else f"{value:+.3g}"


def _amount(measure: Measure, value: float) -> str:
    if measure.name == "bytes":
        return ("-" if value < 0 else "+") + readable_bytes(abs(value))
    return signed(value)


def words(effect: Effect) -> str:
    """One line for people."""
    measure, term, step = effect.measure, effect.term, effect.step
    if step is None:
        return "the runs do not tell the thresholds apart"
    if term == TERMS[2]:
        change = f"{_amount(measure, step.value)}{_bounds(effect)}"
        if effect.shown:
            effect_on = f"a_T's effect on the {measure.name}"
            return f"from the lowest to the highest h_T, {effect_on} changes by {change}"
        return f"{_unshown(step, 'interaction')}: {change}"
    low, high = effect.span
    amount = f"{signed(effect.percent.value)} %" if effect.percent else _amount(measure, step.value)
    if measure.name != "bytes":
        amount += f" {measure.name}"
    change = f"{amount} from {low:g} to {high:g}{_bounds(effect)}"
    if not effect.shown:
        return f"{_unshown(step, f'effect of {term}')}: {change}"
    return f"a higher {term} {measure.more if step.value > 0 else measure.less}: {change}"


def _unshown(step: Estimate, what: str) -> str:
    return f"no {what} shown" if step.low is not None else f"no interval for the {what}"


def _bounds(effect: Effect) -> str:
    shown = effect.percent or effect.step
    if shown is None or shown.low is None or shown.high is None:
        return ""
    if effect.percent:
        return f" (95 % interval {signed(shown.low)} to {signed(shown.high)} %)"
    low, high = (_amount(effect.measure, bound) for bound in (shown.low, shown.high))
    return f" (95 % interval {low} to {high})"


def effects_html(found: Sequence[Effects]) -> str:
    """The tables of one environment's section; each says its grid where there are several."""
    if not found:
        return ""
    name_grids = len({effects.grid for effects in found}) > 1
    parts = ["<h3>What the thresholds do</h3>"]
    for effects in found:
        named = f"{effects.grid}: " if name_grids else ""
        spans = ", ".join(
            f"{effect.term} {effect.span[0]:g} to {effect.span[1]:g}"
            for effect in effects.effects[:2]
            if np.isfinite(effect.span[0])
        )
        about = "; ".join([f"{named}{effects.part} (n={effects.runs}) {spans}", *effects.notes])
        rows = "".join(map(_row, effects.effects))
        parts.append(
            f"<p>{escape(about)}</p>\n<div class=wide><table class=effects><thead><tr>"
            "<th class=text>measure</th><th class=text>threshold</th><th>step, lowest to highest"
            "</th><th>95 % interval</th><th>rank correlation</th><th class=text>in words</th></tr>"
            f"</thead>\n<tbody>{rows}</tbody></table></div>"
        )
    return "\n".join(parts)


def _row(effect: Effect) -> str:
    step, interval, rank = effect.step, "-", "-"
    if step and step.low is not None and step.high is not None:
        interval = " to ".join(_amount(effect.measure, bound) for bound in (step.low, step.high))
    if np.isfinite(effect.rank):
        rank = f"{effect.rank:+.2f}"
    value = _amount(effect.measure, step.value) if step else "-"
    columns = [effect.measure.name, effect.term, value, interval, rank, words(effect)]
    return f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in columns)}</tr>\n"


def write_effects(found: Sequence[Effects], path: Path) -> None:
    """A row for each measure and term of each grid; no file without a grid."""
    if not found:
        return
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for effects in found:
            about = [effects.env_id, effects.grid, effects.part]
            for effect in effects.effects:
                span = ["" if np.isnan(value) else f"{value:g}" for value in effect.span]
                row = [effect.measure.name, effect.measure.key, effect.term, *span]
                row += [effect.step.n if effect.step else 0]
                row += [*interval(effect.step), *interval(effect.percent)]
                row += [f"{effect.rank:.4f}" if np.isfinite(effect.rank) else "", words(effect)]
                writer.writerow([*about, *row])
