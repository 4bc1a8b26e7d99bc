"""What every transform shares: it sees what is written and works on each batch that is drawn.

TorchRL calls what works on a buffer's batches a transform. One of rlmem may hold bytes, which
count, and a state, which is saved with the memory.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from rlmem.memories.base.batch import Batch
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import Stateful
from rlmem.memories.base.storage import ReplayStorage


class ReplayTransform(Stateful):
    """Base of the transforms: does nothing, holds nothing."""

    name = "transform"  # of its folder in a saved memory
    _rng: torch.Generator  # the memory's

    def register_storage(self, storage: ReplayStorage) -> None:
        """Told once which storage the batches come from.

        Raises:
            ValueError: it does not work on this storage.
        """
        self.storage = storage

    def check(self, block: Any) -> None:
        """Shown each block before any part of the memory takes it.

        Raises:
            ValueError: the block cannot be used.
        """

    def extend(self, block: Any, index: torch.Tensor) -> None:
        """Told of each block (`rlmem.memories.base.blocks`) that was written, at slots [N]."""

    def apply(self, batch: Batch) -> Batch:
        """Rewrite a batch [U, B]; it has `index` and `weight` already.

        Stacks of frames are to be made anew and not changed in place: `observation` and
        `next_observation` of a batch may share frames.
        """
        return batch

    def learned(self, batch: Batch, outputs: Mapping[str, torch.Tensor]) -> None:
        """Told of each batch [U, B] what the agent returned of it, as observers are."""

    def check_beside(self, state: State, storage: State) -> None:
        """Shown a checked state and the storage's that was saved with it.

        Raises:
            ValueError: they do not belong together.
        """

    def metrics(self) -> dict[str, float | None]:
        """Column of metrics.csv -> its value since the last call, None without one."""
        return {}

    def anneal(self, env_steps: int) -> None:
        """Told how far the run is; transforms with a schedule follow it."""

    def bytes_a_slot(self) -> int:
        """Bytes held for each slot of the storage in use."""
        return 0

    def fixed_bytes(self) -> int:
        """Bytes held besides those."""
        return 0

    def footprint(self) -> dict[str, int]:
        """Component -> bytes held."""
        return {}

    def projected_footprint(self) -> dict[str, int]:
        """Component -> bytes held when the memory is full."""
        return self.footprint()

    def check_valid(self) -> None:
        """Assert the invariants."""


def check_names(transforms: Sequence[ReplayTransform]) -> None:
    """Refuse transforms that a saved memory could not tell apart.

    Raises:
        ValueError: two have one name, or one that of another part.
        TypeError: one is no transform of rlmem's.
    """
    for part in transforms:
        if not isinstance(part, ReplayTransform):
            raise TypeError(
                f"transforms: {type(part).__name__} is none of rlmem's, such as "
                "HindsightTransform; TorchRL's go to TorchRL's ReplayBuffer"
            )
    names = [part.name for part in transforms]
    others = {"storage", "sampler", "writer", "memory"}
    if len(others.union(names)) < len(others) + len(names):
        raise ValueError(
            f"transforms named {', '.join(names)}: each needs a `name` of its own, and none of "
            f"{', '.join(sorted(others))}"
        )
