"""A binary max-heap with positions: the near-sorted order that rank-based priorities need.

16 bytes an item: priority float64, heap position of an item and item at a heap position.
"""

from typing import Any

import numpy as np
from numba import njit

from rlmem.memories.base.lazy import give_back_all, lazy_zeros
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import Stateful, array_of
from rlmem.memories.samplers.entries import check_entries, check_index


@njit(cache=True)
def _swap(order: np.ndarray, position: np.ndarray, a: Any, b: Any) -> None:
    order[a], order[b] = order[b], order[a]
    position[order[a]] = a + 1
    position[order[b]] = b + 1


@njit(cache=True)
def _sift(
    priority: np.ndarray, order: np.ndarray, position: np.ndarray, size: int, at: Any
) -> None:
    """Move the item at a heap position to where its priority belongs."""
    while at > 0 and priority[order[(at - 1) // 2]] < priority[order[at]]:
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


@njit(cache=True)
def _remove(
    priority: np.ndarray, order: np.ndarray, position: np.ndarray, size: int, index: np.ndarray
) -> int:
    for i in range(index.shape[0]):
        at = position[index[i]] - 1
        if at < 0:
            continue
        size -= 1
        _swap(order, position, at, size)
        position[index[i]] = 0
        if at < size:
            _sift(priority, order, position, size, at)
    return size


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
        if item < 0:
            continue
        priority[item] = value[i]
        if position[item] == 0:
            order[size] = item
            size += 1
            position[item] = size
        _sift(priority, order, position, size, position[item] - 1)
    return size


class RankHeap(Stateful):
    """Items in [0, capacity) ordered by priority, largest near the front.

    Args:
        capacity: number of items at most.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size = 0
        self._priority = lazy_zeros((capacity,), np.float64)
        self._order = lazy_zeros((capacity,), np.int32)
        self._position = lazy_zeros((capacity,), np.int32)  # heap position + 1; 0: not in it
        self.used = 0  # items below the largest index ever written

    def update(self, index: np.ndarray, value: np.ndarray) -> None:
        """Add items or change their priorities.

        Args:
            index: int64 [n], each in [0, capacity), or -1: a row that is skipped.
            value: float64 [n], finite and >= 0.

        Raises:
            IndexError: an index is out of range; nothing was changed.
            ValueError: a priority is negative or not finite; nothing was changed.
        """
        self.used = max(self.used, check_entries(index, value, self.capacity) + 1)
        self.size = _update(self._priority, self._order, self._position, self.size, index, value)

    def remove(self, index: np.ndarray) -> None:
        """Take items out (int64 [n]); those that are not in it are skipped.

        Raises:
            IndexError: an index is not in [0, capacity); nothing was changed.
        """
        check_index(index, self.capacity)
        self.size = _remove(self._priority, self._order, self._position, self.size, index)

    def item_at(self, rank: np.ndarray) -> np.ndarray:
        """Items at heap positions `rank` (int64 [n], 0 is the largest), int64 [n]."""
        return self._order[rank].astype(np.int64)

    def sort(self) -> None:
        """Order exactly; a sorted array is a heap."""
        items = self._order[: self.size]
        items = items[np.argsort(-self._priority[items], kind="stable")]
        self._order[: self.size] = items
        self._position[items] = np.arange(1, self.size + 1, dtype=np.int32)

    def footprint(self) -> int:
        """Bytes held."""
        return 16 * self.used

    def state_views(self) -> State:
        return {"priority": self._priority[: self.used], "order": self._order[: self.size]}

    def check_state(self, state: State) -> None:
        priority = array_of(state, "priority", np.float64, (-1,))
        order = array_of(state, "order", np.int32, (-1,))
        if len(priority) > self.capacity:
            raise ValueError(
                f"the saved memory has {len(priority)} priorities, this one {self.capacity} at most"
            )
        known = (order >= 0) & (order < len(priority))
        finite = (priority >= 0) & (priority < np.inf)
        if not known.all() or len(np.unique(order)) < len(order) or not finite.all():
            raise ValueError("the saved memory is damaged: no such ranks")

    def take_over(self, state: State) -> None:
        order = state["order"]
        self.size = len(order)
        for array in (self._priority, self._order, self._position):
            if not give_back_all(array):
                array[: self.used] = 0
        self.used = len(state["priority"])
        self._priority[: self.used] = state["priority"]
        self._order[: self.size] = order
        self._position[self._order[: self.size]] = np.arange(1, self.size + 1, dtype=np.int32)

    def check_valid(self) -> None:
        """No parent is smaller than its child, and positions and order agree."""
        order, n = self._order, self.size
        at = np.arange(1, n)
        parents = self._priority[order[(at - 1) // 2]]
        assert (parents >= self._priority[order[at]]).all(), "a parent is below its child"
        assert np.array_equal(self._position[order[:n]], np.arange(1, n + 1)), "positions disagree"
