"""Sum trees and the rank heap against plain loops."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmem.memories.samplers.rank_heap import RankHeap
from rlmem.memories.samplers.sum_tree import SumTree

BELOW_ONE = float(np.nextafter(1.0, 0.0))


def draw(weights: list[float], u: float) -> int:
    """The item whose part of the total holds u, by a plain loop."""
    mass, total = u * sum(weights), 0.0
    last = max(i for i, w in enumerate(weights) if w > 0)
    for i, weight in enumerate(weights):
        total += weight
        if mass < total:
            return min(i, last)
    return last


# Whole numbers below 2^20, so that every order of summing gives the same float64.
weight = st.one_of(st.just(0), st.integers(1, 2**20))


either_or_heap = pytest.mark.parametrize("make", [SumTree, RankHeap])
OUT_OF_RANGE = [-2, -1000, 5, 7, 8, 10**12]  # of five items


def leaves_of(structure: Any) -> list[float]:
    heap = isinstance(structure, RankHeap)
    return structure.state_dict()["priority"].tolist() if heap else structure.leaves().tolist()


@given(data=st.data(), capacity=st.integers(1, 70))
@settings(max_examples=150)
def test_weights_totals_and_draws_are_exact(data: Any, capacity: int) -> None:
    tree, weights = SumTree(capacity), [0.0] * capacity
    index = st.integers(0, capacity - 1)
    updates = data.draw(
        st.lists(st.lists(st.tuples(index, weight), max_size=20), min_size=1, max_size=5)
    )
    for pairs in updates:
        for i, value in pairs:  # of an item given twice, the last value stands
            weights[i] = float(value)
        tree.update(
            np.array([i for i, _ in pairs], np.int64), np.array([v for _, v in pairs], np.float64)
        )
        tree.check_valid()
        assert tree.leaves().tolist() == weights
        assert tree.total == sum(weights)
        if sum(weights) == 0:
            continue
        edges = [0.0, 0.25, 0.5, 0.75, BELOW_ONE]
        u = np.array(edges + data.draw(st.lists(st.floats(0, 1, exclude_max=True), max_size=10)))
        drawn = tree.draw(u)
        assert drawn.tolist() == [draw(weights, x) for x in u]
        assert all(weights[i] > 0 for i in drawn)


@given(
    values=st.lists(st.one_of(st.just(0.0), st.floats(1e-12, 1e12)), min_size=1, max_size=40),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=100)
def test_an_item_of_weight_zero_is_never_drawn(values: list[float], seed: int) -> None:
    values = [*values, 1.0, 0.0]
    tree = SumTree(len(values))
    tree.update(np.arange(len(values)), np.array(values))
    u = np.append(np.random.default_rng(seed).random(200), BELOW_ONE)
    assert all(values[i] > 0 for i in tree.draw(u))


def test_a_mass_that_rounds_up_to_the_total_stays_with_the_last_positive_item() -> None:
    tree = SumTree(4)
    tree.update(np.array([0]), np.array([5e-324]))  # BELOW_ONE times it is itself
    assert tree.draw(np.array([BELOW_ONE])).tolist() == [0]


def test_an_empty_tree_draws_nothing() -> None:
    with pytest.raises(ValueError, match="no item has a positive weight"):
        SumTree(5).draw(np.array([0.5]))


@either_or_heap
@pytest.mark.parametrize("wrong", [-1.0, -5e-324, np.nan, np.inf, -np.inf])
def test_a_weight_that_is_negative_or_not_finite_is_refused(make: Any, wrong: float) -> None:
    structure = make(5)
    structure.update(np.arange(5), np.arange(1.0, 6.0))
    with pytest.raises(ValueError, match=f"weight {wrong} of item 3: a weight is finite"):
        structure.update(np.array([0, 3, 1]), np.array([9.0, wrong, 9.0]))
    assert leaves_of(structure) == [1, 2, 3, 4, 5]
    structure.check_valid()


@either_or_heap
@pytest.mark.parametrize("wrong", OUT_OF_RANGE)
def test_an_item_out_of_range_is_refused(make: Any, wrong: int) -> None:
    structure, error = make(5), f"item {wrong} is out of range: there is room for 5"
    structure.update(np.arange(5), np.arange(1.0, 6.0))
    with pytest.raises(IndexError, match=error):
        structure.update(np.array([0, wrong, 1]), np.array([9.0, 9.0, 9.0]))
    read = structure.remove if make is RankHeap else structure.leaf
    for index in (wrong, -1):
        with pytest.raises(IndexError, match="out of range"):
            read(np.array([0, index]))
    assert leaves_of(structure) == [1, 2, 3, 4, 5]
    structure.check_valid()


@either_or_heap
def test_a_row_of_item_minus_one_is_skipped_whatever_its_weight(make: Any) -> None:
    structure = make(5)
    structure.update(np.arange(5), np.arange(1.0, 6.0))
    structure.update(np.array([-1, 2, -1, -1]), np.array([np.nan, 7.0, -3.0, 8.0]))
    structure.update(np.array([-1]), np.array([2.0]))
    assert leaves_of(structure) == [1, 2, 7, 4, 5]
    structure.check_valid()


@either_or_heap
@pytest.mark.parametrize("weights", [2, 4])
def test_weights_of_another_number_than_items_are_refused(make: Any, weights: int) -> None:
    with pytest.raises(ValueError, match="give one for each"):
        make(5).update(np.arange(3), np.ones(weights))


@pytest.mark.parametrize("wrong", [-1e-9, 1.0 + 1e-9, np.nan, np.inf])
def test_a_fraction_to_draw_at_that_is_out_of_range_is_refused(wrong: float) -> None:
    tree = SumTree(5)
    tree.update(np.arange(5), np.ones(5))
    with pytest.raises(ValueError, match=r"not in \[0, 1\]"):
        tree.draw(np.array([0.5, wrong, 0.1]))


def test_a_fraction_that_rounds_to_one_is_the_last_item_with_a_weight() -> None:
    tree = SumTree(5)
    tree.update(np.arange(5), np.array([1.0, 2.0, 0.0, 3.0, 0.0]))
    assert tree.draw(np.array([1.0])).tolist() == [3]


@pytest.mark.parametrize("leaves", [[1.0, -1.0], [np.nan], [np.inf], [1.0] * 6])
def test_leaves_that_are_no_weights_are_not_loaded(leaves: list[float]) -> None:
    tree = SumTree(5)
    tree.update(np.arange(5), np.arange(1.0, 6.0))
    with pytest.raises((ValueError, IndexError)):
        tree.load_leaves(np.array(leaves))
    assert leaves_of(tree) == [1, 2, 3, 4, 5]
    tree.check_valid()


@given(
    values=st.lists(weight, min_size=1, max_size=40),
    more=st.integers(0, 100),
)
@settings(max_examples=50)
def test_growing_keeps_the_weights_and_makes_room(values: list[int], more: int) -> None:
    tree = SumTree(len(values))
    tree.update(np.arange(len(values)), np.array(values, np.float64))
    capacity = len(values) + more
    tree.grow(capacity)
    tree.check_valid()
    assert tree.leaves().tolist() == [*values, *[0] * more]
    tree.update(np.array([capacity - 1]), np.array([7.0]))
    assert tree.draw(np.array([BELOW_ONE])).tolist() == [capacity - 1]


def test_loading_leaves_replaces_all_weights() -> None:
    tree = SumTree(7)
    tree.update(np.arange(7), np.full(7, 3.0))
    tree.load_leaves(np.array([1.0, 2.0]))
    tree.check_valid()
    assert tree.leaves().tolist() == [1, 2, 0, 0, 0, 0, 0]
    assert tree.total == 3


def test_a_long_row_of_updates_gathers_no_rounding_error() -> None:
    rng, tree = np.random.default_rng(0), SumTree(100)
    for _ in range(2000):
        tree.update(rng.integers(100, size=8), rng.random(8) * 10.0 ** rng.integers(-8, 8, 8))
    rebuilt = SumTree(100)
    rebuilt.load_leaves(tree.leaves())
    assert tree.total == rebuilt.total


@given(
    capacity=st.integers(1, 30),
    updates=st.lists(
        st.lists(st.tuples(st.integers(0, 29), st.floats(0, 100)), max_size=15), max_size=6
    ),
)
@settings(max_examples=150)
def test_the_heap_keeps_its_invariant_and_sorts_exactly(capacity: int, updates: list) -> None:
    heap, priority = RankHeap(capacity), {}
    for pairs in updates:
        pairs = [(i % capacity, value) for i, value in pairs]
        priority.update(dict(pairs))
        heap.update(
            np.array([i for i, _ in pairs], np.int64), np.array([v for _, v in pairs], np.float64)
        )
        heap.check_valid()
        assert heap.size == len(priority)
        if priority:
            assert priority[int(heap.item_at(np.array([0]))[0])] == max(priority.values())
    heap.sort()
    heap.check_valid()
    items = heap.item_at(np.arange(heap.size)).tolist()
    assert sorted(items) == sorted(priority)
    assert [priority[i] for i in items] == sorted(priority.values(), reverse=True)
