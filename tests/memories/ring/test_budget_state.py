"""Memories under a budget, saved and loaded."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmem.memories import (
    FrameStorage,
    PrioritizedSampler,
    RankSampler,
    ReplayMemory,
    RingWriter,
)
from rlmem.memories.ring.ring import RingStorage
from tests.memories.helpers import RandomEnvs
from tests.memories.ring.test_budget import FRAME, KINDS, held, limited
from tests.memories.ring.test_ring_storages import make
from tests.memories.states import assert_equal


@pytest.mark.parametrize("kind", [*KINDS, "map", "exemplars"])
def test_a_loaded_memory_evicts_what_the_saved_one_does(kind: str, tmp_path: Path) -> None:
    # The rings and their holes fill up, empty and fill again as frames compress well or badly.
    maps = ["memory.prototype=exemplar"] if kind == "exemplars" else []
    which = "map" if kind in ("map", "exemplars") else kind
    budget = 800_000 if kind == "exemplars" else 400_000
    memories = [limited(budget, which, more=maps) for _ in range(2)]
    rng = np.random.default_rng(0)
    most = 0
    for number in range(400):
        change = (0.05, 0.5, 0.02, 0.2)[number // 100]
        block = RandomEnvs(rng, FRAME, np.uint8, 2, 0.02, change).block(20)
        for memory in memories:
            memory.extend(block)
        drawn = [memory.sample(8) for memory in memories]
        assert torch.equal(drawn[0]["index"], drawn[1]["index"])
        assert torch.equal(drawn[0]["observation"], drawn[1]["observation"])
        assert held(memories[0]) == held(memories[1])
        most = max(most, held(memories[0]))
        if number in (80, 250, 290):
            memories[1].save(tmp_path / f"{number}")
            memories[1] = limited(budget, which, more=maps)
            memories[1].load(tmp_path / f"{number}")
            memories[1].check_valid()
    assert most > 0.9 * budget


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
    assert held(other) <= 300_000


def filled(kind: str, budget: int) -> RingStorage:
    storage = make(kind, 10_000, FRAME, stack=2, budget=budget)
    envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 1, 0.02)
    for _ in range(30):
        storage.append(envs.block(40))
    return storage


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_that_cannot_shrink_to_the_budget_is_refused_and_changes_nothing(kind: str) -> None:
    budget = 40_000 if kind == "compressed" else 200_000  # less than its slots and open chunks
    smaller, state = filled(kind, budget), filled(kind, 400_000).state_dict()
    before = smaller.state_dict()
    with pytest.raises(ValueError, match=rf"cannot shrink to memory\.budget={budget}"):
        smaller.load_state_dict(state)
    assert_equal(smaller.state_dict(), before)
    smaller.check_valid()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(
    blocks=st.lists(
        st.tuples(st.integers(180, 250), st.sampled_from([0.1, 0.5, 1.0])), min_size=4, max_size=6
    ),
    num_envs=st.integers(1, 3),
    chunk=st.sampled_from([2, 8, 16]),
    stack=st.sampled_from([1, 4]),
)
def test_the_smallest_budget_that_is_let_pass_is_the_smallest_that_holds(
    kind: str, blocks: list[tuple[int, float]], num_envs: int, chunk: int, stack: int
) -> None:
    options = {"stack": stack, "num_envs": num_envs, "chunk": chunk}
    larger, rng = make(kind, 1500, FRAME, budget=800_000, **options), np.random.default_rng(0)
    for rows, change in blocks:
        larger.append(RandomEnvs(rng, FRAME, np.uint8, num_envs, 0.05, change).block(rows))
    state, own = larger.state_dict(), make(kind, 1500, FRAME, **options).least
    with pytest.raises(ValueError, match="cannot shrink") as refused:
        make(kind, 1500, FRAME, budget=own + 1, **options).check_state(state)
    least = int(str(refused.value).split("takes ")[1].split()[0])
    smallest = make(kind, 1500, FRAME, budget=least, **options)
    smallest.load_state_dict(state)
    smallest.check_valid()
    assert smallest.nbytes <= least
    too_small = make(kind, 1500, FRAME, budget=least - 1, **options)
    with pytest.raises(ValueError, match="cannot shrink"):
        too_small.check_state(state)
    with pytest.raises(AssertionError, match="its budget does not hold"):
        too_small.take_over(state)


def test_a_compressed_state_shrinks_to_the_budget() -> None:
    larger, smaller = filled("compressed", 400_000), filled("compressed", 200_000)
    smaller.load_state_dict(larger.state_dict())
    smaller.check_valid()
    assert smaller.nbytes <= 200_000
    newest = larger.locate(torch.arange(len(larger)))[-len(smaller) :]
    expected = larger.get(newest)["observation"]
    own = smaller.get(smaller.locate(torch.arange(len(smaller))))["observation"]
    assert len(smaller) > 200
    assert torch.equal(own, expected)


@pytest.mark.parametrize("sampler", [PrioritizedSampler, RankSampler])
def test_a_memory_that_is_loaded_without_its_budget_draws_all_it_holds(
    sampler: Any, tmp_path: Path
) -> None:
    """Under the budget the ring held its newest transitions in slots beyond their number."""

    def memory_of(budget: int | None) -> ReplayMemory:
        storage = FrameStorage(400, (16,), np.float32)
        return ReplayMemory(storage, sampler(400), RingWriter(), seed=0, budget=budget)

    memory, rng = memory_of(14_000), np.random.default_rng(0)
    for end in (0.0, 0.9):  # an episode's end takes a frame more
        envs = RandomEnvs(rng, (16,), np.float32, end=end)
        for _ in range(6):
            memory.extend(envs.block(40))
    storage: Any = memory.storage
    size, _, window = storage.arrays.cursors()
    assert window < size
    memory.save(tmp_path)
    other = memory_of(None)
    other.load(tmp_path)
    drawn = np.unique(np.concatenate([other.draw(32, 1)["index"].ravel() for _ in range(200)]))
    assert np.array_equal(drawn, np.flatnonzero(storage.held(np.arange(size))))
    other.check_valid()
