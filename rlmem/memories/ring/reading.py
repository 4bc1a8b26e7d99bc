"""The arrays that a ring storage reads into, made once for an index's shape."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rlmem.memories.base.batch import Batch

if TYPE_CHECKING:
    from rlmem.memories.ring.ring import RingStorage


class SampleArrays:
    """Flat arrays for the compiled reader, and the batch of tensors that share their memory.

    With one step, a stack and its successor overlap: `observation` and `next_observation` are both
    views of stack + 1 frames. With more they are views of the two stacks, one behind the other.

    Args:
        storage: that is read.
        shape: of the indices.
        pinned: the batch lies in memory that a GPU copies from by itself.
    """

    def __init__(self, storage: "RingStorage", shape: tuple[int, ...], pinned: bool) -> None:
        n, self.pinned = int(np.prod(shape)), pinned
        count = storage.stack + 1 if storage.n_step == 1 else 2 * storage.stack
        self.places = np.empty((n, count), np.int64)
        self.last = np.empty(n, np.int64)  # slots at whose next observations the returns end
        size = int(np.prod(storage.frame_shape))
        self.frames, frames = self._make((n, count, size), storage.dtype)
        held = storage._action
        sampled = np.dtype(np.int64) if held.dtype.kind in "iu" else held.dtype
        self.action, action = self._make((n, int(np.prod(held.shape[1:]))), sampled)
        self.reward, reward = self._make((n,), np.float32)
        self.terminated, terminated = self._make((n,), np.bool_)
        self.truncated, truncated = self._make((n,), np.bool_)
        self.steps, steps = self._make((n,), np.int64)
        channels, *rest = storage.frame_shape
        own, batch = storage.stack * channels, len(shape)
        frames = frames.view(*shape, count * channels, *rest)
        self.batch: Batch = {
            "observation": frames.narrow(batch, 0, own),
            "action": action.view(*shape, *held.shape[1:]),
            "next_observation": frames.narrow(batch, count * channels - own, own),
            "reward": reward.view(*shape, 1),
            "terminated": terminated.view(*shape, 1),
            "truncated": truncated.view(*shape, 1),
            "steps_to_next": steps.view(*shape, 1),
        }
        self.columns: dict[str, np.ndarray] = {}
        for name, column in storage._columns.items():
            self.columns[name], tensor = self._make((n, *column.shape[1:]), column.dtype)
            self.batch[name] = tensor.view(*shape, *column.shape[1:])

    def _make(self, shape: tuple[int, ...], dtype: Any) -> tuple[np.ndarray, torch.Tensor]:
        """An array and a tensor of the same memory."""
        if not self.pinned:
            array = np.empty(shape, dtype)
            return array, torch.from_numpy(array)
        like = torch.from_numpy(np.empty(0, dtype)).dtype
        tensor = torch.empty(shape, dtype=like, pin_memory=True)
        return tensor.numpy(), tensor
