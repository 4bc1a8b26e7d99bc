"""What a batch of weights for a tree or a heap must be, checked before any of it is written."""

import numpy as np
from numba import njit


@njit(cache=True)
def scan(index: np.ndarray, value: np.ndarray, capacity: int) -> tuple[int, int]:
    """First row that cannot be entered, or -1, and the largest index."""
    highest = -1
    for i in range(index.shape[0]):
        if index[i] == -1:
            continue
        # Written so that NaN fails as well.
        if not (0 <= index[i] < capacity and 0.0 <= value[i] < np.inf):
            return i, highest
        highest = max(highest, index[i])
    return -1, highest


@njit(cache=True)
def _outside(index: np.ndarray, capacity: int) -> int:
    """First row whose index is not in [0, capacity), or -1."""
    for i in range(index.shape[0]):
        if not 0 <= index[i] < capacity:
            return i
    return -1


def check_entries(index: np.ndarray, value: np.ndarray, capacity: int) -> int:
    """Check weights that are to be written.

    Args:
        index: int64 [n], each in [0, capacity), or -1: TorchRL's mark of a row to be skipped.
        value: float64 [n], finite and >= 0 (any number where the row is skipped).

    Returns:
        The largest index, -1 if no row is written.

    Raises:
        IndexError: an index is out of range.
        ValueError: a weight is negative or not finite, or there are not as many as indices.
    """
    if index.shape != value.shape:
        raise unequal(index, value)
    row, highest = scan(index, value, capacity)
    if row >= 0:
        raise refusal(int(index[row]), float(value[row]), capacity)
    return highest


def check_index(index: np.ndarray, capacity: int) -> None:
    """Check items (int64 [n]) that are to be read or removed.

    Raises:
        IndexError: an index is not in [0, capacity).
    """
    row = _outside(index, capacity)
    if row >= 0:
        raise refusal(int(index[row]), 0.0, capacity)


def unequal(index: np.ndarray, value: np.ndarray) -> ValueError:
    """The error where there are not as many weights as indices."""
    return ValueError(f"{index.shape} indices and {value.shape} weights: give one for each")


def refusal(index: int, value: float, capacity: int) -> Exception:
    """The error for an entry that was refused: its index if that is out of range, else its
    weight."""
    if not 0 <= index < capacity:
        return IndexError(f"item {index} is out of range: there is room for {capacity}")
    return ValueError(f"weight {value} of item {index}: a weight is finite and not negative")
