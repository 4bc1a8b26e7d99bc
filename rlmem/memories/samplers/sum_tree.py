"""Sum tree: weighted draws over many items, with weights that change one batch at a time.

A complete binary tree in one float64 array: an inner node holds the sum of its two children, so
an update rewrites one path to the root and a draw walks one path down. A parent is always the sum
of its children as they stand (never corrected by a difference), so no rounding error gathers, and
an item of weight zero is never drawn. 16 bytes an item, the capacity rounded up to a power of two.
"""

import numpy as np
from numba import njit

from rlmem.memories.base.lazy import give_back_all, lazy_zeros
from rlmem.memories.samplers.entries import check_entries, check_index, refusal, scan, unequal

COMPILED_WITH = {"entries": "71bff14da0d4"}
NO_WEIGHT = "no item has a positive weight: nothing can be drawn"
OUTSIDE = "a fraction of the total weight to draw at is not in [0, 1]"


@njit(cache=True)
def _update(
    tree: np.ndarray, capacity: int, index: np.ndarray, value: np.ndarray
) -> tuple[int, int]:
    """Set weights, unless one cannot be: its row, or -1, and the largest index."""
    refused, highest = scan(index, value, capacity)
    if refused >= 0:
        return refused, highest
    base = len(tree) // 2
    for i in range(index.shape[0]):
        if index[i] < 0:
            continue
        node = base + index[i]
        tree[node] = value[i]
        node >>= 1
        while node >= 1:
            tree[node] = tree[2 * node] + tree[2 * node + 1]
            node >>= 1
    return -1, highest


@njit(cache=True)
def _draw(tree: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Items at the fractions u of the total, and their weights; fewer where a fraction is out of
    range."""
    base = len(tree) // 2
    items, weights = np.empty(u.shape[0], np.int64), np.empty(u.shape[0])
    for i in range(u.shape[0]):
        if not 0.0 <= u[i] <= 1.0:
            return items[:i], weights[:i]
        mass = u[i] * tree[1]
        node = 1
        while node < base:
            node *= 2
            left = tree[node]
            # Rounding can leave a mass just past the last weight: never enter an empty subtree.
            if mass >= left and tree[node + 1] > 0.0:
                mass -= left
                node += 1
        items[i], weights[i] = node - base, tree[node]
    return items, weights


class SumTree:
    """Weights of `capacity` items with O(log capacity) updates and draws.

    Args:
        capacity: number of items; all weights start at 0.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity={capacity}: a sum tree needs at least one item")
        self.capacity = capacity = int(capacity)
        self._base = 1 << (capacity - 1).bit_length()
        self._tree = lazy_zeros((2 * self._base,), np.float64)
        self.used = 0  # items below the largest index ever written

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return float(self._tree[1])

    def update(self, index: np.ndarray, value: np.ndarray) -> None:
        """Set weights; of an index given twice, the last value stands.

        Args:
            index: int64 [n], each in [0, capacity), or -1: a row that is skipped.
            value: float64 [n], finite and >= 0.

        Raises:
            IndexError: an index is out of range; nothing was set.
            ValueError: a weight is negative or not finite; nothing was set.
        """
        if index.shape != value.shape:
            raise unequal(index, value)
        refused, highest = _update(self._tree, self.capacity, index, value)
        if refused >= 0:
            raise refusal(int(index[refused]), float(value[refused]), self.capacity)
        self.used = max(self.used, highest + 1)

    def draw(self, u: np.ndarray) -> np.ndarray:
        """Items at the fractions `u` of the total weight.

        Args:
            u: float64 [n] in [0, 1); 1, to which a fraction may round, is the last item's.

        Returns:
            int64 [n], item i such that prefix(i) <= u * total < prefix(i + 1).

        Raises:
            ValueError: all weights are zero, or a fraction is out of range.
        """
        return self.draw_weighted(u)[0]

    def draw_weighted(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What `draw` gives, and the items' weights, float64 [n]."""
        if not self._tree[1] > 0.0:
            raise ValueError(NO_WEIGHT)
        items, weights = _draw(self._tree, u)
        if len(items) < len(u):
            raise ValueError(OUTSIDE)
        return items, weights

    def leaf(self, index: np.ndarray) -> np.ndarray:
        """Weights of the items `index` (int64 [n]) as float64 [n].

        Raises:
            IndexError: an index is not in [0, capacity).
        """
        check_index(index, self.capacity)
        return self._tree[self._base + index]

    def grow(self, capacity: int) -> None:
        """Make room for `capacity` items; the present weights stay."""
        if capacity <= self.capacity:
            return
        leaves = self.leaves()[: self.used].copy()
        self.__init__(capacity)
        self.load_leaves(leaves)

    def leaves(self) -> np.ndarray:
        """All weights, float64 [capacity], a view."""
        return self._tree[self._base : self._base + self.capacity]

    def load_leaves(self, leaves: np.ndarray) -> None:
        """Set the first weights (float64 [n]), the rest to 0, and sum them up again.

        Raises:
            IndexError: more weights than the capacity; nothing was set.
            ValueError: a weight is negative or not finite; nothing was set.
        """
        check_entries(np.arange(len(leaves)), leaves, self.capacity)
        used = len(leaves) if give_back_all(self._tree) else max(self.used, len(leaves))
        self.used = len(leaves)
        self._tree[self._base : self._base + used] = 0.0
        self._tree[self._base : self._base + len(leaves)] = leaves
        level = self._base
        while level > 1:  # only pages that hold weights are touched
            used = (used + 1) // 2
            pairs = self._tree[level : level + 2 * used].reshape(-1, 2)
            level //= 2
            self._tree[level : level + used] = pairs[:, 0] + pairs[:, 1]

    def footprint(self) -> int:
        """Bytes held: a leaf and an inner node an item (and less than a page a level)."""
        return 16 * self.used

    def check_valid(self) -> None:
        """Each inner node is the sum of its children, and no weight is negative."""
        inner = self._tree[2:].reshape(-1, 2).sum(1)
        assert np.array_equal(inner, self._tree[1 : self._base]), "a node is not its children's sum"
        assert (self.leaves() >= 0).all(), "a weight is negative"
        assert not self._tree[self._base + self.capacity :].any(), "weight past the capacity"
