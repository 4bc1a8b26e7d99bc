"""What every writer shares: a TorchRL writer that counts its bytes and saves without pickle."""

from pathlib import Path
from typing import Any

import torch
from torchrl.data.replay_buffers.writers import Writer

from rlmem.memories.base.serialize import State, load_state, save_state


class ReplayWriter(Writer):
    """Base of the writers, which say what of each block is kept and where.

    `self._storage` is the memory's storage, `self._rng` its random generator.
    """

    _storage: Any
    _rng: torch.Generator

    def extend(self, data: Any) -> torch.Tensor:
        """Write a block of N transitions (`rlmem.memories.base.storage`).

        Returns:
            Their slots int64 [N], -1 for those that are not kept.
        """
        raise NotImplementedError

    def add(self, data: Any) -> int:
        """Write one transition; its slot, or -1."""
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

    def state_dict(self) -> State:
        """Flat state: name -> array or JSON value, copied."""
        return {}

    def load_state_dict(self, state_dict: State) -> None:
        """Take over a state."""

    def dumps(self, path: Any) -> None:
        """Save into a folder (TorchRL's interface)."""
        save_state(Path(path), self.state_dict())

    def loads(self, path: Any) -> None:
        """Load from a folder (TorchRL's interface)."""
        self.load_state_dict(load_state(Path(path)))
