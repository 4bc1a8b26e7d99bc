"""Runs trials, each in a process of its own, and counts what survived."""

import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

Trial = Callable[[random.Random, Path], str]
SECONDS = 150.0  # of a trial at most


@dataclass
class Tally:
    """What became of the trials of a class."""

    tried: int = 0
    failed: list[tuple[int, str]] = field(default_factory=list)
    kinds: dict[str, int] = field(default_factory=dict)

    @property
    def survived(self) -> int:
        return self.tried - len(self.failed)


def run_trial(trial: Trial, name: str, seed: int, seconds: float = SECONDS) -> tuple[bool, str]:
    """Whether a trial survived, and what it was or why it did not."""
    folder = Path(tempfile.mkdtemp(prefix=f"torture-{name}-"))
    try:
        code = forked(lambda: said(trial, name, seed, folder), seconds, folder / "output")
        told = (folder / "told").read_text() if (folder / "told").exists() else ""
        if code == 0:
            return True, told
        if code is None:
            return False, f"it took more than {seconds:.0f} s {told}"
        output = (folder / "output").read_text(errors="replace").strip().splitlines()[-1:]
        return False, f"{told} it ended with code {code}: {output}" if code < 0 else told
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def said(trial: Trial, name: str, seed: int, folder: Path) -> int:
    """Run a trial here; what it says lies in a file."""
    (folder / "work").mkdir()
    try:
        told, code = trial(random.Random(f"{name} {seed}"), folder / "work"), 0
    except BaseException:
        told, code = traceback.format_exc(limit=-4), 1
    (folder / "told").write_text(told)
    return code


def forked(what: Callable[[], int], seconds: float, output: Path) -> int | None:
    """The exit code of a function in a child, negative for a signal; None: it took too long."""
    return waited(begun(what, output), seconds)


def begun(what: Callable[[], int], output: Path) -> int:
    """A child that ends with a function's exit code, in a process group of its own."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
        os.dup2(1, 2)
        code = 1
        try:
            code = what()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return child


def waited(child: int, seconds: float) -> int | None:
    """The exit code of a child; it and all of its own are killed after so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    kill(child)
    return None


def kill(child: int) -> None:
    """End a child and what it started, at once."""
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def limit(kind: int, value: int) -> None:
    """Set a limit of this process."""
    resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))
