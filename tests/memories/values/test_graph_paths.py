"""Key nodes, the paths between them, and what walking these does."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmem.memories.values.graph_paths import aggregate, by_degree, canopy, clusters_of, walk_paths
from rlmem.memories.values.graph_reconstruction import Reconstruction
from tests.memories.values.graphs import (
    GAMMA,
    RELEASED,
    SOUND,
    PlainGraph,
    edges_of,
    known,
    make,
    visits,
    walk,
)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    form=st.sampled_from([SOUND, RELEASED]),
    backwards=st.booleans(),
    key_nodes=st.permutations(range(7)).map(lambda order: order[:4]),
)
def test_walking_paths_does_what_a_plain_graph_does(
    seed: int, form: dict[str, str], backwards: bool, key_nodes: list[int]
) -> None:
    steps = walk(np.random.default_rng(seed), 80)
    graph, plain = make(**form), PlainGraph(50, **form)
    graph.visited(visits(steps))
    for step in steps:
        plain.step(*step)
    places = [p for p in key_nodes if (float(p), False) in plain.out]
    slots = np.array([known(graph, p) for p in places], np.int32)
    before = walk_paths(graph.arrays, graph.rule, slots, backwards)
    plain.reconstruct([(float(p), False) for p in places], backwards)
    found, expected = edges_of(graph), plain.edges()
    assert found.keys() == expected.keys()
    for edge, numbers in expected.items():
        assert found[edge] == pytest.approx(numbers, rel=1e-4, abs=1e-4), edge
    assert len(before) >= len(found)


def line(length: int) -> list[Any]:
    """From 0 to a goal at `length`, in episodes of one step each that none begins elsewhere."""
    return [(p, 0, float(p == length - 1), p + 1, p == length - 1) for p in range(length)]


def test_backwards_one_walk_carries_a_value_along_the_path_and_forwards_one_step_of_it() -> None:
    for order, reached in (("backwards", 5), ("forwards", 1)):
        graph = make(edges="action", first_weight="reward", eta=1.0)
        graph.visited(visits(line(6)))
        ends = np.array([0, graph.entries - 1], np.int32)
        walk_paths(graph.arrays, graph.rule, ends, order == "backwards")
        weights = [edges_of(graph)[p, False, 0, p + 1, p == 5][0] for p in range(6)]
        expected = [GAMMA ** (5 - p) if 5 - p <= reached else 0.0 for p in range(6)]
        assert weights == pytest.approx(expected)


def test_paths_are_walked_when_an_episode_ends() -> None:
    graph = make(first_weight="reward", how=Reconstruction(key_nodes="centre", inner=0.5))
    graph.visited(visits(line(6)[:5]))
    assert not len(graph.walker.last.edges)
    assert not graph.node_values().any()
    graph.visited(visits(line(6)[5:]))
    assert len(graph.walker.last.edges) == 6
    assert graph.node_values()[:6].all()


def test_paths_are_walked_every_so_many_steps() -> None:
    graph = make(how=Reconstruction(key_nodes="centre", inner=0.5, every=4))
    walked = []
    for step in line(9)[:8]:
        graph.visited(visits([step]))
        walked.append(len(graph.walker.last.edges))
    assert walked == [0, 0, 0, 4, 4, 4, 4, 8]
    together = make(how=Reconstruction(key_nodes="centre", inner=0.5, every=4))
    together.visited(visits(line(9)[:8]))
    assert edges_of(together) == edges_of(graph)


def test_a_graph_that_is_to_walk_more_often_than_the_saved_one_walks_at_once() -> None:
    graph, state = (
        make(how=Reconstruction(key_nodes="centre", inner=0.5, every=every)) for every in (3, 100)
    )
    state.visited(visits(line(9)[:7]))
    graph.load_state_dict(state.state_dict())
    graph.visited(visits(line(9)[7:8]))
    assert len(graph.walker.last.edges) == 8


def test_the_last_walk_says_which_edges_it_changed_and_from_what() -> None:
    graph = make(first_weight="reward", how=Reconstruction(key_nodes="centre", inner=0.5))
    graph.visited(visits(line(6)))
    last = graph.walker.last
    assert sorted(last.key_nodes) == list(range(7))
    np.testing.assert_array_equal(last.clusters, np.arange(7))
    rewards = graph.arrays.edges["reward"][last.edges]
    np.testing.assert_array_equal(last.before, rewards)
    np.testing.assert_array_equal(last.after, graph.arrays.edges["weight"][last.edges])
    assert (last.after != last.before).sum() == 5


@given(seed=st.integers(0, 1000), count=st.integers(1, 60), inner=st.floats(0.05, 1.0))
def test_centres_lie_apart_and_every_point_lies_near_one(
    seed: int, count: int, inner: float
) -> None:
    rng = np.random.default_rng(seed)
    points = rng.random((count, 2))
    centres = canopy(points, rng.permutation(count), inner, count)
    cluster = clusters_of(points, centres, 2 * inner)
    gaps = np.linalg.norm(points[:, None] - points[centres], axis=-1)
    assert (gaps.min(1) < inner).all()
    between = gaps[centres]
    assert (between[~np.eye(len(centres), dtype=bool)] >= inner).all()
    np.testing.assert_array_equal(cluster, centres[gaps.argmin(1)])


def test_a_point_beyond_the_outer_radius_is_in_no_cluster() -> None:
    points = np.array([[0.0], [1.5], [9.0]])
    centres = canopy(points, np.arange(3), 1.0, 1)
    assert centres.tolist() == [0]
    assert clusters_of(points, centres, 2.0).tolist() == [0, 0, -1]


def test_a_neighbourhood_is_the_mean_over_what_walks_come_to() -> None:
    graph = make()
    graph.visited(visits(line(4)))
    means = aggregate(graph.arrays, 3, 2, 0)
    # From p the one way leads over p + 1 and p + 2; nothing leaves the goal.
    assert means[:, 0].tolist() == [1.5, 2.5, 3.5, 4.0, 4.0]


def test_walks_take_each_way_out_as_often() -> None:
    graph = make()
    graph.visited(visits([(0, 0, 0.0, 1, False), (0, 1, 0.0, 2, False)]))
    means = [aggregate(graph.arrays, 4000, 1, seed)[0, 0] for seed in (0, 2**62 - 1)]
    assert means == pytest.approx([1.5, 1.5], abs=0.05)
    assert means[0] != means[1]


def test_the_nodes_with_the_most_edges_are_taken_the_first_one_too() -> None:
    graph = make()
    for place in range(1, 5):
        graph.visited(visits([(0, 0, 0.0, place, False)]))
    graph.visited(visits([(3, 0, 0.0, 4, False)]))
    assert by_degree(graph.arrays, 3).tolist() == [known(graph, p) for p in (0, 3, 4)]


def test_the_radii_of_a_canopy_have_an_order() -> None:
    with pytest.raises(ValueError, match=r"T1=1\.0, T2=2\.0: T1 must be the larger"):
        Reconstruction(inner=2.0, outer=1.0)
