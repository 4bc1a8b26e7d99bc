"""What every writer shares: a TorchRL writer that counts its bytes and saves without pickle."""

from typing import Any

import torch
from torchrl.data.replay_buffers.writers import Writer

from rlmem.memories.base.blocks import check_single
from rlmem.memories.base.state import Stateful


class ReplayWriter(Stateful, Writer):
    """Base of the writers, which say what of each block is kept and where.

    `self._storage` is the memory's storage, `self._rng` its random generator.
    """

    _storage: Any
    _write_count: Any = 0  # transitions that were written (TorchRL's `write_count`)
    warmup_footprint = 0  # bytes held at most before the storage holds anything

    def extend(self, data: Any) -> torch.Tensor:
        """Write a block of N transitions (`rlmem.memories.base.blocks`).

        Returns:
            Their slots int64 [N], -1 for those that are not kept.
        """
        raise NotImplementedError

    def add(self, data: Any) -> int:
        """Write one transition; its slot, or -1.

        Raises:
            ValueError: it is none, or several; nothing is written.
        """
        check_single(data)
        return int(self.extend(data)[0])

    def footprint(self) -> dict[str, int]:
        """Component -> bytes held."""
        return {}

    def projected_footprint(self) -> dict[str, int]:
        """Component -> bytes held when the memory is full."""
        return self.footprint()

    def check_valid(self) -> None:
        """Assert the invariants."""

    def _empty(self, empty_write_count: bool = True) -> None:
        """Forget what was written."""
