"""The memory of workers that learn from what they have just played: a rollout each, used once.

The rollouts lie in the workers' processes; here they are counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rlmem.errors import UserError
from rlmem.memories.base.build import MemorySettings, Needs
from rlmem.memories.base.storage import ReplayStorage
from rlmem.memories.base.writer import ReplayWriter
from rlmem.memories.memory import ReplayMemory
from rlmem.memories.samplers.base import NothingDrawn
from rlmem.registry import part


class CountedStorage(ReplayStorage):
    """Counts what others hold.

    Attributes:
        transitions: held by all workers together.
        components: bytes by component, of all workers together.
    """

    unit = "transitions"

    def __init__(self) -> None:
        super().__init__(1)
        self.transitions = 0
        self.components: Mapping[str, int] = {}

    def __len__(self) -> int:
        return self.transitions

    def footprint(self) -> dict[str, int]:
        return dict(self.components)

    def projected_footprint(self) -> dict[str, int]:
        return dict(self.components)


class WorkerRollouts(ReplayMemory):
    """What all workers hold together, as a run's memory: counted, not saved.

    A worker resumes by playing its last episode again, so that no rollout need be saved.
    """

    draws = False

    def __init__(self) -> None:
        self._counted = CountedStorage()
        super().__init__(self._counted, NothingDrawn(), ReplayWriter(), seed=0)

    def count(self, workers: int, steps: int, components: Mapping[str, int]) -> None:
        """Told what there is.

        Args:
            steps: of a rollout.
            components: bytes of one worker's rollout, by component.
        """
        self._counted.transitions = self._counted.max_size = workers * steps
        self._counted.components = {name: workers * size for name, size in components.items()}

    def save(self, folder: Path, previous: Path | None = None) -> None:
        """Nothing: see above."""

    def load(self, folder: Path) -> None:
        """Nothing."""


@dataclass(kw_only=True)
class WorkerRolloutsSettings(MemorySettings):
    """A memory's keys; the agent says how long rollouts are."""

    extends = "worker_rollouts"


@part("memory", "worker_rollouts", settings=WorkerRolloutsSettings)
class WorkerRolloutsPart:
    """A rollout a worker."""

    colours: ClassVar = {"worker_rollouts": 21}  # in figures

    of_workers = True

    @classmethod
    def check(cls, settings: WorkerRolloutsSettings, run: Any) -> None:
        """Raise a UserError unless the agent has workers, and says how long rollouts are."""
        if not run.agent.part.cls.has_workers:
            raise UserError(
                f"memory={settings.name}: it is what workers hold, and agent={run.agent.name} has "
                "none; use agent=a3c, or memory=uniform"
            )
        if settings.budget is not None or settings.capacity != run.agent.n_step:
            key = "budget" if settings.budget is not None else "capacity"
            raise UserError(
                f"memory.{key}={getattr(settings, key)}: a worker holds its rollout, no more; "
                "leave the key out; agent.n_step sets its steps, agent.workers the workers"
            )

    @classmethod
    def build(cls, settings: WorkerRolloutsSettings, needs: Needs) -> WorkerRollouts:
        """The memory of a run."""
        return WorkerRollouts()
