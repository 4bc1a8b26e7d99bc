"""The files of a sweep and of its jobs. Nothing here fails on a broken one: it is noted."""

import csv
import fcntl
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from rlmem.errors import one_line
from rlmem.run_files import UNREADABLE, open_regular, parse_json, parse_yaml, read_small

STATES = ("done", "running", "interrupted", "failed", "missing")


@dataclass
class SweepJob:
    """One job of a sweep.

    Attributes:
        name: its folder, relative to the sweep's.
        state: one of STATES.
        env_steps: made so far.
        max_env_steps: asked for, None where nothing says so; reckoned where episodes count.
        seconds: of training so far.
        memory_bytes: the peak, None as long as there is no summary.
    """

    name: str
    overrides: list[str]
    state: str = "missing"
    error: str | None = None
    env_steps: int = 0
    max_env_steps: int | None = None
    seconds: float = 0.0
    memory_bytes: float | None = None

    @property
    def share(self) -> float:
        """Of the env steps, how much is made, 0 to 1."""
        return min(1.0, self.env_steps / self.max_env_steps) if self.max_env_steps else 0.0


@dataclass
class SweepPlan:
    """What commands asked of a sweep.

    Attributes:
        jobs: folder -> overrides.
        trials: of searches, whose jobs nobody knows before they start.
        at_once: how many jobs the newest command runs at the same time.
    """

    jobs: dict[str, list[str]] = field(default_factory=dict)
    trials: int = 0
    at_once: int = 1


@dataclass
class SweepFiles:
    """Reads a sweep's folder.

    Attributes:
        damaged: (file, reason) of what could not be read.
    """

    folder: Path
    damaged: list[tuple[str, str]] = field(default_factory=list)

    def plan(self) -> SweepPlan:
        """Content of sweep.json."""
        plan = SweepPlan()
        commands = (self._read("sweep.json", parse_json) or {}).get("commands")
        for command in commands if isinstance(commands, list) else []:
            try:
                plan.jobs |= {
                    str(name): [str(override) for override in overrides]
                    for name, overrides in command["jobs"].items()
                    if self._is_inside(name)
                }
                plan.trials += int(command["trials"])
                plan.at_once = max(1, int(command["at_once"]))
            except (KeyError, TypeError, ValueError, AttributeError):
                self.damaged.append(("sweep.json", "a command in it is not complete"))
        return plan

    def _is_inside(self, name: str) -> bool:
        """Whether a job's folder lies in the sweep's; another is noted."""
        inside = PurePosixPath(name)
        if not (inside.is_absolute() or ".." in inside.parts or "\0" in name):
            return True
        self.damaged.append(("sweep.json", f"{one_line(name)} is no folder of it"))
        return False

    def job_folders(self) -> Iterator[str]:
        """Folders that hold a job's files, whether or not a command is known that asked for it."""
        for folder in sorted(self.folder.iterdir()) if self.folder.is_dir() else []:
            if folder.name[0] != "." and any(
                (folder / n).exists() for n in ("config.yaml", "summary.json", "error.json")
            ):
                yield folder.name

    def job(self, name: str, overrides: list[str] | None) -> SweepJob:
        """One job; without overrides they are read from its own folder."""
        folder = self.folder / name
        if overrides is None:
            overrides = [
                str(o) for o in self._read(f"{name}/overrides.yaml", parse_yaml, list) or []
            ]
        job = SweepJob(name, overrides)
        if not folder.is_dir():
            return job
        summary = self._read(f"{name}/summary.json", parse_json) or {}
        job.env_steps = int(_number(summary, "env_steps") or 0)
        job.seconds = _number(summary, "wall_seconds") or 0.0
        job.memory_bytes = _number(summary, "memory_bytes_peak")
        # An error that is older than the summary is of an earlier attempt.
        failed = _changed(folder / "error.json") > _changed(folder / "summary.json")
        if summary.get("status") == "finished" and not failed:
            job.state, job.max_env_steps = "done", job.env_steps
            return job
        if _is_held(folder / ".lock"):
            job.state = "running"
        elif failed or summary.get("status") == "failed":
            error = self._read(f"{name}/error.json", parse_json) or summary
            job.state = "failed"
            job.error = " ".join(str(error.get("error") or "it left no reason").split())
        elif (folder / "config.yaml").exists():
            job.state = "interrupted"
        self._read_progress(job)
        return job

    def _read_progress(self, job: SweepJob) -> None:
        trainer = (self._read(f"{job.name}/config.yaml", parse_yaml) or {}).get("trainer")
        trainer = trainer if isinstance(trainer, dict) else {}
        asked, episodes = (_number(trainer, f"max_{name}") for name in ("env_steps", "episodes"))
        row = _last_row(self.folder / job.name / "metrics.csv")
        job.env_steps = max(job.env_steps, int(_number(row, "env_steps") or 0))
        if asked and episodes and (done := _number(row, "episodes")):
            asked = min(asked, job.env_steps * max(1.0, episodes / done))
        job.max_env_steps = int(asked) if asked else None
        job.seconds = max(job.seconds, _number(row, "seconds") or 0.0)

    def _read(self, name: str, parse: Callable[[str], Any], kind: type = dict) -> Any | None:
        """A file's content; None where there is none, or a broken one, which is noted."""
        try:
            content = parse(read_small(self.folder / name, 2**28))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except UNREADABLE as error:
            why = one_line(error) or type(error).__name__
        else:
            if isinstance(content, kind):
                return content
            why = f"holds no {'mapping' if kind is dict else 'list'}"
        self.damaged.append((name, why))
        return None


def _number(values: dict[str, Any], key: str) -> float | None:
    """A finite number that is not negative, or None."""
    try:
        value = float(values[key])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _is_held(lock: Path) -> bool:
    """Whether a process trains in the folder: as long as it does, it holds this file."""
    try:
        with open_regular(lock) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _last_row(path: Path) -> dict[str, str]:
    """The last whole row of a CSV file, of which only both ends are read."""
    try:
        with open_regular(path) as file:
            header = file.readline().decode(errors="replace")
            start = file.tell()
            file.seek(max(start, file.seek(0, 2) - 8192))
            lines = file.read().decode(errors="replace").split("\n")[:-1]
        names = next(csv.reader([header]))
        row = next(csv.reader([lines[-1].replace("\0", "")]))
    except (OSError, IndexError, StopIteration, csv.Error):
        return {}
    return dict(zip(names, row, strict=False))
