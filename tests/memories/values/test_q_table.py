"""The table of Q values."""

import numpy as np
import pytest

from rlmem.errors import UserError
from rlmem.memories.values.q_table import QTable
from tests.memories.values.graphs import ACTIONS, ETA, GAMMA, visits, walk


def make(capacity: int = 50) -> QTable:
    return QTable(capacity, 1, ACTIONS, gamma=GAMMA, eta=ETA)


def test_a_value_moves_towards_the_one_step_target() -> None:
    table, plain = make(), np.zeros((8, ACTIONS))
    steps = walk(np.random.default_rng(0), 300)
    table.visited(visits(steps))
    for place, action, reward, following, ends in steps:
        target = reward + (0.0 if ends else GAMMA * plain[following].max())
        plain[place, action] += ETA * (target - plain[place, action])
    table.check_valid()
    read = table.read(np.arange(8, dtype=np.float32)[:, None])[0]
    np.testing.assert_allclose(read, plain, rtol=1e-4, atol=1e-5)


def test_a_full_table_lets_go_of_what_was_used_longest_ago() -> None:
    table = make(capacity=3)
    table.visited(visits([(0, 0, 1.0, 1, False), (1, 0, 1.0, 2, False)]))
    table.read(np.zeros((1, 1), np.float32))
    table.visited(visits([(2, 0, 1.0, 3, False)]))
    held = table.read(np.arange(4, dtype=np.float32)[:, None], touch=False)[1].slot[:, 0, 0] >= 0
    assert held.tolist() == [True, False, True, True]
    table.check_valid()


def test_a_state_does_not_make_room_for_the_one_that_follows_it() -> None:
    table = make(capacity=2)
    for place in range(20):
        table.visited(visits([(place, 0, 1.0, place + 1, False)]))
        here = table.read(np.array([[place]], np.float32), touch=False)[0][0]
        assert here.tolist() == pytest.approx([ETA, 0.0, 0.0])


def test_a_table_goes_on_from_its_state_as_if_it_had_not_stopped() -> None:
    steps = walk(np.random.default_rng(1), 200)
    whole, cut, other = make(5), make(5), make(5)
    whole.visited(visits(steps))
    cut.visited(visits(steps[:90]))
    other.load_state_dict(cut.state_dict())
    other.visited(visits(steps[90:]))
    for name, value in whole.state_dict().items():
        np.testing.assert_array_equal(value, other.state_dict()[name])


def test_a_state_of_a_larger_table_is_refused() -> None:
    table = make()
    table.visited(visits(walk(np.random.default_rng(0), 50)))
    with pytest.raises(UserError, match="7 states, this one 3"):
        make(3).load_state_dict(table.state_dict())


def test_a_row_is_a_key_the_values_and_its_last_use() -> None:
    table = make()
    table.visited(visits([(0, 0, 1.0, 1, False)]))
    assert sum(table.footprint().values()) == 2 * (4 + 4 * ACTIONS + 8)
    assert sum(table.projected_footprint().values()) == 50 * (4 + 4 * ACTIONS + 8)
