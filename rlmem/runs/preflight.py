"""Before a run: will its memory fit? The arithmetic, and the override that mends it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import psutil
import torch

from rlmem.errors import UserError
from rlmem.memories.memory import ReplayMemory
from rlmem.units import readable_bytes

CGROUPS, OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def memory_limit() -> tuple[int, str]:
    """Bytes that this process may use, and what sets the limit (the machine or a cgroup)."""
    total = psutil.virtual_memory().total
    lowest = min(_cgroup_limits(), default=total)
    return (lowest, "the cgroup's limit") if lowest < total else (total, "the machine's memory")


def _cgroup_limits() -> Iterator[int]:
    """Limits of this process's cgroup and of those around it, of both versions."""
    try:
        lines = OWN_CGROUP.read_text().splitlines()
    except OSError:
        lines = ["0::/", "0:memory:/"]
    for line in lines:
        _, controllers, place = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        own = PurePosixPath("/", place)
        for group in (own, *own.parents):
            with contextlib.suppress(OSError, ValueError):  # `max`: no limit
                yield int((CGROUPS / controllers / group.relative_to("/") / name).read_text())


def preflight(
    memory: ReplayMemory, shards: int = 1, env_steps: int | None = None, jobs: int = 1
) -> str:
    """One or two lines: projected bytes when full, and a warning if they are not available.

    Call it while the memory is empty: what it holds is no longer among the available bytes.

    Args:
        shards: like this one that the run has, each in a process of its own.
        env_steps: of the run, which may be too few to fill the storage; None where nobody knows.
        jobs: of a sweep that run on this machine at the same time, each with such a memory.

    Raises:
        UserError: the storage alone will come to more bytes than there are, free or not. A budget
            and what else a memory holds may never be full, so of these it only warns.
    """
    storage = memory.storage
    components = {n: shards * size for n, size in memory.projected_footprint().items()}
    projected = sum(components.values())
    limit, source = memory_limit()
    available = psutil.virtual_memory().available
    room = f"{source}: {readable_bytes(limit)}, {readable_bytes(available)} available"
    # What the others will hold is available yet, or held already: of the whole each has a share.
    most = min(limit // jobs, available)
    # A budget bounds whatever a memory holds.
    mend = f"memory.budget={readable_bytes(0.8 * most)} or less".replace(" ", "", 1)
    if memory.budget is not None:
        line = f"memory budget: {readable_bytes(shards * memory.budget)}; {room}"
        projected = shards * memory.budget
    else:
        of = f"{shards} shards of " if shards > 1 else ""
        line = f"memory when full ({of}{memory.room}): "
        if storage.compresses and memory.draws:  # else nothing is written into it
            frames = shards * sum(storage.projected_footprint().values())
            projected -= frames  # a dictionary, priorities: what does not compress
            apart = f"{readable_bytes(projected)}, and " if projected > frames // 20 else ""
            line += f"{apart}far below {readable_bytes(frames)}, as far as frames compress; {room}"
        else:
            largest = max(components, key=components.__getitem__) if components else "nothing"
            line += f"{readable_bytes(projected)}, most of it {largest}; {room}"
            share = 0.8 * most / max(1, projected)
            fits = max(1, int(shards * storage.max_size * share))
            # Of what lies beside the storage, as entries that an agent asks, capacity says nothing.
            if largest in storage.projected_footprint():
                mend = f"memory.capacity={fits} or less"
                mend += f", or {storage.smaller}" if storage.smaller else ""
    on_disk = components.get("frames_on_disk", 0)
    needed = projected - on_disk
    if needed <= most:
        return line
    if env_steps is not None and memory.budget is None and not storage.compresses:
        full = shards * sum(storage.projected_footprint().values()) - on_disk
        held = int(full * min(1.0, env_steps / (shards * storage.max_size)))
        if held > limit:
            raise UserError(
                f"memory.capacity={shards * storage.max_size}: {readable_bytes(held)} by the end "
                f"of the run, more than {source} of {readable_bytes(limit)}; use {mend}"
            )
    what, whom = "that is", "the run"
    if needed <= min(limit, available):
        what = f"{jobs} jobs run at once, and all together {readable_bytes(jobs * needed)} are"
        whom, mend = "one", f"{mend}, or fewer jobs at once"
    return (
        f"{line}\nWARNING: {what} more than there is; when the memory is full {whom} will be "
        f"killed, or swap. Use {mend}."
    )


def slow_precision(precision: str, device: str) -> str | None:
    """A warning where the processor has to imitate the precision that was asked for, else None.

    An update of a Nature network took 500 ms in bfloat16 and 50 in float32 on such a processor.
    """
    processor = torch.cpu.get_capabilities()
    imitates = processor.get("architecture") == "x86_64" and not processor.get("avx512_bw")
    if (precision, device) != ("bf16-mixed", "cpu") or not imitates:
        return None
    return (
        "WARNING: trainer.precision=bf16-mixed: this processor has no instructions for it and will "
        "be several times slower than with trainer.precision=32-true"
    )
