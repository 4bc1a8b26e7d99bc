"""The ring writer: transitions in the order in which they come, the oldest makes room."""

from typing import Any

import torch

from rlmem.memories.base.writer import ReplayWriter


class RingWriter(ReplayWriter):
    """Writes to a ring storage, which knows the next slots itself: with a budget they depend on
    what is held.

    TorchRL's `RoundRobinWriter` does the same for a storage without a budget.
    """

    def extend(self, data: Any) -> torch.Tensor:
        """Write a block of N transitions; their slots int64 [N]."""
        return torch.from_numpy(self._storage.append(data))
