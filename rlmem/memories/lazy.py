"""Large arrays of which the system gives a page only when it is first written."""

import contextlib
import mmap
import sys
from typing import Any

import numpy as np

from rlmem.errors import UserError


def lazy_zeros(shape: tuple[int, ...], dtype: Any, *, huge: bool = False) -> np.ndarray:
    """An array of zeros that takes memory as it is written to.

    np.zeros does so too, but the system may refuse to promise more than it has, and a capacity is
    the worst case: a large array promises nothing here (Linux).

    Args:
        huge: pages of 2 MiB, for arrays whose rows span pages; others hold less unused.

    Raises:
        UserError: the system has no address space for it.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if size < 2**20 or sys.platform != "linux":
        return np.zeros(shape, dtype)
    no_reserve = 0x4000  # MAP_NORESERVE; mmap names it from Python 3.13 on
    try:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
    except OSError as error:
        raise UserError(
            f"memory.capacity: the system refuses {size / 2**30:.1f} GiB of address space "
            f"({error.strerror}); use a smaller one"
        ) from None
    if huge:
        with contextlib.suppress(OSError):  # a kernel without huge pages
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype).reshape(shape)


def give_back(array: np.ndarray, start: int, count: int) -> None:
    """Return the pages of rows [start, start + count) of a lazy array to the system; they are
    zeros from then on. Does nothing where the system has no such call."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        row = array[0].nbytes
        base.madvise(mmap.MADV_DONTNEED, start * row, count * row)
