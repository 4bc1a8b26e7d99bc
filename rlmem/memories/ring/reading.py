"""The arrays that a ring storage reads into, made once for an index's shape."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rlmem.memories.base.batch import Batch
from rlmem.memories.ring.read_kernels import COLUMNS

if TYPE_CHECKING:
    from rlmem.memories.ring.ring import RingStorage

_KINDS = {name: torch.from_numpy(np.empty(0, kind)).dtype for name, kind in COLUMNS}


class SampleArrays:
    """Flat arrays for the compiled reader, and the batch of tensors that share their memory.

    With one step a stack and its successor overlap: `observation` and `next_observation` are both
    views of stack + 1 frames. With more, and where they are to be apart, all stacks come first and
    all successors then, so that each of the two is contiguous.

    Args:
        storage: that is read.
        shape: of the indices.
        pinned: the batch lies in memory that a GPU copies from by itself.
        apart: they never overlap, so that who changes one in place does not change the other.
    """

    def __init__(
        self, storage: "RingStorage", shape: tuple[int, ...], *, pinned: bool, apart: bool
    ) -> None:
        n, self.pinned = math.prod(shape), pinned
        stack, overlap = storage.stack, storage.n_step == 1 and not apart
        sizes = (n, stack + 1) if overlap else (2 * n, stack)
        self.places = np.empty(sizes, np.int64)
        size = math.prod(storage.frame_shape)
        self.frames, frames = self._make((*sizes, size), storage.dtype)
        held = storage.actions
        sampled = np.dtype(np.int64) if held.dtype.kind in "iu" else held.dtype
        self.action, action = self._make((n, math.prod(held.shape[1:])), sampled)
        # One block for the reader, who takes it as bytes (`read_kernels.COLUMNS`); room for one at
        # least, as an empty array has no stride to be cut with.
        size = max(1, n) * sum(kind.itemsize for kind in _KINDS.values())
        self.columns, block = self._make((size,), np.uint8)
        cut: dict[str, torch.Tensor] = {}
        at = 0
        for name, kind in _KINDS.items():
            end = at + n * kind.itemsize
            cut[name] = block[at:end].view(kind)
            at = end
        self.last = cut["last"].numpy()
        channels, *rest = storage.frame_shape
        if overlap:
            frames = frames.view(*shape, (stack + 1) * channels, *rest)
            ends = [frames.narrow(len(shape), at, stack * channels) for at in (0, channels)]
        else:
            ends = frames.view(2, *shape, stack * channels, *rest)
        self.batch: Batch = {
            "observation": ends[0],
            "action": action.view(*shape, *held.shape[1:]),
            "next_observation": ends[1],
            "reward": cut["reward"].view(*shape, 1),
            "terminated": cut["terminated"].view(*shape, 1),
            "truncated": cut["truncated"].view(*shape, 1),
            "steps_to_next": cut["steps"].view(*shape, 1),
        }
        self.more: dict[str, np.ndarray] = {}
        for name, column in storage.columns.items():
            self.more[name], tensor = self._make((n, *column.shape[1:]), column.dtype)
            self.batch[name] = tensor.view(*shape, *column.shape[1:])

    def _make(self, shape: tuple[int, ...], dtype: Any) -> tuple[np.ndarray, torch.Tensor]:
        """An array and a tensor of the same memory."""
        if not self.pinned:
            array = np.empty(shape, dtype)
            return array, torch.from_numpy(array)
        like = torch.from_numpy(np.empty(0, dtype)).dtype
        tensor = torch.empty(shape, dtype=like, pin_memory=True)
        return tensor.numpy(), tensor
