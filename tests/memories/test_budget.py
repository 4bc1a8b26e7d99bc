"""memory.budget: all bytes counted, never passed, the oldest transitions go."""

from typing import Any

import numpy as np
import pytest
import torch

from rlmem.config import compose
from rlmem.envs import EnvSpec
from rlmem.errors import UserError
from rlmem.memories import ReplayMemory
from rlmem.memories.factory import make_memory
from tests.memories.helpers import RandomEnvs

FRAME = (1, 20, 20)
KINDS = ("dense", "frames", "compressed")
SAMPLERS = ("uniform", "cer", "per", "per_rank")


def limited(budget: Any, kind: str, sampler: str = "uniform", num_envs: int = 2) -> ReplayMemory:
    overrides = [f"memory={sampler}", f"memory.budget={budget}", "env=pong"]
    overrides.append(f"memory/storage={'map' if kind == 'map' else kind}")
    if kind == "map":
        overrides += ["memory=gwr", "memory.metric.scale=1.0"]
    cfg = compose("train", overrides)
    spec = EnvSpec("ALE/Pong", "atari", num_envs, FRAME, np.dtype(np.uint8), 4, 6, 4)
    return make_memory(
        cfg.memory,
        spec,
        batch_size=8,
        n_step=2,
        gamma=0.9,
        activation_threshold=0.9,
        habituation_threshold=0.5,
        seed=0,
    )


def held(memory: ReplayMemory) -> int:
    return sum(memory.footprint().values())


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_budget_is_filled_and_never_passed_by_more_than_half_a_percent(
    kind: str, sampler: str
) -> None:
    budget = 2_000_000
    memory = limited(budget, kind, sampler)
    most = 0
    # White noise, then frames that compress well, then noise again: what fits changes.
    for change in (1.0, 0.02, 1.0, 0.1):
        envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2, 0.02, change)
        for _ in range(150):
            memory.extend(envs.block(40))
            memory.sample(8)
            most = max(most, held(memory))
        memory.check_valid()
    assert 0.9 * budget < most <= 1.005 * budget
    assert len(memory) > 0.8 * most / (3300 if kind == "dense" else 520)


@pytest.mark.parametrize("kind", KINDS)
def test_the_newest_transitions_stay_and_are_exact(kind: str) -> None:
    memory = limited(400_000, kind)
    envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2, 0.02, 0.3)
    blocks = [envs.block(60) for _ in range(60)]
    slots = np.concatenate([memory.extend(block).numpy() for block in blocks])
    newest = slots[-len(memory) :]
    assert 50 < len(memory) < 3600
    assert len(set(newest.tolist())) == len(memory)
    frames = np.concatenate([block["observation"] for block in blocks])[-len(memory) :]
    after = np.concatenate([block["next"]["observation"] for block in blocks])[-len(memory) :]
    memory.storage.n_step = 1
    sample = memory.storage.get(torch.from_numpy(newest))
    np.testing.assert_array_equal(sample["observation"][:, -1:], frames)
    np.testing.assert_array_equal(sample["next", "observation"][:, -1:], after)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_what_was_evicted_is_not_drawn(sampler: str) -> None:
    """Fewer transitions fit after the frames stop compressing: slots lie empty."""
    memory = limited(300_000, "compressed", sampler)
    live: list[int] = []
    for change in (0.01, 1.0):
        envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2, 0.02, change)
        for _ in range(100):
            live += memory.extend(envs.block(40)).tolist()
            index = memory.sample(32)["index"]
            assert set(index.tolist()) <= set(live[-len(memory) :])
            memory.update_priority(index, torch.rand(32))
    assert len(memory) < int(memory.storage._ring["size"][0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_memory_goes_on_within_its_budget(kind: str, tmp_path: Any) -> None:
    memory, other = limited(300_000, kind, "per"), limited(300_000, kind, "per")
    envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2, 0.02, 0.3)
    for _ in range(40):
        memory.extend(envs.block(40))
    memory.save(tmp_path)
    other.load(tmp_path)
    assert len(other) == len(memory)
    assert torch.equal(memory.sample(32)["observation"], other.sample(32)["observation"])
    for _ in range(40):
        other.extend(envs.block(40))
    other.check_valid()
    assert held(other) <= 1.005 * 300_000


@pytest.mark.parametrize("kind", KINDS)
def test_a_budget_for_nothing_is_one_line(kind: str) -> None:
    with pytest.raises(UserError, match=r"memory\.budget=2000: too small") as error:
        limited(2000, kind).extend(
            RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2).block(40)
        )
    assert "\n" not in str(error.value)


def test_a_map_takes_as_many_nodes_as_fit() -> None:
    memory = limited("4MiB", "map")
    size = sum(memory.projected_footprint().values())
    assert 0.99 * 4 * 2**20 < size <= 4 * 2**20


def test_a_map_without_room_for_a_node_is_one_line() -> None:
    with pytest.raises(UserError, match="a node; use more"):
        limited(5000, "map")
