"""Where a job stands in its sweep: the third of a hundred, and what sets it apart."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from rlmem.config.sweep import SWEEP_FILE, on_this_machine
from rlmem.run_files import read_json


@dataclass(frozen=True)
class Place:
    """A job's place among the jobs of its command.

    Attributes:
        sweep: the sweep's folder.
        number: of the job, from 1; a search that goes on counts those that it has made.
        first: whether the command begins with it.
        count: of the command's jobs; 0 where sweep.json does not say.
        overrides: those that not every job of the command has.
        at_once: jobs of the command that run at the same time.
        here: of these, how many share this machine, at most.
    """

    sweep: Path
    number: int
    first: bool
    count: int
    overrides: tuple[str, ...]
    at_once: int
    here: int

    @property
    def alone(self) -> bool:
        """Whether no other job of the command runs at the same time."""
        return self.at_once == 1

    @property
    def name(self) -> str:
        """job 3 of 100; of values that were given twice the count has one."""
        return f"job {self.number:,}" + (f" of {self.count:,}" * (self.count >= self.number))


def place_of_this_job() -> Place | None:
    """The place of the job that runs in this process; None outside of a sweep."""
    if not HydraConfig.initialized() or HydraConfig.get().mode != RunMode.MULTIRUN:
        return None
    hydra: Any = HydraConfig.get()
    folder, overrides = Path(hydra.sweep.dir), list(hydra.overrides.task)
    count, common, at_once, made = _command(folder, str(hydra.sweep.subdir))
    return Place(
        sweep=folder,
        number=made + int(hydra.job.num) + 1,
        first=hydra.job.num == 0,
        count=count,
        overrides=tuple(o for o in overrides if o not in common) or tuple(overrides),
        at_once=at_once,
        here=min(at_once, on_this_machine(hydra, at_once)),
    )


def _command(folder: Path, job: str) -> tuple[int, set[str], int, int]:
    """Of the newest command that asked for the job: how many jobs it has, the overrides that all of
    them have, how many run at the same time, and how many a search had made before."""
    commands: Any = (read_json(folder / SWEEP_FILE, 2**30) or {}).get("commands")
    for command in reversed(commands if isinstance(commands, list) else []):
        try:
            jobs, trials = command["jobs"], int(command["trials"])
            if job in jobs or trials:
                common = set(command["overrides"]) if trials else set()
                common |= set.intersection(*map(set, jobs.values())) if len(jobs) > 1 else set()
                made = int(command.get("made", 0))
                return len(jobs) or trials, common, int(command["at_once"]), made
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
    return 0, set(), 1, 0
