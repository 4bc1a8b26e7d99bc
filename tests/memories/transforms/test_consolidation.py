"""States to consolidate: within the bounds of what was seen, or the memory's own."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmem.envs import EnvSpec
from rlmem.errors import UserError
from rlmem.memories import (
    BoundedStates,
    Consolidation,
    FrameStorage,
    NewestSampler,
    ReplayMemory,
    RingWriter,
    UniformSampler,
)
from tests.memories.given import block
from tests.memories.helpers import RandomEnvs, configured

VECTORS = EnvSpec("CartPole-v1", "gym", 2, (4,), np.dtype(np.float32), 1, 2, 1)
PLANES = EnvSpec(
    "MinAtar/Breakout", "minatar", 2, (3, 5, 5), np.dtype(np.uint8), 1, 3, 1, highest=1
)


def make(spec: EnvSpec, *overrides: str, memory: str = "medqn_u", seed: int = 0) -> ReplayMemory:
    given = [f"memory={memory}", "memory.capacity=8", "memory.consolidation.batch_size=64"]
    return configured(spec, *given, *overrides, seed=seed)


def test_stacks_are_refused_where_frames_are_drawn() -> None:
    stacked = EnvSpec("Own", "own", 2, (1, 9, 9), np.dtype(np.float32), 4, 2, 1)
    with pytest.raises(UserError, match=r"memory=medqn_u: .* stacks of 4; use memory=medqn_r"):
        make(stacked)
    make(stacked, memory="medqn_r")


def bits(rng: np.random.Generator, rows: int) -> dict:
    """Binary planes of which the last is never set."""
    block = RandomEnvs(rng, (3, 5, 5), np.uint8, num_envs=2).block(rows)
    for part in (block, block["next"]):
        part["observation"] = (part["observation"] > 127).astype(np.uint8)
        part["observation"][:, 2] = 0
    return block


@settings(max_examples=30)
@given(seed=st.integers(0, 2**16), blocks=st.lists(st.integers(1, 7), min_size=2, max_size=6))
def test_states_lie_within_the_extremes_of_everything_seen(seed: int, blocks: list[int]) -> None:
    memory = make(VECTORS, "memory.consolidation.inner_steps=3")
    envs = RandomEnvs(np.random.default_rng(seed), num_envs=2)
    seen = []
    for rows in [*blocks, 8]:
        block = envs.block(rows)
        seen += [block["observation"], block["next"]["observation"]]
        memory.extend(block)
    low, high = np.concatenate(seen).min(0), np.concatenate(seen).max(0)
    batch = memory.sample(8, 2)
    states = batch["consolidation"].numpy()
    assert states.shape == (2, 3, 64, 4)
    assert states.dtype == np.float32
    assert (states >= low).all()
    assert (states <= high).all()
    # 384 draws come near both ends of each dimension.
    reach = states.reshape(-1, 4)
    assert (reach.min(0) < low + 0.1 * (high - low)).all()
    assert (reach.max(0) > high - 0.1 * (high - low)).all()


def test_binary_planes_are_drawn_as_bits_and_an_empty_one_stays_empty() -> None:
    memory = make(PLANES)
    memory.extend(bits(np.random.default_rng(0), 40))
    states = memory.sample(8)["consolidation"]
    assert states.dtype == torch.uint8
    assert states.shape == (1, 64, 3, 5, 5)
    assert set(states.unique().tolist()) == {0, 1}
    assert states[:, :, 2].max() == 0
    assert states[:, :, :2].float().mean().item() == pytest.approx(0.5, abs=0.05)


def test_stored_states_are_the_memorys_own() -> None:
    memory = make(VECTORS, memory="medqn_r")
    block = RandomEnvs(np.random.default_rng(0), num_envs=2).block(20)
    memory.extend(block)
    states = memory.sample(8)["consolidation"][0].numpy()
    kept = block["observation"][-8:]
    found = (states[:, None] == kept[None]).all(-1)
    assert found.any(1).all()
    assert found.any(0).all()  # 64 draws of 8


def test_lambda_rises_linearly_to_its_end_and_stays_there() -> None:
    given = ["weight_start=1.0", "weight_end=3.0", "weight_steps=100"]
    memory = make(VECTORS, *(f"memory.consolidation.{one}" for one in given))
    memory.extend(RandomEnvs(np.random.default_rng(0), num_envs=2).block(10))
    found = []
    for steps in (0, 50, 100, 500):
        memory.anneal(steps)
        found.append(float(memory.sample(8, 1)["consolidation_weight"][0]))
    assert found == [1.0, 2.0, 3.0, 3.0]


def test_a_saved_memory_goes_on_with_its_lambda(tmp_path: Path) -> None:
    given = ["weight_start=1.0", "weight_end=3.0", "weight_steps=100"]
    memory, other = (make(VECTORS, *(f"memory.consolidation.{one}" for one in given)) for _ in "ab")
    memory.extend(RandomEnvs(np.random.default_rng(0), num_envs=2).block(10))
    memory.anneal(50)
    memory.save(tmp_path / "saved")
    other.load(tmp_path / "saved")
    assert float(other.sample(8, 1)["consolidation_weight"][0]) == 2.0
    state = memory.transforms[0].state_dict()
    del state["weight"]  # as an earlier version wrote it
    other.transforms[0].load_state_dict(state)


def test_states_of_another_shape_change_nothing() -> None:
    states = Consolidation(
        BoundedStates((8,), np.float32),
        steps=1, batch_size=2, weight_start=0.1, weight_end=4.0, weight_steps=100,
    )  # fmt: skip
    storage = FrameStorage(20, (4,), np.float32)
    memory = ReplayMemory(storage, UniformSampler(), RingWriter(), seed=0, transforms=[states])
    with pytest.raises(ValueError, match=r"^observation float32 \(4,\) was given"):
        memory.extend(block(3))
    assert len(memory) == memory.transitions_seen == 0


def test_the_whole_of_the_newest_minibatch_is_drawn_each_time() -> None:
    memory = make(VECTORS)
    envs = RandomEnvs(np.random.default_rng(0), num_envs=2)
    memory.extend(envs.block(5))
    assert memory.available(8, 2) == 0
    with pytest.raises(RuntimeError, match="5 transitions are stored, 8 are asked for"):
        NewestSampler().sample(memory.storage, 8)
    for rows in (5, 3, 9):
        block = envs.block(rows)
        memory.extend(block)
        newest = memory.sample(8)["observation"].numpy()
        np.testing.assert_array_equal(newest[-min(rows, 8) :], block["observation"][-8:])


@pytest.mark.parametrize("name", ["medqn_u", "medqn_r"])
def test_a_saved_memory_goes_on_with_the_same_states(name: str, tmp_path: Path) -> None:
    memory, other = make(VECTORS, memory=name), make(VECTORS, memory=name, seed=1)
    envs = RandomEnvs(np.random.default_rng(0), num_envs=2)
    memory.extend(envs.block(30))
    memory.sample(8)
    memory.save(tmp_path / "memory")
    other.load(tmp_path / "memory")
    block = envs.block(5)
    drawn = []
    for one in (memory, other):
        one.extend(block)
        drawn.append(one.sample(8, 2))
    assert torch.equal(drawn[0]["consolidation"], drawn[1]["consolidation"])
    assert torch.equal(drawn[0]["index"], drawn[1]["index"])


def test_the_bounds_are_counted_and_a_budget_holds_with_them() -> None:
    memory = make(VECTORS)
    assert memory.footprint()["bounds"] == 2 * 4 * 4
    small = make(VECTORS, "memory.budget=2KiB")
    envs = RandomEnvs(np.random.default_rng(0), num_envs=2)
    for _ in range(100):
        small.extend(envs.block(5))
        assert sum(small.footprint().values()) <= 2048
    assert len(small) > 8


def test_a_row_has_the_mean_gap_of_the_minibatches_since_the_row_before(tmp_path: Path) -> None:
    memory = make(VECTORS, "memory.consolidation.weight_start=2")
    memory.extend(RandomEnvs(np.random.default_rng(0), num_envs=2).block(8))
    (part,) = memory.transforms
    none = {"consolidation_loss": None, "consolidation_weight": 2.0}
    assert part.metrics() == none
    batch = memory.draw(8, 2)
    part.learned(batch, {"consolidation_loss": torch.tensor([0.0, 3.0])})
    part.learned(batch, {"consolidation_loss": torch.tensor([6.0])})
    memory.save(tmp_path)
    other = make(VECTORS, "memory.consolidation.weight_start=2")
    other.load(tmp_path)
    for each in (part, *other.transforms):
        assert each.metrics() == {"consolidation_loss": 3.0, "consolidation_weight": 2.0}
        assert each.metrics() == none
