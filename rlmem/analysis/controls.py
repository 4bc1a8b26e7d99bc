"""Settings against named controls: what each gains in return, saves in bytes, costs in time."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain
from pathlib import Path

import numpy as np

from rlmem.analysis.cells import Cell
from rlmem.analysis.csv_files import interval, plain
from rlmem.analysis.statistics import Estimate
from rlmem.analysis.study_table import above, readable

RATIOS = ("memory_bytes_peak", "memory_entries", "cpu_seconds")
MEASURES = ("return", "last_training", "over_run")
HEADER = (
    *("env_id", "label", "control", "n", "n_control"),
    *(f"{name}_difference{end}" for name in MEASURES for end in ("", "_low95", "_high95")),
    *("bytes_ratio", "entries_ratio", "cpu_seconds_ratio"),
)


@dataclass(frozen=True)
class Comparison:
    """A setting against a control of the same environment."""

    cell: Cell
    control: Cell

    @property
    def differences(self) -> list[Estimate | None]:
        """How much higher its mean return is: final, of the last 100 training episodes, over the
        run."""
        pairs = [(cell.returns, cell.last_training, cell.over_run) for cell in self._both]
        return [above(ours, theirs) for ours, theirs in zip(*pairs, strict=True)]

    @property
    def _both(self) -> tuple[Cell, Cell]:
        return self.cell, self.control

    @property
    def ratios(self) -> list[float]:
        """Its bytes, entries and CPU seconds over the control's; NaN where runs lack them."""
        return [self._ratio(name) for name in RATIOS]

    def _ratio(self, name: str) -> float:
        if any(len(cell.values(name)) < len(cell.finished) for cell in self._both):
            return float("nan")
        ours, theirs = (cell.mean(name) for cell in self._both)
        return ours / theirs if theirs else float("nan")


def compare(cells: Sequence[Cell], against: Mapping[str, Sequence[str]]) -> list[Comparison]:
    """Of each environment, the settings that were run against those of their controls that were.

    Args:
        against: label of a setting -> labels of its controls; the order of the lines.
    """
    by_name = {(cell.env_id, cell.label): cell for cell in cells if cell.finished}
    return [
        Comparison(by_name[env_id, label], by_name[env_id, control])
        for env_id in dict.fromkeys(cell.env_id for cell in cells)
        for label, controls in against.items()
        for control in controls
        if (env_id, label) in by_name and (env_id, control) in by_name
    ]


def controls_html(comparisons: Sequence[Comparison]) -> str:
    """The section of the page; nothing without a comparison."""
    if not comparisons:
        return ""
    shown = [f"{name}, above it [95 %]" for name in ("return", "last training", "over the run")]
    heads = ["seeds", *shown, "bytes", "entries", "CPU seconds"]
    head = "".join(f"<th>{name}</th>" for name in heads)
    return (
        "<h2>Against the controls</h2>\n<p>Returns: differences of means, final, of the last 100 "
        "training episodes and over the run. The rest: means over "
        "those of the control; below 1 it takes less. An interval needs two seeds of "
        "both.</p>\n<div class=wide><table class=against><thead><tr><th class=text>environment</th>"
        f"<th class=text>setting</th><th class=text>control</th>{head}</tr></thead>\n"
        f"<tbody>{''.join(map(_row, comparisons))}</tbody></table></div>"
    )


def _row(comparison: Comparison) -> str:
    cell, control = comparison.cell, comparison.control
    columns = [cell.env_id, cell.label, control.label]
    columns += [f"{len(cell.finished)} and {len(control.finished)}"]
    columns += [*map(readable, comparison.differences), *map(_ratio, comparison.ratios)]
    return f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in columns)}</tr>\n"


def _ratio(value: float) -> str:
    """`0.42 (-58 %)`"""
    if not np.isfinite(value):
        return "-"
    return f"{value:,.3g} ({100 * (value - 1):+,.0f} %)"


def write_controls(comparisons: Sequence[Comparison], path: Path) -> None:
    """A row for each setting and control; no file without a comparison."""
    if not comparisons:
        return
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for comparison in comparisons:
            cell, control = comparison.cell, comparison.control
            row = [cell.env_id, cell.label, control.label]
            row += [len(cell.finished), len(control.finished)]
            row += chain.from_iterable(map(interval, comparison.differences))
            writer.writerow([*row, *map(plain, comparison.ratios)])
