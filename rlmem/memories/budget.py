"""How the parts of a memory share its budget in bytes."""

from collections.abc import Sequence

from rlmem.errors import UserError
from rlmem.memories.base.storage import ReplayStorage
from rlmem.memories.base.writer import ReplayWriter
from rlmem.memories.samplers.base import ReplaySampler
from rlmem.memories.transforms.base import ReplayTransform


def share_budget(
    budget: int,
    storage: ReplayStorage,
    sampler: ReplaySampler,
    writer: ReplayWriter,
    transforms: Sequence[ReplayTransform],
) -> None:
    """Leave a storage what the other parts do not take of a budget.

    Raises:
        UserError: they take all of it, or what the storage holds is more.
    """
    own = sum(writer.projected_footprint().values())
    if not sampler.bytes_a_slot():  # else they grow with the storage
        own += sum(sampler.projected_footprint().values())
    a_slot = sum(part.bytes_a_slot() for part in (sampler, *transforms))
    fixed = sum(part.fixed_bytes() for part in transforms)
    kept = writer.warmup_footprint
    first = kept + sum(storage.footprint().values())
    if kept and first > budget:
        raise UserError(f"budget={budget}: what is kept at first takes {first} bytes; use more")
    held = 0
    if len(storage):
        held = sum(storage.footprint().values()) + a_slot * storage.slots_in_use
    if held + own + fixed > budget:
        taken = f"takes {held + own + fixed} bytes"
        if held:
            raise UserError(
                f"budget={budget}: the storage was filled before, and {taken} with the "
                "memory's other parts; use that or more"
            )
        raise UserError(
            f"budget={budget}: what is beside the storage {taken} when it holds "
            f"{storage.max_size} transitions; use more, or a lower capacity"
        )
    storage.limit_bytes(budget - own - fixed, a_slot)
