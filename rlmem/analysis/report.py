"""A report of runs: tables, figures and one page. Reads the runs' files only."""

import csv
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from rlmem.analysis.cells import THRESHOLDS, Cell, make_cells, make_label
from rlmem.analysis.runs import Collection, collect
from rlmem.analysis.statistics import Estimate
from rlmem.errors import UserError

OURS = "<title>rlmem: "  # in the head of a page
KINDS = ("bytes", "curves", "thresholds", "times", "improvement", "profiles")
NUMBERS = (  # of a run's summary
    "env_steps",
    "eval_return_mean",
    "train_return_mean",
    "human_normalized_score",
    "memory_bytes",
    "memory_bytes_peak",
    "memory_entries",
    "transitions_seen",
    "bytes_per_transition",
    "peak_rss_bytes",
    "env_steps_per_second",
    "wall_seconds",
    "cpu_seconds",
)


@dataclass
class Report:
    """What a report shows.

    Attributes:
        figures: (environment or "", name, SVG text) of each figure, in the order of the page.
    """

    sources: list[str]
    collection: Collection
    cells: list[Cell]
    title: str = ""
    figures: list[tuple[str, str, str]] = field(default_factory=list)


def write_report(
    folders: Sequence[Path],
    out: Path,
    outsiders: Sequence[Path] = (),
    notes: Sequence[str] = (),
    title: str = "",
) -> Report:
    """Compare all runs below some folders and write results.csv, summary.csv, figures, index.html.

    Args:
        folders: of sweeps or runs.
        out: folder that the report is written into; an older report there is replaced.
        outsiders: CSV files of other programs' curves (docs/comparing.md).
        notes: further lines for the reader.
        title: of the page, before what is counted.

    Raises:
        UserError: a folder is missing, nothing there is a run, or matplotlib is missing.
    """
    for key, paths in (("sweep", folders), ("outsiders", outsiders)):
        for path in paths:
            if not path.exists():
                raise UserError(f"{key}={path}: there is no such folder or file")
    page = out / "index.html"
    if page.exists() and OURS not in page.read_text(errors="replace")[:1000]:
        raise UserError(f"out={out}: holds an index.html that is no report; give another folder")
    collection = collect(folders, outsiders)
    collection.notes += notes
    if not collection.runs:
        named = ", ".join(map(str, folders))
        broken = f"; {len(collection.left_out)} could not be read" if collection.left_out else ""
        raise UserError(
            f"sweep={named}: no run there (a run directory has a config.yaml){broken}; give a "
            "folder that train.py wrote, such as sweep=multirun/2026-01-01_12-00-00"
        )
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UserError("mode=report needs matplotlib: pip install 'rlmem[plot]'") from None
    from rlmem.analysis.page import write_page

    sources = [str(path) for path in [*folders, *outsiders]]
    report = Report(sources, collection, make_cells(collection.runs), title)
    _note_uncounted(report)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out) as fresh:
            _write_results(report.cells, Path(fresh) / "results.csv")
            _write_summary(report.cells, Path(fresh) / "summary.csv")
            (Path(fresh) / "figures").mkdir()
            report.figures = draw(report.cells, Path(fresh) / "figures")
            write_page(report, Path(fresh) / "index.html")
            _remove_figures(out / "figures")
            for path in sorted(Path(fresh).rglob("*.*")):
                path.replace(out / path.relative_to(fresh))
    except OSError as error:
        raise UserError(f"out={out}: cannot write there ({error.strerror or error})") from None
    return report


def _remove_figures(folder: Path) -> None:
    """Those of an older report; whatever else lies there stays."""
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if re.fullmatch(rf"({'|'.join(KINDS)})(-.*)?\.(png|svg)", path.name):
            path.unlink()


def _note_uncounted(report: Report) -> None:
    """Finished runs that have no return, and seeds that a cell has more than once."""
    found = report.collection
    for cell in report.cells:
        reason = f"finished, but has no {cell.metric}"
        found.left_out += [
            (str(run.folder), reason)
            for run in cell.finished
            if not np.isfinite(run.number(cell.metric))
        ]
        seeds = [run.seed for run in cell.finished]
        twice = sorted({str(seed) for seed in seeds if seeds.count(seed) > 1})
        if twice:
            found.notes.append(
                f"{cell.env_id}, {cell.label}: seed {', '.join(twice)} more than once"
            )


