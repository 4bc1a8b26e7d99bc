"""What is shown of memories that answer: what was looked up is what counts, where things lie."""

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from rlmem.memories.base.pictures import PictureContext
from rlmem.memories.values.base import Visits, hashes
from rlmem.memories.values.dnd import DND, DNDRule
from rlmem.memories.values.pictures import (
    _nodes,
    _states,
    dictionary_pictures,
    graph_pictures,
    table_pictures,
)
from rlmem.memories.values.pictures_data import (
    ENOUGH,
    entries_of,
    held_frames,
    kept_plane,
    look_up,
    placed,
    read_maze,
)
from rlmem.memories.values.pictures_film import dictionary_overlay, graph_overlay, table_overlay
from rlmem.runs import build
from tests.memories.values.graphs import make, visits, walk
from tests.settings import settings


def dictionary(rule: DNDRule, n: int = 200) -> tuple[DND, np.ndarray, np.ndarray, np.ndarray]:
    """A dictionary, and the keys, actions and values that were written."""
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(n, 6)).astype(np.float32)
    actions, values = rng.integers(3, size=n), rng.normal(size=n).astype(np.float32)
    held = DND(3, 6, 100, rule)
    held.write(keys, actions, values)
    return held, keys, actions, values


@pytest.mark.parametrize("delta", [1e-3, None])
@pytest.mark.parametrize("known", [True, False])
def test_what_was_looked_up_is_what_brute_force_finds_and_makes_the_value(
    delta: float | None, known: bool
) -> None:
    held, keys, actions, values = dictionary(DNDRule(neighbours=7, delta=delta))
    query = keys[5] if known else keys[5] + np.float32(0.1)
    looked = look_up(held, query, np.zeros(4, np.float32))
    for action in range(3):
        mine = actions == action
        gaps = np.linalg.norm(keys[mine].astype(float) - query, axis=1)
        nearest = np.argsort(gaps, kind="stable")[:7]
        np.testing.assert_allclose(looked.distance[action], gaps[nearest], atol=1e-6)
        np.testing.assert_array_equal(looked.value[action], values[mine][nearest])
    np.testing.assert_allclose((looked.weight * looked.value).sum(1), looked.values, atol=1e-5)


def test_what_a_graph_looked_up_makes_its_values() -> None:
    graph = make(neighbours=5)
    graph.visited(visits(walk(np.random.default_rng(1), 60, places=12)))
    looked = look_up(graph, np.full(1, 3.2, np.float32), np.zeros(1, np.float32))
    np.testing.assert_allclose((looked.weight * looked.value).sum(1), looked.values, atol=1e-5)
    gaps = np.abs(graph.node_keys()[~graph.arrays.nodes["terminal"][: graph.entries], 0] - 3.2)
    np.testing.assert_allclose(looked.distance[0], np.sort(gaps)[:5], atol=1e-6)


