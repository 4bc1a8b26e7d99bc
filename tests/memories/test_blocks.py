"""What a block may lack, and what of it is refused, by name."""

from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torchrl.data import TensorDictReplayBuffer

from rlmem.memories import (
    CompressedFrameStorage,
    DenseStorage,
    FrameStorage,
    PrioritizedSampler,
    RankSampler,
    ReplayMemory,
    RingWriter,
    UniformSampler,
)
from rlmem.memories.slots import SlotStorage

RINGS = [FrameStorage, CompressedFrameStorage, DenseStorage]


def block(rows: int = 4, **changes: Any) -> dict[str, Any]:
    """A block of `rows` steps of one environment; `next_` before a name changes that of next."""
    frames = np.arange(3.0 * (rows + 1), dtype=np.float32).reshape(rows + 1, 3)
    no = np.zeros(rows, np.bool_)
    made: dict[str, Any] = {
        "observation": frames[:-1],
        "action": np.zeros(rows, np.int64),
        "next": {
            "observation": frames[1:],
            "reward": np.ones(rows, np.float32),
            "terminated": no,
            "truncated": no,
        },
    }
    for name, value in changes.items():
        if name.startswith("next_"):
            made["next"][name.removeprefix("next_")] = value
        else:
            made[name] = value
    return made


@pytest.mark.parametrize("kind", [*RINGS, SlotStorage])
@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"next_reward": np.ones((4, 2))}, r"reward of float64 and shape \(4, 2\) was given for 4"),
        ({"next_reward": np.ones(3)}, r"reward of float64 and shape \(3,\)"),
        ({"next_reward": None}, "reward of object"),
        ({"next_reward": np.full(4, 1e39)}, "reward 1e\\+39 was given, which is no float32"),
        ({"next_terminated": np.zeros(3, bool)}, r"terminated of bool and shape \(3,\)"),
        ({"next_terminated": np.full(4, 0.5)}, "terminated 0.5 was given, which is no bool"),
        ({"next_truncated": np.zeros(5, bool)}, r"truncated of bool and shape \(5,\)"),
        ({"env_id": np.array([0, 0.7, 1, 1.9])}, "env_id 0.7 was given, which is no int64"),
        ({"env_id": np.zeros(3)}, r"env_id of float64 and shape \(3,\)"),
        ({"next": np.zeros(4)}, "next is a TensorDict or a dict, not ndarray"),
        ({"observation": np.zeros((2, 4, 3), np.float32)}, r"reshape\(-1\), and env_id"),
        ({}, "a block without env_id: num_envs=2"),
    ],
)
def test_what_is_wrong_is_named(kind: Any, changes: dict[str, Any], line: str) -> None:
    storage = kind(20, (3,), np.float32, num_envs=2)
    with pytest.raises(ValueError, match=line):
        storage.read_block(
            block(**{"env_id": np.zeros(4, np.int64)} | changes) if changes else block()
        )
    with pytest.raises(ValueError, match="a block is a TensorDict or a dict, not list"):
        storage.read_block([block()])


@pytest.mark.parametrize("kind", [*RINGS, SlotStorage])
def test_a_block_without_a_row_is_taken(kind: Any) -> None:
    storage = kind(20, (3,), np.float32)
    given = block(2)
    none = {k: v[:0] for k, v in given.items() if k != "next"}
    storage.set(
        np.empty(0, np.int64), {**none, "next": {k: v[:0] for k, v in given["next"].items()}}
    )
    assert len(storage) == 0


def test_an_end_that_is_only_done_is_a_truncation() -> None:
    given = block(next_done=np.array([False, True, False, True]))
    given["next"]["terminated"] = np.array([False, False, False, True])
    del given["next"]["truncated"]
    storage = FrameStorage(20, (3,), np.float32)
    storage.append(given)
    held = storage.get(np.arange(4))["next"]
    assert held["truncated"].ravel().tolist() == [False, True, False, False]
    assert held["done"].ravel().tolist() == [False, True, False, True]


