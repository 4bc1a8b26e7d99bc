"""Distances to a map are the writer's own."""

import numpy as np
import pytest

from rlmem.errors import UserError
from rlmem.memories import (
    GWRWriter,
    Identity,
    MapOptions,
    MapStorage,
    MetricSettings,
    ReplayMemory,
    RuleSettings,
    VisitSampler,
)
from rlmem.memories.gwr import metric as map_metric
from rlmem.memories.gwr.metric import MapMetric
from tests.memories.helpers import RandomEnvs

BETA = 0.6


def make_memory(contexts: int, activation: float = 0.6, eps: float = 0.1) -> ReplayMemory:
    options = MapOptions(contexts=contexts)
    storage = MapStorage(500, (4,), np.float32, 4, num_actions=2, options=options)
    rule = RuleSettings(
        context_beta=BETA,
        eps_b=eps,
        eps_n=eps,
        max_age=10_000,
        metric=MetricSettings(scale=2.0),
    )
    writer = GWRWriter(activation, 1.0, embedding=Identity((4,)), rule=rule)
    return ReplayMemory(storage, VisitSampler(), writer, seed=0)


def grown(contexts: int, rows: int = 200) -> tuple[ReplayMemory, MapMetric]:
    memory = make_memory(contexts)
    memory.extend(RandomEnvs(np.random.default_rng(1)).block(rows))
    return memory, MapMetric(memory.storage, memory.writer)


def some_episodes(lengths: tuple[int, ...] = (5, 1, 9)) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [rng.normal(size=(n, 4)).astype(np.float32) for n in lengths]


def by_hand(memory: ReplayMemory, episodes: list[np.ndarray]) -> tuple[list[int], list[float]]:
    """The formulas of the writer's docstring, one node after the other."""
    storage = memory.storage
    nodes = storage.live_nodes()
    w, c = storage.node_keys(nodes), storage.node_contexts(nodes)
    alphas = np.exp(-np.arange(storage.contexts + 1.0))
    alphas /= alphas.sum()
    best, least = [], []
    for episode in episodes:
        own = np.zeros(c.shape[1:])
        for x in episode:
            d = [
                alphas[0] * np.linalg.norm(x - w[i])
                + sum(a * np.linalg.norm(own[k] - c[i, k]) for k, a in enumerate(alphas[1:]))
                for i in range(len(nodes))
            ]
            b = int(np.argmin(d))
            best.append(b)
            least.append(d[b] / memory.writer.scale)
            own = np.array(
                [
                    BETA * c[b, k] + (1 - BETA) * (w[b] if k == 0 else c[b, k - 1])
                    for k in range(len(own))
                ]
            ).reshape(own.shape)
    return best, least


@pytest.mark.parametrize("contexts", [0, 3])
def test_distances_are_those_of_the_formula(contexts: int) -> None:
    memory, metric = grown(contexts)
    episodes = some_episodes()
    node, distance = metric.match([metric.embed(episode) for episode in episodes])
    expected_node, expected_distance = by_hand(memory, episodes)
    assert node.tolist() == expected_node
    assert distance == pytest.approx(expected_distance, abs=1e-5)


@pytest.mark.parametrize("contexts", [0, 3])
def test_the_nearest_node_is_the_one_that_fires_in_the_writer(contexts: int) -> None:
    """A map that neither grows nor moves is shown an episode."""
    still = make_memory(contexts, activation=1e-9, eps=0.0)
    source, _ = grown(contexts)
    still.storage.load_state_dict(source.storage.state_dict())
    metric = MapMetric(still.storage, still.writer)
    nodes = still.storage.live_nodes()
    before = still.storage.arrays.nodes["firings"][nodes].copy()
    (episode,) = some_episodes((30,))
    ends = np.zeros(29, bool)
    ends[-1] = True
    following = {"observation": episode[1:], "reward": np.zeros(29, np.float32)}
    following |= {"terminated": ends, "truncated": np.zeros(29, bool)}
    block = {"observation": episode[:-1], "action": np.zeros(29, np.int64), "next": following}
    still.extend(block)
    fired = still.storage.arrays.nodes["firings"][nodes] - before
    node, _ = metric.match([metric.embed(episode)])
    assert np.array_equal(fired, np.bincount(node, minlength=len(nodes)))


def test_a_nodes_own_place_is_at_distance_0() -> None:
    memory, metric = grown(0)
    keys = memory.storage.node_keys(memory.storage.live_nodes())
    node, distance = metric.nearest(metric.embed(keys))
    assert node.tolist() == list(range(len(keys)))
    assert distance == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("contexts", [0, 2])
def test_blocks_and_rows_change_nothing(contexts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _, metric = grown(contexts)
    asked = [metric.embed(episode) for episode in some_episodes((40,))]
    whole = metric.match(asked)
    monkeypatch.setattr(map_metric, "_ROWS", 7)
    monkeypatch.setattr(map_metric, "_BLOCK_BYTES", 8 * 4 * (1 + contexts) * 3)
    parts = metric.match(asked)
    assert np.array_equal(whole[0], parts[0])
    assert whole[1] == pytest.approx(parts[1])


def test_the_map_may_go_on_without_changing_the_metric() -> None:
    memory, metric = grown(2)
    asked = [metric.embed(episode) for episode in some_episodes()]
    before = metric.match(asked)
    memory.extend(RandomEnvs(np.random.default_rng(2)).block(100))
    assert all(np.array_equal(a, b) for a, b in zip(before, metric.match(asked), strict=True))


def test_a_map_without_nodes_is_one_line() -> None:
    memory = make_memory(0)
    with pytest.raises(UserError, match="no nodes yet"):
        MapMetric(memory.storage, memory.writer)
