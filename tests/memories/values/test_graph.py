"""The graph memory: what it learns from steps, what it answers, what it lets go of."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmem.errors import UserError
from rlmem.memories.values.graph import GraphMemory
from rlmem.memories.values.graph_reconstruction import Reconstruction
from rlmem.memories.values.graph_records import EDGE
from rlmem.memories.values.trajectories import OWN_BYTES
from tests.memories.values.graphs import (
    ACTIONS,
    ETA,
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


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    capacity=st.integers(2, 20),
    form=st.sampled_from([SOUND, RELEASED, {"edges": "action", "first_weight": "zero"}]),
    parts=st.integers(1, 5),
)
def test_a_graph_is_what_a_plain_one_is(
    seed: int, capacity: int, form: dict[str, str], parts: int
) -> None:
    # An edge for each action of each node has room: all two ways of 8 places, or one of fewer.
    steps = walk(np.random.default_rng(seed), 60, ways=2 if capacity >= 16 else 1)
    graph, plain = make(capacity, **form), PlainGraph(capacity, **form)
    for part in np.array_split(np.arange(60), parts):
        graph.visited(visits([steps[i] for i in part]))
        graph.check_valid()
    for step in steps:
        plain.step(*step)
    found, expected = edges_of(graph), plain.edges()
    assert found.keys() == expected.keys()
    for edge, numbers in expected.items():
        assert found[edge] == pytest.approx(numbers, rel=1e-4, abs=1e-4), edge
    assert graph.entries == len(plain.out)
    for key, terminal in plain.out:
        values = plain.values((key, terminal))
        wanted = [0.0 if terminal else values.get(a, 0.0) for a in range(ACTIONS)]
        if not terminal or (key, False) not in plain.out:
            read = graph.read(np.array([[key]], np.float32), touch=False)[0][0]
            assert read == pytest.approx(wanted, rel=1e-4, abs=1e-4)


def test_the_first_weight_is_the_target_and_later_ones_move_towards_it() -> None:
    graph = make()
    graph.visited(visits([(1, 0, 2.0, 2, True)]))
    graph.visited(visits([(0, 1, 1.0, 1, False)]))
    first = 1.0 + GAMMA * 2.0
    assert edges_of(graph)[0, False, 1, 1, False] == pytest.approx((first, 1.0, 1))
    graph.visited(visits([(1, 2, 6.0, 2, True), (0, 1, 1.0, 1, False)]))
    second = first + ETA * (1.0 + GAMMA * 6.0 - first)
    assert edges_of(graph)[0, False, 1, 1, False] == pytest.approx((second, 1.0, 2))


def test_an_action_that_led_two_ways_is_worth_the_mean_over_its_visits() -> None:
    graph = make()
    graph.visited(visits([(0, 1, 3.0, 1, True)]))
    graph.visited(visits([(0, 1, 0.0, 2, True)] * 2))
    assert graph.read(np.zeros((1, 1), np.float32))[0].tolist() == [[0.0, 1.0, 0.0]]


def test_in_pairs_a_wall_and_a_pit_of_one_place_overwrite_each_other() -> None:
    steps = [(0, 0, -1.0, 0, False), (0, 1, 0.0, 0, False)]
    for form, edges in ((SOUND, 2), (RELEASED, 1)):
        graph = make(**form)
        graph.visited(visits(steps))
        assert len(graph.edge_table()) == edges


def test_a_state_that_ended_an_episode_is_not_the_one_that_did_not() -> None:
    graph = make()
    graph.visited(visits([(1, 0, 5.0, 2, False), (0, 0, 1.0, 1, True)]))
    assert edges_of(graph)[0, False, 0, 1, True][0] == 1.0  # and not 1 + gamma * 5
    assert graph.entries == 4


def test_a_key_within_reach_is_its_node_which_moves_towards_it() -> None:
    graph = make(dist_th=0.5)
    graph.visited(visits([(0, 0, 0.0, 10, False)]))
    moved = visits([(0, 0, 0.0, 10, False)])
    moved.key[:] = 0.5
    graph.visited(moved)
    assert graph.entries == 2
    assert graph.arrays.keys[0, 0] == pytest.approx(0.5 * 0.5 / 1.5)
    moved.key[:] = 0.7
    graph.visited(moved)
    assert graph.entries == 3


def test_weights_go_to_given_returns_where_these_are_asked_for() -> None:
    graph = make(returns=True)
    step = visits([(0, 0, 1.0, 1, False)])
    step.target[:] = 7.0
    graph.visited(step)
    assert edges_of(graph)[0, False, 0, 1, False] == (7.0, 1.0, 1)


def test_what_was_read_stays_longer_than_what_was_not() -> None:
    for touch in (True, False):
        graph = make(capacity=3)
        graph.visited(visits([(0, 0, 0.0, 1, False), (1, 0, 0.0, 2, False)]))
        graph.read(np.zeros((1, 1), np.float32), touch=touch)
        graph.visited(visits([(2, 0, 0.0, 3, False)]))
        assert (known(graph, 0) >= 0) == touch
        assert (known(graph, 1) >= 0) != touch


def test_edges_that_do_not_fit_take_the_place_of_the_oldest_nodes() -> None:
    graph = make(capacity=4)  # 12 edges; one place may have 4 x 3
    rng = np.random.default_rng(0)
    for _ in range(200):
        here, following = rng.integers(4, size=2)
        graph.visited(visits([(int(here), int(rng.integers(3)), 0.0, int(following), False)]))
        graph.check_valid()
    assert len(graph.edge_table()) <= 12


def test_values_are_means_over_the_nearest_nodes_that_tried_the_action() -> None:
    graph = make(neighbours=2)
    graph.visited(visits([(0, 0, 1.0, 9, True), (2, 0, 3.0, 9, True), (2, 1, 5.0, 9, True)]))
    graph.visited(visits([(7, 2, 8.0, 9, True)]))
    values, near = graph.read(np.array([[0.5]], np.float32))
    weight = 1 / (np.array([0.25, 2.25]) + 1e-3)
    assert values[0] == pytest.approx([(weight @ [1, 3]) / weight.sum(), 5.0, 0.0])
    assert near.slot[0].tolist() == [[known(graph, 0), known(graph, 2)]] * ACTIONS
    assert near.distance[0, 0] == pytest.approx([0.25, 2.25])
    asked = graph.near(np.array([[0.5]], np.float32), np.array([1]))
    assert asked.key[0, :, 0].tolist() == [0.0, 2.0]
    assert asked.held.tolist() == [[False, True]]
    assert asked.value[0, 1] == 5.0


def test_nothing_is_known_of_a_state_that_was_not_met() -> None:
    values, near = make().read(np.zeros((2, 1), np.float32))
    assert not values.any()
    assert (near.slot == -1).all()
    assert np.isinf(near.distance).all()


def test_a_graph_goes_on_from_its_state_as_if_it_had_not_stopped() -> None:
    steps = walk(np.random.default_rng(1), 200)
    how = Reconstruction(key_nodes="cross", every=7)
    whole, cut, other = (make(6, how=how) for _ in range(3))
    whole.visited(visits(steps))
    cut.visited(visits(steps[:111]))
    other.load_state_dict(cut.state_dict())
    other.check_valid()
    other.visited(visits(steps[111:]))
    assert_same(whole.state_dict(), other.state_dict())


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("edges", lambda e: e["target"].fill(99)),
        ("edges", lambda e: e["next_out"].fill(0)),
        ("edges", lambda e: e["visits"].fill(0)),
        ("edges", lambda e: e["weight"].fill(np.nan)),
        ("nodes", lambda n: n["out"].fill(10**6)),
        ("nodes", lambda n: n["made"].fill(0)),
        ("book", lambda b: b.fill(0)),
        ("keys", lambda k: k.fill(np.inf)),
        ("trajectory_nodes", lambda t: t.fill(10**6)),
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(name: str, change: Any) -> None:
    graph = trained()
    state, before = graph.state_dict(), graph.state_dict()
    change(state[name])
    with pytest.raises(UserError, match="damaged"):
        graph.load_state_dict(state)
    assert_same(graph.state_dict(), before)


def test_a_state_of_a_larger_graph_is_refused() -> None:
    with pytest.raises(UserError, match="8 nodes, this one 4"):
        make(4).load_state_dict(trained().state_dict())


def test_every_array_is_counted() -> None:
    graph = trained()
    used = graph.footprint()
    state = graph.state_dict()
    assert used["keys"] == state["keys"].nbytes
    assert used["edges"] == state["edges"].nbytes == len(state["edges"]) * EDGE.itemsize
    assert used["trajectories"] > 0
    assert used["last_walk"] > 0
    arrays = sum(v.nbytes for v in state.values() if isinstance(v, np.ndarray))
    # Not held as arrays: how long the kept episodes are, and the generator's state.
    each = ("sizes", "returns", "lengths", "envs")
    others = (state[name].nbytes for name in (*(f"trajectory_{n}" for n in each), "draws"))
    unsaved = graph.arrays.scratch.nbytes + graph.arrays.turn.nbytes
    kept = state["trajectory_envs"] == -1  # the others run, in pieces
    unsaved += OWN_BYTES * (kept.sum() + 16 * (~kept).sum())
    assert sum(used.values()) == arrays - sum(others) + unsaved
    full = graph.projected_footprint()
    assert full["nodes"] > used["nodes"]
    assert full["edges"] == graph.capacity * ACTIONS * EDGE.itemsize


def trained() -> GraphMemory:
    graph = make(how=Reconstruction(key_nodes="cross"))
    graph.visited(visits(walk(np.random.default_rng(2), 150)))
    return graph


def assert_same(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert left.keys() == right.keys()
    for name, value in left.items():
        np.testing.assert_array_equal(value, right[name], err_msg=name)


@pytest.mark.parametrize("asked", [0, 4, 7])
def test_of_nodes_that_are_equally_near_a_value_is_read_from_the_lowest_slots(asked: int) -> None:
    graph = make(neighbours=4)
    graph.visited(visits([(i % 8, 0, float(i), (i + 1) % 8, False) for i in range(16)]))
    graph.arrays.keys[:8, 0] = [3, 5, 3, 5, 5, 3, 5, 3]  # all as near to 4, half of them to others
    slot = graph.read(np.array([[asked]], np.float32))[1].slot[0, 0].tolist()
    assert slot == {4: [0, 1, 2, 3], 0: [0, 2, 5, 7], 7: [1, 3, 4, 6]}[asked]
