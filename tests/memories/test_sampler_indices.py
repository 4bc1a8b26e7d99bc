"""What the samplers do with slots that are marked, out of range, or of a larger storage."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torchrl.data import (
    LazyTensorStorage,
    ReplayBuffer,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
)

from rlmem.memories import (
    CombinedSampler,
    FrameStorage,
    LatestSampler,
    PrioritizedSampler,
    RankSampler,
    ReplayMemory,
    RingWriter,
)
from rlmem.memories.gwr.samplers import PrioritizedEdgeSampler
from tests.memories.gwr.maps import small_map
from tests.memories.helpers import vector_block

CAPACITY = 100  # no power of two: a tree has leaves behind it
KINDS: dict[str, Callable] = {
    "prioritized": PrioritizedSampler,
    "rank": RankSampler,
}
each_kind = pytest.mark.parametrize("kind", KINDS)
each_buffer = pytest.mark.parametrize("buffer_class", [ReplayBuffer, TensorDictReplayBuffer])


def sampler_of(kind: str, capacity: int = CAPACITY, **options: Any) -> Any:
    sampler = KINDS[kind](capacity, **options)
    sampler._rng = torch.Generator().manual_seed(0)
    return sampler


def state(sampler: Any) -> dict[str, Any]:
    return {name: np.copy(value) for name, value in sampler.state_dict().items()}


def storage_of(rows: int, capacity: int = CAPACITY) -> FrameStorage:
    storage = FrameStorage(capacity, (4,), np.float32)
    storage.append(vector_block(rows))
    return storage


@each_kind
@pytest.mark.parametrize("wrong", [-2, CAPACITY, CAPACITY + 20, 128, 10**9, -(2**40)])
def test_a_slot_out_of_range_is_refused_and_nothing_is_changed(kind: str, wrong: int) -> None:
    sampler = sampler_of(kind)
    sampler.extend(torch.arange(10))
    sampler.update_priority(torch.arange(10), torch.linspace(0.1, 2.0, 10))
    before, index = state(sampler), torch.tensor([3, wrong, 4])
    expected = f"item {wrong} is out of range: there is room for {CAPACITY} in this"
    with pytest.raises(IndexError, match=expected):
        sampler.extend(index)
    with pytest.raises(IndexError, match=expected):
        sampler.update_priority(index, torch.tensor([9.0, 9.0, 9.0]))
    np.testing.assert_equal(state(sampler), before)
    sampler.check_valid()


@each_kind
def test_minus_one_is_skipped(kind: str) -> None:
    marked, plain = sampler_of(kind), sampler_of(kind)
    marked.extend(torch.tensor([-1, 0, 1, -1, 2]))
    plain.extend(torch.tensor([0, 1, 2]))
    marked.update_priority(torch.tensor([0, -1, 2, -1]), torch.tensor([0.5, 99.0, 2.0, torch.nan]))
    plain.update_priority(torch.tensor([0, 2]), torch.tensor([0.5, 2.0]))
    marked.update_priority(torch.tensor([-1, -1]), torch.tensor([1.0, 2.0]))
    marked.update_priority(-1, 5.0)
    for name, value in state(plain).items():
        if name != "updates":  # since the last sort of the ranks: rows that are skipped count
            np.testing.assert_array_equal(state(marked)[name], value)
    marked.check_valid()


def test_minus_one_is_no_transition_to_be_drawn() -> None:
    storage, latest, combined = storage_of(10), LatestSampler(8), CombinedSampler()
    for sampler in (latest, combined):
        sampler.extend(torch.tensor([-1, 3, -1, 5, -1]))
        sampler.extend(torch.tensor([-1]))
    assert latest.sample(storage, 2)[0].tolist() == [3, 5]
    assert combined.sample(storage, 4)[0][-1] == 5


@each_kind
@each_buffer
def test_a_writer_that_keeps_the_best_rows_marks_the_others(buffer_class: Any, kind: str) -> None:
    buffer = buffer_class(
        storage=LazyTensorStorage(20),
        sampler=sampler_of(kind, 20),
        writer=TensorDictMaxValueWriter(rank_key="score"),
        batch_size=64,
    )
    score = torch.randperm(200, generator=torch.Generator().manual_seed(0)).float()
    for part in score.split(25):
        buffer.extend(TensorDict({"score": part, "row": part.clone()}, batch_size=[25]))
        buffer.sampler.check_valid()
    index = torch.as_tensor(buffer.sample(return_info=True)[1]["index"])
    assert 0 <= index.min() <= index.max() < 20
    assert buffer[:]["score"].min() == 180
    everything = torch.cat([torch.arange(20), torch.tensor([-1])])
    buffer.update_priority(everything, torch.ones(21))
    buffer.sampler.check_valid()


@each_kind
@each_buffer
def test_a_sampler_that_is_smaller_than_its_storage_is_named(buffer_class: Any, kind: str) -> None:
    buffer = buffer_class(
        storage=FrameStorage(1000, (4,), np.float32),
        sampler=sampler_of(kind),
        batch_size=8,
        collate_fn=lambda x: x,
    )
    raw = vector_block(50)
    raw.pop("env_id")
    rows = TensorDict(raw, batch_size=[50])
    for write in (buffer.extend, lambda block: buffer.add(block[0])):
        with pytest.raises(ValueError, match=r"capacity=100\) beside a storage of 1000 slots: giv"):
            write(rows)
    assert len(buffer) == buffer._writer._cursor == 0


@each_kind
def test_a_memory_refuses_a_sampler_that_is_smaller_than_its_storage(kind: str) -> None:
    storage = FrameStorage(101, (4,), np.float32)
    with pytest.raises(ValueError, match="beside a storage of 101 slots"):
        ReplayMemory(storage, sampler_of(kind), RingWriter(), seed=0)


@each_kind
def test_one_td_error_is_given_to_each_index_or_one_to_all(kind: str) -> None:
    sampler, other = sampler_of(kind), sampler_of(kind)
    for each in (sampler, other):
        each.extend(torch.arange(4))
    sampler.update_priority(torch.arange(4), 3.0)
    other.update_priority(torch.arange(4), torch.full((4, 1), 3.0))
    np.testing.assert_equal(state(sampler), state(other))
    with pytest.raises(ValueError, match="4 indices and 3 TD errors"):
        sampler.update_priority(torch.arange(4), torch.ones(3))


def test_where_all_priorities_are_zero_draws_are_uniform() -> None:
    sampler, storage = sampler_of("prioritized", eps=0.0), storage_of(40)
    sampler.extend(torch.arange(40))
    sampler.update_priority(torch.arange(40), torch.zeros(40))
    index, info = sampler.sample(storage, 40_000)
    share = np.bincount(index.numpy(), minlength=40) / 40_000
    assert np.abs(share - 1 / 40).max() < 5 * np.sqrt(1 / 40 / 40_000)
    assert info["priority_weight"].dtype == torch.float32
    assert (info["priority_weight"] == 1).all()
    sampler.update_priority(torch.tensor([7]), torch.tensor([1.0]))
    assert set(sampler.sample(storage, 100)[0].tolist()) == {7}


def test_a_sampler_of_edges_skips_minus_one_and_refuses_what_no_edge_was() -> None:
    storage, _ = small_map(states=8, rows=500)
    sampler = PrioritizedEdgeSampler(alpha=1.0)
    sampler._rng = torch.Generator().manual_seed(0)
    sampler.sample(storage, 1)
    sampler.update_priority(torch.tensor([-1, 2, -1]), torch.tensor([50.0, 3.0, torch.nan]))
    assert sampler._tree.leaf(np.array([2])) == pytest.approx(3.0)
    assert sampler.default_priority == 3.0
    with pytest.raises(IndexError, match="item 5000 is out of range"):
        sampler.update_priority(torch.tensor([5000, 2]), torch.tensor([1.0, 1.0]))
    assert sampler._tree.leaf(np.array([2])) == pytest.approx(3.0)
    sampler.check_valid()
    with pytest.raises(ValueError, match=r"eps=0\.0: use more than 0"):
        PrioritizedEdgeSampler(eps=0.0)
