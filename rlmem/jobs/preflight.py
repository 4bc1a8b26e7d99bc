"""Before a run: will its memory fit? The arithmetic, and the override that mends it."""

from pathlib import Path

import psutil

from rlmem.callbacks.progress import readable_bytes
from rlmem.memories.memory import ReplayMemory

CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_limit() -> tuple[int, str]:
    """Bytes that this process may use, and what sets the limit (the machine or its cgroup)."""
    total = psutil.virtual_memory().total
    for path in CGROUP_LIMITS:
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text.isdigit() and int(text) < total:
            return int(text), "the cgroup's limit"
    return total, "the machine's memory"


def preflight(memory: ReplayMemory, capacity: int) -> str:
    """One or two lines: projected bytes at capacity, and a warning if they exceed the limit.

    Call it while the memory is empty: what it holds is no longer among the available bytes.
    """
    components = memory.projected_footprint()
    projected = sum(components.values())
    limit, source = memory_limit()
    available = psutil.virtual_memory().available
    largest = max(components, key=components.__getitem__) if components else "nothing"
    line = (
        f"memory when full ({capacity:,} {memory.storage.unit}): {readable_bytes(projected)}, "
        f"most of it {largest}; {source}: {readable_bytes(limit)}, "
        f"{readable_bytes(available)} available"
    )
    if projected <= min(limit, available):
        return line
    fits = max(1, int(capacity * 0.8 * min(limit, available) / projected))
    return (
        f"{line}\nWARNING: that is more than there is; the run will be killed or swap when the "
        f"memory fills. Use memory.capacity={fits} or less."
    )
