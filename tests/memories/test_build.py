"""From a configuration to the memory: each kind is built as what it is, or refused."""

import numpy as np
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
from tests.memories.helpers import RandomEnvs
from tests.memories.test_memory import VECTORS, named

RING_SAMPLERS = "combined, latest, newest, prioritized, rank, sequence, uniform"
MAP_SAMPLERS = "prioritized, uniform, visits"


@pytest.mark.parametrize(
    ("memory", "key", "kind", "known"),
    [
        ("uniform", "sampler", "unifrom", RING_SAMPLERS),
        ("gwr", "sampler", "visit", MAP_SAMPLERS),
        ("uniform", "storage", "compresed", "auto, compressed, dense, frames, memmap"),
        ("gwr", "embedding", "projection", "auto, identity, random_projection"),
    ],
)
def test_an_unknown_kind_is_not_built_as_another(
    memory: str, key: str, kind: str, known: str
) -> None:
    line = f"memory.{key}.kind={kind}: no such {key}; did you mean .*[?] Available: {known}$"
    with pytest.raises(UserError, match=line):
        named(memory, VECTORS, f"memory.{key}.kind={kind}")


@pytest.mark.parametrize(
    ("memory", "key", "kind", "known"),
    [
        ("uniform", "sampler", "visits", RING_SAMPLERS),
        ("gwr", "sampler", "combined", MAP_SAMPLERS),
        ("uniform", "storage", "map", "auto, compressed, dense, frames, memmap"),
        ("gwr", "storage", "frames", "map"),
    ],
)
def test_a_kind_of_another_memory_is_refused(memory: str, key: str, kind: str, known: str) -> None:
    works = known.replace(", ", " or ")
    line = f"memory/{key}={kind}: does not go with memory={memory}; use memory/{key}={works}"
    with pytest.raises(UserError) as error:
        named(memory, VECTORS, f"memory.{key}.kind={kind}")
    assert str(error.value) == line


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


@pytest.mark.parametrize("budget", [10, 150])
def test_a_budget_below_one_batch_is_refused(budget: int) -> None:
    line = rf"memory\.budget={budget}: too small for one batch, agent\.batch_size=8: it holds \d"
    with pytest.raises(UserError, match=line):
        named("uniform", VECTORS, f"memory.budget={budget}")


def test_a_budget_that_never_holds_a_whole_minibatch_is_refused_once_that_is_seen() -> None:
    """By their rows alone 2,100 bytes hold 76 transitions; what lies beside them counts as well."""
    small, enough = (
        named("uniform", VECTORS, f"memory.budget={size}", "memory/sampler=newest")
        for size in (2100, 2500)
    )
    envs = RandomEnvs(np.random.default_rng(0), end=0.0)
    held = 0
    while len(small) >= held:  # until the first go
        held = len(small)
        assert not small.available(64, 1)
        small.extend(envs.block(1))
    line = r"memory\.budget=2100: too small for one batch, agent\.batch_size=64: it holds 63 trans"
    with pytest.raises(UserError, match=line):
        small.available(64, 1)

    for _ in range(200):
        enough.extend(envs.block(1))
    assert enough.available(64, 1)
