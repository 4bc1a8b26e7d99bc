"""A table of Q values as the memory of a run."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from rlmem.memories.base.build import MemorySettings, Needs
from rlmem.memories.base.pictures import Overlay, Picture, PictureContext
from rlmem.memories.memory import ReplayMemory
from rlmem.memories.values.asked import AskedMemory, capacity_of, check_asked, key_size
from rlmem.memories.values.q_table import QTable
from rlmem.registry import part
from rlmem.settings import setting


@dataclass(kw_only=True)
class QTableSettings(MemorySettings):
    """A table's keys."""

    extends = "q_table"

    eta: float = setting(above=0, at_most=1)


@part("memory", "q_table", settings=QTableSettings)
class QTableMemory:
    """A row a state."""

    colours: ClassVar = {"q_table": 23}  # in figures

    keys_are_observations = True

    @classmethod
    def check(cls, settings: QTableSettings, run: Any) -> None:
        """Raise a UserError where it does not go with the agent."""
        check_asked(settings, run)

    @classmethod
    def build(cls, settings: QTableSettings, needs: Needs) -> AskedMemory:
        """The memory of a run."""
        size, gamma = key_size(settings, needs), needs.gamma

        def make(capacity: int) -> QTable:
            return QTable(capacity, size, needs.spec.num_actions, gamma=gamma, eta=settings.eta)

        capacity, budget = capacity_of(settings, settings.capacity, make)
        return AskedMemory(make(capacity), needs, "states", budget)

    @staticmethod
    def pictures(memory: ReplayMemory, context: PictureContext) -> Iterable[Picture]:
        """See `rlmem.memories.base.pictures`."""
        from rlmem.memories.values.pictures import table_pictures

        return table_pictures(memory, context)

    @staticmethod
    def overlay(memory: ReplayMemory, context: PictureContext) -> Overlay | None:
        """See `rlmem.memories.base.pictures`."""
        from rlmem.memories.values.pictures_film import table_overlay

        return table_overlay(memory, context)
