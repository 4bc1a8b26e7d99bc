"""Lists in which chance says what makes room."""

import copy
from typing import Any

import numpy as np
import pytest
import torch

from rlmem.config import check, compose
from rlmem.errors import UserError
from rlmem.memories import (
    NewestSampler,
    RandomEvictionWriter,
    ReplayMemory,
    SlotStorage,
    UniformSampler,
)
from rlmem.memories.base.observer import Observer
from tests.memories.helpers import configured, vector_block
from tests.memories.states import by_chance, frames
from tests.memories.test_memory import VECTORS

RUNS = 400


def walk(first: int, rows: int) -> dict:
    """Transitions whose observation is their number."""
    states = np.arange(first, first + rows + 1, dtype=np.float32)[:, None]
    done = np.zeros((rows, 1), bool)
    following = {"observation": states[1:], "reward": np.ones((rows, 1), np.float32)}
    following |= {"terminated": done, "truncated": done}
    return {"observation": states[:-1], "action": np.zeros(rows, np.int64), "next": following}


def held_after(reservoir: bool, seed: int, capacity: int, rows: int, block: int) -> np.ndarray:
    """Numbers of the transitions that a list holds after so many, written in blocks."""
    storage = SlotStorage(capacity, (1,), np.float32)
    writer = RandomEvictionWriter(reservoir)
    memory = ReplayMemory(storage, UniformSampler(), writer, seed=seed)
    for first in range(0, rows, block):
        memory.extend(walk(first, min(block, rows - first)))
    slots = storage.locate(torch.arange(len(storage)))
    return storage.get(slots)["observation"].numpy().ravel().astype(np.int64)


@pytest.mark.parametrize("block", [1, 7])
def test_a_list_holds_everything_until_it_is_full(block: int) -> None:
    for reservoir in (False, True):
        assert sorted(held_after(reservoir, 0, 20, 20, block)) == list(range(20))


@pytest.mark.parametrize("block", [1, 7])
def test_a_reservoir_holds_each_transition_that_was_seen_as_likely(block: int) -> None:
    capacity, rows = 20, 60
    runs = [held_after(True, seed, capacity, rows, block) for seed in range(RUNS)]
    assert {len(set(held)) for held in runs} == {capacity}
    share = np.bincount(np.concatenate(runs), minlength=rows) / RUNS
    # A third each; five standard deviations of a share.
    assert np.abs(share - capacity / rows).max() < 5 * np.sqrt(1 / 3 * 2 / 3 / RUNS)


@pytest.mark.parametrize("block", [1, 7])
def test_a_list_that_evicts_at_random_forgets_by_a_constant_share(block: int) -> None:
    capacity, rows = 20, 60
    runs = [held_after(False, seed, capacity, rows, block) for seed in range(RUNS)]
    share = np.bincount(np.concatenate(runs), minlength=rows) / RUNS
    later = np.minimum(rows - 1 - np.arange(rows), rows - capacity)  # that could take its place
    expected = (1 - 1 / capacity) ** later
    assert np.abs(share - expected).max() < 5 * np.sqrt(0.25 / RUNS)
    assert share[-1] == 1


def test_a_budget_bounds_the_bytes_of_all_parts() -> None:
    memory, rng = by_chance(False, 8_000), np.random.default_rng(0)
    for _ in range(3):
        memory.extend(frames(rng, 40))
        memory.check_valid()
    a_slot = 2 * 3 * 36 + 8 + 4 + 2 + 8 + 1 + 16
    assert 8_000 - a_slot < sum(memory.footprint().values()) <= 8_000


def test_a_budget_stands_in_place_of_the_capacity() -> None:
    given = ["memory=random_eviction", "memory.capacity=100", "memory.budget=100kB"]
    memory = configured(VECTORS, *given)
    for seed in range(60):
        memory.extend(vector_block(50, seed))
    held = sum(memory.footprint().values())
    assert len(memory) > 1000
    assert 99_900 < held <= 100_000
    assert held == sum(memory.projected_footprint().values())


def test_observers_are_told_of_what_is_kept_alone() -> None:
    memory = ReplayMemory(
        SlotStorage(10, (1,), np.float32), UniformSampler(), RandomEvictionWriter(True), seed=0
    )
    seen: list[tuple[str, int]] = []

    class Watcher(Observer):
        def forgotten(self, slots: Any) -> None:
            seen.extend(("forgotten", int(slot)) for slot in slots)

        def written(self, slots: Any, numbers: Any) -> None:
            seen.extend(("written", int(slot)) for slot in slots)

    memory.observers.append(Watcher())
    memory.extend(walk(0, 100))
    assert {kind for kind, _ in seen} == {"forgotten", "written"}
    assert all(0 <= slot < 10 for _, slot in seen)


def test_a_copy_has_the_budget_of_what_was_copied() -> None:
    memory, rng = by_chance(True, 8_000), np.random.default_rng(0)
    memory.extend(frames(rng, 40))
    twin, block = copy.deepcopy(memory), frames(rng, 40)
    for each in (memory, twin):
        each.extend(block)
    assert twin.footprint() == memory.footprint()
    assert torch.equal(twin.sample(8)["observation"], memory.sample(8)["observation"])


def test_a_budget_that_holds_no_transition_is_refused() -> None:
    with pytest.raises(UserError, match=r"memory\.budget=100: too small .* takes \d+ bytes"):
        by_chance(False, 100)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["agent.n_step=3"], "agent.n_step=3: memory=random_eviction"),
        (["memory/sampler=newest"], "memory/sampler=newest: draws by the order of time"),
        (["memory/sampler=sequence"], "memory/sampler=sequence: "),
        (
            ["memory/sampler=combined", "memory.eviction=reservoir"],
            "memory/sampler=combined: each minibatch has the newest transition",
        ),
        (["memory.eviction=lru"], "memory.eviction=lru: "),
        (["memory.budget=many"], "memory.budget="),
    ],
)
def test_what_does_not_go_together_is_one_line(given: list[str], said: str) -> None:
    with pytest.raises(UserError) as caught:
        check(compose("train", ["memory=random_eviction", "env=cartpole", *given]))
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_a_sampler_by_time_is_refused_beside_a_storage_that_does_not_hold_it() -> None:
    storage = SlotStorage(100, (4,), np.float32)
    with pytest.raises(UserError, match="draws by the order of time, which SlotStorage does not"):
        ReplayMemory(storage, NewestSampler(), RandomEvictionWriter(), seed=0)


def test_the_newest_may_be_in_each_minibatch_where_it_is_always_kept() -> None:
    given = ["memory=random_eviction", "env=cartpole", "memory/sampler=combined"]
    check(compose("train", given))
