"""How far a sweep has come: what is done, runs, failed and is missing, and what is left to do."""

import math
import shutil
import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO

from rlmem.analysis.read.sweeps import STATES, SweepFiles, SweepJob
from rlmem.errors import UserError
from rlmem.units import readable_bytes, readable_seconds, several

# Overrides that make no difference to how long a job takes.
NO_DIFFERENCE = ("seed=", "label=", "log.", "logger", "debug=", "resume=")
WIDTH, NARROWEST, LISTED, BINS, BAR = 100, 48, 20, 8, 40
SECONDS = 5.0  # between two looks at a sweep that runs
_MEANING = {
    "interrupted": "the same command into this folder goes on with them",
    "failed": "the same command into this folder runs them again",
    "missing": "not started",
}


@dataclass
class SweepStatus:
    """A sweep's jobs and what can be said of the rest.

    Attributes:
        undrawn: trials that a search was asked for and that have not started.
        at_once: jobs that run at the same time.
        damaged: (file, reason) of what could not be read.
    """

    folder: Path
    jobs: list[SweepJob]
    undrawn: int
    at_once: int
    damaged: list[tuple[str, str]]

    def of(self, state: str) -> list[SweepJob]:
        """The jobs in a state."""
        return [job for job in self.jobs if job.state == state]

    @property
    def counts(self) -> dict[str, int]:
        """Jobs by state; trials that have not started are missing."""
        found = {state: len(self.of(state)) for state in STATES}
        found["missing"] += self.undrawn
        return found

    @property
    def seconds_left(self) -> float | None:
        """Expected time until every job is done, failed ones too; None as long as nothing says."""
        expected = _expected_seconds(self.jobs)
        left = [expected(job) * (1 - job.share) for job in self.jobs if job.state != "done"]
        left += [expected(None)] * self.undrawn
        if any(math.isnan(seconds) for seconds in left):
            return None
        # No shorter than the longest job, and no shorter than the work shared evenly.
        return max([sum(left) / self.at_once, *left], default=0.0)


def read_status(sweep: Path) -> SweepStatus:
    """Read where a sweep stands. Broken files are noted, they do no harm.

    Args:
        sweep: its folder, as hydra.sweep.dir named it.

    Raises:
        UserError: it is not the folder of a sweep.
    """
    if (sweep / "config.yaml").exists() and not (sweep / "sweep.json").exists():
        raise UserError(f"sweep={sweep}: that is one run; give the folder of a sweep's runs")
    files = SweepFiles(sweep)
    plan = files.plan()
    names = dict.fromkeys([*plan.jobs, *files.job_folders()])
    if not names and not (sweep / "sweep.json").exists():
        raise UserError(_no_sweep(sweep))
    jobs = [files.job(name, plan.jobs.get(name)) for name in names]
    trials = [job for job in jobs if job.name not in plan.jobs]
    running = sum(job.state == "running" for job in jobs)
    return SweepStatus(
        folder=sweep,
        jobs=jobs,
        undrawn=max(0, plan.trials - len(trials)),
        at_once=running or plan.at_once,
        damaged=files.damaged,
    )


def _no_sweep(sweep: Path) -> str:
    what = "no sweep there" if sweep.is_dir() else "no such folder"
    return f"sweep={sweep}: {what}; give a sweep's folder, such as sweep=multirun/<date>_<time>"


def _expected_seconds(jobs: list[SweepJob]) -> Callable[[SweepJob | None], float]:
    """How long a job takes as a whole: as the done ones that it shares most overrides with, or, of
    a setting of which none is done, as those that have begun will take at their own speeds.

    Without any the answer is NaN.
    """
    groups: dict[frozenset[str], list[float]] = defaultdict(list)
    begun: dict[frozenset[str], list[float]] = defaultdict(list)
    for job in jobs:
        if job.state == "done":
            groups[_setting(job)].append(job.seconds)
        elif job.share and job.seconds:
            begun[_setting(job)].append(job.seconds / job.share)
    means = {setting: statistics.fmean(seconds) for setting, seconds in {**begun, **groups}.items()}
    own = [job.seconds / job.share for job in jobs if job.share and job.seconds]
    typical = statistics.fmean(own) if own else math.nan
    known: dict[frozenset[str], float] = {}

    def expected(job: SweepJob | None) -> float:
        if job is None or not means:
            return typical
        setting = _setting(job)
        if setting not in known:
            shared = {other: len(setting & other) for other in means}
            most = max(shared.values())
            near = [means[other] for other, count in shared.items() if count == most]
            known[setting] = statistics.fmean(near)
        return known[setting]

    return expected


def _setting(job: SweepJob) -> frozenset[str]:
    return frozenset(o for o in job.overrides if not o.lstrip("+").startswith(NO_DIFFERENCE))


