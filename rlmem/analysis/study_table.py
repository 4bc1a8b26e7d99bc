"""The table of a study in Markdown: a section an environment, a line a setting."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rlmem.analysis.cells import Cell, any_goals
from rlmem.analysis.statistics import Estimate, difference_estimate, row_mean
from rlmem.units import number, readable_bytes, readable_seconds

ABOVE = {
    "bytes": "above its FIFO [95 %]",
    "entries": "above the FIFO of its entries [95 %]",
}


def write_table(
    cells: Sequence[Cell],
    columns: Mapping[str, tuple[str, Sequence[str]]],
    fifos: Mapping[str, Mapping[str, str]],
    path: Path,
) -> None:
    """Write a study's table; what was not run is `missing`.

    Args:
        columns: folder below runs/ -> title of each environment and its settings, in the order
            of the lines.
        fifos: kind -> setting -> the FIFO that it is to be held against.
    """
    kinds = [kind for kind in ABOVE if kind in fifos]
    goals = any_goals(cells)
    heads = ["setting", "seeds", *(["success [95 %]"] if goals else [])]
    for what, of in (("return, mean [95 %]", ""), ("return over the run [95 %]", "over the run, ")):
        heads += [what, *(of + ABOVE[kind] for kind in kinds)]
    heads += ["env steps", "gradient steps", "bytes, peak", "insert, us", "sample, us", "wall time"]
    by_place = {(column_of(cell), cell.label): cell for cell in cells}
    lines = []
    for folder, (title, labels) in columns.items():
        lines += [f"### {title}", "", f"| {' | '.join(heads)} |"]
        lines.append("|---|" + "---:|" * (len(heads) - 1))
        for label in labels:
            beside = [by_place.get((folder, fifos.get(k, {}).get(label, ""))) for k in kinds]
            lines.append(_line(label, by_place.get((folder, label)), beside, goals))
        lines.append("")
    path.write_text("\n".join(lines))


def column_of(cell: Cell) -> str:
    """Folder of a cell's environment: its runs lie in <column>/<row>/seed<n>."""
    return cell.runs[0].folder.parents[1].name


def _line(label: str, cell: Cell | None, beside: Sequence[Cell | None], goals: bool) -> str:
    if cell is None or not cell.finished:
        return f"| {escape(label)} | 0 | missing |{'  |' * (7 + 2 * len(beside) + goals)}"
    size, seconds = cell.mean("memory_bytes_peak"), cell.mean("wall_seconds")
    parts = [
        escape(label),
        str(len(cell.returns)),
        *([readable(cell.success_mean) if cell.success_mean else "-"] if goals else []),
        readable(cell.return_mean),
        *(_above(cell.returns, fifo.returns) if fifo else "" for fifo in beside),
        readable(cell.over_run_mean),
        *(_above(cell.over_run, fifo.over_run) if fifo else "" for fifo in beside),
        *(number(cell.mean(name), "{:,.0f}") for name in ("env_steps", "grad_steps")),
        readable_bytes(size) if np.isfinite(size) else "-",
        number(cell.mean("insert_us"), "{:,.1f}"),
        number(cell.mean("sample_us"), "{:,.0f}"),
        readable_seconds(seconds) if np.isfinite(seconds) else "-",
    ]
    return f"| {' | '.join(parts)} |"


def _above(ours: np.ndarray, theirs: np.ndarray) -> str:
    found = above(ours, theirs)
    return readable(found) if found else ""


def above(ours: np.ndarray, theirs: np.ndarray) -> Estimate | None:
    """How much higher the mean of one cell's runs [n] is than another's [m]; None without runs."""
    if len(ours) == 0 or len(theirs) == 0:
        return None
    return difference_estimate([ours], [theirs], row_mean, widen=True)


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
