"""Large arrays of which the system gives a page only when it is first written."""

import contextlib
import mmap
import sys
from typing import Any

import numpy as np

from rlmem.errors import UserError


def lazy_zeros(
    shape: tuple[int, ...], dtype: Any, *, huge: bool = False, least: int = 2**16
) -> np.ndarray:
    """An array of zeros that takes memory as it is written to.

    np.zeros does so too, but the system may refuse to promise more than it has, and a capacity is
    the worst case: a large array promises nothing here (Linux).

    Args:
        huge: pages of 2 MiB, for arrays whose rows span pages; others hold less unused.
        least: bytes from which on an array has pages of its own; of smaller ones, what is not
            written yet is little.

    Raises:
        UserError: the system has no address space for it.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if size < max(1, least) or sys.platform != "linux":
        return np.zeros(shape, dtype)
    no_reserve = 0x4000  # MAP_NORESERVE; mmap names it from Python 3.13 on
    try:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
    except OSError as error:
        raise UserError(
            f"memory.capacity or memory.budget: the system refuses {size / 2**30:.1f} GiB of "
            f"address space ({error.strerror}); use a smaller one"
        ) from None
    if huge:
        with contextlib.suppress(OSError):  # a kernel without huge pages
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype).reshape(shape)


def _pages(array: np.ndarray) -> mmap.mmap | None:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    base = base.obj if isinstance(base, memoryview) else base  # what frombuffer keeps
    return base if isinstance(base, mmap.mmap) else None


def give_back_all(array: np.ndarray) -> bool:
    """Return all pages of a lazy array to the system, which makes it zeros. One that has no pages
    of its own, or whose system takes none back, stays as it is; which of both it was."""
    pages = _pages(array)
    if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
        with contextlib.suppress(OSError):
            pages.madvise(mmap.MADV_DONTNEED)
            return True
    return False


def can_give_back(array: np.ndarray) -> bool:
    """Whether the system takes back single rows of a lazy array: none without pages of its own,
    nor parts of pages."""
    whole = array[0].nbytes % mmap.PAGESIZE == 0
    return whole and _pages(array) is not None and hasattr(mmap, "MADV_DONTNEED")


def give_back(array: np.ndarray, start: int, count: int) -> bool:
    """Return the pages of rows [start, start + count) of a lazy array to the system; they are
    zeros from then on. Whether the system took them."""
    pages = _pages(array)
    if pages is None or not can_give_back(array):
        return False
    row = array[0].nbytes
    try:
        pages.madvise(mmap.MADV_DONTNEED, start * row, count * row)
    except OSError:
        return False
    return True
