"""Freed memory is kept for the next gradient, unless the user has decided that, or goes back."""

import os
import resource
import subprocess
import sys

import psutil
import pytest

from rlmem.allocator import HAS_GLIBC, give_back_freed_memory

FAULTS = """
import ctypes, resource, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: a page is a fault
import torch
from rlmem.allocator import keep_freed_memory
keep_freed_memory()
def allocate():
    for _ in range(20):
        torch.ones(2**21)  # 8 MiB
allocate()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
allocate()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not HAS_GLIBC, reason="glibc only")
def test_freed_memory_is_kept_unless_glibc_was_told_otherwise():
    own = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}

    def faults(**more: str) -> int:
        done = subprocess.run(
            [sys.executable, "-c", FAULTS], env=own | more, capture_output=True, check=True
        )
        return int(done.stdout)

    pages = 2**23 // resource.getpagesize()
    assert faults() < pages
    assert faults(MALLOC_MMAP_THRESHOLD_="65536") > 0.9 * 20 * pages


@pytest.mark.skipif(not HAS_GLIBC, reason="glibc only")
def test_what_was_freed_between_blocks_that_stay_goes_back():
    process = psutil.Process()
    before = process.memory_info().rss
    blocks = [b"." * 8000 for _ in range(10_000)]
    stay = blocks[::50]
    del blocks
    give_back_freed_memory()
    assert process.memory_info().rss - before < 20 * 2**20 < len(stay) * 50 * 8000
