"""A report of runs: tables, figures and one page. Reads the runs' files only."""

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from rlmem.analysis.cells import Cell, make_cells
from rlmem.analysis.collection import Collection, collect
from rlmem.analysis.controls import Comparison, compare, write_controls
from rlmem.analysis.csv_files import write_results, write_summary
from rlmem.analysis.effects_table import write_effects
from rlmem.analysis.findings import findings_html
from rlmem.analysis.hypothesis import Regression, regress
from rlmem.analysis.regression_table import write_regression
from rlmem.analysis.runs import RunData
from rlmem.analysis.thresholds import Effects, threshold_effects, threshold_grids
from rlmem.errors import UserError

OURS = "<title>rlmem: "  # in the head of a page
KINDS = ("bytes", "curves", "times", "thresholds", "improvement", "profiles", "regression")
NOT_ALWAYS = ("effects.csv", "controls.csv", "regression.csv")


@dataclass
class Report:
    """What a report shows.

    Attributes:
        figures: (environment or "", name, SVG text) of each figure, in the order of the page.
        findings: HTML that opens the page.
        effects: of the thresholds, for each grid of both.
        comparisons: of settings with their controls.
        regression: of an outcome on two figures, where one was asked for.
    """

    sources: list[str]
    collection: Collection
    cells: list[Cell]
    title: str = ""
    figures: list[tuple[str, str, str]] = field(default_factory=list)
    findings: str = ""
    effects: list[Effects] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    regression: Regression | None = None


def write_report(
    folders: Sequence[Path],
    out: Path,
    outsiders: Sequence[Path] = (),
    recorded: Sequence[RunData] = (),
    notes: Sequence[str] = (),
    title: str = "",
    findings: Path | None = None,
    against: Mapping[str, Sequence[str]] | None = None,
    regression: tuple[str, tuple[str, str]] | None = None,
) -> Report:
    """Compare all runs below some folders and write results.csv, summary.csv, figures, index.html.

    A grid of both thresholds adds effects.csv, controls controls.csv, a regression regression.csv.

    Args:
        folders: of sweeps or runs.
        out: folder that the report is written into; an older report there is replaced.
        outsiders: CSV files of other programs' curves (docs/comparing.md).
        recorded: runs of a study that lie in no folder here.
        notes: further lines for the reader.
        title: of the page, before what is counted.
        findings: Markdown file that opens the page.
        against: label of a setting -> labels of its controls.
        regression: outcome, and the two columns of metrics.csv that it is held against.

    Raises:
        UserError: a folder is missing, nothing there is a run, or a package is missing.
    """
    for key, paths in (("sweep", folders), ("outsiders", outsiders)):
        for path in paths:
            if not path.exists():
                raise UserError(f"{key}={path}: there is no such folder or file")
    page = out / "index.html"
    if page.exists() and OURS not in page.read_text(errors="replace")[:1000]:
        raise UserError(f"out={out}: holds an index.html that is no report; give another folder")
    collection = collect(folders, outsiders, recorded)
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
    sources += [f"{len(recorded)} recorded runs"] if recorded else []
    report = Report(sources, collection, make_cells(collection.runs), title)
    report.findings = findings_html(findings) if findings else ""
    report.effects = _effects(report.cells)
    report.comparisons = compare(report.cells, against or {})
    report.regression = regress(report.cells, *regression) if regression else None
    _note_uncounted(report)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out) as fresh:
            write_results(report.cells, Path(fresh) / "results.csv")
            write_summary(report.cells, Path(fresh) / "summary.csv")
            write_effects(report.effects, Path(fresh) / "effects.csv")
            write_controls(report.comparisons, Path(fresh) / "controls.csv")
            write_regression(report.regression, Path(fresh) / "regression.csv")
            (Path(fresh) / "figures").mkdir()
            report.figures = draw(report.cells, Path(fresh) / "figures", report.regression)
            write_page(report, Path(fresh) / "index.html")
            if page.exists():  # they are of the older report
                for name in NOT_ALWAYS:
                    (out / name).unlink(missing_ok=True)
            _remove_figures(out / "figures")
            for path in sorted(Path(fresh).rglob("*.*")):
                path.replace(out / path.relative_to(fresh))
    except OSError as error:
        raise UserError(f"out={out}: cannot write there ({error.strerror or error})") from None
    return report


def _effects(cells: Sequence[Cell]) -> list[Effects]:
    """Those of all grids of all environments."""
    return [
        effects
        for env_id in dict.fromkeys(cell.env_id for cell in cells)
        for label, grid in threshold_grids([c for c in cells if c.env_id == env_id]).items()
        for effects in threshold_effects(env_id, label, grid)
    ]


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


def draw(
    cells: Sequence[Cell], folder: Path, regression: Regression | None = None
) -> list[tuple[str, str, str]]:
    """Draw and save all figures that the cells give."""
    from rlmem.analysis import figures
    from rlmem.analysis.heatmaps import heatmaps
    from rlmem.analysis.scatter import scatter

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
        keep(env_id, "times", figures.times(here))
        for label, grid in threshold_grids(here).items():
            keep(env_id, f"thresholds-{label}", heatmaps(grid))
    by_label: dict[str, dict[str, Cell]] = {}
    scores: dict[str, list[np.ndarray]] = {}
    for cell in cells:
        if len(cell.returns):
            by_label.setdefault(cell.label, {})[cell.env_id] = cell
        if len(normalized := cell.values("human_normalized_score")):
            scores.setdefault(cell.label, []).append(normalized)
    keep("", "improvement", figures.improvement(by_label))
    keep("", "profiles", figures.profiles(scores))
    keep("", "regression", scatter(regression))
    return drawn
