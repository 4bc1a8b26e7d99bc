"""Pages: one HTML file each that needs nothing else, made of Jinja templates."""

import shlex
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rlmem.analysis.compare.settings import FEW_SEEDS, Setting, any_goals
from rlmem.analysis.show.drawings import Drawing, captioned
from rlmem.analysis.show.effects import effect_sections
from rlmem.analysis.show.findings import Findings, read_findings
from rlmem.analysis.show.section import Section
from rlmem.analysis.show.sentences import finding, how_sure
from rlmem.analysis.show.tables import columns_of
from rlmem.units import number, several

if TYPE_CHECKING:
    from rlmem.analysis.show.report import Report

MOST_BYTES = 490_000  # of a page; drawings that do not fit are linked to
MOST_ROWS = 300  # settings in the table of a page
MOST_NAMED = 1000  # runs of a page that names each
MOST_WITH_RUNS = 100  # settings of such a page
NO_OVERRIDE = ("seed=", "hydra", "paths.", "resume=", "hparams_search=", "objective")


def _linked(figures: Sequence[Drawing], first: Drawing | None, room: int) -> set[str]:
    """Names of the figures that the page links to, so that it stays small.

    The first one, those that the environments' panels begin with, and their other views come
    before all others.

    Args:
        room: bytes for drawings.
    """
    begins = {drawn.env_id: drawn for drawn in reversed(figures) if drawn.view}
    linked = set()
    for drawn in sorted(
        figures,
        key=lambda each: (each != first, each != begins.get(each.env_id), not each.view),
    ):
        taken = len(drawn.svg.encode())
        if taken > room:
            linked.add(drawn.name)
        else:
            room -= taken
    return linked


def _render(template: str, figures: Sequence[Drawing], first: Drawing | None, **values: Any) -> str:
    """A page with as many of its drawings as there is room for beside all else."""
    values |= {"figures": figures, "first": first}
    bare = _fill(template, linked={drawn.name for drawn in figures}, **values)
    room = MOST_BYTES - len(bare.encode())
    return _fill(template, linked=_linked(figures, first, room), **values)