def test_a_plane_is_kept_for_the_pictures_that_follow(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    few, many, later = (
        rng.normal(size=(n, 5)).astype(np.float32) for n in (ENOUGH - 1, ENOUGH, 99)
    )
    kept_plane(few, tmp_path / "map")
    assert not (tmp_path / "map").exists()
    first = placed(later, kept_plane(many, tmp_path / "map"))
    np.testing.assert_array_equal(placed(later, kept_plane(later, tmp_path / "map")), first)
    assert not np.allclose(placed(later, kept_plane(later, None)), first)
    other = rng.normal(size=(99, 3)).astype(np.float32)  # keys of another size
    assert kept_plane(other, tmp_path / "map").axes.shape == (3, 2)


@pytest.mark.parametrize(
    "content", [b"", b"PK", "half", "other", "nan"], ids=["empty", "cut", "half", "other", "nan"]
)
def test_a_plane_that_cannot_be_read_is_fitted_anew(content: Any, tmp_path: Path) -> None:
    keys = np.random.default_rng(2).normal(size=(ENOUGH, 5)).astype(np.float32)
    path = tmp_path / "map/layout.npz"
    first = kept_plane(keys, tmp_path / "map")
    whole = path.read_bytes()
    if content == "other":
        np.savez(path, something=np.zeros(3))
    elif content == "nan":
        np.savez(path, centre=first.centre, axes=np.full_like(first.axes, np.nan))
    else:
        path.write_bytes(whole[: len(whole) // 2] if content == "half" else content)
    np.testing.assert_array_equal(kept_plane(keys, tmp_path / "map").axes, first.axes)
    assert path.read_bytes() == whole
    assert [file.name for file in path.parent.iterdir()] == ["layout.npz"]


def test_a_state_is_that_of_its_step_whatever_other_environments_do() -> None:
    """Ends of others are calls as well, between those of the first one's steps."""
    ends = {2, 3, 7, 11}  # of another environment, behind these steps of the first

    def play(number: Any) -> dict[str, list[np.ndarray]]:
        rows = []
        for step in range(20):
            rows.append(number(np.array([[step], [99]], np.float32))[0])
            if step in ends:
                number(np.array([[-1]], np.float32))
        rows.append(number(np.array([[20]], np.float32))[0])
        return {"run's": [np.stack(rows)]}

    memory = SimpleNamespace(values=SimpleNamespace(embed=lambda rows: rows))
    context: Any = SimpleNamespace(play=play, agent=None, spec=SimpleNamespace(frame_shape=(1,)))
    states = _states(memory, context)
    assert len(states) > 2
    for key, frame, about in states:
        assert about == f"at step {int(key[0])} of an episode"
        assert frame[0] == key[0]


def test_few_of_many_entries_are_drawn_of_each_action_its_share() -> None:
    held, *_ = dictionary(DNDRule(neighbours=2))
    action, slot, entries = entries_of(held, 60)
    assert len(np.unique(action * 1000 + slot)) == 60
    shares = np.bincount(action, minlength=3) / 60
    np.testing.assert_allclose(shares, held.counts / held.entries, atol=0.02)
    np.testing.assert_array_equal(entries.key, held.look_at(action, slot).key)


def test_frames_of_neighbours_are_those_that_the_replay_still_holds() -> None:
    cfg = settings(
        "env=mini_maze", "env.observation=pixels", "memory.capacity=20", "agent.batch_size=8"
    )
    env = build.build_env(cfg)
    memory = build.build_memory(cfg, env.spec)
    rng = np.random.default_rng(3)
    frames = rng.integers(0, 256, (31, *env.spec.frame_shape), np.uint8)
    for before, after in pairwise(frames):
        following = {
            "observation": after[None],
            "reward": np.zeros((1, 1), np.float32),
            "terminated": np.zeros((1, 1), np.bool_),
        }
        memory.extend({"observation": before[None], "action": np.zeros(1, int), "next": following})
    wanted = hashes(frames[:30])
    found = held_frames(memory.storage, wanted)
    assert set(found) == set(wanted[10:].tolist())
    for state, frame in zip(wanted[10:].tolist(), frames[10:], strict=False):
        np.testing.assert_array_equal(found[state], frame)


def joined(*overrides: str) -> tuple[Any, PictureContext]:
    """A memory that knows nothing, and what its pictures are told."""
    cfg = settings(*overrides)
    env = build.build_env(cfg)
    agent = build.build_agent(cfg, env.spec)
    memory = build.build_memory(cfg, env.spec, agent.columns())
    agent.join(memory)
    return memory, PictureContext(cfg, agent, env.spec, 0)


@pytest.mark.parametrize(
    ("given", "pictures", "overlay"),
    [
        (["agent=tabular", "memory=q_table", "env=mini_maze"], table_pictures, table_overlay),
        (["agent=tabular", "memory=gcmr", "env=mini_maze"], graph_pictures, graph_overlay),
        (["agent=nec", "memory=dnd", "env=cartpole"], dictionary_pictures, dictionary_overlay),
    ],
)
def test_a_memory_that_knows_nothing_draws_nothing(
    given: list[str], pictures: Any, overlay: Any
) -> None:
    memory, context = joined(*given)
    assert list(pictures(memory, context)) == []
    assert overlay(memory, context) is None


@pytest.mark.parametrize("observation", ["position", "one_hot"])
def test_the_greedy_way_is_the_one_that_the_values_say(observation: str) -> None:
    maze = ["env=mini_maze", "env.maze=0", "env.size=4", "env.pits=0"]
    memory, context = joined(
        *("agent=tabular", "memory=q_table", *maze),
        *(f"env.observation={observation}", "memory.eta=1"),
    )
    board = context.run.env.part.cls.board(context.run.env)
    # Down the left side, then along the lowest row, learned from the goal back.
    cells = [(0, y) for y in range(4)] + [(x, 3) for x in range(1, 4)]
    keys = memory.values.embed(board.frames)
    seen = read_maze(memory, context)
    assert seen is not None
    for (x, y), (to_x, to_y) in reversed(list(pairwise(cells))):
        action, last = board.moves.index((to_x - x, to_y - y)), (to_x, to_y) == cells[-1]
        memory.values.visited(
            one_step(keys[4 * y + x], action, 200.0 * last, keys[4 * to_y + to_x])
        )
        seen = read_maze(memory, context)
        assert seen is not None
        assert (seen.way == cells) == ((x, y) == (0, 0))  # the start is learned last
    assert seen.end == "reaches the goal in 6 steps"
    assert seen.values[0, 0] == pytest.approx(200 * 0.9**5, rel=1e-5)
    assert np.isnan(seen.values[0, 3])  # never met
    numbers = seen.cells_of(keys[[3, 5]])
    assert numbers is not None
    assert numbers.tolist() == [3, 5]
    assert seen.cells_of(keys[[3]] + 0.5) is None


def test_beside_the_game_the_present_cell_is_lit_and_nothing_counts_as_used() -> None:
    memory, context = joined("agent=tabular", "memory=q_table", "env=mini_maze")
    frames = context.run.env.part.cls.board(context.run.env).frames
    memory.values.visited(one_step(frames[0], 2, 1.0, frames[1]))
    overlay = table_overlay(memory, context)
    assert overlay is not None
    before = {name: np.array(a) for name, a in memory.values.state_views().items()}
    first, second = overlay(frames[0]), overlay(frames[1])
    assert first.shape == second.shape == (420, 400, 3)
    assert (first != second).any()
    for name, array in memory.values.state_views().items():
        np.testing.assert_array_equal(array, before[name])


def one_step(key: np.ndarray, action: int, reward: float, next_key: np.ndarray) -> Visits:
    """A step that ends an episode if its reward is 200."""
    none, ends = np.zeros(1, np.bool_), np.array([reward == 200])
    number = np.zeros(1, np.int64)
    target = np.zeros(1, np.float32)
    rewards = np.array([reward], np.float32)
    return Visits(
        key[None], number, number + action, target, rewards, next_key[None], ends, none, number
    )


def test_nodes_are_drawn_to_the_key_node_whose_cluster_they_are_in() -> None:
    memory, context = joined("agent=tabular", "memory=gcmr", "env=mini_maze")
    graph = memory.values
    for step in range(8):  # along a line of nine cells; the last step ends the episode
        here, there = (np.array([[x, 0]], np.float32) for x in (step, step + 1))
        zero, none = np.zeros(1, np.int64), np.zeros(1, np.float32)
        never, ended = np.zeros(1, np.bool_), np.array([step == 7])
        graph.visited(Visits(here, zero, zero, none, none, there, never, ended, zero))
    nodes = _nodes(graph, None, context)
    keys = graph.node_keys()
    gaps = np.linalg.norm(np.diff(keys[nodes.spokes], axis=1)[:, 0], axis=1)
    assert len(gaps) > 0
    assert (gaps < 2.12).all()
    assert {*nodes.spokes[:, 1].tolist()} <= {*nodes.key_nodes.tolist()}
    assert len({*nodes.spokes[:, 0].tolist()} | {*nodes.key_nodes.tolist()}) == len(keys)
