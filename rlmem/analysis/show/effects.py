"""What the thresholds do: in words, on the page, and as effects.csv."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rlmem.analysis.compare.statistics import Estimate
from rlmem.analysis.compare.thresholds import TERMS, Effect, Effects, Measure
from rlmem.analysis.show.section import Section
from rlmem.analysis.show.tables import interval
from rlmem.units import signed


def _amount(measure: Measure, value: float) -> str:
    return measure.text(value) if measure.text else signed(value)


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
        return f"{_unclear(step, 'interaction')}: {change}"
    low, high = effect.span
    amount = f"{signed(effect.percent.value)} %" if effect.percent else _amount(measure, step.value)
    if not measure.text:
        amount += f" {measure.name}"
    change = f"{amount} from {low:g} to {high:g}{_bounds(effect)}"
    if not effect.shown:
        return f"{_unclear(step, f'effect of {term}')}: {change}"
    return f"a higher {term} {measure.more if step.value > 0 else measure.less}: {change}"


def _unclear(step: Estimate, what: str) -> str:
    return f"no clear {what}" if step.low is not None else f"no interval for the {what}"


def _bounds(effect: Effect) -> str:
    shown = effect.percent or effect.step
    if shown is None or shown.low is None or shown.high is None:
        return ""
    if effect.percent:
        return f" (95 % interval {signed(shown.low)} to {signed(shown.high)} %)"
    low, high = (_amount(effect.measure, bound) for bound in (shown.low, shown.high))
    return f" (95 % interval {low} to {high})"


def effect_sections(found: Sequence[Effects]) -> list[Section]:
    """Those of one environment; each says its grid where there are several."""
    name_grids = len({effects.grid for effects in found}) > 1
    sections = []
    for effects in found:
        named = f"{effects.grid}: " if name_grids else ""
        spans = ", ".join(
            f"{effect.term} {effect.span[0]:g} to {effect.span[1]:g}"
            for effect in effects.effects[:2]
            if np.isfinite(effect.span[0])
        )
        about = "; ".join([f"{named}{effects.part} (n={effects.runs}) {spans}", *effects.notes])
        table = pd.DataFrame([_row(effect) for effect in effects.effects])
        title = "" if sections else "What the thresholds do"
        sections.append(Section(title, about, table, ("measure", "threshold", "in words")))
    return sections


def _row(effect: Effect) -> dict[str, str]:
    step, bounds = effect.step, "-"
    if step and step.low is not None and step.high is not None:
        bounds = " to ".join(_amount(effect.measure, bound) for bound in (step.low, step.high))
    return {
        "measure": effect.measure.name,
        "threshold": effect.term,
        "step, lowest to highest": _amount(effect.measure, step.value) if step else "-",
        "95 % interval": bounds,
        "rank correlation": f"{effect.rank:+.2f}" if np.isfinite(effect.rank) else "-",
        "in words": words(effect),
    }


def effects_table(found: Sequence[Effects]) -> pd.DataFrame:
    """A row for each measure and term of each grid."""
    rows = [
        {
            "env_id": effects.env_id,
            "grid": effects.grid,
            "part": effects.part,
            "measure": effect.measure.name,
            "measure_is": effect.measure.key,
            "term": effect.term,
            "lowest": "" if np.isnan(effect.span[0]) else f"{effect.span[0]:g}",
            "highest": "" if np.isnan(effect.span[1]) else f"{effect.span[1]:g}",
            "n": effect.step.n if effect.step else 0,
            **interval("effect", effect.step),
            **interval("percent", effect.percent),
            "spearman": f"{effect.rank:.4f}" if np.isfinite(effect.rank) else "",
            "in_words": words(effect),
        }
        for effects in found
        for effect in effects.effects
    ]
    return pd.DataFrame(rows, dtype=object)
