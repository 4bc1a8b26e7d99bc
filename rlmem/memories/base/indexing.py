"""From anything that indexes a tensor to the slots of a storage."""

from typing import Any

import numpy as np
import torch
from numba import njit


@njit(cache=True)
def _any_negative(index: np.ndarray) -> bool:
    for i in range(index.shape[0]):  # noqa: SIM110 (compiled)
        if index[i] < 0:
            return True
    return False


def slots_of(storage: Any, index: Any) -> np.ndarray:
    """Slots that an index names.

    Whole numbers from 0 on are slots, as a sampler gives them. Everything else counts the stored
    items in the order of the storage's `locate`: negative numbers from the end, slices, boolean
    masks, None and an Ellipsis as in a tensor of `len(storage)` rows.

    Args:
        storage: has a length and `locate`.
        index: int, slice, None, Ellipsis, or whole numbers [...] or bools [len(storage)] as a
            tensor, an array or a list.

    Returns:
        int64 [...]; a number that names nothing stays as it is, for the storage to refuse.

    Raises:
        IndexError: a mask of another length, or what indexes no tensor.
    """
    if isinstance(index, torch.Tensor):
        index = index.detach().cpu().numpy()
    numbers = index if isinstance(index, np.ndarray) else np.asarray(index)
    if numbers.dtype.kind not in "iu":
        return _locate(storage, np.arange(len(storage))[index])
    numbers = numbers.astype(np.int64, copy=False)
    if _any_negative(numbers.reshape(-1)):
        from_end = (numbers < 0) & (numbers >= -len(storage))
        numbers = numbers.copy()
        numbers[from_end] = _locate(storage, numbers[from_end] + len(storage))
    return numbers


def _locate(storage: Any, positions: np.ndarray) -> np.ndarray:
    return storage.locate(torch.from_numpy(np.ascontiguousarray(positions))).numpy()
