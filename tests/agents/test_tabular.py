"""The agent that asks its memory."""

from types import SimpleNamespace

import numpy as np
import pytest

from rlmem.agents.tabular import Tabular, TabularSettings
from rlmem.memories.values.q_table import QTable
from tests.memories.values.graphs import ACTIONS, visits

SETTINGS = TabularSettings(
    name="tabular",
    gamma=0.9,
    batch_size=1,
    n_step=1,
    learning_starts=0,
    train_every=1,
    updates_per_step=1,
    on_divergence="stop",
    epsilon=0.03,
)
PLACES = np.arange(2, dtype=np.float32)[:, None]


def agent_of(steps: list[tuple[int, int, float, int, bool]]) -> tuple[Tabular, QTable]:
    table = QTable(10, 1, ACTIONS, gamma=0.9, eta=1.0)
    table.visited(visits(steps))
    agent = Tabular(SETTINGS, ACTIONS)
    agent.join(SimpleNamespace(values=table))
    return agent, table


def shares(agent: Tabular, epsilon: float) -> np.ndarray:
    """How often each action is taken at each of two places, [2, A]."""
    rng, counts = np.random.default_rng(0), np.zeros((2, ACTIONS))
    for _ in range(3000):
        counts[[0, 1], agent.act(PLACES, epsilon, rng)] += 1
    return counts / 3000


def test_the_best_action_is_taken_and_of_equal_ones_each_as_often() -> None:
    agent, _ = agent_of([(0, 1, 1.0, 5, True), (1, 2, -1.0, 5, True)])
    assert shares(agent, 0.0) == pytest.approx(np.array([[0, 1, 0], [0.5, 0.5, 0]]), abs=0.03)


def test_an_action_is_random_with_probability_epsilon() -> None:
    agent, _ = agent_of([(0, 1, 1.0, 5, True)])
    assert shares(agent, 0.3)[0] == pytest.approx(np.array([0.1, 0.8, 0.1]), abs=0.03)
    assert agent.epsilon(0) == agent.epsilon(10**6) == 0.03


def test_exploring_counts_as_use_and_evaluation_does_not() -> None:
    agent, table = agent_of([(0, 1, 1.0, 5, True)])
    rng, before = np.random.default_rng(0), table.state_dict()
    agent.act(PLACES, 0.0, rng)
    assert table.state_dict()["clock"] == before["clock"]
    agent.explore(PLACES, 0.0, rng)
    assert table.state_dict()["clock"] > before["clock"]
