"""A report of runs: tables, figures and one page. Reads the runs' files only."""

import csv
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rlmem.analysis.cells import Cell, make_cells
from rlmem.analysis.runs import Collection, collect
from rlmem.analysis.statistics import Estimate
from rlmem.errors import UserError

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
    figures: list[tuple[str, str, str]] = field(default_factory=list)


def write_report(
    folders: Sequence[Path],
    out: Path,
    outsiders: Sequence[Path] = (),
    notes: Sequence[str] = (),
) -> Report:
    """Compare all runs below some folders and write results.csv, summary.csv, figures, index.html.

    Args:
        folders: of sweeps or runs.
        out: folder that the report is written into; an older report there is replaced.
        outsiders: CSV files of other programs' curves (docs/comparing.md).
        notes: further lines for the reader.

    Raises:
        UserError: a folder is missing, nothing there is a run, or matplotlib is missing.
    """
    for path in [*folders, *outsiders]:
        if not path.exists():
            raise UserError(f"sweep={path}: there is no such folder or file")
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

    report = Report(
        [str(f) for f in [*folders, *outsiders]], collection, make_cells(collection.runs)
    )
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out) as fresh:
            _write_results(report.cells, Path(fresh) / "results.csv")
            _write_summary(report.cells, Path(fresh) / "summary.csv")
            (Path(fresh) / "figures").mkdir()
            report.figures = draw(report.cells, Path(fresh) / "figures")
            write_page(report, Path(fresh) / "index.html")
            shutil.rmtree(out / "figures", ignore_errors=True)
            for path in Path(fresh).iterdir():
                path.replace(out / path.name)
    except OSError as error:
        raise UserError(f"out={out}: cannot write there ({error.strerror or error})") from None
    return report


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
                [cell.env_id, cell.memory, cell.label, len(cell.finished)]
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
            file = "-".join(part for part in (name, env_id.replace("/", "-")) if part)
            drawn.append((env_id, file, figures.save(figure, folder, file)))

    for env_id in dict.fromkeys(cell.env_id for cell in cells):
        here = [cell for cell in cells if cell.env_id == env_id]
        keep(env_id, "bytes", figures.return_against_bytes(here))
        keep(env_id, "curves", figures.curves(here))
        for memory in dict.fromkeys(cell.memory for cell in here):
            maps = figures.heatmaps([cell for cell in here if cell.memory == memory])
            keep(env_id, f"thresholds-{memory}", maps)
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
