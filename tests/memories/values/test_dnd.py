"""The dictionary of NEC and MFEC: what it keeps, what goes, and what it says."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmem.errors import UserError
from rlmem.memories.gwr.embedding import RandomProjection
from rlmem.memories.values.base import weighted
from rlmem.memories.values.dnd import DND, DNDRule
from tests.memories.helpers import run_measured

MFEC = DNDRule(neighbours=3, delta=None, alpha=None)


def keys_of(rng: np.random.Generator, n: int, d: int = 8) -> np.ndarray:
    return rng.normal(size=(n, d)).astype(np.float32)


class Reference:
    """One action's entries as a list, oldest use first: (state, key, value)."""

    def __init__(self, capacity: int, alpha: float | None) -> None:
        self.capacity, self.alpha = capacity, alpha
        self.entries: list[list] = []

    def write(self, key: np.ndarray, value: float, state: int) -> None:
        known = next((entry for entry in self.entries if entry[0] == state), None)
        if known is not None:
            self.entries.remove(known)
            old = known[2]
            value = max(old, value) if self.alpha is None else old + self.alpha * (value - old)
        elif len(self.entries) == self.capacity:
            self.entries.pop(0)
        self.entries.append([state, key, np.float32(value)])

    def touch(self, query: np.ndarray, p: int) -> None:
        gaps = [np.square(entry[1].astype(np.float64) - query).sum() for entry in self.entries]
        found = [self.entries[i] for i in np.argsort(gaps)[:p]]
        rest = [entry for entry in self.entries if not any(entry is f for f in found)]
        self.entries = rest + [entry for entry in self.entries if any(entry is f for f in found)]


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    capacity=st.integers(2, 40),
    states=st.integers(1, 120),
    alpha=st.sampled_from([None, 0.1, 1.0]),
)
def test_writes_and_reads_leave_the_entries_that_a_list_would(
    seed: int, capacity: int, states: int, alpha: float | None
) -> None:
    rng = np.random.default_rng(seed)
    rule = DNDRule(neighbours=1, alpha=alpha)
    dictionary = DND(2, 4, capacity, rule)
    lists = [Reference(capacity, alpha) for _ in range(2)]
    for _ in range(12):
        n = int(rng.integers(1, 16))
        keys, actions = keys_of(rng, n, 4), rng.integers(2, size=n)
        values = rng.normal(size=n).astype(np.float32)
        hashes = rng.integers(states, size=n)
        dictionary.write(keys, actions, values, hashes)
        for key, action, value, state in zip(keys, actions, values, hashes, strict=True):
            lists[action].write(key, float(value), int(state))
        # One neighbour a read, so that no two entries are used at one time.
        query = keys_of(rng, 1, 4)
        dictionary.read(query)
        for reference in lists:
            if reference.entries:
                reference.touch(query[0], 1)
        dictionary.check_valid()
        state = dictionary.state_dict()
        ends = np.cumsum(state["count"])
        for action, reference in enumerate(lists):
            rows = slice(ends[action] - state["count"][action], ends[action])
            order = np.argsort(state["used"][rows], kind="stable")
            assert state["hash"][rows][order].tolist() == [e[0] for e in reference.entries]
            held = np.array([e[2] for e in reference.entries], np.float32)
            np.testing.assert_allclose(state["value"][rows][order], held, rtol=1e-5, atol=1e-6)
            for key, entry in zip(state["key"][rows][order], reference.entries, strict=True):
                np.testing.assert_array_equal(key, entry[1])


def test_without_hashes_equal_keys_are_one_state_and_both_zeros_are_equal() -> None:
    dictionary = DND(1, 2, 10, DNDRule(neighbours=1, alpha=0.5))
    keys = np.array([[0.0, 1.0], [-0.0, 1.0], [0.0, 2.0]], np.float32)
    slots = dictionary.write(keys, np.zeros(3, int), np.array([0.0, 8.0, 1.0], np.float32))
    assert slots.tolist() == [0, 0, 1]
    assert dictionary.read(keys[:1])[0][0, 0] == 4.0


