"""All runs below some folders, and what their reader should know; no broken file ends it."""

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rlmem.analysis.read.external import read_external
from rlmem.analysis.read.runs import ENV_ARGUMENTS, Run, find_runs, read_run
from rlmem.analysis.read.sweeps import SweepFiles
from rlmem.units import several

LATE = 0.1  # of a run: by how much later another's curve may begin without a note
ROUNDS = 1.01  # times: by how much runs of one length may differ, as rounds of steps do
LONGER = 1.1  # times: by how much runs that end by their episodes may differ without a note


@dataclass
class Collection:
    """Runs, and what was found beside them.

    Attributes:
        left_out: (path, reason) of what does not count in the means.
        notes: what the reader of a comparison should know.
    """

    runs: list[Run] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def set_apart(runs: Sequence[Run], columns: Mapping[str, str]) -> None:
    """Name a study's column behind the task of its runs where several columns have one task, such
    as one environment at two lengths.

    Args:
        columns: folder (a run lies in <column>/<row>/seed<n>) -> title.
    """
    of = {id(run): columns.get(run.folder.parent.parent.name, "") for run in runs}
    found: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        found[run.task].add(of[id(run)])
    for run in runs:
        run.column = of[id(run)] if len(found[run.task]) > 1 else ""


def collect(
    folders: Sequence[Path],
    external: Sequence[Path] = (),
    recorded: Sequence[Run] = (),
    columns: Mapping[str, str] | None = None,
    asked: Container[Path] | None = None,
) -> Collection:
    """Everything that can be read below the folders, each run once, and a study's record, whose
    `columns` are set apart.

    Args:
        asked: run directories that a study asks for; others in its folder do not count.
    """
    found = Collection([*recorded])
    seen: set[Path] = set()
    ids: dict[tuple[str, str, str], Path] = {}
    for folder in folders:
        for run_dir in find_runs(folder):
            if (resolved := run_dir.resolve()) in seen:
                continue
            seen.add(resolved)
            if asked is not None and run_dir not in asked:
                found.left_out.append((str(run_dir), "study.yaml does not ask for it any more"))
                continue
            try:
                run = read_run(run_dir)
            except ValueError as error:
                found.left_out.append((str(run_dir), str(error)))
                continue
            known = str(run.started.get("id")), str(run.summary.get("env_steps")), run.status
            if "id" in run.started and known in ids:  # it would count as a further seed
                found.left_out.append((str(run_dir), f"a copy of {ids[known]}"))
                continue
            ids[known] = run_dir
            found.runs.append(run)
    for sweep in sorted({sweep for folder in folders for sweep in _sweeps(folder)}):
        _add_unstarted(found, sweep)
    if columns:
        set_apart(found.runs, columns)
    environments = {run.env_id for run in found.runs}
    default = environments.pop() if len(environments) == 1 else None
    for path in external:
        try:
            found.runs += _placed(read_external(path, default), found)
        except ValueError as error:
            found.left_out.append((str(path), str(error)))
    _note(found)
    return found


def _placed(external: list[Run], found: Collection) -> list[Run]:
    """Curves of other programs, each with the task that it is of where its file names the
    environment alone: with an environment's own arguments a task's name is longer."""
    tasks = sorted({run.env_id for run in found.runs if run.external is None})
    for name in sorted({run.env_id for run in external} - {*tasks}):
        longer = [task for task in tasks if task.startswith(f"{name}, ")]
        if len(longer) == 1:
            for run in external:
                if run.env_id == name:
                    run.summary["env_id"] = longer[0]
        elif longer:
            found.notes.append(
                f"{name} of another program is compared with no run, as these are of several "
                f"tasks: {'; '.join(longer)}; give one of these as its env_id"
            )
    return external


def _sweeps(folder: Path) -> Iterator[Path]:
    """A folder and those up to two levels below that hold a sweep."""
    for pattern in ("sweep.json", "*/sweep.json", "*/*/sweep.json"):
        yield from (path.parent.resolve() for path in folder.glob(pattern))


def _add_unstarted(found: Collection, folder: Path) -> None:
    """The jobs that a sweep was asked for and that left no run."""
    files = SweepFiles(folder)
    plan = files.plan()
    planned = plan.jobs
    unstarted = [
        files.job(name, overrides)
        for name, overrides in planned.items()
        if not (folder / name / "config.yaml").exists()
    ]
    why = {"done": "finished, but its config.yaml is gone", "failed": "failed: {}"}
    known = [job for job in unstarted if job.state in why]
    found.left_out += [(str(folder / job.name), why[job.state].format(job.error)) for job in known]
    drawn = sum(name not in planned for name in files.job_folders())  # a search's
    missing = len(unstarted) - len(known) + max(0, plan.trials - drawn)
    if missing:
        verb, total = "has" if missing == 1 else "have", len(planned) + plan.trials
        found.notes.append(f"{folder}: {missing} of {total} jobs {verb} not started")


