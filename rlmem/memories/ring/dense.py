"""Whole stacks, twice a transition: what most libraries hold, and the bar for the others."""

from typing import Any

import numpy as np

from rlmem.memories.base.blocks import Block
from rlmem.memories.base.lazy import give_back_all, lazy_zeros
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import array_of
from rlmem.memories.ring.frames import SMALLER
from rlmem.memories.ring.reading import SampleArrays
from rlmem.memories.ring.ring import RingStorage
from rlmem.registry import part


@part("memory/storage", "dense")
class DenseStorage(RingStorage):
    """A ring storage (see `RingStorage`) of observation and next observation as they are sampled.

    An Atari transition costs 56,448 bytes and the columns.
    """

    def __init__(self, *sizes: Any, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self._watched = self.stack > 1 or self.n_step > 1  # else each row is whole by itself
        shape = self.stack, int(np.prod(self.frame_shape))
        self._observation = lazy_zeros((self.max_size, *shape), self.dtype, huge=True)
        self._next = lazy_zeros((self.max_size, *shape), self.dtype, huge=True)
        self._running = np.zeros((self.num_envs, *shape), self.dtype)

    kind = "dense"
    smaller = SMALLER

    def clear(self) -> None:
        super().clear()
        for stacks in (self._observation, self._next):
            give_back_all(stacks)

    def _tails(self) -> np.ndarray:
        return np.ascontiguousarray(self._running[:, -1]).view(np.uint8)

    def _put(self, block: Block, first: np.ndarray, ahead: np.ndarray, slot: int) -> None:
        n = len(block)
        observation = block.observation.reshape(n, -1)
        following = block.next_observation.reshape(n, -1)
        for row in range(n):
            stack = self._running[block.env_id[row]]
            if first[row] >= 0:
                stack[:-1] = 0
                stack[-1] = observation[row]
            self._observation[slot + row] = stack
            stack[:-1] = stack[1:].copy()
            stack[-1] = following[row]
            self._next[slot + row] = stack

    def buffers(self, shape: tuple[int, ...], *, pinned: bool = False) -> SampleArrays:
        return SampleArrays(self, shape, pinned=pinned, apart=True)  # as both are held whole

    def _take(
        self, index: np.ndarray, last: np.ndarray, places: np.ndarray, out: np.ndarray
    ) -> None:
        # The slots are checked: without `clip` numpy would do so, by way of a copy of `out`.
        observation, following = np.split(out, 2)
        self._observation.take(index, axis=0, out=observation, mode="clip")
        self._next.take(last, axis=0, out=following, mode="clip")

    def _frame_bytes(self) -> dict[str, int]:
        return self._stack_bytes(int(self.arrays.head["size"]))

    def _projected_frame_bytes(self, chunks: int) -> dict[str, int]:
        return self._stack_bytes(self.max_size)

    def _stack_bytes(self, slots: int) -> dict[str, int]:
        return {"frames": 2 * slots * self._observation[0].nbytes + self._running.nbytes}

    @property
    def row_columns(self) -> dict[str, np.ndarray]:
        return {**super().row_columns, "observation": self._observation, "next": self._next}

    def export_open(self) -> dict[str, np.ndarray]:
        return {"running": self._running}

    def import_open(self, state: State) -> None:
        self._running[:] = state["running"]

    def check_frames(self, state: State, chains: np.ndarray, chunks: np.ndarray) -> None:
        array_of(state, "running", self.dtype, self._running.shape)

    def least_loaded(self, state: State, chains: np.ndarray, chunks: np.ndarray) -> int:
        return sum(self._stack_bytes(int(state["size"])).values())
