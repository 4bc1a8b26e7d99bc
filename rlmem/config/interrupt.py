"""Ctrl-C in a sweep whose jobs run in processes of this machine: each saves, then the sweep ends.

A terminal sends the signal to all processes of a command. joblib, interrupted, would kill its
workers while they save; so its launcher is not interrupted the first time. It begins no further
job, waits for those that run, and is interrupted then. In a worker a job that was interrupted ends
like one that failed, as joblib kills the other workers where one raises more than that.
"""

import contextlib
import functools
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from rlmem.errors import UserError

SIGNAL, EXIT_CODE = signal.SIGINT, 128 + signal.SIGINT


class _Process:
    """Whether this process was interrupted."""

    interrupted = False


_HERE: Final = _Process()


def came() -> bool:
    """Whether the signal came while this process waited for jobs, or ran one."""
    return _HERE.interrupted


def forget() -> None:
    """A command begins."""
    _HERE.interrupted = False


def mark(*args: Any) -> None:
    """The signal came: the second time it interrupts at once.

    Raises:
        KeyboardInterrupt: the second time.
    """
    if _HERE.interrupted:
        raise KeyboardInterrupt
    _HERE.interrupted = True


def _mark_and_interrupt(number: int, frame: Any) -> None:
    _HERE.interrupted = True
    signal.default_int_handler(number, frame)


def in_job() -> bool:
    """Whether this is a job of a launcher that waits."""
    config = HydraConfig.get()
    return config.mode == RunMode.MULTIRUN and "n_jobs" in config.launcher


def handle(handler: Any) -> Any:
    """Let a function handle the signal; what did before. In a thread none can."""
    with contextlib.suppress(ValueError):
        return signal.signal(SIGNAL, handler)
    return None


@contextlib.contextmanager
def handled_by(handler: Any) -> Iterator[None]:
    """A function handles the signal meanwhile."""
    before = handle(handler)
    try:
        yield
    finally:
        if before is not None:
            handle(before)


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """The signal interrupts at once, as Python has it, and does not get lost, as a
    KeyboardInterrupt can where Hydra composes: OmegaConf's copies put back in `finally` what they
    may not have read yet, which fails in turn, and then a key is said to be missing.

    Where the signal is ignored, or somebody else's, nothing changes.

    Raises:
        KeyboardInterrupt: the signal came, whatever became of it.
    """
    plain = signal.getsignal(SIGNAL) is signal.default_int_handler
    if not plain and signal.getsignal(SIGNAL) is not _mark_and_interrupt:
        yield
        return
    if plain:
        forget()
    with handled_by(_mark_and_interrupt) if plain else contextlib.nullcontext():
        try:
            yield
        except Exception:
            raise_if_came()
            raise
    raise_if_came()


def raise_if_came() -> None:
    """Raise a KeyboardInterrupt if the signal came."""
    if came():
        raise KeyboardInterrupt from None


class _UntilInterrupted(Sequence):
    """A list that ends where the signal came, for who goes through it step by step."""

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: Any) -> Any:
        return self._items[index]

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            if came():
                return
            yield item


def prepare(launcher: Any, *, waits: bool) -> None:
    """Make a launcher (the class) begin nothing after the signal.

    Args:
        waits: it is joblib's, and is to wait for the jobs that run.
    """
    launch = launcher.launch
    if hasattr(launch, "__wrapped__"):
        return

    @functools.wraps(launch)
    def checked(self: Any, job_overrides: Sequence[Any], initial_job_idx: int) -> Any:
        raise_if_came()
        return launch(self, job_overrides, initial_job_idx)

    def say_and_mark(*args: Any) -> None:
        mark()
        text = "interrupted: jobs that run are saved, no other begins; again: at once"
        with contextlib.suppress(OSError):  # the terminal may be what is gone
            print(f"\nrlmem: {text}", file=sys.stderr, flush=True)

    @functools.wraps(launch)
    def waiting(self: Any, job_overrides: Sequence[Any], initial_job_idx: int) -> Any:
        from joblib import effective_n_jobs

        if self.joblib.get("n_jobs") == 0:
            raise UserError("hydra.launcher.n_jobs=0: must be at least 1; -1 takes all cores")
        # A worker without a job would be interrupted, and joblib takes that for a crash.
        count = effective_n_jobs(self.joblib.get("n_jobs", 1))
        self.joblib["n_jobs"] = max(1, min(count, len(job_overrides)))
        before = HydraConfig.instance().cfg
        raise_if_came()
        with handled_by(say_and_mark):
            try:
                returned = launch(self, _UntilInterrupted(job_overrides), initial_job_idx)
            except Exception:
                if came():  # while a worker started: it has no job yet, and dies
                    raise KeyboardInterrupt from None
                raise
            finally:  # of jobs that ran in this process, as one worker's do
                HydraConfig.instance().cfg = before
        raise_if_came()
        return returned

    launcher.launch = waiting if waits else checked
