"""A report of runs: tables, figures and one page. Reads the runs' files only."""

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd

from rlmem.analysis.compare.baselines import Comparison, compare
from rlmem.analysis.compare.names import mixed
from rlmem.analysis.compare.settings import FEW_SEEDS, Setting, make_settings
from rlmem.analysis.compare.thresholds import Effects, threshold_effects, threshold_grids
from rlmem.analysis.read.collection import Collection, collect
from rlmem.analysis.read.curves import OVER_RUN
from rlmem.analysis.read.runs import Run
from rlmem.analysis.show.drawings import Drawing, draw
from rlmem.analysis.show.effects import effects_table
from rlmem.analysis.show.page import write_report_page
from rlmem.analysis.show.section import Section
from rlmem.analysis.show.tables import (
    baselines_table,
    readable_difference,
    results_table,
    summary_table,
)
from rlmem.errors import UserError
from rlmem.run_files import MOST_TABLE, plain_cells, read_bytes

OURS = "<title>rlmem: "  # in the head of a page
FRESH = ".rlmem-report-"  # begins the name of the folder that a report is written in first
# What a page links to beside itself: its own tables and figures.
OWN_FILE = re.compile(r'href="((?:figures/[\w.=-]+\.(?:png|svg))|[\w-]+\.csv)"')


@dataclass
class Report:
    """What a report shows.

    Attributes:
        figures: in the order of the page.
        findings: Markdown file that opens the page.
        baselines: labels that figures show in colour.
        highlight: labels that alone have colour.
        effects: of the thresholds, for each grid of both.
        sections: above the environments.
        tables: name -> content of NAME.csv.
    """

    sources: list[str]
    collection: Collection
    settings: list[Setting]
    title: str = ""
    figures: list[Drawing] = field(default_factory=list)
    findings: Path | None = None
    baselines: Sequence[str] = ()
    highlight: Sequence[str] = ()
    effects: list[Effects] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyPage:
    """What a study asks of its page.

    Attributes:
        title: before what is counted.
        findings: Markdown file that opens the page.
        highlight: labels of the settings that its figures show in colour; none: as in any report.
        notes: further lines for the reader.
        fitted: label -> key whose value is each seed's own, so that its runs are one setting.
        recorded: runs that lie in no folder here.
        columns: folder -> title; where two have one environment, they stand apart.
        asked: run directories that count; None: all that are there.
        against: label of a setting -> labels of its baselines.
        more: a section of the study's own, made of the settings.
    """

    title: str = ""
    findings: Path | None = None
    highlight: Sequence[str] = ()
    notes: Sequence[str] = ()
    fitted: Mapping[str, str] = field(default_factory=dict)
    recorded: Sequence[Run] = ()
    columns: Mapping[str, str] | None = None
    asked: Container[Path] | None = None
    against: Mapping[str, Sequence[str]] = field(default_factory=dict)
    more: Callable[[Sequence[Setting]], Section] | None = None


