"""The process of a worker: it plays and learns round after round, rests, and reports.

How a run's processes come to an end, whatever happens: a signal from the keyboard or a scheduler is
the main process's alone, which lets the workers finish their rounds; if that process is gone, even
by SIGKILL, the kernel kills its workers, and their pipes end.
"""

import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Protocol

import torch

from rlmem.allocator import keep_freed_memory
from rlmem.errors import UserError
from rlmem.machine import peak_rss_bytes

State = Mapping[str, Any]  # of a worker: name -> array or JSON value
REPORT_SECONDS = 0.1  # between a worker's reports, at least
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Desk:
    """Counters in shared memory; each worker writes its own, so that no lock is needed.

    Attributes:
        steps, updates, episodes: int64 [workers], of the run so far.
        limit: int64 [1], env steps at which no worker begins a round.
        most_episodes: after which no worker begins a round either; None: any number.
    """

    steps: torch.Tensor
    updates: torch.Tensor
    episodes: torch.Tensor
    limit: torch.Tensor
    most_episodes: int | None

    @classmethod
    def make(cls, workers: int, most_episodes: int | None = None) -> "Desk":
        """Counters at 0."""
        steps, updates, episodes, limit = (
            torch.zeros(size, dtype=torch.int64).share_memory_()
            for size in (workers, workers, workers, 1)
        )
        return cls(steps, updates, episodes, limit, most_episodes)

    @property
    def closed(self) -> bool:
        """Whether no round may begin."""
        most = self.most_episodes
        if most is not None and int(self.episodes.sum()) >= most:
            return True
        return self.env_steps() >= int(self.limit)

    def count(self, number: int, steps: int, episodes: int) -> None:
        """Worker `number` made an update, of so many steps, in which so many episodes ended."""
        self.steps[number] += steps
        self.updates[number] += 1
        self.episodes[number] += episodes

    def env_steps(self) -> int:
        """Of all workers."""
        return int(self.steps.sum())

    def updates_made(self) -> int:
        """By all workers."""
        return int(self.updates.sum())


@dataclass
class Report:
    """What a worker did since its last report."""

    steps: int = 0
    updates: int = 0
    sums: dict[str, float] = field(default_factory=dict)  # of what each update gave
    seconds: dict[str, float] = field(default_factory=lambda: {"act": 0.0, "env": 0.0})
    # Of each that ended: env steps of all workers, unclipped return, length.
    episodes: list[tuple[int, float, int]] = field(default_factory=list)
    cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0
    resting: bool = False  # this is the last before the main process says to go on

    def add(self, found: dict[str, float], **seconds: float) -> None:
        """One more update, what it gave, and how long its round took where."""
        self.updates += 1
        for name, value in found.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        for name, value in seconds.items():
            self.seconds[name] += value


class Worker(Protocol):
    """What runs in a worker's process."""

    def round(self, report: Report) -> int:
        """Play and learn once; its env steps."""
        ...

    def episodes_ended(self) -> list[tuple[float, int]]:
        """Unclipped return and length of those that ended since the last call."""
        ...

    def state_views(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


class Job(Protocol):
    """What a process is given, pickled."""

    def make(self, number: int, desk: Desk, state: State | None) -> Worker:
        """The worker, in its process."""
        ...


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; at once if it has."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def work(
    job: Job, number: int, parent: int, desk: Desk, pipe: Connection, state: State | None
) -> None:
    """The whole life of a worker's process.

    Messages to it: "heard" (the report has come), "go", "state", "stop". From it: a `Report`, its
    state, or a text: why it ends.

    Args:
        job: makes the worker.
        number: of the worker, from 0.
        parent: the main process.
        desk: where all count.
        state: of this worker in a checkpoint; None: it begins.
    """
    die_with(parent)
    torch.set_num_threads(1)
    keep_freed_memory()
    torch.set_flush_denormal(True)
    try:
        worker = job.make(number, desk, state)
        _work(worker, number, desk, pipe)
        worker.close()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the main process is gone
    except UserError as error:
        pipe.send(str(error))
    except Exception as error:
        traceback.print_exc()
        pipe.send("".join(traceback.format_exception_only(error)).strip())


def _work(worker: Worker, number: int, desk: Desk, pipe: Connection) -> None:
    """Rounds, reports and rests, until told to stop."""
    report, heard, reported = Report(), True, time.monotonic()
    cpu = 0.0  # so that the start counts
    while True:
        resting = desk.closed
        if not resting:
            try:
                report.steps += (played := worker.round(report))
            except Exception:  # what is counted already is not lost with this round
                _measure(report, cpu)
                pipe.send(report)
                raise
            ended = worker.episodes_ended()
            desk.count(number, played, len(ended))
            now = desk.env_steps()
            report.episodes += [(now, *episode) for episode in ended]
        while not resting and not heard and pipe.poll():
            heard = pipe.recv() == "heard"
        # One report is on its way at a time: a pipe that nobody reads, as in an evaluation, would
        # be full after some, and hold the worker up.
        if resting or (heard and time.monotonic() - reported >= REPORT_SECONDS):
            cpu, report.resting = _measure(report, cpu), resting
            pipe.send(report)
            report, heard, reported = Report(), False, time.monotonic()
        if resting:
            if not _rest(worker, pipe):
                return
            heard = True


def _measure(report: Report, since: float) -> float:
    """Say what the process took since so many CPU seconds; how many they are now."""
    now = time.process_time()
    report.cpu_seconds, report.peak_rss_bytes = now - since, peak_rss_bytes()
    return now


def _rest(worker: Worker, pipe: Connection) -> bool:
    """Answer until told to go on; False: to stop."""
    while True:
        message = pipe.recv()
        if message == "state":
            pipe.send(worker.state_views())
        elif message in ("go", "stop"):
            return message == "go"
