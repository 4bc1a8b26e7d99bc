"""Runs trials, each in a process of its own, and counts what survived."""

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

SECONDS = 240.0  # of a trial at most


class Told(NamedTuple):
    """What a trial was.

    Attributes:
        what: in a line.
        cases: how many cases it tried.
        kinds: what they were of, to be counted.
        note: what the table says of this class's trials; empty: nothing.
    """

    what: str
    cases: int = 1
    kinds: tuple[str, ...] = ()
    note: str = ""


class Case(random.Random):
    """What a trial draws from; the same number draws the same."""

    def __init__(self, name: str, number: int) -> None:
        super().__init__(f"{name} {number}")
        self.number = number


Trial = Callable[[Case, Path], Told]


@dataclass
class Tally:
    """What became of the cases of a class, of which a full round has `wanted`."""

    wanted: int = 1
    cases: int = 0
    failed: list[tuple[int, str]] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    trials: int = 0

    def add(self, seed: int, survived: bool, told: Told) -> None:
        """Count a trial; the one case that fails ends it."""
        self.trials += 1
        self.cases += told.cases
        self.kinds.update(told.kinds)
        if told.note:
            self.notes.append(told.note)
        if not survived:
            self.failed.append((seed, told.what))

    @property
    def survived(self) -> int:
        return self.cases - len(self.failed)


def run_trial(trial: Trial, name: str, seed: int, seconds: float = SECONDS) -> tuple[bool, Told]:
    """Whether a trial survived, and what it was or why it did not."""
    folder = Path(tempfile.mkdtemp(prefix=f"torture-{name}-"))
    try:
        code = forked(lambda: said(trial, name, seed, folder), seconds, folder / "output")
        at = (folder / "told").read_text() if (folder / "told").exists() else ""
        if code == 0:
            content = json.loads((folder / "result").read_text())
            return True, Told(content[0], content[1], tuple(content[2]), content[3])
        if code is None:
            return False, Told(f"{at} it took more than {seconds:.0f} s")
        output = (folder / "output").read_text(errors="replace").strip().splitlines()[-1:]
        return False, Told(f"{at} it ended with code {code}: {output}" if code < 0 else at)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def said(trial: Trial, name: str, seed: int, folder: Path) -> int:
    """Run a trial here; what it says lies in a file."""
    (folder / "work").mkdir()
    try:
        told = trial(Case(name, seed), folder / "work")
    except BaseException:
        (folder / "told").write_text(traceback.format_exc(limit=-4))
        return 1
    (folder / "result").write_text(json.dumps(told))
    return 0


def forked(what: Callable[[], int], seconds: float, output: Path) -> int | None:
    """The exit code of a function in a child, negative for a signal; None: it took too long."""
    return waited(begun(what, output), seconds)


def begun(what: Callable[[], int], output: Path) -> int:
    """A child that ends with a function's exit code, in a process group of its own."""
    sys.stdout.flush()
    output.touch()  # it can be killed before it opens it
    child = os.fork()
    if child == 0:
        code = 1
        try:
            # Whatever fails here, the child must not go on as a second process of tests.
            code = _child(what, output)
        finally:
            os._exit(code)
    return child


def _child(what: Callable[[], int], output: Path) -> int:
    os.setsid()
    os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
    os.dup2(1, 2)
    # Of its own: what a test puts in their place would keep what is said.
    sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
    code = 1
    try:
        code = what()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    return code


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


def kill(child: int) -> int:
    """End a child and what it started, at once; its exit code, of one that had ended by itself."""
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def limit(kind: int, value: int) -> None:
    """Set a limit of this process."""
    resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))
