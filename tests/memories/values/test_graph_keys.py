"""Graphs whose keys a network makes: found by the dictionary's search, measured in steps."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from rlmem.memories.values.base import Visits, weighted
from rlmem.memories.values.graph import GraphMemory, Learning
from rlmem.memories.values.graph_reconstruction import Reconstruction

SIZE, ACTIONS = 40, 3


def graph(capacity: int, *, trains: bool = True, p: int = 5, **learning: Any) -> GraphMemory:
    rule = Learning(gamma=0.9, eta=0.25, **{"dist_th": 0.5, "unit": "step", **learning})
    how = Reconstruction(key_nodes="centre", inner=5.0, outer=6.0, most=10)
    generator = torch.Generator().manual_seed(0)
    return GraphMemory(capacity, SIZE, ACTIONS, rule, how, generator, p, trains=trains)


def episodes(seed: int, count: int, length: int = 60) -> list[Visits]:
    """Walks through a few numbers, shown as keys; half of them end, the others are cut off."""
    rng = np.random.default_rng(seed)
    show = rng.normal(size=(3, SIZE))
    found = []
    for number in range(count):
        walk = 0.1 * np.cumsum(rng.normal(size=(length + 1, 3)), 0)
        keys = (walk @ show).astype(np.float32)
        ends = np.zeros((2, length), np.bool_)
        ends[number % 2, -1] = True
        action, reward = rng.integers(ACTIONS, size=length), rng.normal(size=length)
        found.append(
            Visits(
                key=keys[:-1],
                hash=np.zeros(length, np.int64),
                action=action,
                target=rng.normal(size=length).astype(np.float32),
                reward=reward.astype(np.float32),
                next_key=keys[1:],
                terminated=ends[0],
                truncated=ends[1],
                env_id=np.zeros(length, np.int64),
            )
        )
    return found


@pytest.mark.parametrize("capacity", [150, 2000])  # the first is full, and lets nodes go
@pytest.mark.parametrize("first_weight", ["target", "return"])
def test_it_is_the_graph_that_looking_at_every_node_gives(capacity: int, first_weight: str) -> None:
    """Keys move, nodes go, some end episodes; the search's screen is turned to other axes."""
    fast, plain = (graph(capacity, trains=t, first_weight=first_weight) for t in (True, False))
    asked = np.concatenate([v.key[::7] for v in episodes(0, 30)]) + np.float32(0.01)
    for visits in episodes(0, 30):
        for memory in (fast, plain):
            memory.visited(visits)
            memory.check_valid()
        (values, near), (wanted, where) = (m.read(asked[:50]) for m in (fast, plain))
        np.testing.assert_array_equal(near.slot, where.slot)
        np.testing.assert_allclose(near.distance, where.distance, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(values, wanted, rtol=1e-3, atol=1e-4)
    assert fast.entries == plain.entries > 140
    assert fast.entries < 30 * 60 * 0.9  # some keys were nodes that there were
    for name in ("source", "target", "action", "visits"):
        np.testing.assert_array_equal(fast.edge_table()[name], plain.edge_table()[name])
    np.testing.assert_allclose(fast.node_keys(), plain.node_keys(), rtol=1e-3, atol=1e-4)
    assert len(fast.walker.last.edges) > 0


def test_a_unit_of_steps_leaves_the_graph_the_same_at_any_scale_of_keys() -> None:
    small, large = graph(2000), graph(2000)
    for visits in episodes(1, 10):
        small.visited(visits)
        visits.key, visits.next_key = visits.key * 1024, visits.next_key * 1024
        large.visited(visits)
    assert 100 < small.entries == large.entries < 580
    scaled = small.node_keys() * 1024
    np.testing.assert_allclose(scaled, large.node_keys(), rtol=1e-4, atol=0.01)
    np.testing.assert_array_equal(small.walker.last.key_nodes, large.walker.last.key_nodes)


def test_a_saved_graph_goes_on_as_if_it_had_not_stopped() -> None:
    whole, cut, other = (graph(150) for _ in range(3))
    for visits in episodes(2, 30):
        whole.visited(visits)
    for visits in episodes(2, 30)[:17]:
        cut.visited(visits)
    other.load_state_dict(cut.state_dict())
    other.check_valid()
    for visits in episodes(2, 30)[17:]:
        other.visited(visits)
    left, right = whole.state_dict(), other.state_dict()
    for name, value in left.items():
        np.testing.assert_array_equal(value, right[name], err_msg=name)


def test_a_new_edge_is_worth_its_return_and_rewards_stay_those_of_single_steps() -> None:
    memory = graph(200, first_weight="return", dist_th=0.0)
    (visits,) = episodes(3, 1)
    memory.walker.how = Reconstruction()
    memory.visited(visits)
    edges = memory.edge_table()
    np.testing.assert_array_equal(edges["weight"], visits.target)
    np.testing.assert_array_equal(edges["reward"], visits.reward)


def test_a_graph_that_merges_to_fewer_nodes_than_a_value_is_made_of_teaches_by_those() -> None:
    memory = graph(200, p=30, dist_th=3.0)
    for visits in episodes(5, 3):
        memory.visited(visits)
    assert memory.ready
    assert 0 < memory.entries < 30
    near = memory.near(visits.key, visits.action)
    assert near.held[:, : memory.entries].any(1).all()
    assert not near.held[:, memory.entries :].any()
    keys = torch.from_numpy(visits.key).requires_grad_()
    parts = (torch.from_numpy(part) for part in (near.key, near.value, near.held))
    weighted(keys, *parts, delta=1e-3).sum().backward()
    assert torch.isfinite(keys.grad).all()
    assert keys.grad.abs().sum() > 0


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e20])
def test_keys_that_no_distance_can_be_made_of_are_refused(wrong: float) -> None:
    memory = graph(200)
    (visits,) = episodes(6, 1)
    visits.next_key = visits.next_key.copy()
    visits.next_key[5, 3] = wrong
    with pytest.raises(ValueError, match="not finite or too large"):
        memory.visited(visits)
    assert memory.entries == 0


