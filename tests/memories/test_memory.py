"""ReplayMemory and the factory: samples, bytes, saving."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import assert_close

from rlmem.envs import EnvSpec
from rlmem.errors import UserError
from rlmem.memories import (
    CombinedSampler,
    FrameStorage,
    PrioritizedSampler,
    RankSampler,
    ReplayMemory,
    RingWriter,
    UniformSampler,
)
from rlmem.memories.base.serialize import load_state, save_state
from rlmem.memories.gwr.map import MapStorage
from rlmem.runs.resume import differences
from tests.memories.helpers import RandomEnvs, configured, vector_block
from tests.settings import settings

CAPACITY = 50
SAMPLERS: dict[str, Callable] = {
    "uniform": UniformSampler,
    "combined": CombinedSampler,
    "prioritized": lambda: PrioritizedSampler(CAPACITY),
    "rank": lambda: RankSampler(CAPACITY, sort_every=100),
}
VECTORS = EnvSpec("CartPole-v1", "gym", 1, (4,), np.dtype(np.float32), 1, 2, 1)
each_sampler = pytest.mark.parametrize("kind", SAMPLERS)


def memory_of(kind: str, seed: int = 0) -> ReplayMemory:
    storage = FrameStorage(CAPACITY, (4,), np.float32)
    return ReplayMemory(storage, SAMPLERS[kind](), RingWriter(), seed=seed)


def train_on(memory: ReplayMemory, batches: int) -> None:
    """Draw batches and write priorities back."""
    for _ in range(batches):
        batch = memory.sample(8)
        memory.update_priority(batch["index"], batch["next", "reward"].squeeze(-1))


def named(memory: str, spec: EnvSpec = VECTORS, *overrides: str) -> ReplayMemory:
    return configured(spec, f"memory={memory}", "memory.capacity=50", *overrides)


def test_the_directory_of_a_file_is_asked_for_by_its_key_and_may_change() -> None:
    memmap = ["env=pong", "memory/storage=memmap"]
    with pytest.raises(UserError) as missing:
        settings(*memmap)
    line = "memory.storage.directory is not set; give it, such as memory.storage.directory=/scratch"
    assert str(missing.value) == line
    before, after = (settings(*memmap, f"memory.storage.directory=/{name}") for name in "ab")
    assert differences(before.values, after) == []


@each_sampler
def test_a_sample_has_the_keys_shapes_and_dtypes_of_a_transition(kind: str) -> None:
    memory = memory_of(kind)
    memory.extend(vector_block(30))
    batch = memory.sample(8, 3)
    assert {key if isinstance(key, str) else key[1] for key in batch.keys(True, True)} == {
        *("observation", "action", "steps_to_next", "steps_to_next_obs", "index", "weight"),
        *("reward", "terminated", "truncated", "done"),
    }
    assert {k: (tuple(batch[k].shape), batch[k].dtype) for k in batch.keys(True, True)} == {
        "observation": ((3, 8, 4), torch.float32),
        ("next", "observation"): ((3, 8, 4), torch.float32),
        "action": ((3, 8), torch.int64),
        "index": ((3, 8), torch.int64),
        "weight": ((3, 8, 1), torch.float32),
        "steps_to_next": ((3, 8, 1), torch.int64),
        "steps_to_next_obs": ((3, 8, 1), torch.int64),
        ("next", "reward"): ((3, 8, 1), torch.float32),
        ("next", "terminated"): ((3, 8, 1), torch.bool),
        ("next", "truncated"): ((3, 8, 1), torch.bool),
        ("next", "done"): ((3, 8, 1), torch.bool),
    }
    assert memory.sample(8).batch_size == (8,)


@each_sampler
def test_each_minibatch_is_weighted_on_its_own(kind: str) -> None:
    memory = memory_of(kind)
    memory.extend(vector_block(30))
    train_on(memory, 5)
    weight = memory.sample(8, 4)["weight"]
    assert (weight.amax((1, 2)) == 1).all()
    assert (weight > 0).all()
    if kind in ("uniform", "combined"):
        assert (weight == 1).all()


def test_an_index_names_the_transition_that_was_drawn() -> None:
    memory = memory_of("uniform")
    block = vector_block(30)
    memory.extend(block)
    batch = memory.sample(8, 2)
    np.testing.assert_array_equal(batch["observation"], block["observation"][batch["index"]])


@each_sampler
def test_a_saved_memory_goes_on_with_the_same_samples(kind: str, tmp_path: Path) -> None:
    memory, other = memory_of(kind), memory_of(kind, seed=9)
    memory.extend(vector_block(70))
    train_on(memory, 20)
    memory.save(tmp_path)
    other.extend(vector_block(33, seed=5))
    other.load(tmp_path)
    other.check_valid()
    for _ in range(3):
        assert_close(memory.sample(8, 2), other.sample(8, 2), rtol=0, atol=0)
    for part in (memory, other):
        part.extend(vector_block(20, seed=7))
        train_on(part, 3)
    assert_close(memory.sample(8), other.sample(8), rtol=0, atol=0)
    assert memory.transitions_seen == other.transitions_seen == 90
    assert memory.footprint() == other.footprint()


@pytest.mark.parametrize("name", ["uniform", "cer", "per", "per_rank", "gwr"])
def test_each_named_memory_saves_and_goes_on_with_the_same_samples(
    name: str, tmp_path: Path
) -> None:
    memory, other = named(name), named(name)
    memory.extend(vector_block(120))
    train_on(memory, 5)
    memory.save(tmp_path)
    other.load(tmp_path)
    for _ in range(3):
        assert_close(memory.sample(8, 2), other.sample(8, 2), rtol=0, atol=0)


def test_a_saved_memory_holds_no_pickle(tmp_path: Path) -> None:
    memory = memory_of("prioritized")
    memory.extend(vector_block(30))
    memory.save(tmp_path)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert {file.suffix for file in files} == {".npy", ".json"}
    for file in files:
        if file.suffix == ".npy":
            np.load(file, allow_pickle=False)


@pytest.mark.parametrize(
    "spec",
    [replace(VECTORS, frame_shape=(5,)), replace(VECTORS, num_envs=2)],
    ids=["observation", "num_envs"],
)
def test_loading_into_another_shape_is_refused(spec: EnvSpec, tmp_path: Path) -> None:
    memory = named("uniform")
    memory.extend(vector_block(30))
    memory.save(tmp_path)
    with pytest.raises(ValueError, match="the saved memory"):
        named("uniform", spec).load(tmp_path)


@pytest.mark.parametrize("name", ["uniform", "per", "per_rank", "gwr"])
def test_loading_into_a_smaller_capacity_is_refused(name: str, tmp_path: Path) -> None:
    memory = named(name)
    memory.extend(vector_block(120))
    memory.save(tmp_path)
    with pytest.raises(ValueError, match=r"."):
        named(name, VECTORS, "memory.capacity=5", "agent.batch_size=5").load(tmp_path)


def test_loading_from_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        named("uniform").load(tmp_path)


def test_folders_and_budgets_may_be_text(tmp_path: Path) -> None:
    made = ReplayMemory(
        FrameStorage(100, (4,), np.float32), UniformSampler(), RingWriter(), seed=0, budget="1KiB"
    )
    assert made.budget == 1024
    made.extend(vector_block(3))
    made.save(f"{tmp_path}/a")
    made.save(f"{tmp_path}/b", f"{tmp_path}/a")
    made.load(f"{tmp_path}/b")
    assert len(made) == 3


def test_transitions_seen_counts_all_that_came() -> None:
    memory = memory_of("uniform")
    for rows in (30, 40):
        memory.extend(vector_block(rows))
    assert memory.transitions_seen == 70
    assert len(memory) == CAPACITY


@pytest.mark.parametrize("name", ["none", "newest", "medqn_u", "uniform"])
def test_each_environment_has_room_for_its_newest_transition(name: str) -> None:
    spec = replace(VECTORS, num_envs=64)
    memory = configured(spec, f"memory={name}", "memory.capacity=32", "agent.batch_size=32")
    memory.extend(RandomEnvs(np.random.default_rng(0), num_envs=64).block(64))
    assert len(memory) == 64


def test_none_draws_only_when_a_batch_has_come() -> None:
    memory = named("none", VECTORS, "memory.capacity=8")
    memory.extend(vector_block(7))
    assert memory.available(8, 2) == 0
    memory.extend(vector_block(1))
    assert memory.available(8, 2) == 1


def test_none_remembers_what_was_not_used_over_a_save(tmp_path: Path) -> None:
    memory, other = named("none"), named("none")
    memory.extend(vector_block(8))
    memory.save(tmp_path)
    other.load(tmp_path)
    assert_close(memory.sample(8, 1), other.sample(8, 1), rtol=0, atol=0)


def test_none_uses_each_transition_once() -> None:
    memory = named("none", VECTORS, "memory.capacity=8")
    memory.extend(vector_block(8))
    memory.sample(8, 1)
    assert memory.available(8, 1) == 0


@pytest.mark.parametrize("name", ["none", "uniform", "cer", "per", "per_rank"])
def test_a_full_memory_holds_what_was_projected(name: str) -> None:
    memory = named(name)
    projected = memory.projected_footprint()
    envs = RandomEnvs(np.random.default_rng(0), end=0)
    for _ in range(100):
        memory.extend(envs.block(1))
    if name != "none":  # has no batch of unused transitions left
        memory.sample(8)
    held = memory.footprint()
    assert held.keys() == projected.keys()
    chunk = 16 * (16 + 1) + 20  # frames and index of one
    assert all(0 <= projected[part] - held[part] <= chunk for part in held)


@pytest.mark.parametrize("name", ["uniform", "gwr"])
def test_atari_frames_fit_every_storage(name: str) -> None:
    spec = EnvSpec("ALE/Pong", "atari", 2, (1, 84, 84), np.dtype(np.uint8), 4, 6, 4)
    memory = named(name, spec, *(["memory.metric.scale=1.0"] if name == "gwr" else []))
    envs = RandomEnvs(np.random.default_rng(0), (1, 84, 84), np.uint8, 2)
    memory.extend(envs.block(40))
    batch = memory.sample(8, 2)
    assert batch["observation"].shape == (2, 8, 4, 84, 84)
    assert batch["next", "observation"].dtype == torch.uint8
    memory.check_valid()


@pytest.mark.parametrize(
    ("memory", "given", "kind"),
    [
        ("gwr", [], "exemplar"),
        ("gwr", ["memory.prototype=moving"], "moving"),
        ("gwr_released", [], "moving"),
    ],
)
def test_a_map_of_pixels_holds_compressed_exemplars_unless_told_otherwise(
    memory: str, given: list[str], kind: str
) -> None:
    spec = EnvSpec("ALE/Pong", "atari", 1, (1, 84, 84), np.dtype(np.uint8), 4, 6, 4)
    storage = named(memory, spec, "memory.metric.scale=1.0", *given).storage
    assert isinstance(storage, MapStorage)
    assert storage.prototype == kind
    vectors = named("gwr").storage
    assert isinstance(vectors, MapStorage)
    assert vectors.prototype == "moving"


def test_a_copy_draws_into_tensors_of_its_own() -> None:
    memory = memory_of("uniform")
    memory.extend(vector_block(30))
    memory.draw(8, 2)
    other = copy.deepcopy(memory)
    expected = {name: column.clone() for name, column in memory.draw(8, 2).items()}
    found = other.draw(8, 2)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    memory.draw(8, 2)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_draw_overwrites_the_one_before_and_a_sample_stays() -> None:
    memory = memory_of("uniform")
    memory.extend(vector_block(30))
    sample, first = memory.sample(8, 2), memory.draw(8, 2)
    kept, before = sample.clone(), first["observation"].clone()
    second = memory.draw(8, 2)
    assert first["observation"].data_ptr() == second["observation"].data_ptr()
    assert not torch.equal(first["observation"], before)
    assert_close(sample, kept, rtol=0, atol=0)


@pytest.mark.parametrize("count", [0.5, True, "90", -1, 2**70, None])
def test_a_saved_count_that_is_no_count_is_refused(count: Any, tmp_path: Path) -> None:
    memory, other = memory_of("uniform"), memory_of("uniform")
    memory.extend(vector_block(70))
    memory.save(tmp_path)
    own = dict(load_state(tmp_path / "memory"))
    save_state(tmp_path / "memory", own | {"transitions_seen": count})
    with pytest.raises(ValueError, match=r"the saved memory's transitions_seen is .*: a count"):
        other.load(tmp_path)
    assert len(other) == other.transitions_seen == 0