def test_a_value_is_the_mean_of_the_nearest_by_inverse_distance() -> None:
    rng = np.random.default_rng(0)
    dictionary = DND(2, 8, 100, DNDRule(neighbours=5, delta=1e-3))
    keys, actions = keys_of(rng, 80), rng.integers(2, size=80)
    values = rng.normal(size=80).astype(np.float32)
    dictionary.write(keys, actions, values)
    query = keys_of(rng, 3)
    given, _ = dictionary.read(query)
    for n in range(3):
        for action in range(2):
            own = actions == action
            gap = np.square(keys[own].astype(float) - query[n]).sum(1)
            near = np.argsort(gap)[:5]
            weight = 1 / (gap[near] + 1e-3)
            wanted = (weight * values[own][near]).sum() / weight.sum()
            np.testing.assert_allclose(given[n, action], wanted, rtol=1e-6)


def test_the_axes_of_no_keys_are_left_as_they_are() -> None:
    dictionary = DND(1, 4, 64, DNDRule(neighbours=1))
    dictionary.fit()
    dictionary.write(np.eye(4, dtype=np.float32)[:1], np.zeros(1, np.int64), np.ones(1, np.float32))
    assert dictionary.read(np.eye(4, dtype=np.float32)[:1])[0] == 1.0


def test_an_action_without_entries_is_worth_nothing() -> None:
    dictionary = DND(3, 2, 5, DNDRule(neighbours=2))
    key = np.ones((1, 2), np.float32)
    dictionary.write(key, np.array([1]), np.array([7.0], np.float32))
    values, found = dictionary.read(key)
    assert values.tolist() == [[0.0, 7.0, 0.0]]
    assert found.slot[0].tolist() == [[-1, -1], [0, -1], [-1, -1]]


def test_mfec_keeps_the_greater_return_and_knows_a_known_state() -> None:
    dictionary = DND(1, 2, 10, MFEC)
    keys = np.array([[0, 0], [1, 0], [2, 0], [9, 9]], np.float32)
    dictionary.write(keys, np.zeros(4, int), np.array([1, 2, 6, 90], np.float32))
    dictionary.write(keys[:2], np.zeros(2, int), np.array([0, 4], np.float32))
    values, _ = dictionary.read(np.array([[0, 0], [0.9, 0]], np.float32))
    assert values[:, 0].tolist() == [1.0, pytest.approx((1 + 4 + 6) / 3)]


def test_gradients_reach_the_asking_key_and_pull_it_towards_the_better_value() -> None:
    dictionary = DND(1, 2, 10, DNDRule(neighbours=2, delta=0.1))
    dictionary.write(
        np.array([[0, 0], [1, 0]], np.float32), np.zeros(2, int), np.array([0, 1], np.float32)
    )
    asked = torch.tensor([[0.4, 0.0]], requires_grad=True)
    near = dictionary.near(asked.detach().numpy(), np.zeros(1, int))
    parts = [torch.from_numpy(part) for part in (near.key, near.value, near.held)]
    value = weighted(asked, *parts, 0.1)
    np.testing.assert_allclose(value.item(), dictionary.read(asked.detach().numpy())[0], rtol=1e-6)
    value.sum().backward()
    assert asked.grad is not None
    assert asked.grad[0, 0] > 0
    step = 1e-3
    moved = dictionary.read(np.array([[0.4 + step, 0]], np.float32))[0] - value.item()
    np.testing.assert_allclose(asked.grad[0, 0].item(), moved.item() / step, rtol=1e-2)


