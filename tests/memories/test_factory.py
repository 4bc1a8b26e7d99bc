"""From a configuration to the memory: each kind is built as what it is, or refused."""

import pytest

from rlmem.errors import UserError
from rlmem.memories import (
    CombinedSampler,
    LatestSampler,
    NewestSampler,
    PrioritizedEdgeSampler,
    PrioritizedSampler,
    RankSampler,
    UniformEdgeSampler,
    UniformSampler,
    VisitSampler,
)
from tests.memories.test_memory import VECTORS, named

RING_SAMPLERS = "combined, latest, newest, prioritized, rank, uniform"


@pytest.mark.parametrize(
    ("memory", "key", "kind", "known"),
    [
        ("uniform", "sampler", "unifrom", RING_SAMPLERS),
        ("uniform", "sampler", "visits", RING_SAMPLERS),
        ("gwr", "sampler", "combined", "prioritized, uniform, visits"),
        ("gwr", "sampler", "visit", "prioritized, uniform, visits"),
        ("uniform", "storage", "compresed", "auto, compressed, dense, frames, map, memmap"),
        ("gwr", "embedding", "projection", "auto, identity, random_projection"),
    ],
)
def test_an_unknown_kind_is_not_built_as_another(
    memory: str, key: str, kind: str, known: str
) -> None:
    with pytest.raises(UserError, match=f"memory.{key}.kind={kind}: this memory takes {known}"):
        named(memory, VECTORS, f"memory.{key}.kind={kind}")


@pytest.mark.parametrize(
    ("memory", "sampler", "built"),
    [
        ("uniform", "uniform", UniformSampler),
        ("uniform", "combined", CombinedSampler),
        ("uniform", "newest", NewestSampler),
        ("uniform", "latest", LatestSampler),
        ("uniform", "prioritized", PrioritizedSampler),
        ("uniform", "rank", RankSampler),
        ("gwr", "visits", VisitSampler),
        ("gwr", "uniform", UniformEdgeSampler),
        ("gwr", "prioritized", PrioritizedEdgeSampler),
    ],
)
def test_each_kind_of_sampler_is_built_as_what_it_is(
    memory: str, sampler: str, built: type
) -> None:
    assert type(named(memory, VECTORS, f"memory/sampler={sampler}").sampler) is built
