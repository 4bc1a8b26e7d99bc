"""What every sampler of rlmem shares: it is a TorchRL sampler that can count its bytes."""

from typing import Any

import numpy as np
import torch
from torchrl.data.replay_buffers.samplers import Sampler

from rlmem.memories.state import Stateful


class ReplaySampler(Stateful, Sampler):
    """Base of the samplers: drawing from `self._rng`, saving without pickle, counting bytes."""

    def uniform(self, n: int) -> torch.Tensor:
        """n draws from [0, 1), float64 [n], from the generator that the buffer passed in."""
        return torch.rand(n, generator=self._rng, dtype=torch.float64)

    def available(self, storage: Any, batch_size: int, num_batches: int) -> int:
        """How many of `num_batches` minibatches can be drawn now."""
        return num_batches if len(storage) > 0 else 0

    def can_sample(self, storage: Any, batch_size: int) -> bool:
        """Whether a minibatch can be drawn (TorchRL's interface)."""
        return self.available(storage, batch_size, 1) > 0

    def remove(self, index: np.ndarray) -> None:
        """Never draw the slots `index` (int64 [n]) until they are written again."""

    def synchronise(self, storage: Any) -> None:
        """Take over what changed in a storage that keeps a log of it; others keep none."""

    def bytes_a_slot(self) -> int:
        """Bytes that the sampler holds for each slot in use."""
        return 0

    def anneal(self, env_steps: int) -> None:
        """Tell the sampler how far the run is; samplers with a schedule follow it."""

    def footprint(self) -> dict[str, int]:
        """Component -> bytes held."""
        return {}

    def projected_footprint(self) -> dict[str, int]:
        """Component -> bytes held when the memory is full."""
        return self.footprint()

    def check_valid(self) -> None:
        """Assert the invariants."""

    def _empty(self) -> None:
        pass


def as_index(index: Any) -> np.ndarray:
    """Any index (int, list, array, tensor) as int64 [n]."""
    if isinstance(index, torch.Tensor):
        index = index.cpu().numpy()
    return np.atleast_1d(np.asarray(index, dtype=np.int64))


def require_items(storage: Any) -> int:
    """Number of stored items.

    Raises:
        RuntimeError: the storage is empty.
    """
    size = len(storage)
    if size == 0:
        raise RuntimeError("the memory is empty: extend it before sampling")
    return size
