"""The ring writer: the next slots in order, the oldest overwritten first."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torchrl.data.replay_buffers.writers import Writer

from rlmem.memories.serialize import State, load_state, save_state


class RingWriter(Writer):
    """TorchRL's `RoundRobinWriter` without its locks between processes: one process writes."""

    def __init__(self) -> None:
        super().__init__()
        self._cursor = 0

    def add(self, data: Any) -> int:
        """Write one transition; its slot."""
        slot = self._cursor
        self._storage.set(slot, data)
        self._cursor = (slot + 1) % self._storage.max_size
        return slot

    def extend(self, data: Any) -> torch.Tensor:
        """Write a block of N transitions; their slots int64 [N]."""
        first, size = self._cursor, self._storage.max_size
        index = np.arange(first, first + len(data["action"])) % size
        self._storage.set(index, data)  # pyright: ignore[reportArgumentType]
        self._cursor = (first + len(index)) % size
        return torch.from_numpy(index)

    def footprint(self) -> dict[str, int]:
        """Component -> bytes held: a cursor only."""
        return {}

    projected_footprint = footprint

    def check_valid(self) -> None:
        """The cursor lies in the storage."""
        assert 0 <= self._cursor < self._storage.max_size, "the cursor is out of range"

    def _empty(self, empty_write_count: bool = True) -> None:
        self._cursor = 0

    def state_dict(self) -> State:
        """Flat state."""
        return {"cursor": self._cursor}

    def load_state_dict(self, state_dict: State) -> None:
        """Take over a state."""
        self._cursor = int(state_dict["cursor"])

    def dumps(self, path: Any) -> None:
        """Save into a folder."""
        save_state(Path(path), self.state_dict())

    def loads(self, path: Any) -> None:
        """Load from a folder."""
        self.load_state_dict(load_state(Path(path)))
