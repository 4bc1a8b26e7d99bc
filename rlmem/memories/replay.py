"""Replay memories that are rings: any ring storage, any sampler, transforms of the batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rlmem.errors import UserError
from rlmem.memories.base.build import MemorySettings, Needs, capacity_or_budget
from rlmem.memories.compression.compressed import CompressedFrameStorage
from rlmem.memories.memory import ReplayMemory
from rlmem.memories.ring.frames import FrameStorage
from rlmem.memories.ring.ring import RingStorage
from rlmem.memories.ring.writer import RingWriter
from rlmem.memories.transforms.base import ReplayTransform
from rlmem.registry import part
from rlmem.settings import Settings, part_of
from rlmem.units import parse_bytes


@part("memory/storage", "auto")
class AutoStorage:
    """Compressed frames for images, plain ones for vectors."""

    @staticmethod
    def build(
        settings: Settings, needs: Needs, capacity: int, budget: int | None = None
    ) -> RingStorage:
        """Make the storage; see `RingStorage.build`."""
        images = len(needs.spec.frame_shape) == 3
        kind = CompressedFrameStorage if images else FrameStorage
        return kind.build(settings, needs, capacity, budget)


@dataclass(kw_only=True)
class ReplaySettings(MemorySettings):
    """A ring of the newest transitions: how they are held, and which are drawn."""

    extends = "uniform"

    capacity: int = capacity_or_budget()
    storage: Any = part_of("memory/storage")
    sampler: Any = part_of("memory/sampler")


@part("memory", "replay", settings=ReplaySettings)
class Replay:
    """A ring. Subclasses add transforms of the batches."""

    colours: ClassVar = {
        "uniform": 0,
        "per": 1,
        "cer": 3,
        "per_rank": 9,
        "per_rainbow": 17,
        "newest": 29,
    }  # in figures

    @classmethod
    def check(cls, settings: ReplaySettings, run: Any) -> None:
        """The memory holds a minibatch at least.

        Raises:
            UserError: it does not, or its budget is no size.
        """
        if settings.budget is not None:
            read_budget(settings.budget)
        elif settings.capacity < run.agent.batch_size:
            size = run.agent.batch_size
            raise UserError(
                f"memory.capacity={settings.capacity}: less than one batch, "
                f"agent.batch_size={size}; use memory.capacity={size} or more"
            )

    @classmethod
    def build(cls, settings: Any, needs: Needs) -> ReplayMemory:
        """Compose the memory.

        Raises:
            UserError: the environment does not have what it needs, or the budget is less than a
                minibatch.
        """
        budget = None if settings.budget is None else read_budget(settings.budget)
        # A minibatch, and the rows of a round of which its minibatches see more and more.
        least = needs.batch_size + settings.sampler.part.cls.rows_of_a_round(needs)
        storage = settings.storage.build(needs, max(settings.capacity, least), budget)
        if storage.max_size < needs.batch_size:
            raise UserError(
                f"memory.budget={budget}: too small for one batch, agent.batch_size="
                f"{needs.batch_size}: it holds {storage.max_size} transitions at most; use more"
            )
        return ReplayMemory(
            storage,
            settings.sampler.build(needs, storage.max_size),
            RingWriter(),
            seed=needs.seed,
            budget=budget,
            transforms=cls.transforms(settings, needs, storage),
        )

    @classmethod
    def transforms(
        cls, settings: Any, needs: Needs, storage: RingStorage
    ) -> Sequence[ReplayTransform]:
        """What each batch goes through: nothing."""
        return ()


@part("memory", "none", settings=ReplaySettings)
class NoReplay(Replay):
    """The newest transitions only."""

    colours: ClassVar = {"none": 7}  # in figures

    @classmethod
    def check(cls, settings: ReplaySettings, run: Any) -> None:
        """It has no budget.

        Raises:
            UserError: one is given.
        """
        if settings.budget is not None:
            raise UserError(
                f"memory.budget={settings.budget}: memory={settings.name} holds one batch; leave "
                "the key out"
            )
        super().check(settings, run)


def read_budget(value: Any) -> int:
    """Bytes of `memory.budget`.

    Raises:
        UserError: it is no size.
    """
    try:
        return parse_bytes(value)
    except ValueError as error:
        raise UserError(f"memory.budget={error}") from None