@pytest.mark.parametrize("kind", RINGS)
@pytest.mark.parametrize("n_step", [1, 2])
def test_a_stack_may_be_changed_in_place_without_its_successor(kind: Any, n_step: int) -> None:
    storage = kind(50, (3,), np.float32, stack=3, n_step=n_step)
    memory = ReplayMemory(storage, UniformSampler(), RingWriter(), seed=0)
    memory.extend(block(20))
    for batch in (memory.sample(8), storage.get(np.arange(3, 9))):
        following = batch["next", "observation"].clone()
        assert batch["observation"].is_contiguous()
        assert batch["next", "observation"].is_contiguous()
        batch["observation"].mul_(100)
        assert torch.equal(batch["next", "observation"], following)


def test_priorities_that_come_after_the_buffer_was_emptied_are_none() -> None:
    buffer = TensorDictReplayBuffer(
        storage=FrameStorage(100, (3,), np.float32),
        sampler=PrioritizedSampler(100),
        writer=RingWriter(),
        collate_fn=lambda x: x,
        batch_size=8,
    )
    buffer.extend(TensorDict(block(90), batch_size=[90]))
    assert buffer.write_count == 90
    drawn = buffer.sample()
    buffer.empty()
    buffer.extend(TensorDict(block(5), batch_size=[5]))
    drawn["td_error"] = torch.full((8,), 5.0)
    buffer.update_tensordict_priority(drawn)
    for _ in range(20):
        assert buffer.sample()["index"].max() < 5


def test_slots_out_of_order_are_refused_whichever_it_is() -> None:
    storage = FrameStorage(10, (3,), np.float32)
    with pytest.raises(ValueError, match=r"slots \[0, 5, 2\] .* written in order"):
        storage.set(np.array([0, 5, 2]), block(3))
    assert len(storage) == 0
    storage.set(np.arange(8), block(8))
    storage.set(np.array([8, 9, 0, 1]), block(4))
    assert len(storage) == 10


def test_a_writer_of_rings_refuses_what_is_none() -> None:
    with pytest.raises(ValueError, match=r"RingWriter: writes a ring .* not a SlotStorage"):
        ReplayMemory(SlotStorage(4, (3,)), UniformSampler(), RingWriter(), seed=0)


@pytest.mark.parametrize("kind", [*RINGS, SlotStorage])
@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"frame_shape": ()}, r"frame_shape=\(\): give the sizes"),
        ({"frame_shape": 3}, "frame_shape=3: give the sizes"),
        ({"frame_shape": (3, 0)}, r"frame_shape=\(3, 0\): give the sizes"),
        ({"dtype": object}, "dtype=.*: use one such as uint8"),
        ({"dtype": ">f4"}, "dtype=>f4: use one such as uint8"),
    ],
)
def test_a_storage_of_no_frames_is_refused_when_it_is_made(
    kind: Any, given: dict[str, Any], line: str
) -> None:
    with pytest.raises(ValueError, match=line):
        kind(**{"capacity": 10, "frame_shape": (3,), "dtype": np.float32} | given)


@pytest.mark.parametrize("kind", RINGS)
def test_a_budget_is_read_when_the_storage_is_made(kind: Any) -> None:
    assert kind(1000, (3,), np.float32, budget="1MiB").budget == 2**20
    for budget in (0, -5, True, "much"):
        with pytest.raises(ValueError, match=f"{budget}"):
            kind(1000, (3,), np.float32, budget=budget)
    with pytest.raises(ValueError, match="gamma=2: a discount lies"):
        kind(1000, (3,), np.float32, gamma=2)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (PrioritizedSampler, {"capacity": 0}),
        (RankSampler, {"capacity": 2.5}),
        (PrioritizedSampler, {"eps": -1.0}),
        (PrioritizedSampler, {"eps": np.nan}),
        (RankSampler, {"beta_steps": -1}),
    ],
)
def test_a_sampler_of_no_sense_is_refused_when_it_is_made(kind: Any, given: dict[str, Any]) -> None:
    (name,) = given
    with pytest.raises(ValueError, match=f"^{name}="):
        kind(**{"capacity": 10} | given)
