"""Ctrl-C in a sweep whose jobs run in processes of this machine: each saves, then the sweep ends.

A terminal sends the signal to all processes of a command. The launcher, interrupted, would kill its
workers while they save; so it is not interrupted the first time. A job that has saved ends as one
that failed, without an error, and those that wait for a worker end before they begin.
"""

import contextlib
import signal
from typing import Any, Final

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

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


def waits(hydra: Any) -> bool:
    """Whether a command waits for its jobs to save. A search does not: it would draw trial after
    trial in place of those that ended."""
    return "n_jobs" in hydra.launcher and "n_trials" not in hydra.sweeper


def in_job() -> bool:
    """Whether this is a job of a command that waits."""
    config = HydraConfig.get()
    return config.mode == RunMode.MULTIRUN and waits(config)


def handle(handler: Any) -> Any:
    """Let a function handle the signal; what did before (None in a thread, where none can)."""
    with contextlib.suppress(ValueError):
        return signal.signal(SIGNAL, handler)
    return None
