"""Actions are held as they were given, or refused."""

from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torchrl.data import TensorDictReplayBuffer

from rlmem.memories import (
    FrameStorage,
    GWRWriter,
    Identity,
    MapStorage,
    ReplayMemory,
    SlotStorage,
    VisitSampler,
)
from tests.memories.helpers import vector_block


def block_with(action: Any) -> dict[str, Any]:
    return {**vector_block(len(action)), "action": np.asarray(action)}


def storage_of(dtype: Any = np.int64, shape: tuple[int, ...] = ()) -> FrameStorage:
    return FrameStorage(20, (4,), np.float32, action_dtype=dtype, action_shape=shape)


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble, np.complex64, object, "U3"])
def test_actions_of_a_dtype_that_is_not_held_are_refused(dtype: Any) -> None:
    with pytest.raises(
        ValueError, match=r"action_dtype=.*: hold actions as whole numbers, float32"
    ):
        storage_of(dtype)


@pytest.mark.parametrize("dtype", [np.longdouble, object, "U3", "datetime64[s]"])
def test_a_column_that_could_not_be_sampled_is_refused(dtype: Any) -> None:
    with pytest.raises(ValueError, match=r"column 'value': .* is no dtype of torch's"):
        FrameStorage(20, (4,), np.float32, columns={"value": ((), dtype)})


def writer_of_a_map() -> GWRWriter:
    writer = GWRWriter(0.9, 0.8, embedding=Identity((4,)))
    writer.register_storage(MapStorage(20, (4,), np.float32, None, num_actions=3))
    return writer


@pytest.mark.parametrize(
    ("dtype", "action", "named"),
    [
        (np.int64, [0.9, -0.7, 0.3, 1.9], "action 0.9 of float64"),
        (np.int64, np.array([1, np.nan], np.float32), "action nan of float32"),
        (np.int64, [0.0, np.inf], "action inf of float64"),
        (np.uint8, [0, 255, 256], "action 256 of int64"),
        (np.uint8, [0, -1], "action -1 of int64"),
    ],
)
def test_an_action_that_an_integer_storage_would_change_is_refused(
    dtype: Any, action: Any, named: str
) -> None:
    storage = storage_of(dtype)
    with pytest.raises(ValueError, match=named):
        storage.append(block_with(action))
    assert len(storage) == 0


@pytest.mark.parametrize("action", [[0.9, 1.2], [0.0, np.nan]])
def test_an_action_that_a_map_would_change_is_refused(action: list[float]) -> None:
    with pytest.raises(ValueError, match=r"action .* of float64 was given"):
        writer_of_a_map().extend(block_with(action))


@pytest.mark.parametrize(
    ("dtype", "action"),
    [
        (np.int64, [0.0, 2.0, -3.0]),
        (np.uint8, np.array([0, 2, 255], np.float32)),
        (np.uint8, [0, 2, 255]),
        (np.int64, [True, False]),
    ],
)
def test_whole_numbers_are_held_whatever_their_dtype(dtype: Any, action: Any) -> None:
    storage = storage_of(dtype)
    storage.append(block_with(action))
    sampled = storage.get(slice(None))["action"]
    assert sampled.dtype == torch.int64
    assert sampled.tolist() == [int(a) for a in action]


@pytest.mark.parametrize(
    ("make", "column"),
    [
        (lambda n: FrameStorage(20, (4,), np.float32, num_actions=n), "action-0-6"),
        (lambda n: SlotStorage(20, (4,), np.float32, num_actions=n), "action"),
    ],
    ids=["ring", "slots"],
)
def test_a_saved_action_that_a_network_has_no_value_for_is_refused(make: Any, column: str) -> None:
    storage = make(3)
    storage.set(np.arange(6), block_with([0, 1, 2, 2, 1, 0]))
    state = storage.state_dict()
    for wrong in (3, -1):
        state[column][2] = wrong
        other = make(3)
        with pytest.raises(ValueError, match=rf"has actions .*{wrong}.*, this one 0 \.\. 2"):
            other.load_state_dict(state)
        assert len(other) == 0
        unbounded = make(0)
        unbounded.load_state_dict(state)
        assert unbounded.get(2)["action"].item() == wrong


@pytest.mark.parametrize(
    ("part", "column"), [("storage", "edges.action"), ("writer", "pending.action")]
)
def test_a_saved_action_that_a_map_does_not_know_is_refused(part: str, column: str) -> None:
    def memory() -> ReplayMemory:
        writer = writer_of_a_map()
        return ReplayMemory(writer._storage, VisitSampler(), writer, seed=0)

    filled, other = memory(), memory()
    filled.extend(block_with([0, 1, 2, 2, 1, 0]))
    state = filled._parts()[part].state_dict()
    state[column].reshape(-1)[0] = 3
    with pytest.raises(ValueError, match=r"has actions \d \.\. 3, this one 0 \.\. 2"):
        other._parts()[part].load_state_dict(state)


def test_a_buffer_says_which_action_it_cannot_hold_and_goes_on() -> None:
    buffer = TensorDictReplayBuffer(storage=storage_of(), batch_size=2, collate_fn=lambda x: x)
    data = TensorDict(block_with([0.9, -0.7, 0.3, 1.9]), batch_size=[4])
    with pytest.raises(ValueError, match="give whole numbers"):
        buffer.extend(data)
    data["action"] = torch.tensor([0, 1, 1, 0])
    buffer.extend(data)
    assert buffer[:]["action"].tolist() == [0, 1, 1, 0]


def test_continuous_actions_are_rounded_to_their_dtype() -> None:
    storage = storage_of(np.float32, (2,))
    action = np.random.default_rng(0).normal(size=(3, 2))
    storage.append(block_with(action))
    np.testing.assert_array_equal(storage.get(slice(None))["action"], action.astype(np.float32))


@pytest.mark.parametrize(
    ("shape", "given"),
    [((), (3, 2)), ((2,), (3,)), ((2,), (3, 3)), ((2,), (2, 3)), ((), (2,)), ((2, 2), (3, 4))],
)
def test_actions_of_another_shape_are_refused(shape: tuple, given: tuple) -> None:
    storage, block = storage_of(np.float32, shape), vector_block(3)
    with pytest.raises(ValueError, match="actions of shape"):
        storage.append({**block, "action": np.zeros(given, np.float32)})
    assert len(storage) == 0


@pytest.mark.parametrize(("shape", "given"), [((), (3, 1)), ((1,), (3,)), ((2,), (3, 1, 2))])
def test_a_dimension_of_length_one_may_be_there_or_not(shape: tuple, given: tuple) -> None:
    storage, block = storage_of(np.int64, shape), vector_block(3)
    action = np.arange(np.prod(given)).reshape(given)
    storage.append({**block, "action": action})
    sampled = storage.get(slice(None))["action"]
    assert sampled.shape == (3, *shape)
    assert sampled.flatten().tolist() == action.ravel().tolist()


@pytest.mark.parametrize("shape", [(), (1,), (2,), (2, 3)])
def test_a_single_transition_has_an_action_of_any_shape(shape: tuple) -> None:
    buffer = TensorDictReplayBuffer(
        storage=storage_of(np.float32, shape), batch_size=2, collate_fn=lambda x: x
    )
    action = np.random.default_rng(0).normal(size=(3, *shape)).astype(np.float32)
    rows = TensorDict({**vector_block(3), "action": action}, batch_size=[3])
    for row in rows:
        buffer.add(row)
    np.testing.assert_array_equal(buffer[:]["action"], action)