def _note(found: Collection) -> None:
    """What makes a comparison less than clean."""
    ours = [run for run in found.runs if run.external is None]
    for run in sorted(ours, key=lambda run: run.status):
        if run.status != "finished":
            gone = "no summary.json" if not run.summary else "summary.json has no status"
            reason = {"no summary": f"has not ended: {gone}"}.get(run.status, run.status)
            error = run.summary.get("error")
            found.left_out.append((str(run.folder), f"{reason}: {error}" if error else reason))
    for name in ("rlmem", "torch", "gymnasium", "ale_py"):
        listed = [run.summary.get("versions") for run in ours]
        versions = {str(part.get(name)) for part in listed if isinstance(part, dict)}
        if len(versions) > 1:
            found.notes.append(f"runs of several versions of {name}: {', '.join(sorted(versions))}")
    if len(devices := {run.device for run in ours if run.status == "finished"}) > 1:
        found.notes.append(
            f"runs on several devices: {', '.join(sorted(devices))}; their times do not compare, "
            "and CPU seconds are not set against each other"
        )
    commits = {str(run.summary["git_commit"]) for run in ours if run.summary.get("git_commit")}
    if len(commits) > 1:
        found.notes.append(f"runs of {len(commits)} commits of rlmem")
    if longer := sum(bool(run.summary.get("length_changed_at")) for run in ours):
        found.notes.append(
            f"{several(longer, 'run')} went on with another length (length_changed_at in "
            "summary.json): what follows the length, such as PER's beta, went another way there "
            "than in a run that had it from the start"
        )
    if cut := sum(run.number("eval_unended") > 0 for run in ours):
        found.notes.append(
            f"in the last evaluation of {several(cut, 'run')} episodes did not end and count as "
            "they stood when they were left off (eval_unended in summary.json)"
        )
    found.notes += [f"{run.folder}: {fault}" for run in ours for fault in run.faults]
    arguments: dict[str, set[frozenset[str]]] = defaultdict(set)
    for run in ours:
        given = frozenset(key for key in run.config if key.startswith(ENV_ARGUMENTS))
        arguments[run.task.split(", ")[0]].add(given)
    for name, given in sorted(arguments.items()):
        if odd := sorted(frozenset.union(*given) - frozenset.intersection(*given)):
            found.notes.append(
                f"{name}: {', '.join(odd)} is given by some runs alone, which makes another task: "
                "they are not compared with the others"
            )
    sound = (run for run in ours if not run.faults)
    if lost := sum(_ended(run) and not len(run.curves["env_steps"]) for run in sound):
        lacking = several(lost, "run")
        found.notes.append(f"no curves and times of {lacking}: their metrics.csv has no row")
    for env_id in sorted({run.env_id for run in found.runs}):
        every = {r.config.get("log.every") for r in ours if r.env_id == env_id} - {None}
        if len(every) > 1:
            found.notes.append(
                f"{env_id}: runs of several log.every ({', '.join(sorted(map(str, every)))}); the "
                "return over the run begins at the first row: a coarse log leaves out the beginning"
            )
        every_run = [run for run in found.runs if run.env_id == env_id]
        starts = [run.begins for run in every_run if _ended(run) and run.begins == run.begins]
        if starts and max(starts) - min(starts) > LATE:
            found.notes.append(
                f"{env_id}: the first return is known at {min(starts):.0%} of a run, of another at "
                f"{max(starts):.0%}; the return over the run begins there, and does not tell how "
                "long that took"
            )
        ended = [run for run in every_run if _ended(run)]
        by_episodes = [run for run in ended if run.config.get("trainer.max_episodes")]
        steps = {int(run.number("env_steps")) for run in ended if run not in by_episodes}
        if steps and max(steps) > ROUNDS * min(steps):
            shown = ", ".join(f"{s:,}" for s in sorted(steps))
            found.notes.append(f"{env_id}: runs of different lengths ({shown} env steps)")
        spans = [int(run.number("env_steps")) for run in by_episodes]
        if spans and max(spans) > LONGER * min(spans):
            found.notes.append(
                f"{env_id}: runs that end by their episodes took {min(spans):,} to {max(spans):,} "
                "env steps, and the return over the run is of each run's own span"
            )


def _ended(run: Run) -> bool:
    return run.status == "finished" and run.number("env_steps") > 0