def _fill(template: str, **values: Any) -> str:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=lambda name: name is not None and name.endswith(".j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)


def write_page(
    path: Path,
    title: str,
    findings: Path,
    sections: Sequence[Section],
    figures: Sequence[Drawing],
) -> None:
    """Write a page of findings and sections, such as that of a study with code of its own.

    Args:
        findings: Markdown file whose first paragraph is the head of the page.
    """
    found = read_findings(findings, [drawn.name for drawn in figures])
    first, figures = _headed(found, figures)
    page = _render(
        "page.html.j2",
        figures,
        first,
        title=title,
        findings=found,
        sections=sections,
    )
    path.write_text(page, encoding="utf-8")


def _headed(
    findings: Findings, figures: Sequence[Drawing]
) -> tuple[Drawing | None, Sequence[Drawing]]:
    """The figure below the finding, the one that is named there or the page's first, and all."""
    named = [drawn for drawn in figures if drawn.name == findings.picture]
    if not named:
        return (figures[0] if figures and not findings.shown else None), figures
    first = captioned(named[0], findings.words) if findings.words else named[0]
    return first, [first if drawn is named[0] else drawn for drawn in figures]


def write_report_page(report: "Report", path: Path) -> None:
    """Write a report's index.html."""
    settings, goals = report.settings, any_goals(report.settings)
    environments = list(dict.fromkeys(setting.env_id for setting in settings))
    here = {env_id: [s for s in settings if s.env_id == env_id] for env_id in environments}
    own = {name for section in report.sections for name in section.figures}
    files = [drawn.name for drawn in report.figures]
    found = read_findings(report.findings, files) if report.findings else Findings()
    first, figures = _headed(found, report.figures)
    rest = [drawn for drawn in figures if drawn != first]
    head = first.env_id if first and first.view else ""
    of_head = here[head or environments[0]]
    claim = found.claim or finding(of_head)
    page = _render(
        "report.html.j2",
        figures,
        first,
        title=_title(report, len(environments)),
        report=report,
        findings=found,
        claim=claim,
        sure="" if found.claim else how_sure(of_head),
        head=head,
        captions={env_id: finding(part) for env_id, part in here.items()},
        views={
            env_id: [d for d in figures if d.env_id == env_id and d.view]
            for env_id in sorted(environments, key=lambda each: len(here[each]) == 1)
        },
        notes=[*report.collection.notes, *_few_seeds(settings)],
        left_out=report.collection.left_out,
        environments=environments,
        rows=[(setting, columns_of(setting, goals)) for setting in _in_table(here)],
        naming_runs=len(settings) <= MOST_WITH_RUNS
        and sum(len(setting.runs) for setting in settings) <= MOST_NAMED,
        effects={
            env_id: effect_sections([e for e in report.effects if e.env_id == env_id])
            for env_id in environments
        },
        rest=rest,
        across=[d for d in rest if not d.env_id and d.name not in own],
        files=[f"{name}.csv" for name in report.tables],
        commands=commands,
        versions=versions,
        several=several,
        number=number,
    )
    path.write_text(page, encoding="utf-8", errors="backslashreplace")


def _in_table(here: Mapping[str, Sequence[Setting]]) -> list[Setting]:
    """The settings in the page's table, of each environment those that returned most."""
    if sum(map(len, here.values())) <= MOST_ROWS:
        return list(chain.from_iterable(here.values()))
    best = [sorted(part, key=_return_of, reverse=True) for part in here.values()]
    most = max(1, MOST_ROWS // len(here))
    return [setting for part in best for setting in part[:most]]


def _return_of(setting: Setting) -> float:
    """The return that a setting is compared by, lowest if there is none."""
    return setting.compared.value if setting.compared else -np.inf


def _title(report: "Report", environments: int) -> str:
    finished = sum(len(setting.finished) for setting in report.settings)
    unfinished = len(report.collection.runs) - finished
    return (
        (f"{report.title}: " if report.title else "")
        + f"{several(finished, 'run')} of {several(len(report.settings), 'setting')} on "
        + several(environments, "environment")
        + (f" ({unfinished} not finished)" if unfinished else "")
    )


def _few_seeds(settings: Sequence[Setting]) -> list[str]:
    counts = (len(setting.seeds_of(setting.metric)) for setting in settings)
    fewest = min(filter(None, counts), default=FEW_SEEDS)
    if fewest >= FEW_SEEDS:
        return []
    return [f"some settings have {several(fewest, 'seed')} only: no interval is drawn there"]


def commands(setting: Setting) -> list[str]:
    """The commands that make the setting's runs, one for each set of overrides."""
    seeds: dict[tuple[str, ...], list[int]] = {}
    for run in setting.runs:
        overrides = tuple(o for o in run.overrides if not o.startswith(NO_OVERRIDE))
        seeds.setdefault(overrides, []).append(run.seed)
    lines = []
    for overrides, numbers in seeds.items():
        chosen = ",".join(map(str, dict.fromkeys(numbers)))
        sweep = ["-m"] if "," in chosen else []
        lines.append(shlex.join(["python", "train.py", *sweep, *overrides, f"seed={chosen}"]))
    return lines


def versions(setting: Setting) -> list[str]:
    """What the runs were made with, a line for each set of versions."""
    return sorted({_versions(run.summary) for run in setting.runs if run.summary} - {""})


def _versions(summary: dict[str, Any]) -> str:
    versions = summary.get("versions")
    if not isinstance(versions, dict):
        return ""
    commit = str(summary.get("git_commit") or "")
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    return named + (
        f", commit {commit[:9]}{'-dirty' if 'dirty' in commit else ''}" if commit else ""
    )
