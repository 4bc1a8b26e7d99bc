"""Settings against named controls: what each gains in return, saves in bytes, costs in time."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from rlmem.analysis.cells import Cell
from rlmem.analysis.csv_files import interval, plain
from rlmem.analysis.statistics import Estimate
from rlmem.analysis.study_table import above, readable

RATIOS = ("memory_bytes_peak", "memory_entries", "cpu_seconds")
HEADER = (
    *("env_id", "label", "control", "n", "n_control"),
    *("return_difference", "return_difference_low95", "return_difference_high95"),
    *("over_run_difference", "over_run_difference_low95", "over_run_difference_high95"),
    *("bytes_ratio", "entries_ratio", "cpu_seconds_ratio"),
)


@dataclass(frozen=True)
class Comparison:
    """A setting against a control of the same environment."""

    cell: Cell
    control: Cell

    @property
    def difference(self) -> Estimate | None:
        """How much higher its mean return is."""
        return above(self.cell.returns, self.control.returns)

    @property
    def over_run(self) -> Estimate | None:
        """How much higher its mean return over the run is."""
        return above(self.cell.over_run, self.control.over_run)

    @property
    def ratios(self) -> list[float]:
        """Its bytes, entries and CPU seconds over the control's; NaN where runs lack them."""
        return [self._ratio(name) for name in RATIOS]

    def _ratio(self, name: str) -> float:
        both = self.cell, self.control
        if any(len(cell.values(name)) < len(cell.finished) for cell in both):
            return float("nan")
        ours, theirs = (cell.mean(name) for cell in both)
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
    heads = ["return, above it [95 %]", "over the run, above it [95 %]", "bytes", "entries"]
    head = "".join(f"<th>{name}</th>" for name in ["seeds", *heads, "CPU seconds"])
    return (
        "<h2>Against the controls</h2>\n<p>Returns: differences of means. The rest: means over "
        "those of the control; below 1 it takes less. An interval needs two seeds of "
        "both.</p>\n<div class=wide><table class=against><thead><tr><th class=text>environment</th>"
        f"<th class=text>setting</th><th class=text>control</th>{head}</tr></thead>\n"
        f"<tbody>{''.join(map(_row, comparisons))}</tbody></table></div>"
    )


def _row(comparison: Comparison) -> str:
    cell, control = comparison.cell, comparison.control
    columns = [cell.env_id, cell.label, control.label]
    columns += [f"{len(cell.finished)} and {len(control.finished)}"]
    columns += [readable(comparison.difference), readable(comparison.over_run)]
    columns += [*map(_ratio, comparison.ratios)]
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
            ratios = [plain(ratio) for ratio in comparison.ratios]
            row += [*interval(comparison.difference), *interval(comparison.over_run)]
            writer.writerow([*row, *ratios])