def test_a_read_in_evaluation_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    dictionary = DND(2, 8, 50, DNDRule(neighbours=3))
    dictionary.write(keys_of(rng, 60), rng.integers(2, size=60), np.zeros(60, np.float32))
    before = dictionary.state_dict()
    dictionary.read(keys_of(rng, 4), touch=False)
    after = dictionary.state_dict()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    dictionary.read(keys_of(rng, 4))
    assert not np.array_equal(before["used"], dictionary.state_dict()["used"])


def test_a_saved_dictionary_goes_on_bit_for_bit() -> None:
    rule = DNDRule(neighbours=7)
    dictionary, other = DND(3, 8, 600, rule), DND(3, 8, 600, rule)

    def play(on: DND, seed: int) -> list[np.ndarray]:
        rng, told = np.random.default_rng(seed), []
        for _ in range(40):
            n = 30
            on.write(keys_of(rng, n), rng.integers(3, size=n), keys_of(rng, n)[:, 0], None)
            told.append(on.read(keys_of(rng, 2))[0])
        return told

    play(dictionary, 1)
    play(other, 2)  # what it held before is gone
    other.load_state_dict(dictionary.state_dict())
    other.check_valid()
    assert dictionary.counts.max() < 600  # the slabs fill, and are full, in what follows
    for told in zip(play(dictionary, 3), play(other, 3), strict=True):
        np.testing.assert_array_equal(*told)
    ends = dictionary.state_dict(), other.state_dict()
    assert dictionary.counts.min() == 600
    again = DND(3, 8, 600, rule)
    again.load_state_dict(ends[0])
    assert again.footprint() == dictionary.footprint()
    assert all(np.array_equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_a_state_brings_the_projection_that_its_keys_were_made_with() -> None:
    rng = np.random.default_rng(0)
    rule = DNDRule(neighbours=2, delta=None, alpha=None)
    kept, other = (DND(1, 8, 20, rule, RandomProjection((6,), 8, seed)) for seed in (1, 2))
    seen = rng.normal(size=(9, 6)).astype(np.float32)
    kept.write(kept.embed(seen), np.zeros(9, np.int64), np.arange(9, dtype=np.float32))
    other.load_state_dict(kept.state_dict())
    answers = [d.read(d.embed(seen))[0] for d in (kept, other)]
    np.testing.assert_array_equal(*answers)
    with pytest.raises(UserError, match=r"memory.keys=network: .* random projection"):
        DND(1, 8, 20, rule).load_state_dict(kept.state_dict())


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"count": np.array([3, 30])},
            "30 entries of an action, this one room for 20; use .*=30 and, where memory.budget",
        ),
        ({"key": np.zeros((5, 3), np.float32)}, "give the same agent.key_size"),
        ({"value": np.full(5, np.nan, np.float32)}, "damaged"),
        ({"used": np.full(5, 10**6)}, "damaged"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(change: dict, line: str) -> None:
    rng = np.random.default_rng(0)
    dictionary = DND(2, 2, 20, DNDRule(neighbours=1))
    dictionary.write(keys_of(rng, 5, 2), np.array([0, 0, 0, 1, 1]), np.ones(5, np.float32))
    before = dictionary.state_dict()
    with pytest.raises(UserError, match=line):
        dictionary.load_state_dict(before | change)
    after = dictionary.state_dict()
    assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    ("keys", "actions", "values"),
    [
        (np.full((1, 2), np.nan), [0], [1.0]),
        (np.full((1, 2), 1e30), [0], [1.0]),
        (np.zeros((1, 3)), [0], [1.0]),
        (np.zeros((1, 2)), [2], [1.0]),
        (np.zeros((1, 2)), [-1], [1.0]),
        (np.zeros((1, 2)), [0, 0], [1.0]),
        (np.zeros((1, 2)), [0], [np.inf]),
    ],
)
def test_what_cannot_be_written_is_refused_and_changes_nothing(
    keys: np.ndarray, actions: list, values: list
) -> None:
    dictionary = DND(2, 2, 20, DNDRule(neighbours=1))
    with pytest.raises(ValueError, match=r"key|action|value"):
        dictionary.write(keys.astype(np.float32), np.array(actions), np.array(values, np.float32))
    assert dictionary.entries == 0


