"""How the C library's allocator gives memory back: rarely while networks train, or at once."""

import ctypes
import os

KEPT_BYTES = 256 * 2**20  # free at the heap's end that are kept
OWN_PAGES_BYTES = 64 * 2**20  # arrays from this size on are given back to the system
try:
    HAS_GLIBC = bool(os.confstr("CS_GNU_LIBC_VERSION"))
except (AttributeError, ValueError, OSError):  # another system's library
    HAS_GLIBC = False
# Of glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> None:
    """Let glibc keep the memory of arrays up to 64 MiB for those that follow; nothing elsewhere.

    Else each gradient of a large layer (6 MB of the Nature CNN's) is new pages from the system,
    1,600 page faults, which take longer than what is computed: a fourth of its update in bfloat16.
    Large arrays, such as a memory's, are given back as ever. Who set one of glibc's own variables
    (`MALLOC_TRIM_THRESHOLD_`, `MALLOC_MMAP_THRESHOLD_`) has decided it: they stay.
    """
    if not HAS_GLIBC or any(name.startswith("MALLOC_") for name in os.environ):
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, OWN_PAGES_BYTES)
    libc.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def give_back_freed_memory() -> None:
    """Have glibc return all that was freed; nothing elsewhere.

    After a burst of small blocks it keeps the holes between those that are still in use, and the
    blocks that follow touch pages all over them.
    """
    if HAS_GLIBC:
        ctypes.CDLL(None).malloc_trim(0)
