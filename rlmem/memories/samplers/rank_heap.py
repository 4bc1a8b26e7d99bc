"""A binary max-heap with positions: the near-sorted order that rank-based priorities need.

16 bytes an item: priority float64, heap position of an item and item at a heap position.
"""

from typing import Any

import numpy as np
from numba import njit

from rlmem.memories.serialize import State


@njit(cache=True)
def _swap(order: np.ndarray, position: np.ndarray, a: Any, b: Any) -> None:
    order[a], order[b] = order[b], order[a]
    position[order[a]] = a
    position[order[b]] = b


@njit(cache=True)
def _update(
    priority: np.ndarray,
    order: np.ndarray,
    position: np.ndarray,
    size: int,
    index: np.ndarray,
    value: np.ndarray,
) -> int:
    for i in range(index.shape[0]):
        item = index[i]
        priority[item] = value[i]
        if position[item] < 0:
            position[item] = size
            order[size] = item
            size += 1
        at = position[item]
        while at > 0 and priority[order[(at - 1) // 2]] < priority[item]:
            _swap(order, position, at, (at - 1) // 2)
            at = (at - 1) // 2
        while True:
            child = 2 * at + 1
            if child >= size:
                break
            if child + 1 < size and priority[order[child + 1]] > priority[order[child]]:
                child += 1
            if priority[order[child]] <= priority[order[at]]:
                break
            _swap(order, position, at, child)
            at = child
    return size


class RankHeap:
    """Items in [0, capacity) ordered by priority, largest near the front.

    Args:
        capacity: number of items at most.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size = 0
        self._priority = np.zeros(capacity, np.float64)
        self._order = np.zeros(capacity, np.int32)
        self._position = np.full(capacity, -1, np.int32)

    def update(self, index: np.ndarray, value: np.ndarray) -> None:
        """Add items or change their priorities: index int64 [n], value float64 [n]."""
        self.size = _update(self._priority, self._order, self._position, self.size, index, value)

    def item_at(self, rank: np.ndarray) -> np.ndarray:
        """Items at heap positions `rank` (int64 [n], 0 is the largest), int64 [n]."""
        return self._order[rank].astype(np.int64)

    def sort(self) -> None:
        """Order exactly; a sorted array is a heap."""
        items = self._order[: self.size]
        items = items[np.argsort(-self._priority[items], kind="stable")]
        self._order[: self.size] = items
        self._position[items] = np.arange(self.size, dtype=np.int32)

    def footprint(self) -> int:
        """Bytes held."""
        return self._priority.nbytes + self._order.nbytes + self._position.nbytes

    def state_dict(self) -> State:
        """Flat state."""
        return {"priority": self._priority, "order": self._order[: self.size]}

    def load_state_dict(self, state_dict: State) -> None:
        """Take over a state in place."""
        order = state_dict["order"]
        self.size = len(order)
        self._priority[:] = state_dict["priority"]
        self._order[: self.size] = order
        self._position[:] = -1
        self._position[self._order[: self.size]] = np.arange(self.size, dtype=np.int32)

    def check_valid(self) -> None:
        """No parent is smaller than its child, and positions and order agree."""
        order, n = self._order, self.size
        at = np.arange(1, n)
        parents = self._priority[order[(at - 1) // 2]]
        assert (parents >= self._priority[order[at]]).all(), "a parent is below its child"
        assert np.array_equal(self._position[order[:n]], np.arange(n)), "positions disagree"