def write_report(
    folders: Sequence[Path],
    out: Path,
    external: Sequence[Path] = (),
    study: StudyPage = StudyPage(),
) -> Report:
    """Compare all runs below some folders and write results.csv, summary.csv, figures, index.html.

    A grid of both thresholds adds effects.csv, baselines add baselines.csv.

    Args:
        folders: of sweeps or runs.
        out: folder that the report is written into; an older report there is replaced.
        external: CSV files of other programs' curves (docs/comparing.md).
        study: that the runs are of.

    Raises:
        UserError: a folder is missing, nothing there is a run, or a package is missing.
    """
    for key, paths in (("sweep", folders), ("external", external)):
        for path in paths:
            if not path.exists():
                raise UserError(f"{key}={path}: there is no such folder or file")
    _check_own(out)
    collection = collect(folders, external, study.recorded, study.columns, study.asked)
    collection.notes += study.notes
    if not collection.runs:
        broken = ""
        if collection.left_out:
            (path, why), *others = collection.left_out
            broken = f"; {path}: {why}" + (f" (and {len(others)} more)" if others else "")
        if not folders:
            raise UserError(f"external={_named(external)}: no curve there{broken}")
        raise UserError(
            f"sweep={_named(folders)}: no run there (a run directory has a config.yaml){broken}; "
            "give a folder that train.py wrote, such as sweep=multirun/2026-01-01_12-00-00"
        )
    sources = [str(path) for path in [*folders, *external]]
    sources += [f"{len(study.recorded)} recorded runs"] if study.recorded else []
    settings = make_settings(collection.runs)
    report = Report(sources, collection, settings, study.title, effects=_effects(settings))
    report.findings, report.highlight = study.findings, study.highlight
    report.baselines = list(dict.fromkeys(chain.from_iterable(study.against.values())))
    report.sections = _sections(settings, study.against, study.more)
    report.tables = {"results": results_table(settings), "summary": summary_table(settings)}
    if report.effects:
        report.tables["effects"] = effects_table(report.effects)
    for section in report.sections:
        report.tables |= section.files
    _note_uncounted(report, study.fitted)
    try:
        _write(report, out)
    except OSError as error:
        raise UserError(f"out={out}: cannot write there ({error.strerror or error})") from None
    return report


def _check_own(out: Path) -> None:
    """Refuse to write over what is no report, or into a folder that a link leads to.

    Raises:
        UserError: see above.
    """
    if (out / "figures").is_symlink():
        raise UserError(f"out={out}: its figures/ is a link; remove it, or give another folder")
    if os.path.lexists(out / "index.html") and OURS not in _older_page(out)[:1000]:
        raise UserError(f"out={out}: holds an index.html that is no report; give another folder")


def _named(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths))


def default_out(folder: Path) -> Path:
    """Where a report of a folder goes that nobody named: report/ in it.

    Raises:
        UserError: a link stands there, which a stranger may have made.
    """
    out = folder / "report"
    if out.is_symlink():
        raise UserError(f"{out} is a link; name the folder that the report goes to: out=...")
    return out


def _write(report: Report, out: Path) -> None:
    """Write all files beside an older report's, and then put them in the place of those."""
    out.mkdir(parents=True, exist_ok=True)
    for left in out.glob(f"{FRESH}*"):  # by a report that was killed, not one that is made now
        if not left.is_symlink() and time.time() - left.stat().st_mtime > 3600:
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=FRESH) as folder:
        fresh = Path(folder)
        (fresh / "figures").mkdir()
        for name, table in report.tables.items():
            path = fresh / f"{name}.csv"  # names of folders may be no Unicode
            plain_cells(table).to_csv(path, index=False, errors="backslashreplace")
        report.figures = draw(
            report.settings,
            report.sections,
            fresh / "figures",
            marked=report.baselines,
            highlight=report.highlight,
        )
        write_report_page(report, fresh / "index.html")
        if not (out / "index.html").exists():  # what lies there is of no report
            names = sorted(path.relative_to(fresh) for path in fresh.rglob("*.*"))
            if taken := [str(name) for name in names if os.path.lexists(out / name)]:
                raise UserError(
                    f"out={out}: holds a {taken[0]} that is of no report; give another folder"
                )
        remove_report(out)
        (out / "figures").mkdir(exist_ok=True)
        for path in sorted(fresh.rglob("*.*")):
            path.replace(out / path.relative_to(fresh))


def remove_report(out: Path) -> None:
    """Remove an older report's files; whatever else lies there stays."""
    for name in set(OWN_FILE.findall(_older_page(out))):
        (out / name).unlink(missing_ok=True)


def _older_page(out: Path) -> str:
    """The index.html of a folder that a stranger may have made; "" where it is none to be read."""
    try:
        return read_bytes(out / "index.html", MOST_TABLE).decode(errors="replace")
    except (OSError, ValueError):
        return ""