def _write_results(cells: Sequence[Cell], path: Path) -> None:
    """A row a run."""
    keys = sorted({key for cell in cells for key in cell.setting})
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["env_id", "memory", "label", "seed", "status", *keys, *NUMBERS, "folder"])
        for cell in cells:
            for run in cell.runs:
                row = [cell.env_id, cell.memory, cell.label, run.seed, run.status]
                row += [cell.setting.get(key, "") for key in keys]
                row += [_plain(run.number(name)) for name in NUMBERS]
                writer.writerow([*row, run.folder])


def _plain(value: float) -> str:
    if not np.isfinite(value):
        return ""
    return str(int(value)) if value == int(value) else repr(value)


def interval(estimate: Estimate | None) -> list[str]:
    """Value, low and high as cells of a CSV file; empty where there is none."""
    if estimate is None:
        return ["", "", ""]
    parts = (estimate.value, estimate.low, estimate.high)
    return ["" if part is None else f"{part:.6g}" for part in parts]


def _write_summary(cells: Sequence[Cell], path: Path) -> None:
    """A row a cell."""
    bounds = [
        f"return_{kind}{end}" for kind in ("mean", "iqm") for end in ("", "_low95", "_high95")
    ]
    means = [name for name in NUMBERS if "return" not in name]
    header = ["env_id", "memory", "label", "n", "not_finished", "return_is", *bounds, *means]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*header, "insert_us", "sample_us"])
        for cell in cells:
            writer.writerow(
                [cell.env_id, cell.memory, cell.label, len(cell.returns)]
                + [len(cell.runs) - len(cell.finished), cell.metric if len(cell.returns) else ""]
                + interval(cell.return_mean)
                + interval(cell.return_iqm)
                + [_plain(cell.mean(name)) for name in means]
                + [_plain(cell.last(name)) for name in ("insert_us", "sample_us")]
            )


def draw(cells: Sequence[Cell], folder: Path) -> list[tuple[str, str, str]]:
    """Draw and save all figures that the cells give."""
    from rlmem.analysis import figures

    drawn: list[tuple[str, str, str]] = []

    def keep(env_id: str, name: str, figure: Any) -> None:
        if figure is not None:
            file = re.sub(r"[^\w.-]+", "-", f"{name}-{env_id}".strip("-"))[:80]
            taken = {other for _, other, _ in drawn}
            names = chain([file], (f"{file}-{k}" for k in range(2, len(drawn) + 3)))
            file = next(name for name in names if name not in taken)
            drawn.append((env_id, file, figures.save(figure, folder, file)))

    for env_id in dict.fromkeys(cell.env_id for cell in cells):
        here = [cell for cell in cells if cell.env_id == env_id]
        keep(env_id, "bytes", figures.return_against_bytes(here))
        keep(env_id, "curves", figures.curves(here))
        for label, grid in threshold_grids(here).items():
            keep(env_id, f"thresholds-{label}", figures.heatmaps(grid))
        keep(env_id, "times", figures.times(here))
    by_label: dict[str, dict[str, Cell]] = {}
    scores: dict[str, list[np.ndarray]] = {}
    for cell in cells:
        if len(cell.returns):
            by_label.setdefault(cell.label, {})[cell.env_id] = cell
        if len(normalized := cell.values("human_normalized_score")):
            scores.setdefault(cell.label, []).append(normalized)
    keep("", "improvement", figures.improvement(by_label))
    keep("", "profiles", figures.profiles(scores))
    return drawn


def threshold_grids(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Cells that differ in GWR's thresholds only, by the label that they would have without."""
    grids: dict[str, list[Cell]] = {}
    for cell in cells:
        rest = {key: value for key, value in cell.setting.items() if key not in THRESHOLDS}
        if len(rest) == len(cell.setting) - 2:
            grids.setdefault(make_label(cell.memory, rest), []).append(cell)
    return grids
