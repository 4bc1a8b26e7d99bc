"""Whole stacks, twice a transition: what most libraries hold, and the bar for the others."""

from typing import Any

import numpy as np

from rlmem.memories.base.lazy import lazy_zeros
from rlmem.memories.base.serialize import State
from rlmem.memories.base.storage import Block
from rlmem.memories.ring.ring import RingStorage
from rlmem.registry import part


@part("memory/storage", "dense")
class DenseStorage(RingStorage):
    """A ring storage (see `RingStorage`) of observation and next observation as they are sampled.

    An Atari transition costs 56,448 bytes and the columns.
    """

    def __init__(
        self, capacity: int, frame_shape: tuple[int, ...], dtype: Any = np.uint8, **options: Any
    ) -> None:
        super().__init__(capacity, frame_shape, dtype, **options)
        shape = self.stack, int(np.prod(frame_shape))
        self._observation = lazy_zeros((capacity, *shape), dtype, huge=True)
        self._next = lazy_zeros((capacity, *shape), dtype, huge=True)
        self._running = np.zeros((self.num_envs, *shape), self.dtype)

    kind = "dense"

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

    def _take(
        self, index: np.ndarray, last: np.ndarray, places: np.ndarray, out: np.ndarray
    ) -> None:
        self._observation.take(index, axis=0, out=out[:, : self.stack])
        self._next.take(last, axis=0, out=out[:, -self.stack :])

    def _frame_bytes(self) -> dict[str, int]:
        return self._stack_bytes(int(self._ring["size"][0]))

    def _projected_frame_bytes(self, chunks: int) -> dict[str, int]:
        return self._stack_bytes(self.max_size)

    def _stack_bytes(self, slots: int) -> dict[str, int]:
        return {"frames": 2 * slots * self._observation[0].nbytes + self._running.nbytes}

    @property
    def _row_bytes(self) -> int:
        return super()._row_bytes + 2 * self._observation[0].nbytes

    def _export_columns(self, slots: np.ndarray) -> dict[str, np.ndarray]:
        stacks = {"observation": self._observation[slots], "next": self._next[slots]}
        return {**super()._export_columns(slots), **stacks}

    def _import_columns(self, slots: np.ndarray, columns: dict[str, np.ndarray]) -> None:
        super()._import_columns(slots, columns)
        self._observation[slots], self._next[slots] = columns["observation"], columns["next"]

    def _export_open(self) -> dict[str, np.ndarray]:
        return {"running": self._running}

    def _import_open(self, state: State) -> None:
        self._running[:] = state["running"]
