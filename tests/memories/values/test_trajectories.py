"""The best episodes of a graph, and where they cross."""

import numpy as np
import pytest

from rlmem.memories.values.graph_reconstruction import Reconstruction
from rlmem.memories.values.trajectories import Trajectories, Trajectory
from tests.memories.values.graphs import known, make, visits


def episode(nodes: list[int], rewards: list[float]) -> Trajectory:
    made = np.array(nodes, np.int64)
    return Trajectory(np.array(nodes, np.int32), made, np.array(rewards, np.float32))


@pytest.mark.parametrize(
    ("by", "best"),
    [("return", [4, 4]), ("length", [1, 2, 1, 2]), ("diversity", [5, 6, 7])],
)
def test_the_best_episodes_are_kept(by: str, best: list[int]) -> None:
    kept = Trajectories(1, by)
    for nodes, gain in (([1, 2, 1, 2], 0.0), ([5, 6, 7], 1.0), ([4, 4], 3.0), ([8, 8], 2.0)):
        kept.extend(0, episode(nodes, [gain] + [0.0] * (len(nodes) - 1)), True)
    assert kept.kept[0].nodes.tolist() == best


def test_an_episode_is_put_together_from_its_steps_each_environments_apart() -> None:
    kept = Trajectories(2, "return")
    for step in range(600):
        for env in (0, 1):
            kept.extend(env, episode([step + 1000 * env], [1.0]), step == 599)
    assert [t.nodes.tolist() for t in kept.kept] == [[*range(600)], [*range(1000, 1600)]]


def test_a_cross_is_met_by_two_episodes_at_a_reward() -> None:
    kept = Trajectories(3, "return")
    kept.extend(0, episode([1, 2, 3, 3], [1, 0, 1, 1]), True)  # 3 twice in one episode
    kept.extend(0, episode([1, 2, 4], [-1, 1, 1]), True)
    kept.extend(0, episode([4, 1, 5], [1, 1, 1]), True)
    assert kept.crossings(np.arange(6), 10).tolist() == [1, 4]
    assert kept.crossings(np.arange(6), 1).tolist() == [1]


def test_a_node_whose_place_another_took_is_no_cross() -> None:
    kept = Trajectories(2, "return")
    for _ in range(2):
        kept.extend(0, episode([0, 1], [1, 1]), True)
    assert kept.crossings(np.array([0, 7]), 10).tolist() == [0]


def test_a_graph_takes_what_its_best_episodes_share() -> None:
    graph = make(how=Reconstruction(key_nodes="cross", kept=2))
    for start in (0, 1):
        graph.visited(visits([(start, 0, 0.0, 2, False), (2, 0, 1.0, 3, False)]))
        graph.visited(visits([(3, 0, 1.0, 4, True)]))
    assert len(graph.walker.last.key_nodes) == 2
    assert known(graph, 3) in graph.walker.last.key_nodes
    graph.visited(visits([(0, 0, 9.0, 5, False)], truncated=True))
    assert graph.walker.trajectories.kept[0].nodes.tolist() == [known(graph, 5)]
