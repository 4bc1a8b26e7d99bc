"""A block that is refused leaves everything as it was, in TorchRL's buffers and in rlmem's own."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict, assert_close
from torchrl.data import (
    ReplayBuffer,
    RoundRobinWriter,
    TensorDictPrioritizedReplayBuffer,
    TensorDictReplayBuffer,
)
from torchrl.data.replay_buffers.replay_buffers import prioritized_tensordict

from rlmem.memories import (
    CompressedFrameStorage,
    DenseStorage,
    FrameStorage,
    HindsightTransform,
    PrioritizedSampler,
    RandomEvictionWriter,
    ReplayMemory,
    RingWriter,
    SlotStorage,
    UniformSampler,
)
from tests.memories.helpers import RandomEnvs, vector_block

CAPACITY = 20
STORAGES = {"frames": FrameStorage, "compressed": CompressedFrameStorage, "dense": DenseStorage}
Block = dict[str, Any]


def blocks(seed: int = 0) -> RandomEnvs:
    return RandomEnvs(np.random.default_rng(seed), (4,), np.float32)


def buffer_of(kind: Any, storage: Any, patch: pytest.MonkeyPatch) -> Any:
    """A prioritized buffer of a class; TorchRL's own writer where it has a default."""
    if kind is ReplayMemory:
        return ReplayMemory(storage, PrioritizedSampler(CAPACITY), RingWriter(), seed=0)
    options = {"batch_size": 8, "collate_fn": lambda x: x, "storage": storage}
    options["generator"] = torch.Generator().manual_seed(0)
    if kind is TensorDictPrioritizedReplayBuffer:

        def ours(capacity: int, alpha: float, beta: float, eps: float, **_: Any) -> Any:
            return PrioritizedSampler(capacity, alpha=alpha, beta_start=beta, eps=eps)

        # TorchRL's own needs a C++ extension of the very version of torch.
        patch.setattr(prioritized_tensordict, "PrioritizedSampler", ours)
        return kind(alpha=0.6, beta=0.4, **options)
    return kind(sampler=PrioritizedSampler(CAPACITY), **options)


def given(kind: Any, block: Block) -> Any:
    """A block as a buffer class takes it."""
    if kind is ReplayMemory:
        return block
    raw = {k: v for k, v in block.items() if k != "env_id"}
    env_id = {"env_id": block["env_id"]} if "env_id" in block else {}
    return TensorDict({**raw, **env_id}, batch_size=[len(block["next"]["reward"])])


def changed(key: str, change: Callable) -> Callable:
    """What changes a column of a block."""

    def change_column(block: Block) -> Block:
        part, name = (block["next"], key[5:]) if key.startswith("next.") else (block, key)
        part[name] = change(part[name])
        return block

    return change_column