def render_status(status: SweepStatus, width: int = WIDTH) -> str:
    """The status as plain text, at most `width` columns wide (48 at least)."""
    width = max(NARROWEST, min(WIDTH, width))
    counts = status.counts
    lines = [f"{status.folder}: {several(sum(counts.values()), 'job')}"]
    for state, count in counts.items():
        meaning = _MEANING.get(state) if count else None
        lines.append(f"  {state:<12}{count:>7,}" + (f"   {meaning}" if meaning else ""))
    label = _labels(status.jobs)
    running = [(label[job.name], _progress(job)) for job in status.of("running")]
    lines += _listing("running", running, width)
    failed = [(label[job.name], str(job.error)) for job in status.of("failed")]
    lines += _listing("failed", failed, width)
    lines += _listing("damaged files", status.damaged, width)
    done = status.of("done")
    sizes = [job.memory_bytes for job in done if job.memory_bytes is not None]
    lines += _histogram("memory, peak", sizes, readable_bytes, width)
    lines += _histogram("wall time", [job.seconds for job in done], readable_seconds, width)
    if len(done) < sum(counts.values()):
        lines += ["", _time_left(status)]
    return "\n".join(_shorten(line, width) for line in lines)


def watch(
    read: Callable[[int], tuple[str, bool]], out: TextIO, wait: Callable[[float], Any]
) -> None:
    """Write a text; on a terminal, write it again in its place as long as something runs.

    A line is overwritten and the rest of it cleared, so that nothing flickers; what does not fit on
    the screen is left out until the last time. Ctrl-C ends it.

    Args:
        read: from the width in columns to the text, and whether something runs.
        wait: for some seconds.
    """
    above = 0  # lines of the last text, which the cursor is below
    try:
        while True:
            columns, rows = shutil.get_terminal_size((WIDTH, 24))
            text, runs = read(columns - 1)
            if not out.isatty():
                print(text, file=out)
                return
            lines = text.splitlines()[: rows - 2 if runs else None]
            up = f"\033[{above}F" if above else ""
            out.write(up + "".join(f"{line}\033[K\n" for line in lines) + "\033[J")
            out.flush()
            if not runs:
                return
            above = len(lines)
            wait(SECONDS)
    except KeyboardInterrupt:
        out.write("\n")


def _labels(jobs: list[SweepJob]) -> dict[str, str]:
    """Folder of each job -> what sets it apart from the others: a line has room for no more."""
    asked = [set(job.overrides) for job in jobs if job.overrides]
    common = set.intersection(*asked) if len(asked) > 1 else set()
    own = {job.name: [o for o in job.overrides if o not in common] for job in jobs}
    return {name: "+".join(overrides) or name for name, overrides in own.items()}


def _progress(job: SweepJob) -> str:
    if not job.max_env_steps:
        return f"{job.env_steps:,} env steps"
    return f"{job.env_steps:,} / {job.max_env_steps:,} env steps ({job.share:.0%})"


def _time_left(status: SweepStatus) -> str:
    left = status.seconds_left
    if left is None:
        return "time left: unknown until a job has made some steps"
    return f"time left: about {readable_seconds(left)}, {several(status.at_once, 'job')} at once"


def _listing(title: str, entries: list[tuple[str, str]], width: int) -> list[str]:
    """A title and the first entries: a name, and what is to say of it."""
    if not entries:
        return []
    room = max(len(text) for _, text in entries[:LISTED])
    most = max(width // 3, min(width // 2, width - room - 4))
    shown = [(_shorten(name, most, keep_end=True), text) for name, text in entries[:LISTED]]
    column = max(len(name) for name, _ in shown)
    more = [f"  and {len(entries) - LISTED:,} more"] if len(entries) > LISTED else []
    return ["", f"{title}:", *(f"  {name:<{column}}  {text}" for name, text in shown), *more]


def _shorten(text: str, width: int, keep_end: bool = False) -> str:
    if len(text) <= width:
        return text
    return f"...{text[3 - width :]}" if keep_end else f"{text[: width - 3]}..."


def _histogram(
    title: str, values: list[float], readable: Callable[[float], str], width: int
) -> list[str]:
    """Bars of how many values lie where; in equal ratios where they differ by much."""
    if not values:
        return []
    import numpy as np

    low, high = min(values), max(values)
    middle = readable(statistics.median(values))
    lines = ["", f"{title}, {several(len(values), 'done job')}, median {middle}:"]
    spaced = np.geomspace if low > 0 and high / low > 20 else np.linspace
    edges = np.array([low, high])
    for bins in range(min(BINS, len(values)), 1, -1):  # as many as differ when they are printed
        finer = spaced(low, high, bins + 1)
        if len({readable(edge) for edge in finer}) > bins:
            edges = finer
            break
    counts = np.histogram(values, edges)[0] if high > low else np.array([len(values)])
    for (start, end), count in zip(pairwise(edges), counts, strict=True):
        longest = min(BAR, width - 39)
        bar = "#" * math.ceil(longest * count / counts.max())
        lines.append(
            f"  {readable(start):>12} to {readable(end):>12}  {bar:<{longest}} {count:>6,}"
        )
    return lines
