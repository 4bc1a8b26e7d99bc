"""States of all parts: copies of what they hold, taken over whole or refused."""

import copy
import pickle
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmem import checksums
from rlmem.memories import (
    GWRWriter,
    MapStorage,
    MetricSettings,
    PrioritizedEdgeSampler,
    RandomProjection,
    ReplayMemory,
    RingWriter,
    RuleSettings,
    UniformSampler,
)
from rlmem.memories.ring import checkpoint
from tests.memories.helpers import RandomEnvs
from tests.memories.ring.test_ring_storages import make
from tests.memories.states import (
    CASES,
    assert_equal,
    assert_goes_on_as,
    grow,
    load,
    states_of,
)

each_case = pytest.mark.parametrize("case", CASES)
FILLED = range(4)  # seeds of the blocks that a memory is filled with


def filled(case: str) -> ReplayMemory:
    make, blocks = CASES[case]
    return grow(make(), blocks, FILLED)


@each_case
def test_its_own_state_changes_nothing(case: str) -> None:
    memory, twin, blocks = filled(case), filled(case), CASES[case][1]
    held = memory.footprint()
    load(memory, states_of(memory))
    assert memory.footprint() == held
    assert_goes_on_as(memory, twin, blocks)


@each_case
def test_a_memory_that_was_loaded_tells_as_many_bytes_as_the_saved_one(
    case: str, tmp_path: Path
) -> None:
    memory, other = filled(case), CASES[case][0]()
    memory.save(tmp_path)
    other.load(tmp_path)
    assert other.footprint() == memory.footprint()


@each_case
def test_a_part_that_takes_over_its_own_state_goes_on_with_the_others(case: str) -> None:
    blocks = CASES[case][1]
    for name in filled(case)._parts():
        memory, twin = filled(case), filled(case)
        part = memory._parts()[name]
        part.load_state_dict(part.state_dict())
        assert_goes_on_as(memory, twin, blocks)


@each_case
def test_a_state_stays_as_it_is_while_the_memory_goes_on(case: str) -> None:
    memory, twin, blocks = filled(case), filled(case), CASES[case][1]
    states = states_of(memory)
    kept = copy.deepcopy(states)
    grow(memory, blocks, range(50, 56))
    assert_equal(states, kept)
    load(memory, states)
    assert_equal(states, kept)
    assert_goes_on_as(memory, twin, blocks)
    assert_equal(states, kept)


@each_case
def test_a_memory_stays_as_it_is_whatever_becomes_of_its_state(case: str) -> None:
    memory, twin, blocks = filled(case), filled(case), CASES[case][1]
    load(memory, states := states_of(memory))
    for name in memory._parts():
        for state in (states[name], memory._parts()[name].state_dict()):
            for value in state.values():
                if isinstance(value, np.ndarray):
                    value.view(np.uint8)[...] ^= 255
    assert_goes_on_as(memory, twin, blocks)


# Arrays that may be shorter as far as a state can tell.
FEWER = ("leaves", "recent", "order", "references", "exemplars.references")

# What states of earlier versions lack.
OPTIONAL = ("embedding.rotation", "alpha", "weight")


