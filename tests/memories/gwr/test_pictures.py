"""What a GWR map shows of itself, with the values of the agent at hand."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib")

from rlmem.memories import GWRWriter, Identity, MapOptions, MapStorage, ReplayMemory, VisitSampler
from rlmem.memories.base.pictures import PictureContext
from rlmem.memories.gwr import pictures
from rlmem.memories.gwr.metric import MapMetric
from rlmem.memories.gwr.pictures import map_pictures, reach, read_map
from tests.memories.helpers import vector_block
from tests.settings import settings


def grown() -> ReplayMemory:
    options = MapOptions(contexts=1)
    storage = MapStorage(500, (4,), np.float32, 4, num_actions=2, options=options)
    writer = GWRWriter(0.9, 1.0, embedding=Identity((4,)))
    memory = ReplayMemory(storage, VisitSampler(), writer, seed=0)
    memory.extend(vector_block(50))
    return memory


def context(agent: Any, **more: Any) -> PictureContext:
    spec: Any = SimpleNamespace(frame_shape=(4,))
    return PictureContext(settings("memory=gwr"), agent, spec, 50, **more)


FIRST = SimpleNamespace(value_name="the first number", state_values=lambda x: x[:, 0], device="cpu")


def test_each_node_has_the_value_of_its_own_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = grown()
    storage: Any = memory.storage
    metric = MapMetric(storage, memory.writer)
    for block in (2, 10**6):
        monkeypatch.setattr(pictures, "BLOCK", block)
        data = read_map(storage, metric, context(FIRST))
        assert data.value is not None
        assert data.value.tolist() == storage.node_observations(data.nodes)[:, 0].tolist()
        assert len(data.value) > 2


def test_an_agent_without_values_is_said_to_have_none() -> None:
    memory = grown()
    storage: Any = memory.storage
    data = read_map(storage, MapMetric(storage, memory.writer), context(Valueless()))
    assert data.value is None
    assert data.value_name == "a Valueless agent has no values of states"


class Valueless:
    value_name = None


def test_while_a_run_trains_the_map_alone_is_drawn() -> None:
    assert [shown.name for shown in map_pictures(grown(), context(FIRST))] == ["map"]


def test_after_a_run_its_fit_is_measured_on_what_is_played() -> None:
    asked = []

    def play(embed: Any) -> dict[str, list[np.ndarray]]:
        asked.append(embed)
        return {"run's": [embed(np.zeros((3, 4), np.float32))], "random": [np.zeros((5, 4))]}

    *_, nodes, table = map_pictures(grown(), context(FIRST, play=play))
    assert (nodes.name, table.name) == ("nodes", "table")
    rows = dict(table.rows.to_numpy().tolist())  # type: ignore[union-attr]
    assert (rows["observations_visited"], rows["observations_visited_random"]) == (3, 5)
    assert len(asked) == 1


def test_the_reach_is_where_the_activity_is_the_threshold() -> None:
    assert np.exp(-(reach(0.7, np.ones(1)) or 0)) == pytest.approx(0.7)
    alphas = np.exp(-np.arange(3.0))
    alphas /= alphas.sum()
    assert np.exp(-alphas[0] * (reach(0.7, alphas) or 0)) == pytest.approx(0.7)
    assert reach(1.0, np.ones(1)) is None


def test_values_of_blocks_are_one_row_of_values() -> None:
    blocks = [np.full((n, 2), n, np.float32) for n in (2, 1)]
    values = context(FIRST).values(blocks)
    assert values is not None
    assert values.tolist() == [2, 2, 1]
    assert torch.is_grad_enabled()
