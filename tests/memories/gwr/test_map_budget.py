"""Maps under a budget: what it is used for, and that it is never passed."""

import numpy as np
import pytest

from rlmem.envs import EnvSpec
from rlmem.errors import UserError
from rlmem.memories import ReplayMemory
from tests.memories.helpers import RandomEnvs, configured

MINATAR = EnvSpec("MinAtar/Breakout-v1", "minatar", 4, (4, 10, 10), np.dtype(np.uint8), 1, 6, 4)
VECTORS = EnvSpec("X", "gym", 1, (11,), np.dtype(np.float32), 1, 4, 1)
# Whatever is seen is far from what is held, so that a map takes in as much as it has room for.
GREEDY = "memory=gwr", "threshold.activation=0.95", "threshold.habituation=1"


def played(spec: EnvSpec, rows: int, blocks: int, *given: str) -> tuple[ReplayMemory, list[int]]:
    """A map, and its nodes after each block."""
    memory = configured(spec, *GREEDY, *given)
    envs = RandomEnvs(
        np.random.default_rng(0), spec.frame_shape, spec.dtype, spec.num_envs, 0.02, 0.1
    )
    nodes = []
    for _ in range(blocks):
        memory.extend(envs.block(rows))
        assert memory.budget is not None
        assert sum(memory.footprint().values()) <= memory.budget
        nodes.append(memory.entries)
    memory.check_valid()
    return memory, nodes


@pytest.mark.parametrize(("rows", "budget"), [(4, "300kB"), (16, "300kB"), (32, "500kB")])
def test_a_map_that_evicts_stays_full(rows: int, budget: str) -> None:
    """At 300 kB two segments of strings were all that it had, and no node was ever replaced."""
    given = "env=minatar_breakout", "memory.metric.scale_samples=50", f"memory.budget={budget}"
    nodes = played(MINATAR, rows, 1600 // rows, *given)[1]
    assert min(nodes[len(nodes) // 2 :]) > 0.5 * max(nodes) > 20


def test_a_map_of_vectors_uses_its_budget() -> None:
    memory, nodes = played(VECTORS, 1, 1500, "env=cartpole", "memory.budget=100kB")
    assert sum(memory.footprint().values()) > 0.9 * 100_000
    assert nodes[-1] > 250


def test_what_is_kept_for_the_scale_fits_beside_the_empty_map() -> None:
    given = "env=minatar_breakout", "memory.metric.scale_samples=300"
    memory = configured(MINATAR, *GREEDY, *given)
    first = memory.writer.warmup_footprint
    with pytest.raises(UserError, match="until it is known; use more"):
        configured(MINATAR, *GREEDY, *given, f"memory.budget={first}")
    played(MINATAR, 8, 80, *given, f"memory.budget={first + sum(memory.footprint().values())}")