def damaged(state: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is wrong -> the state with it, for each entry in several ways."""
    for name, value in state.items():
        if name not in OPTIONAL:
            yield f"{name} is missing", {k: v for k, v in state.items() if k != name}
        if not isinstance(value, np.ndarray):
            yield f"{name} is a word", {**state, name: "word"}
            continue
        yield f"{name} is no array", {**state, name: 5}
        yield f"{name} has another dtype", {**state, name: np.zeros(value.shape, np.complex64)}
        yield f"{name} has an axis more", {**state, name: value[None]}
        if value.size and name not in FEWER:
            yield f"{name} has a row less", {**state, name: value[:-1]}


@each_case
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(case: str) -> None:
    memory, twin, blocks = filled(case), filled(case), CASES[case][1]
    before = states_of(memory)
    accepted = []
    for name, part in memory._parts().items():
        for what, state in damaged(before[name]):
            try:
                part.load_state_dict(state)
            except ValueError:
                assert_equal(part.state_dict(), before[name], what)
            else:
                accepted.append((name, what))
                load(memory, before)
    assert accepted == []
    assert_goes_on_as(memory, twin, blocks)


@each_case
def test_a_damaged_file_leaves_the_whole_memory_as_it_was(case: str, tmp_path: Path) -> None:
    make, blocks = CASES[case]
    grow(make(), blocks, range(20, 23)).save(tmp_path)
    memory, twin = filled(case), filled(case)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) > 6
    for file in files:
        content = file.read_bytes()
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 4]))
        with pytest.raises(ValueError, match=file.name):
            memory.load(tmp_path)
        file.write_bytes(content)
    assert_goes_on_as(memory, twin, blocks)


@pytest.mark.parametrize("kind", ["dense", "frames", "compressed"])
@pytest.mark.parametrize("sampler", ["prioritized", "rank", "budget"])
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.integers(1, 70)),
            st.tuples(st.just("keep"), st.just(0)),
            st.tuples(st.just("load"), st.integers(0, 9)),
        ),
        max_size=14,
    )
)
@settings(max_examples=12)
def test_any_run_of_writes_and_loads_ends_as_the_writes_that_count(
    kind: str, sampler: str, steps: list[tuple[str, int]]
) -> None:
    """A state that is loaded undoes what came after it was taken."""
    make, blocks = CASES[f"{kind}, {sampler}"]
    memory, history = make(), []
    kept = [(states_of(memory), [])]
    for number, (what, size) in enumerate(steps):
        if what == "write":
            history.append((number, size))
            grow(memory, blocks, range(number, number + 1), size)
        elif what == "keep":
            kept.append((states_of(memory), list(history)))
        else:
            states, before = kept[size % len(kept)]
            load(memory, states)
            history = list(before)
    twin = make()
    for number, size in history:
        grow(twin, blocks, range(number, number + 1), size)
    assert_goes_on_as(memory, twin, blocks)


@each_case
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_a_copy_goes_on_as_the_memory_and_leaves_it_alone(case: str, copied: Any) -> None:
    memory, twin, blocks = filled(case), filled(case), CASES[case][1]
    other = copied(memory)
    assert_goes_on_as(other, twin, blocks)
    assert_goes_on_as(memory, copied(filled(case)), blocks)


@pytest.mark.parametrize("kind", ["dense", "frames", "memmap", "compressed", "map"])
def test_a_copy_takes_what_is_held_and_not_the_capacity(kind: str) -> None:
    memory, shape = large(kind, 10**6)
    memory.extend(RandomEnvs(np.random.default_rng(0), shape, np.uint8).block(50))
    held = sum(memory.storage.footprint().values())
    assert len(pickle.dumps(memory.storage)) < 1.1 * held + 50_000
    loaded = copy.deepcopy(memory.storage)
    assert loaded.footprint() == memory.storage.footprint()
    loaded.check_valid()


def large(kind: str, capacity: int) -> tuple[ReplayMemory, tuple[int, ...]]:
    """An empty memory and the shape of its frames."""
    if kind != "map":
        storage = make(kind, capacity, shape := (1, 40, 40))
        return ReplayMemory(storage, UniformSampler(), RingWriter(), seed=0), shape
    shape = (1, 128, 128)
    storage = MapStorage(capacity, shape, np.uint8, 16, num_actions=2)
    embedding = RandomProjection(shape, 16, seed=1, scale_input=1 / 255)
    rule = RuleSettings(links=False, metric=MetricSettings(scale=1.0))
    writer = GWRWriter(1.0, 1.0, embedding=embedding, rule=rule)
    return ReplayMemory(storage, PrioritizedEdgeSampler(), writer, seed=0), shape


@pytest.mark.parametrize("kind", ["dense", "frames", "compressed", "map"])
def test_saving_and_loading_take_no_second_copy(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "PIECE", 2**18)
    monkeypatch.setattr(checksums, "BLOCK", 2**16)
    (memory, shape), (other, _) = large(kind, 2500), large(kind, 2500)
    envs = RandomEnvs(np.random.default_rng(0), shape, np.uint8, end=0.0)
    memory.extend(envs.block(100))
    memory.save(tmp_path / "first")  # what these compile at their first call is not the memory's
    other.load(tmp_path / "first")
    for _ in range(24):
        memory.extend(envs.block(100))
    memory.sample(8)
    held = sum(memory.footprint().values())
    assert held > (2.2 * 2**24 if kind == "map" else 4e6)  # NumPy writes by 2**24 bytes
    for act in (lambda: memory.save(tmp_path), lambda: other.load(tmp_path)):
        tracemalloc.start()
        act()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < held / 2


@pytest.mark.parametrize("case", ["dense, prioritized", "map of images, edges by priority"])
def test_a_state_loads_into_another_memory_and_leaves_the_first_alone(case: str) -> None:
    make, blocks = CASES[case]
    memory, twin, other = filled(case), filled(case), grow(make(), blocks, range(20, 21))
    load(other, states_of(memory))
    grow(other, blocks, range(60, 64))
    assert_goes_on_as(memory, twin, blocks)
