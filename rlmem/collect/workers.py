"""The stream of a run whose playing and learning is done by worker processes: it takes in what they
report. Its batches are empty: nothing is left to learn from.

The workers go on by themselves up to a limit of env steps, so an evaluation in the main process
holds nobody up. At the limit each ends its round and rests; then counters, weights and reports
agree, and a checkpoint is of one moment. Limits are the multiples of `rest_every` and the run's
length; those of evaluations, during which all go on, as the agent has a copy of the weights; with
one worker every moment at which something is due, so that such a run is deterministic.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing import connection, resource_tracker
from typing import Any

import torch
import torch.multiprocessing

from rlmem.collect.config import StreamConfig
from rlmem.collect.stream import Stream
from rlmem.collect.worker import Desk, Job, Report, State, work
from rlmem.envs import EnvStepper
from rlmem.memories.base.batch import Batch
from rlmem.memories.memory import ReplayMemory

WAIT_SECONDS = 0.1  # for a report, before the Trainer has its turn
REST_SECONDS = 300.0  # for a worker to end its round, or to start; machines can be busy
STOP_SECONDS = 5.0  # for a worker that rests to end
MASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class _Process:
    """A worker's process as the main one sees it."""

    def __init__(self, number: int, job: Job, desk: Desk, state: State | None) -> None:
        spawn = torch.multiprocessing.get_context("spawn")
        self.number, self.resting, self.gone = number, False, False
        self.pipe, theirs = spawn.Pipe()
        self.process = spawn.Process(
            target=work,
            args=(job, number, os.getpid(), desk, theirs, state),
            name=f"rlmem-worker-{number}",
            daemon=True,
        )
        self.process.start()
        theirs.close()  # so that the pipe ends with the process

    def say(self, message: str) -> None:
        """Send; to one that has died nothing. That it has is found, and told, where its pipe ends:
        in `WorkerStream._hear`, which would not ask a process that counts as gone already."""
        with contextlib.suppress(OSError):
            self.pipe.send(message)

    def end(self) -> str:
        """How the process ended."""
        self.process.join(STOP_SECONDS)
        code = self.process.exitcode
        if code is not None and code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exit code {code}"


