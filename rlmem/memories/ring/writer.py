"""The ring writer: transitions in the order in which they come, the oldest makes room."""

from typing import Any

import torch

from rlmem.errors import UserError
from rlmem.memories.base.writer import ReplayWriter
from rlmem.memories.ring.ring import RingStorage


class RingWriter(ReplayWriter):
    """Writes to a ring storage, which knows the next slots itself: with a budget they depend on
    what is held.

    TorchRL's `RoundRobinWriter` does the same for a storage without a budget.
    """

    def register_storage(self, storage: Any) -> None:
        """Take the storage to write to.

        Raises:
            UserError: it is no ring.
        """
        if not isinstance(storage, RingStorage):
            raise UserError(
                f"RingWriter: writes a ring such as CompressedFrameStorage, not a "
                f"{type(storage).__name__}"
            )
        super().register_storage(storage)

    @property
    def _write_count(self) -> int:
        return int(self._storage.arrays.head["written"])

    def extend(self, data: Any) -> torch.Tensor:
        """Write a block of N transitions; their slots int64 [N]."""
        return torch.from_numpy(self._storage.append(data))

    def loads(self, path: Any) -> None:
        """Nothing: the storage knows what comes next. What stands in the folder may be of TorchRL's
        `RoundRobinWriter`, which writes to the same storages."""
