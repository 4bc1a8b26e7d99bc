"""The table of a study in Markdown: a section an environment, a line a setting."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rlmem.analysis.cells import Cell
from rlmem.analysis.page import number
from rlmem.analysis.statistics import Estimate, difference_estimate, row_mean
from rlmem.units import readable_bytes, readable_seconds

HEADER = (
    "| setting | seeds | return, mean [95 %] | above its FIFO [95 %] | bytes, peak | insert, us "
    "| sample, us | wall time |"
)


def write_table(
    cells: Sequence[Cell],
    columns: Mapping[str, str],
    labels: Sequence[str],
    fifos: Mapping[str, str],
    path: Path,
) -> None:
    """Write a study's table; what was not run is `missing`.

    Args:
        columns: folder below runs/ -> title of each environment.
        labels: the settings, in the order of the lines.
        fifos: setting -> the one that it is to be held against.
    """
    by_place = {(column_of(cell), cell.label): cell for cell in cells}
    lines = []
    for folder, title in columns.items():
        lines += [f"### {title}", "", HEADER, "|---|" + "---:|" * 7]
        for label in labels:
            fifo = by_place.get((folder, fifos.get(label, "")))
            lines.append(_line(label, by_place.get((folder, label)), fifo))
        lines.append("")
    path.write_text("\n".join(lines))


def column_of(cell: Cell) -> str:
    """Folder of a cell's environment: its runs lie in <column>/<row>/seed<n>."""
    return cell.runs[0].folder.parents[1].name


def _line(label: str, cell: Cell | None, fifo: Cell | None) -> str:
    if cell is None or not cell.finished:
        return f"| {escape(label)} | 0 | missing |  |  |  |  |  |"
    size, seconds = cell.mean("memory_bytes_peak"), cell.mean("wall_seconds")
    parts = [
        escape(label),
        str(len(cell.returns)),
        readable(cell.return_mean),
        readable(above(cell, fifo)) if fifo and len(fifo.returns) else "",
        readable_bytes(size) if np.isfinite(size) else "-",
        number(cell.last("insert_us"), "{:,.1f}"),
        number(cell.last("sample_us"), "{:,.0f}"),
        readable_seconds(seconds) if np.isfinite(seconds) else "-",
    ]
    return f"| {' | '.join(parts)} |"


def above(cell: Cell, other: Cell) -> Estimate | None:
    """How much higher a cell's mean return is than another's."""
    if not len(cell.returns):
        return None
    return difference_estimate([cell.returns], [other.returns], row_mean, widen=True)


def escape(label: str) -> str:
    """A label that leaves a Markdown table whole."""
    return label.replace("|", "\\|")


def readable(estimate: Estimate | None) -> str:
    """`480 [455, 500]`; without bounds where there are none."""
    if estimate is None:
        return "missing"
    if estimate.low is None or estimate.high is None:
        return number(estimate.value)
    return f"{number(estimate.value)} [{number(estimate.low)}, {number(estimate.high)}]"
