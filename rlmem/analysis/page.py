"""The page of a report: one HTML file that needs nothing else."""

import re
import shlex
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlmem.analysis.cells import Cell, any_goals
from rlmem.analysis.controls import controls_html
from rlmem.analysis.effects_table import effects_html
from rlmem.analysis.regression_table import regression_html
from rlmem.analysis.statistics import Estimate
from rlmem.units import number, readable_bytes, readable_seconds

if TYPE_CHECKING:
    from rlmem.analysis.report import Report

TITLES = {
    "bytes": "Return against bytes",
    "curves": "Learning curves and bytes held",
    "thresholds": "The two thresholds",
    "times": "Time of the memory",
    "improvement": "Probability of improvement, over all environments that two settings share",
    "profiles": "Performance profiles",
    "regression": "Each run's result over its minibatches' figures",
}
NO_OVERRIDE = ("seed=", "hydra", "paths.", "resume=", "hparams_search=", "objective")
NEWLINE = "\n"
MOST_LISTED = 200  # of what was left out


def write_page(report: "Report", path: Path) -> None:
    """Write index.html."""
    cells, runs = report.cells, report.collection.runs
    environments = list(dict.fromkeys(cell.env_id for cell in cells))
    finished = sum(len(cell.finished) for cell in cells)
    title = (
        f"{finished} runs of {len(cells)} settings on {_several(len(environments), 'environment')}"
    )
    unfinished = len(runs) - finished
    if unfinished:
        title += f" ({unfinished} not finished)"
    if report.title:
        title = f"{escape(report.title)}: {title}"
    body = [
        f"<h1>{title}</h1>",
        f"<p class=from>{escape(', '.join(report.sources))}</p>",
        report.findings,
        _remarks(report),
        _table(cells, environments),
        controls_html(report.comparisons),
        _regression(report),
        *(_environment(report, env_id) for env_id in environments),
        _across(report),
        "<h2>Settings</h2>",
        *(_details(cell) for cell in cells),
    ]
    path.write_text(document(title, body), encoding="utf-8")


def document(title: str, body: Sequence[str]) -> str:
    """A page of this title and these parts, all HTML, that needs nothing else."""
    ours = files("rlmem.analysis")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>rlmem: {title}</title>\n<link rel="icon" href="data:,">\n'
        f"<style>\n{(ours / 'page.css').read_text()}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + f"\n</main>\n<script>\n{(ours / 'page.js').read_text()}</script>\n</body>\n</html>\n"
    )