def test_an_action_that_no_neighbour_tried_is_worth_nothing_and_teaches_nothing() -> None:
    """However large the return: a value of nothing has no gradient."""
    memory = graph(200, p=3)
    (visits,) = episodes(7, 1)
    visits.action[:] = 1
    memory.visited(visits)
    near = memory.near(visits.key[:4], np.array([1, 0, 1, 2]))
    keys = torch.from_numpy(visits.key[:4]).requires_grad_()
    at, value, held = (torch.from_numpy(a) for a in (near.key, near.value, near.held))
    read = weighted(keys, at, value, held, memory.delta)
    (1e6 - read).square().sum().backward()
    assert read[[1, 3]].tolist() == [0.0, 0.0]
    assert keys.grad is not None
    assert not keys.grad[[1, 3]].any()
    assert keys.grad[[0, 2]].isfinite().all()
    assert keys.grad[[0, 2]].any()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_a_copy_is_a_graph_of_its_own(copied: Any) -> None:
    """Its search looks into the copy's keys, and not into those of the graph it is of."""
    memory, twin, walks = graph(150), graph(150), episodes(0, 30)
    for visits in walks[:20]:
        memory.visited(visits)
        twin.visited(visits)
    other = copied(memory)
    for visits in walks[20:]:
        other.visited(visits)
        twin.visited(visits)
        other.check_valid()
        for ours, theirs in zip(other.read(visits.key)[:1], twin.read(visits.key)[:1], strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_loaded_graph_counts_the_bytes_of_the_saved_one() -> None:
    memory, other = graph(150), graph(150)
    for visits in episodes(0, 30):
        memory.visited(visits)
    assert memory.entries == 150
    other.load_state_dict(memory.state_dict())
    assert other.footprint()["nodes"] == memory.footprint()["nodes"]