REFUSED = {
    "observation of another dtype": changed("observation", lambda x: x.astype(np.float64)),
    "observation of another shape": changed("observation", lambda x: x[:, :3]),
    "next observation of another dtype": changed("next.observation", lambda x: x.astype("f8")),
    "next observation of another shape": changed("next.observation", lambda x: x[:, :3]),
    "one-hot action": changed("action", lambda x: np.eye(6)[x]),
    "action that is no whole number": changed("action", lambda x: x + 0.5),
    "reward of two numbers": changed("next.reward", lambda x: np.repeat(x, 2, 1)),
    "terminated of two flags": changed("next.terminated", lambda x: np.repeat(x, 2, 1)),
    "env_id out of range": changed("env_id", lambda x: x + 1),
}


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("wrong", REFUSED)
@pytest.mark.parametrize(
    "kind",
    [ReplayMemory, ReplayBuffer, TensorDictReplayBuffer, TensorDictPrioritizedReplayBuffer],
    ids=lambda kind: kind.__name__,
)
def test_a_buffer_goes_on_after_a_refused_block_as_if_it_had_not_come(
    kind: Any, wrong: str, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [STORAGES[storage](CAPACITY, (4,), np.float32) for _ in range(2)]
    one, other = (buffer_of(kind, each, monkeypatch) for each in made)
    envs, apart = blocks(), blocks(seed=1)
    for rows in (4, 13, 9):  # before the first row, after it, and across the ring's end
        before = copy.deepcopy(one.storage.state_dict()), copy.deepcopy(one.sampler.state_dict())
        with pytest.raises((ValueError, RuntimeError)):
            one.extend(given(kind, REFUSED[wrong](apart.block(rows))))
        np.testing.assert_equal((one.storage.state_dict(), one.sampler.state_dict()), before)
        block = envs.block(rows)
        slots = [each.extend(given(kind, block)) for each in (one, other)]
        assert torch.equal(*slots)
        one.storage.check_valid()
        one.sampler.check_valid()
        draws = [each.sample(8).select("observation", "action", "next") for each in (one, other)]
        assert_close(*draws, rtol=0, atol=0)


@pytest.mark.parametrize("kind", [ReplayBuffer, TensorDictReplayBuffer])
def test_a_buffer_goes_on_after_a_refused_single_transition(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = buffer_of(kind, FrameStorage(CAPACITY, (4,), np.float32), monkeypatch)
    envs = blocks()
    for slot in range(3):
        with pytest.raises(ValueError, match="observation float64"):
            buffer.add(given(kind, REFUSED["observation of another dtype"](envs.block(1)))[0])
        assert buffer.add(given(kind, envs.block(1))[0]) == slot


SEVERAL = "add takes one transition, 3 were given: use extend"


@pytest.mark.parametrize("writer", [RoundRobinWriter, RingWriter])
@pytest.mark.parametrize("name", STORAGES)
def test_add_takes_one_transition(name: str, writer: Any) -> None:
    storage = STORAGES[name](CAPACITY, (4,), np.float32)
    options = {"batch_size": 8, "collate_fn": lambda x: x, "writer": writer()}
    buffer = TensorDictReplayBuffer(
        storage=storage, sampler=PrioritizedSampler(CAPACITY), **options
    )
    rows = given(TensorDictReplayBuffer, blocks().block(3))
    buffer.extend(rows)
    with pytest.raises(ValueError, match=SEVERAL):
        buffer.add(rows)
    buffer.add(rows[0])
    buffer.extend(rows)
    assert len(buffer) == 7
    storage.check_valid()


def test_a_list_of_free_slots_takes_one_transition_by_add() -> None:
    storage = SlotStorage(CAPACITY, (4,), np.float32)
    memory = ReplayMemory(storage, UniformSampler(), RandomEvictionWriter(), seed=0)
    with pytest.raises(ValueError, match=SEVERAL):
        memory.writer.add(blocks().block(3))
    assert len(memory) == 0
    assert memory.writer.add(blocks().block(1)) == 0


def test_a_ring_is_given_a_slot_for_each_transition() -> None:
    storage = FrameStorage(CAPACITY, (4,), np.float32)
    with pytest.raises(ValueError, match="2 slots were given for 5 transitions"):
        storage.set(torch.arange(2), blocks().block(5))
    assert len(storage) == 0


def test_what_is_given_in_another_librarys_terms_is_said() -> None:
    storage, rows = FrameStorage(CAPACITY, (4,), np.float32), blocks().block(5)
    with pytest.raises(ValueError, match=r"without observation: .* \(given: .*, pixels\)"):
        storage.append({"pixels": rows.pop("observation"), **rows})
    rows = {**blocks().block(5), "action": np.eye(5, 2)}
    one_hot = r"\(5,\); give an action's number, .* or make the storage with action_shape=\(2,\)"
    with pytest.raises(ValueError, match=one_hot):
        storage.append(rows)
    with pytest.raises(TypeError, match=r"FrameStorage: buffer_size= is no .*, n_step, gamma"):
        FrameStorage(CAPACITY, (4,), buffer_size=3)


@pytest.mark.parametrize("kind", [ReplayBuffer, TensorDictReplayBuffer])
def test_rows_cannot_be_written_in_place(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = buffer_of(kind, FrameStorage(CAPACITY, (4,), np.float32), monkeypatch)
    envs = blocks()
    for index in (torch.arange(4), slice(0, 4)):
        with pytest.raises(ValueError, match="behind its newest transition only: use extend"):
            buffer[index] = given(kind, envs.block(4))
    assert buffer.extend(given(kind, envs.block(4))).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("achieved", [None, np.zeros((5, 1), np.float32), np.zeros((4, 2))])
def test_hindsight_refuses_a_block_without_its_goals_before_it_is_written(achieved: Any) -> None:
    transform = HindsightTransform(CAPACITY, 2, lambda a, d: a[:, 0], lambda a, d: a[:, 0] > 0)
    storage = FrameStorage(CAPACITY, (4,), np.float32)
    memory = ReplayMemory(storage, UniformSampler(), RingWriter(), seed=0, transforms=[transform])
    block = vector_block(5)
    if achieved is not None:
        block["next"]["achieved_goal"] = achieved
    with pytest.raises(ValueError, match="achieved_goal"):
        memory.extend(block)
    assert len(memory) == memory.transitions_seen == 0
    block["next"]["achieved_goal"] = np.zeros((5, 2), np.float32)
    assert memory.extend(block).tolist() == [0, 1, 2, 3, 4]
    memory.check_valid()