def _several(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _remarks(report: "Report") -> str:
    """What the reader should know before the figures."""
    parts = [f"<li>{escape(note)}</li>" for note in report.collection.notes]
    seeds = sorted({len(cell.returns) for cell in report.cells if len(cell.returns)})
    if seeds and seeds[0] < 5:
        fewest = _several(seeds[0], "seed")
        more = "no interval is drawn there" if seeds[0] == 1 else "read the intervals with care"
        parts.append(f"<li>some settings have {fewest} only: {more}</li>")
    left = report.collection.left_out
    if left:
        rows = "".join(
            f"<li><code>{escape(path)}</code>: {escape(reason)}</li>"
            for path, reason in left[:MOST_LISTED]
        )
        more = f"<li>and {len(left) - MOST_LISTED} more</li>" if len(left) > MOST_LISTED else ""
        parts.append(
            f"<li><details><summary>{_several(len(left), 'run')} left out of the means"
            f"</summary><ul>{rows}{more}</ul></details></li>"
        )
    return f"<ul class=remarks>{''.join(parts)}</ul>" if parts else ""


def _table(cells: Sequence[Cell], environments: Sequence[str]) -> str:
    options = "".join(f"<option>{escape(name)}</option>" for name in environments)
    choose = f"<select id=environment><option value=''>all environments</option>{options}</select>"
    goals = any_goals(cells)
    heads = [
        ("environment", "text"), ("setting", "text"), ("seeds", ""),
        *([("success [95 %]", "")] if goals else []), ("return, mean [95 %]", ""),
        ("IQM [95 %]", ""), ("return over the run [95 %]", ""), ("env steps", ""),
        ("gradient steps", ""), ("bytes, peak", ""),
        ("entries", ""), ("bytes / transition", ""), ("insert, us", ""), ("sample, us", ""),
        ("steps / s", ""), ("wall time", ""),
    ]  # fmt: skip
    head = "".join(
        f'<th class="{kind}"><button type=button>{escape(name)}</button></th>'
        for name, kind in heads
    )
    rows = "".join(_row(cell, goals) for cell in cells)
    return (
        "<h2>All settings</h2>\n<div class=controls><input id=filter type=search "
        f'placeholder="filter, such as gwr 0.9" aria-label="filter settings"> {choose} '
        "<output id=count></output></div>\n<div class=wide><table id=cells>"
        f"<thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>"
    )


def _row(cell: Cell, goals: bool) -> str:
    total, done = len(cell.runs), len(cell.returns)
    size, seconds = cell.mean("memory_bytes_peak"), cell.mean("wall_seconds")
    columns: list[tuple[Any, str]] = [
        (done, str(done) if done == total else f"{done} of {total}"),
        *([_estimate(cell.success_mean, none="-")] if goals else []),
        _estimate(cell.return_mean),
        _estimate(cell.return_iqm),
        _estimate(cell.over_run_mean),
        *_numbers(cell.mean("env_steps"), "{:,.0f}"),
        *_numbers(cell.mean("grad_steps"), "{:,.0f}"),
        (size, readable_bytes(size) if np.isfinite(size) else "-"),
        *_numbers(cell.mean("memory_entries"), "{:,.0f}"),
        *_numbers(cell.mean("bytes_per_transition"), "{:,.0f}"),
        *_numbers(cell.mean("insert_us"), "{:,.1f}"),
        *_numbers(cell.mean("sample_us"), "{:,.0f}"),
        *_numbers(cell.mean("env_steps_per_second"), "{:,.0f}"),
        (seconds, readable_seconds(seconds) if np.isfinite(seconds) else "-"),
    ]
    cells = "".join(
        f'<td data-value="{value if np.isfinite(value) else ""}">{text}</td>'
        for value, text in columns
    )
    link = (
        f"<i style='background:{cell.colour}'></i> "
        f"<a href='#cell-{cell.number}'>{escape(cell.label)}</a>"
    )
    return (
        f'<tr data-cell="{cell.number}" data-env="{escape(cell.env_id)}">'
        f"<td>{escape(cell.env_id)}</td><td>{link}</td>{cells}</tr>\n"
    )


def _numbers(value: float, form: str) -> list[tuple[float, str]]:
    return [(value, number(value, form))]


def _estimate(estimate: Estimate | None, none: str = "missing") -> tuple[float, str]:
    if estimate is None:
        return float("nan"), none
    if estimate.low is None or estimate.high is None:
        return estimate.value, number(estimate.value)
    bounds = f"[{number(estimate.low)}, {number(estimate.high)}]"
    return estimate.value, f"{number(estimate.value)} <small>{bounds}</small>"


def _environment(report: "Report", env_id: str) -> str:
    shown = [_figure(name, svg) for env, name, svg in report.figures if env == env_id]
    shown.append(effects_html([effects for effects in report.effects if effects.env_id == env_id]))
    return (
        f'<section data-env="{escape(env_id)}"><h2>{escape(env_id)}</h2>{"".join(shown)}</section>'
    )


def _across(report: "Report") -> str:
    figures = [(name, svg) for env, name, svg in report.figures if not env and name != "regression"]
    shown = [_figure(name, svg) for name, svg in figures]
    return f"<section><h2>Over all environments</h2>{''.join(shown)}</section>" if shown else ""


def _regression(report: "Report") -> str:
    drawn = [_figure(name, svg) for _, name, svg in report.figures if name == "regression"]
    return regression_html(report.regression) + "".join(drawn)


def _figure(name: str, svg: str) -> str:
    kind = name.split("-")[0]
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    # Ids of several drawings in one page: each gets its figure's name.
    svg = re.sub(r'\bid="(?:c(\d+)-)?', lambda m: _identity(name, m[1]), svg)
    svg = re.sub(r'(url\(#|href="#)', lambda m: f"{m[1]}{name}-", svg)
    return (
        f'<figure id="{name}"><figcaption>{TITLES[kind]} '
        f'<a href="figures/{name}.png">PNG</a> <a href="figures/{name}.svg">SVG</a></figcaption>'
        f"{svg}</figure>"
    )


def _identity(name: str, cell: str | None) -> str:
    return f'id="{name}-' if cell is None else f'data-cell="{cell}" id="{name}-c{cell}-'


def commands(cell: Cell) -> list[str]:
    """The commands that make the cell's runs, one for each set of overrides."""
    seeds: dict[tuple[str, ...], list[int]] = {}
    for run in cell.runs:
        overrides = tuple(o for o in run.overrides if not o.startswith(NO_OVERRIDE))
        seeds.setdefault(overrides, []).append(run.seed)
    lines = []
    for overrides, numbers in seeds.items():
        chosen = ",".join(map(str, dict.fromkeys(numbers)))
        sweep = ["-m"] if "," in chosen else []
        lines.append(shlex.join(["python", "train.py", *sweep, *overrides, f"seed={chosen}"]))
    return lines


def _details(cell: Cell) -> str:
    lines = []
    if cell.runs[0].outsider is None:
        lines.append(f"<pre>{escape(NEWLINE.join(commands(cell)))}</pre>")
    if cell.setting:
        rows = "".join(
            f"<tr><td><code>{escape(key)}</code></td><td>{escape(str(value))}</td></tr>"
            for key, value in cell.setting.items()
        )
        lines.append(f"<table>{rows}</table>")
    versions = sorted({_versions(run.summary) for run in cell.runs if run.summary} - {""})
    lines += [f"<p>{escape(text)}</p>" for text in versions]
    runs = "".join(
        f"<li>seed {run.seed}: {escape(run.status)}, {number(run.number(cell.metric))} "
        f"<code>{escape(str(run.folder))}</code></li>"
        for run in cell.runs
    )
    return (
        f'<details id="cell-{cell.number}" data-cell="{cell.number}" '
        f'data-env="{escape(cell.env_id)}"><summary>{escape(cell.env_id)}: '
        f"{escape(cell.label)}</summary>{''.join(lines)}<ul>{runs}</ul></details>"
    )


def _versions(summary: dict[str, Any]) -> str:
    versions = summary.get("versions")
    if not isinstance(versions, dict):
        return ""
    commit = str(summary.get("git_commit") or "")
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    return named + (
        f", commit {commit[:9]}{'-dirty' if 'dirty' in commit else ''}" if commit else ""
    )
