"""The best episodes of a graph, and where they cross."""

import tracemalloc
from dataclasses import fields

import numpy as np
import pytest

from rlmem.errors import UserError
from rlmem.memories.values.base import Visits
from rlmem.memories.values.graph_reconstruction import Reconstruction
from rlmem.memories.values.trajectories import OWN_BYTES, Trajectories, Trajectory, trajectory
from rlmem.runs import build
from tests.memories.values.graphs import known, make, visits
from tests.settings import settings


def episode(nodes: list[int], rewards: list[float]) -> Trajectory:
    made = np.array(nodes, np.int64)
    return trajectory(np.array(nodes, np.int32), made, np.array(rewards, np.float32))


@pytest.mark.parametrize(
    ("by", "best"),
    [("return", [4, 4]), ("length", [1, 2, 1, 2]), ("diversity", [5, 6, 7])],
)
def test_the_best_episodes_are_kept(by: str, best: list[int]) -> None:
    kept = Trajectories(1, by, 9)
    for nodes, gain in (([1, 2, 1, 2], 0.0), ([5, 6, 7], 1.0), ([4, 4], 3.0), ([8, 8], 2.0)):
        kept.extend(0, episode(nodes, [gain] + [0.0] * (len(nodes) - 1)), True)
    assert kept.kept[0].nodes.tolist() == best


def test_an_episode_is_put_together_from_its_steps_each_environments_apart() -> None:
    kept = Trajectories(2, "return", 900)
    for step in range(600):
        for env in (0, 1):
            kept.extend(env, episode([step + 1000 * env], [1.0]), step == 599)
    assert [t.nodes.tolist() for t in kept.kept] == [[*range(600)], [*range(1000, 1600)]]


def test_a_cross_is_met_by_two_episodes_at_a_reward() -> None:
    kept = Trajectories(3, "return", 9)
    kept.extend(0, episode([1, 2, 3, 3], [1, 0, 1, 1]), True)  # 3 twice in one episode
    kept.extend(0, episode([1, 2, 4], [-1, 1, 1]), True)
    kept.extend(0, episode([4, 1, 5], [1, 1, 1]), True)
    assert kept.crossings(np.arange(6), 10).tolist() == [1, 4]
    assert kept.crossings(np.arange(6), 1).tolist() == [1]


def test_a_node_whose_place_another_took_is_no_cross() -> None:
    kept = Trajectories(2, "return", 9)
    for _ in range(2):
        kept.extend(0, episode([0, 1], [1, 1]), True)
    assert kept.crossings(np.array([0, 7]), 10).tolist() == [0]


@pytest.mark.parametrize(("by", "score"), [("return", 600.0), ("length", 600), ("diversity", 1.0)])
def test_of_a_long_episode_the_newest_steps_are_kept_and_the_score_of_all(
    by: str, score: float
) -> None:
    kept = Trajectories(3, by, 7)
    for step in range(600):
        kept.extend(0, episode([step], [1.0]), step == 599)
        assert kept.nbytes <= kept.bytes_when_full(1)
    assert kept.kept[0].nodes.tolist() == [*range(593, 600)]
    assert kept.kept[0].score(by) == score
    kept.extend(1, episode([*range(50)], [0.0] * 50), False)  # all at once, as from a queue
    assert kept.nbytes == (7 + 7) * 16 + (1 + 16) * OWN_BYTES
    other = Trajectories(3, by, 7)
    state = kept.state_views()
    other.check_state(state)
    other.take_over(state)
    assert other.kept[0].score(by) == score
    assert other.nbytes == kept.nbytes


def test_episodes_that_were_saved_take_the_bytes_of_those_that_were_not() -> None:
    whole, resumed = (Trajectories(3, "return", 200) for _ in range(2))
    for step in range(900):
        for kept in (whole, resumed):
            kept.extend(0, episode([step], [1.0]), False)
        if step == 100:
            state = resumed.state_views()
            resumed.check_state(state)
            resumed.take_over(state)
        assert resumed.nbytes == whole.nbytes


def test_kept_episodes_are_within_a_budget() -> None:
    given = ["agent=tabular", "env=mini_maze", "memory=gcmr", "memory.budget=64KiB"]
    made = {}
    for key_nodes in ("centre", "cross"):
        cfg = settings(*given, f"memory.reconstruct.key_nodes={key_nodes}")
        spec = build.build_env(cfg).spec
        made[key_nodes] = build.build_memory(cfg, spec)
    assert made["cross"].projected_footprint()["trajectories"] > 4000
    assert sum(made["cross"].projected_footprint().values()) <= 64 * 1024
    assert made["cross"].storage.max_size < made["centre"].storage.max_size
    graph = made["cross"].storage.values
    ways = np.random.default_rng(0).integers(2000, size=(3000, 2))
    for a, b in ways:
        graph.visited(wide_visit(int(a), int(b), ended=a % 200 == 0))
    used = graph.footprint()
    assert used["trajectories"] > 2000
    assert sum(used.values()) <= 64 * 1024


