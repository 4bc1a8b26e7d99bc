"""Lists that let a transition go at random, where a ring lets the oldest go.

A ring of few bytes forgets all that is older than its length. These are the controls that hold as
many bytes and forget otherwise: they tell whether a memory that learns where a ring of its bytes
forgets does so by what it chooses to keep, or by keeping some of what is old at all.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from rlmem.errors import UserError
from rlmem.memories.base.build import MemorySettings, Needs, capacity_or_budget
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import count_of
from rlmem.memories.base.writer import ReplayWriter
from rlmem.memories.memory import ReplayMemory
from rlmem.memories.replay import read_budget
from rlmem.memories.slots import SlotStorage
from rlmem.registry import part
from rlmem.settings import part_of, setting

EVICTIONS = ("random", "reservoir")


class RandomEvictionWriter(ReplayWriter):
    """Fills a `SlotStorage`, then writes over slots drawn at random.

    Args:
        reservoir: False: each transition takes a random slot, so that one that was written k
            transitions ago is still held with probability (1 - 1 / capacity)^k. True: transition
            number n (from 0) takes one with probability capacity / (n + 1), so that each that was
            ever written is held with the same probability (Vitter 1985, algorithm R).

    Raises:
        ValueError: reservoir is neither.
    """

    def __init__(self, reservoir: bool = False) -> None:
        super().__init__()
        if not isinstance(reservoir, bool):
            raise ValueError(f"reservoir={reservoir!r}: give True, or False for random eviction")
        self.reservoir = reservoir
        self._seen = 0

    def register_storage(self, storage: Any) -> None:
        """Take the storage to write to.

        Raises:
            UserError: its slots are not written in any order.
        """
        if not isinstance(storage, SlotStorage):
            raise UserError(
                f"RandomEvictionWriter: writes a SlotStorage, not a {type(storage).__name__}"
            )
        super().register_storage(storage)
        self._seen = max(self._seen, len(storage))  # at least what a filled one holds

    def extend(self, data: Any) -> torch.Tensor:
        """Write a block of N transitions; their slots int64 [N], -1: not kept.

        Raises:
            ValueError: a block of other shapes; nothing is written.
        """
        block = self._storage.read_block(data)
        capacity, rows = self._storage.max_size, len(block)
        number = self._seen + torch.arange(rows, device="cpu")
        among = number + 1 if self.reservoir else torch.full_like(number, capacity)
        chance = torch.rand(rows, generator=self._rng, dtype=torch.float64, device="cpu")
        slots = (chance * among).long()
        slots[slots >= capacity] = -1
        free = torch.from_numpy(self._storage.free_slots(rows))  # of a new memory, or a larger one
        slots[: len(free)] = free
        self._storage.set(slots.numpy(), block)
        self._seen += rows
        return slots

    @property
    def _write_count(self) -> int:
        return self._seen

    def _empty(self, empty_write_count: bool = True) -> None:
        self._seen = 0

    def state_views(self) -> State:
        return {"seen": self._seen}

    def check_state(self, state: State) -> None:
        count_of(state, "seen")

    def take_over(self, state: State) -> None:
        self._seen = int(state["seen"])


@dataclass(kw_only=True)
class RandomEvictionSettings(MemorySettings):
    """Which transitions make room, and which are drawn."""

    extends = "random_eviction"

    capacity: int = capacity_or_budget()
    eviction: str = setting(choices=EVICTIONS)
    sampler: Any = part_of("memory/sampler")


@part("memory", "random_eviction", settings=RandomEvictionSettings)
class RandomEviction:
    """A list in which chance says what makes room."""

    colours: ClassVar = {"random_eviction": 22}  # in figures

    @classmethod
    def check(cls, settings: RandomEvictionSettings, run: Any) -> None:
        """What it does not have: the order of time, and returns over several steps.

        Raises:
            UserError: the run asks for one of these, or the budget is no size.
        """
        if settings.budget is not None:
            read_budget(settings.budget)
        if run.agent.n_step > 1:
            raise UserError(
                f"agent.n_step={run.agent.n_step}: memory={settings.name} does not hold what "
                "followed a transition, so it has no returns over several steps; use agent.n_step=1"
            )
        sampler = settings.sampler.part
        if sampler.cls.in_order:
            raise UserError(
                f"memory/sampler={sampler.name}: draws by the order of time, which memory="
                f"{settings.name} does not hold; use memory/sampler=uniform or prioritized"
            )
        if sampler.cls.takes_newest and settings.eviction == "reservoir":
            raise UserError(
                f"memory/sampler={sampler.name}: each minibatch has the newest transition, which "
                "memory.eviction=reservoir seldom keeps; use memory/sampler=uniform, or "
                "memory.eviction=random"
            )

    @classmethod
    def build(cls, settings: RandomEvictionSettings, needs: Needs) -> ReplayMemory:
        """Compose the memory.

        Raises:
            UserError: the budget holds no transition.
        """
        budget, capacity = None, settings.capacity
        if settings.budget is not None:  # an upper bound: what the sampler holds is not in it
            budget = read_budget(settings.budget)
            capacity = max(1, budget // SlotStorage(1, **needs.layout).bytes_a_transition())
        storage = SlotStorage(capacity, **needs.layout)
        return ReplayMemory(
            storage,
            settings.sampler.build(needs, storage.max_size),
            RandomEvictionWriter(settings.eviction == "reservoir"),
            seed=needs.seed,
            budget=budget,
        )
