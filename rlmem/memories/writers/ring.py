"""The ring writer: transitions in the order in which they come, the oldest makes room."""

from typing import Any

import torch
from torchrl.data.replay_buffers.writers import Writer

from rlmem.memories.state import Stateful


class RingWriter(Stateful, Writer):
    """Writes to a ring storage, which knows the next slots itself: with a budget they depend on
    what is held.

    TorchRL's `RoundRobinWriter` does the same for a storage without a budget.
    """

    def add(self, data: Any) -> int:
        """Write one transition; its slot."""
        return int(self._storage.append(data)[0])  # pyright: ignore[reportAttributeAccessIssue]

    def extend(self, data: Any) -> torch.Tensor:
        """Write a block of N transitions; their slots int64 [N]."""
        return torch.from_numpy(
            self._storage.append(data)  # pyright: ignore[reportAttributeAccessIssue]
        )

    def footprint(self) -> dict[str, int]:
        """Component -> bytes held: none."""
        return {}

    projected_footprint = footprint

    def check_valid(self) -> None:
        """Nothing to check."""

    def _empty(self, empty_write_count: bool = True) -> None:
        pass