def test_more_neighbours_than_entries_are_refused() -> None:
    with pytest.raises(ValueError, match="neighbours=50: use 1 to 20, the entries of an action"):
        DND(2, 2, 20)


def test_it_is_ready_when_every_action_has_its_neighbours() -> None:
    dictionary = DND(2, 2, 20, DNDRule(neighbours=2))
    for n, action in enumerate((0, 0, 0, 1)):
        dictionary.write(np.full((1, 2), n, np.float32), np.array([action]), np.ones(1, np.float32))
        assert not dictionary.ready
    dictionary.write(np.full((1, 2), 9, np.float32), np.array([1]), np.ones(1, np.float32))
    assert dictionary.ready


def test_a_full_dictionary_holds_the_bytes_that_were_projected() -> None:
    rng = np.random.default_rng(0)
    dictionary = DND(2, 40, 300, DNDRule(neighbours=5))
    projected = dictionary.projected_footprint()
    held = [sum(dictionary.footprint().values())]
    for _ in range(30):
        dictionary.write(keys_of(rng, 50, 40), rng.integers(2, size=50), np.zeros(50, np.float32))
        held.append(sum(dictionary.footprint().values()))
    assert dictionary.counts.tolist() == [300, 300]
    assert dictionary.footprint() == projected
    assert max(held) == sum(projected.values())


@pytest.mark.parametrize("capacity", [60, 256, 257])
def test_the_arrays_of_a_full_dictionary_are_counted(capacity: int) -> None:
    """A search's own arrays are of whole tiles."""
    rng = np.random.default_rng(0)
    dictionary = DND(2, 128, capacity, DNDRule(neighbours=5))
    for action in (0, 1):
        keys = keys_of(rng, capacity + 1, 128)
        dictionary.write(keys, np.full(len(keys), action), np.zeros(len(keys), np.float32))
    parts = (*dictionary._slabs, *dictionary._work, *dictionary._lookup)
    held = sum(array.nbytes for array in parts)
    few = 100  # a number or two an action, and the clock
    assert held - few <= sum(dictionary.footprint().values()) <= held


def test_states_that_are_known_take_no_room() -> None:
    """So a dictionary takes the bytes after a load that it took before."""
    dictionary = DND(2, 4, 1000)
    keys, actions = keys_of(np.random.default_rng(0), 60, 4), np.arange(60) % 2
    for _ in range(3):
        dictionary.write(keys, actions, np.zeros(60, np.float32), np.arange(60))
    loaded = DND(2, 4, 1000)
    loaded.load_state_dict(dictionary.state_dict())
    assert dictionary.footprint() == loaded.footprint()
    dictionary.check_valid()


MEASURED = """
import json
import numpy as np, psutil
from rlmem.memories.values.dnd import DND, DNDRule
from tests.memories.helpers import run_measured

rng = np.random.default_rng(0)

def fill(dictionary, n):
    for begin in range(0, n, 500):
        keys = rng.normal(size=(500, 128)).astype(np.float32)
        hashes = np.arange(begin, begin + 500)
        dictionary.write(keys, hashes % 6, np.zeros(500, np.float32), hashes)
        dictionary.read(keys[:1])

def rss():
    return psutil.Process().memory_info().rss

fill(DND(6, 128, 2000), 6000)  # compiles, and lets the allocator grow
before = rss()
dictionary = DND(6, 128, 100_000)
fill(dictionary, 60_000)
print(json.dumps([rss() - before, sum(dictionary.footprint().values())]))
"""


@pytest.mark.slow
def test_the_bytes_of_60000_entries_are_what_the_process_grew_by() -> None:
    grown, counted = json.loads(run_measured(MEASURED))
    assert counted == pytest.approx(grown, rel=0.02)
    assert counted > 60_000 * 4 * 128
