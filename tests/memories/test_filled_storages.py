"""Memories around storages that hold something already, and what was loaded from others."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torchrl.data import TensorDictReplayBuffer

from rlmem.errors import UserError
from rlmem.memories import (
    FrameStorage,
    LatestSampler,
    PrioritizedSampler,
    RankSampler,
    ReplayMemory,
    RingWriter,
    SlotStorage,
    UniformSampler,
)
from rlmem.memories.random_eviction import RandomEvictionWriter
from tests.memories.given import block, memory_of


@pytest.mark.parametrize("sampler", [PrioritizedSampler, RankSampler])
def test_what_a_storage_held_before_is_drawn(sampler: Any) -> None:
    storage = FrameStorage(100, (4,), np.float32)
    storage.append(block(50))
    memory = memory_of(storage, sampler(100))
    memory.extend(block(4))
    assert set(memory.sample(2000)["index"].tolist()) == set(range(54))


def filled(budget: int | None = None, **options: Any) -> FrameStorage:
    """A ring that holds what came last of 900 rows."""
    storage = FrameStorage(700, (4,), np.float32, budget=budget, **options)
    for _ in range(9):
        storage.append(block(100))
    return storage


def slots_of(storage: Any) -> set[int]:
    return set(storage.locate(torch.arange(len(storage))).tolist())


@pytest.mark.parametrize("sampler", [PrioritizedSampler, RankSampler])
def test_what_went_for_a_budget_before_is_not_taken_from_the_sampler(sampler: Any) -> None:
    memory = memory_of(filled(budget=16_000), sampler(700))
    memory.extend(block(5))
    drawn = set(memory.sample(20_000)["index"].tolist())
    assert drawn == slots_of(memory.storage)


@pytest.mark.parametrize("sampler", [PrioritizedSampler, RankSampler])
@pytest.mark.parametrize("budget", [None, 16_000])
def test_a_sampler_beside_a_filled_storage_draws_all_of_it(
    sampler: Any, budget: int | None
) -> None:
    storage = filled(budget)
    made = TensorDictReplayBuffer(
        storage=storage, sampler=sampler(700), writer=RingWriter(), collate_fn=lambda x: x,
        batch_size=64,
    )  # fmt: skip
    given = TensorDictReplayBuffer(storage=filled(budget), collate_fn=lambda x: x, batch_size=64,
                                   writer=RingWriter())  # fmt: skip
    given.set_sampler(sampler(700))
    for buffer in (made, given):
        drawn: set[int] = set()
        for _ in range(200):
            batch = buffer.sample()
            drawn |= set(batch["index"].tolist())
            buffer.update_priority(batch["index"], torch.ones(64))
        held = slots_of(buffer.storage)
        assert drawn <= held
        assert len(drawn) > 0.95 * len(held)  # by rank some are drawn seldom


def test_a_sample_of_all_goes_on_from_what_a_storage_held() -> None:
    storage = SlotStorage(200, (4,), np.float32)
    memory = ReplayMemory(storage, UniformSampler(), RandomEvictionWriter(reservoir=True), seed=0)
    memory.extend(block(200))
    writer = RandomEvictionWriter(reservoir=True)
    again = ReplayMemory(storage, UniformSampler(), writer, seed=0)
    kept = int((again.extend(block(200)) >= 0).sum())
    assert 60 < kept < 140  # 200 of 400 are held, each as likely: some 139 less what was replaced


@pytest.mark.parametrize("kind", [FrameStorage, SlotStorage])
def test_a_budget_that_a_filled_storage_has_passed_is_refused(kind: Any) -> None:
    storage = kind(500, (4,), np.float32)
    writer: Any = RingWriter() if kind is FrameStorage else RandomEvictionWriter()
    memory = ReplayMemory(storage, UniformSampler(), writer, seed=0)
    memory.extend(block(500))
    with pytest.raises(UserError, match=r"^budget=5000: the storage was filled before, and takes"):
        ReplayMemory(storage, UniformSampler(), writer, seed=0, budget=5000)
    assert len(storage) == 500


@pytest.mark.parametrize("reservoir", [False, True])
def test_a_list_that_was_loaded_from_a_smaller_one_fills_its_slots(
    reservoir: bool, tmp_path: Path
) -> None:
    def made(capacity: int) -> ReplayMemory:
        storage = SlotStorage(capacity, (4,), np.float32)
        return ReplayMemory(storage, UniformSampler(), RandomEvictionWriter(reservoir), seed=0)

    small, large = made(5), made(20)
    small.extend(block(40))
    small.save(tmp_path / "saved")
    large.load(tmp_path / "saved")
    large.extend(block(15))
    assert len(large) == 20


def slots_filled(*slots: int, capacity: int = 8) -> SlotStorage:
    storage = SlotStorage(capacity, (4,), np.float32)
    storage.set(np.array(slots), block(len(slots)))
    return storage


@pytest.mark.parametrize("sampler", [PrioritizedSampler, RankSampler])
def test_what_slots_held_before_is_drawn(sampler: Any, tmp_path: Path) -> None:
    def made(storage: SlotStorage) -> ReplayMemory:
        return ReplayMemory(storage, sampler(8), RandomEvictionWriter(), seed=0)

    memory, again = made(slots_filled(5, 0, 2)), made(SlotStorage(8, (4,), np.float32))
    memory.save(tmp_path / "saved")
    again.load(tmp_path / "saved")
    for each in (memory, again):
        each.extend(block(1))  # fills slot 1
        assert set(each.sample(400)["index"].tolist()) == {0, 1, 2, 5}


@pytest.mark.parametrize("reservoir", [False, True])
def test_slots_between_those_that_were_filled_are_filled_first(reservoir: bool) -> None:
    storage = slots_filled(3, 0, capacity=5)
    memory = ReplayMemory(storage, UniformSampler(), RandomEvictionWriter(reservoir), seed=0)
    assert memory.extend(block(2)).tolist() == [1, 2]
    assert memory.extend(block(1)).tolist() == [4]
    assert len(memory) == 5
    written = [memory.extend(block(1)).item() for _ in range(60)]
    assert set(written) >= {0, 1, 2, 3, 4}


@pytest.mark.parametrize("kind", [FrameStorage, SlotStorage])
def test_a_budget_counts_priorities_of_what_is_held(kind: Any) -> None:
    storage = kind(100, (4,), np.float32)
    writer: Any = RingWriter() if kind is FrameStorage else RandomEvictionWriter()
    ReplayMemory(storage, UniformSampler(), writer, seed=0).extend(block(100))
    held = sum(storage.footprint().values())
    with pytest.raises(UserError, match=rf"^budget={held}: the storage was filled before, and tak"):
        ReplayMemory(storage, PrioritizedSampler(100), writer, seed=0, budget=held)
    assert len(storage) == 100
    memory = ReplayMemory(storage, PrioritizedSampler(100), writer, seed=0, budget=held + 1700)
    assert sum(memory.footprint().values()) <= held + 1700
    memory.extend(block(300))
    assert len(memory) >= 90
    assert sum(memory.footprint().values()) <= held + 1700


def test_a_budget_that_would_cut_off_a_held_slot_is_refused() -> None:
    storage = slots_filled(7, capacity=8)
    budget = sum(storage.footprint().values()) + 100
    with pytest.raises(UserError, match=rf"^budget={budget}: has room for 2 slots, and slot 7 is"):
        ReplayMemory(storage, UniformSampler(), RandomEvictionWriter(), seed=0, budget=budget)


@pytest.mark.parametrize("sampler", [LatestSampler(700, 100), PrioritizedSampler(700)])
def test_a_sampler_that_was_saved_before_it_heard_of_evictions_hears_of_them(
    sampler: Any, tmp_path: Path
) -> None:
    def made(sampler: Any) -> TensorDictReplayBuffer:
        return TensorDictReplayBuffer(
            storage=FrameStorage(700, (4,), np.float32, budget=6_000), sampler=sampler,
            writer=RingWriter(), collate_fn=lambda x: x, batch_size=4,
            generator=torch.Generator().manual_seed(0),
        )  # fmt: skip

    buffer, again = made(sampler), made(copy.deepcopy(sampler))
    for rows in (40, 60, 80):
        buffer.extend(TensorDict(block(rows), [rows]))
    buffer.storage.dumps(tmp_path / "storage")
    buffer.sampler.dumps(tmp_path / "sampler")
    again.storage.loads(tmp_path / "storage")
    again.sampler.loads(tmp_path / "sampler")
    for _ in range(5):
        assert torch.equal(buffer.sample()["index"], again.sample()["index"])
