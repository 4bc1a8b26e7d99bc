"""Indexing a storage gives what indexing TorchRL's own tensor storage gives."""

from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict, assert_close
from torchrl.data import LazyTensorStorage, ReplayBuffer, TensorDictReplayBuffer

from rlmem.memories import CompressedFrameStorage, DenseStorage, FrameStorage
from rlmem.memories.gwr import lists
from tests.memories.gwr.maps import small_map
from tests.memories.helpers import RandomEnvs

CAPACITY = 12
MASK = torch.tensor([True, False, True, True, False, False, False, True])
INDICES = {
    "a mask": MASK,
    "a mask as an array": MASK.numpy(),
    "a mask as a list": MASK.tolist(),
    "a mask of nothing": torch.zeros(8, dtype=torch.bool),
    "a number": 2,
    "a negative number": -2,
    "a number as a tensor": torch.tensor(2),
    "a negative number as a tensor": torch.tensor(-1),
    "a number of numpy": np.int64(3),
    "the last": torch.tensor([-1]),
    "numbers of both signs": torch.tensor([[0, -1, 3], [-8, 7, 3]]),
    "a list": [1, -2],
    "a range": range(2, 5),
    "nothing": [],
    "all": slice(None),
    "the last three": slice(-3, None),
    "each third": slice(1, 100, 3),
    "an ellipsis": ...,
    "None": None,
}
each_index = pytest.mark.parametrize("index", INDICES.values(), ids=list(INDICES))
STORAGES = {"frames": FrameStorage, "compressed": CompressedFrameStorage, "dense": DenseStorage}


def blocks(*sizes: int) -> list[TensorDict]:
    envs = RandomEnvs(np.random.default_rng(0), (4,), np.float32)
    raw = [envs.block(rows) for rows in sizes]
    return [TensorDict(block, batch_size=[len(block["action"])]) for block in raw]


def filled(kind: Any, storage: Any, data: list[TensorDict]) -> Any:
    buffer = kind(storage=storage, batch_size=4, collate_fn=lambda x: x)
    for block in data:
        buffer.extend(block)
    return buffer


@each_index
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("kind", [ReplayBuffer, TensorDictReplayBuffer])
def test_a_buffer_is_indexed_as_one_of_torchrl(kind: Any, storage: str, index: Any) -> None:
    data = blocks(5, 3)
    own = filled(kind, STORAGES[storage](CAPACITY, (4,), np.float32), data)
    reference = filled(kind, LazyTensorStorage(CAPACITY), data)
    keys = "observation", "action", ("next", "observation"), ("next", "reward")
    assert_close(own[index].select(*keys), reference[index].select(*keys), rtol=0, atol=0)


@pytest.mark.parametrize("index", [-1, -13, 12, slice(-4, None), torch.tensor([-12, 11])])
def test_a_ring_that_has_turned_is_indexed_by_its_slots(index: Any) -> None:
    data = blocks(10, 9)
    own = filled(ReplayBuffer, FrameStorage(CAPACITY, (4,), np.float32), data)
    reference = filled(ReplayBuffer, LazyTensorStorage(CAPACITY), data)
    if isinstance(index, int) and not -CAPACITY <= index < CAPACITY:
        for buffer in (own, reference):
            with pytest.raises(IndexError):
                buffer[index]
    else:
        assert torch.equal(own[index]["observation"], reference[index]["observation"])


@pytest.mark.parametrize("index", [MASK[:5], MASK.repeat(2), torch.tensor([1.5]), "a"])
def test_what_indexes_no_tensor_is_refused(index: Any) -> None:
    storage = FrameStorage(CAPACITY, (4,), np.float32)
    storage.append(blocks(8)[0])
    with pytest.raises(IndexError):
        storage[index]


@pytest.mark.parametrize("slots", [slice(None, None, -1), slice(6, 2, -2)])
def test_a_slice_may_go_backwards(slots: slice) -> None:
    storage = FrameStorage(CAPACITY, (4,), np.float32)
    (block,) = blocks(8)
    storage.append(block)
    np.testing.assert_array_equal(
        storage[slots]["observation"], block["observation"].numpy()[slots]
    )


def test_where_a_budget_left_slots_unused_positions_count_the_transitions_held() -> None:
    storage = FrameStorage(100, (4,), np.float32)
    data = blocks(100, 30)
    for block in data:
        storage.append(block)
    storage.evict(25)  # as a budget does, whose slots stay
    newest = torch.cat(data)[-len(storage) :]
    assert len(storage) == 75
    for index in (slice(None), slice(-5, None), ..., np.arange(75) % 3 == 0):
        assert torch.equal(storage[index]["observation"], newest["observation"][index])
    for number in (-1, -75):
        assert torch.equal(storage[number]["observation"], newest["observation"][number])
    slots = storage.locate(torch.arange(75))
    assert torch.equal(storage[slots]["observation"], newest["observation"])
    held = storage.contains(torch.arange(100))
    assert held.nonzero().flatten().tolist() == sorted(slots.tolist())


COUNTED = [k for k, i in INDICES.items() if isinstance(i, slice) or i is None or "mask" in k]


@pytest.mark.parametrize("name", [*COUNTED, "an ellipsis", "a negative number", "the last"])
def test_a_map_is_indexed_by_its_live_edges(name: str) -> None:
    storage, _ = small_map(states=8, rows=1000)
    while storage.num_edges > len(MASK):
        lists.remove_edge(storage.arrays, int(storage.live_edges()[0]))
    live, index = torch.from_numpy(storage.live_edges()), INDICES[name]
    assert live[0] > 0
    assert_close(storage[index], storage[live[index]], rtol=0, atol=0)


def test_a_storage_tells_which_slots_hold_a_transition() -> None:
    storage = FrameStorage(CAPACITY, (4,), np.float32)
    reference = LazyTensorStorage(CAPACITY)
    assert 0 not in storage
    for at in (storage, reference):
        filled(ReplayBuffer, at, blocks(8))
    for number in (0, 7, 8, 12, -1, -8, -9):
        assert (number in storage) == (number in reference)
    assert storage.contains(torch.tensor([[0, 8], [7, 99]])).tolist() == [[True, False]] * 2


def test_a_storage_names_the_device_of_its_samples() -> None:
    storage = FrameStorage(CAPACITY, (4,), np.float32)
    storage.append(blocks(8)[0])
    assert storage.device == storage[0]["observation"].device == small_map()[0].device