def wide_visit(a: int, b: int, ended: bool) -> Visits:
    """A step between two places of a plane."""
    key, following = (np.array([[n % 50, n // 50]], np.float32) for n in (a, b))
    one, never = np.ones(1, np.float32), np.zeros(1, np.bool_)
    return Visits(
        key=key,
        hash=np.zeros(1, np.int64),
        action=np.array([a % 4]),
        target=one,
        reward=one,
        next_key=following,
        terminated=never,
        truncated=np.array([ended]),
        env_id=np.zeros(1, np.int64),
    )


def test_a_graph_takes_what_its_best_episodes_share() -> None:
    graph = make(how=Reconstruction(key_nodes="cross", kept=2))
    for start in (0, 1):
        graph.visited(visits([(start, 0, 0.0, 2, False), (2, 0, 1.0, 3, False)]))
        graph.visited(visits([(3, 0, 1.0, 4, True)]))
    assert len(graph.walker.last.key_nodes) == 2
    assert known(graph, 3) in graph.walker.last.key_nodes
    graph.visited(visits([(0, 0, 9.0, 5, False)], truncated=True))
    assert graph.walker.trajectories.kept[0].nodes.tolist() == [known(graph, 5)]


@pytest.mark.parametrize("whole", [True, False])
def test_episodes_of_one_block_have_the_nodes_that_stood_there_when_they_passed(
    whole: bool,
) -> None:
    """A full graph gives a node's place to a later row of the same block."""
    how = Reconstruction(key_nodes="cross", kept=2, every=1000)
    graph = make(capacity=6, how=how)
    blocks = []
    for env, first in enumerate((0, 100, 200)):
        steps = [(first + i, 0, 1.0, first + i + 1, False) for i in range(5)]
        blocks.append(visits(steps, truncated=True, env=env))
    names = [each.name for each in fields(Visits)]
    columns = [np.concatenate([getattr(block, name) for block in blocks]) for name in names]
    rows = [slice(None)] if whole else [slice(row, row + 1) for row in range(15)]
    for part in rows:
        graph.visited(Visits(*(column[part] for column in columns)))
    kept = graph.walker.trajectories.kept
    assert [t.made.tolist() for t in kept] == [[3, 4, 5], [9, 10, 11]]
    assert not len(graph.walker.choose(graph.arrays, 1.0)[0])  # they have no node in common


def test_more_kept_episodes_than_nodes_have_a_step_each_and_count_what_they_hold() -> None:
    graph = make(capacity=20, how=Reconstruction(key_nodes="cross", kept=1000))
    kept = graph.walker.trajectories
    for i in range(100):
        kept.extend(0, episode([i, i + 1], [1.0, 1.0]), True)
    assert sum(len(t.nodes) for t in kept.kept) == 20
    tracemalloc.start()
    fresh = Trajectories(500, "return", 1)
    before = tracemalloc.get_traced_memory()[0]
    for i in range(500):
        fresh.extend(0, episode([i], [1.0]), True)
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert fresh.nbytes == pytest.approx(held, rel=0.15)
    given = ["agent=tabular", "env=mini_maze", "memory=gcmr", "memory.entries=100"]
    with pytest.raises(UserError, match=r"kept=101: .* use 100 .memory.entries. or fewer"):
        settings(*given, "memory.reconstruct.key_nodes=cross", "memory.reconstruct.kept=101")


def test_a_budget_holds_no_more_nodes_than_were_asked_for_and_enough_for_a_value() -> None:
    given = ["agent=tabular", "env=mini_maze", "memory=gq", "memory.budget=100KiB"]
    cfg = settings(*given, "memory.entries=10")
    spec = build.build_env(cfg).spec
    assert build.build_memory(cfg, spec).storage.max_size == 10
    assert build.build_memory(settings(*given), spec).storage.max_size > 100
    few = settings(*given[:3], "memory.budget=2KiB", "memory.neighbours=50")
    with pytest.raises(UserError, match=r"memory.budget=2KiB: holds .* fewer than memory.neighb"):
        build.build_memory(few, spec)
    with pytest.raises(UserError, match=r"memory.neighbours=50: .* memory.entries=10 nodes"):
        settings(*given, "memory.entries=10", "memory.neighbours=50")