def _effects(settings: Sequence[Setting]) -> list[Effects]:
    """Those of all grids of all environments."""
    return [
        effects
        for env_id in dict.fromkeys(setting.env_id for setting in settings)
        for label, grid in threshold_grids([s for s in settings if s.env_id == env_id]).items()
        for effects in threshold_effects(env_id, label, grid)
    ]


def _sections(
    settings: Sequence[Setting],
    against: Mapping[str, Sequence[str]],
    more: Callable[[Sequence[Setting]], Section] | None,
) -> list[Section]:
    comparisons = compare(settings, against)
    sections = [_baselines(comparisons)] if comparisons else []
    return [*sections, more(settings)] if more else sections


def _baselines(comparisons: Sequence[Comparison]) -> Section:
    """What each setting gains and costs against its baselines."""
    rows = []
    for compared in comparisons:
        setting, baseline = compared.setting, compared.baseline
        row = {"environment": setting.env_id, "setting": setting.label, "baseline": baseline.label}
        counts = len(setting.finished), len(baseline.finished)
        row["seeds"] = f"{counts[0]}, paired" if compared.paired else f"{counts[0]} and {counts[1]}"
        heads = ("return", "last training", "over the run")
        for head, found in zip(heads, compared.differences.values(), strict=True):
            row[f"{head}, minus the baseline's [95 %]"] = readable_difference(found)
        heads = ("bytes", "entries", "CPU seconds")
        row |= dict(zip(heads, map(_ratio, compared.ratios.values()), strict=True))
        rows.append(row)
    text = (
        "Returns: differences of means, final, of the last 100 training episodes and over the run. "
        "Paired: both have the same seeds, and mean and interval are of the differences by seed, "
        "of those that have the number in both; "
        f"otherwise of two independent samples. Below {FEW_SEEDS} seeds the differences by seed "
        "stand in brackets, and there is no interval. Bytes, entries and CPU seconds are divided "
        "by the baseline's; below 1 the setting takes less."
    )
    words = ("environment", "setting", "baseline")
    files = {"baselines": baselines_table(comparisons)}
    return Section("Against the baselines", text, pd.DataFrame(rows), words, files=files)


def _ratio(value: float) -> str:
    """`0.42 (-58 %)`"""
    if not np.isfinite(value):
        return "-"
    return f"{value:,.3g} ({100 * (value - 1):+,.0f} %)"


def _note_uncounted(report: Report, fitted: Mapping[str, str]) -> None:
    """Finished runs that have no return, or none over the run, seeds that a setting has more than
    once, and runs of one label that differ."""
    found = report.collection
    for setting in report.settings:
        ended = len(setting.finished)
        figures = (
            (setting.metric, f"a final return ({setting.metric})"),
            (OVER_RUN, "a return over the run"),
            ("memory_bytes_peak", "the memory's bytes (memory_bytes_peak)"),
        )
        for name, said in figures:
            known = len(setting.values(name))
            if known < ended and (known or name == setting.metric):
                lacks = [run.seed for run in setting.finished if not np.isfinite(run.number(name))]
                found.notes.append(
                    f"{setting.env_id}, {setting.label}: {known} of {ended} runs have {said}; not "
                    f"seed {', '.join(map(str, sorted(lacks)))}"
                )
        seeds = [run.seed for run in setting.finished]
        twice = sorted({str(seed) for seed in seeds if seeds.count(seed) > 1})
        if twice:
            found.notes.append(
                f"{setting.env_id}, {setting.label}: seed {', '.join(twice)} more than once"
            )
        differ = mixed(setting.finished)
        differ.pop(fitted.get(setting.label, ""), None)
        if differ:
            keys = "; ".join(f"{key}: {', '.join(values)}" for key, values in differ.items())
            found.notes.append(f"{setting.env_id}, {setting.label}: its runs differ in {keys}")