class WorkerStream(Stream):
    """Hears the workers, until the run is over.

    Args:
        env: like those that the workers make.
        memory: counts what they hold.
        config: see `StreamConfig`.
        start: called once before the processes start; what each of them is given.
        workers: how many.
        rest_every: env steps; at its multiples all rest, for a checkpoint.

    Attributes:
        updates: that were reported, or counted where a worker's report will not come.
    """

    def __init__(
        self,
        env: EnvStepper,
        memory: ReplayMemory,
        config: StreamConfig,
        start: Callable[[], Job],
        workers: int,
        rest_every: int,
    ) -> None:
        super().__init__(env, memory, config)
        self.start, self.workers, self.rest_every = start, workers, rest_every
        self.updates = 0
        self.seconds = {"act": 0.0, "env": 0.0}  # workers draw nothing, and write as they step
        self._desk = Desk.make(workers, config.max_episodes)
        self._processes: list[_Process] = []
        self._states: dict[int, State] = {}  # of a checkpoint, by worker
        self._limit = 0
        self._sums: dict[str, float] = {}  # since the last row
        self._count = 0  # of updates in them
        self._cpu_seconds, self._rss = 0.0, [0] * workers

    def __len__(self) -> int:
        """Rounds left, at most: while the workers start, or an episode is slow, a round hears
        nothing, so their number says nothing of the run's length."""
        return 0 if self.over else sys.maxsize

    def __next__(self) -> Batch:
        if self.over:
            raise StopIteration
        if not self._processes:
            self._start()
        self._hear(WAIT_SECONDS)
        if self.env_steps >= self._limit:
            self.rest()
        return {}

    def begin_step(self) -> None:
        """A Trainer step begins: let the workers go on, as far as they may."""
        super().begin_step()
        alone = self.workers == 1
        self._go_on(self._due if alone else [self.rest_every, *self._due_of_weights])

    def weights_taken(self) -> None:
        """The agent has the weights of this moment: workers that rested for that alone need not
        wait for what is due."""
        alone, ending = self.workers == 1, self.over or self.stop_requested
        if any(map(self.crossed, self._due_of_weights)) and not (
            alone or ending or self.crossed(self.rest_every)
        ):
            self._go_on([self.rest_every])

    def _go_on(self, until: list[int]) -> None:
        """Let the workers go on, to the next multiple of one of these env steps."""
        ahead = min(every - self.env_steps % every for every in until)
        self._set_limit(min(self.env_steps + ahead, self.config.max_env_steps))
        for process in self._processes:
            if process.resting and not process.gone:
                process.resting = False
                process.say("go")

    def _set_limit(self, env_steps: int) -> None:
        self._limit = env_steps
        self._desk.limit[0] = env_steps

    def _start(self) -> None:
        """Start the processes, which take seconds to import."""
        job = self.start()
        # A signal is for this process alone, from a worker's first moment on. What is blocked here
        # stays blocked there. The tracker unblocks signals when it starts, so it starts before.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, MASKED)
        try:
            for number in range(self.workers):
                state = self._states.get(number)
                self._processes.append(_Process(number, job, self._desk, state))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._states = {}

    def _hear(self, seconds: float) -> None:
        """Take in what the workers have to say; wait for the first so long."""
        there = {process.pipe: process for process in self._processes if not process.gone}
        for pipe in connection.wait([*there], seconds):
            process = there[pipe]  # pyright: ignore[reportArgumentType]
            try:
                said = process.pipe.recv()
            except (EOFError, OSError):
                self._lost(process, process.end())
                continue
            if isinstance(said, Report):
                self._take(process, said)
            elif isinstance(said, str):
                self._lost(process, said)
            else:
                self._states[process.number] = said

    def _take(self, process: _Process, report: Report) -> None:
        self.env_steps += report.steps
        self.memory.transitions_seen = self.env_steps
        self.updates += report.updates
        self._count += report.updates
        for name, value in report.sums.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        for name, value in report.seconds.items():
            self.seconds[name] += value
        for ended in report.episodes:
            self.episodes.add(*ended)
        self._cpu_seconds += report.cpu_seconds
        self._rss[process.number] = report.peak_rss_bytes
        process.resting = report.resting
        if not report.resting:
            process.say("heard")

    def _lost(self, process: _Process, why: str) -> None:
        process.gone = True
        if self.failure is None:
            self.failure = f"worker {process.number} of {self.workers} ended: {why}"
        self.stop_requested = True

    def rest(self) -> None:
        """Have all workers end their rounds, and hear their last reports."""
        self._set_limit(0)
        until = time.monotonic() + REST_SECONDS
        while moving := [p for p in self._processes if not (p.resting or p.gone)]:
            self._hear(WAIT_SECONDS)
            if time.monotonic() > until:
                for process in moving:
                    process.process.kill()
                    self._lost(process, f"it did not end its round in {REST_SECONDS:.0f} s")
        if any(process.gone for process in self._processes):
            # What it had not reported is in the weights, and other workers' episodes count it.
            self.env_steps, self.updates = self._desk.env_steps(), self._desk.updates_made()
            self.memory.transitions_seen = self.env_steps

    def finish(self) -> None:
        """See `Stream.finish`."""
        self.rest()

    def metrics(self) -> dict[str, float | None]:
        """Means over the updates since the row before."""
        count, sums = self._count, self._sums
        self._count, self._sums = 0, dict.fromkeys(sums, 0.0)
        return {name: value / count if count else None for name, value in sums.items()}

    @property
    def cpu_seconds(self) -> float:
        """Of the workers, as far as they have reported."""
        return self._cpu_seconds

    @property
    def peak_rss_bytes(self) -> int:
        """Of the workers together; what they share counts in each."""
        return sum(self._rss)

    def close(self) -> None:
        """End the processes, whatever they do, and let go of the environment."""
        for process in self._processes:
            if process.resting and not process.gone:
                process.say("stop")
            else:
                process.process.kill()
        for process in self._processes:
            process.process.join(STOP_SECONDS)
            if process.process.is_alive():
                process.process.kill()
                process.process.join()
            process.pipe.close()
        self._processes = []
        super().close()

    def state_dict(self) -> dict[str, Any]:
        """Counters, and where each worker's environment stands; all rest."""
        self.rest()
        if self._processes:
            self._states = {}
        for process in self._processes:
            process.say("state")
        while any(not p.gone and p.number not in self._states for p in self._processes):
            self._hear(WAIT_SECONDS)
        workers = {
            f"worker{number}_{name}": value
            for number, state in self._states.items()
            for name, value in state.items()
        }
        self._states = {} if self._processes else self._states
        row = {"sums": dict(self._sums), "count": self._count}
        counted = {"env_steps": self.env_steps, "updates": self.updates}
        return {**counted, **row, **self.episodes.state_views(), **workers}

    def load_state_dict(self, state_dict: State) -> None:
        """Go on where the saved stream stood; workers that it did not have begin anew."""
        self.env_steps = self._step_began = int(state_dict["env_steps"])
        self.memory.transitions_seen = self.env_steps
        self.episodes.take_over(state_dict)
        self._sums, self._count = dict(state_dict["sums"]), int(state_dict["count"])
        self._desk.steps[0] = self.env_steps  # what counts is the sum
        self.updates = int(state_dict["updates"])
        self._desk.updates[0] = self.updates
        self._desk.episodes[0] = self.episodes.count
        for number in range(self.workers):
            mark = f"worker{number}_"
            names = [name for name in state_dict if name.startswith(mark)]
            if names:
                state = {name.removeprefix(mark): state_dict[name] for name in names}
                self._states[number] = state
