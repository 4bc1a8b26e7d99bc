"""What is shown of a GWR map: its plane, its prototypes, how well it stands for what is visited."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from rlmem.memories.base.pictures import Picture, PictureContext, Table
from rlmem.memories.gwr.metric import MapMetric
from rlmem.memories.gwr.pictures_data import (
    Fit,
    MapData,
    make_map_data,
    map_table,
    nodes_table,
    render_table,
)
from rlmem.memories.gwr.pictures_figures import map_figure, prototype_sheet
from rlmem.memories.memory import ReplayMemory

BLOCK = 256  # prototypes that are valued at once
SHOWN = 24  # prototypes of each group on the contact sheet


def map_pictures(memory: ReplayMemory, context: PictureContext) -> Iterator[Picture | Table]:
    """The map; once a run is over its prototypes, nodes and figures as well.

    While a run trains nothing is drawn before the first node (the scale is being measured).

    Raises:
        UserError: a run is over and has no node.
    """
    storage: Any = memory.storage
    if context.play is None and not storage.num_nodes:
        return
    metric, threshold = MapMetric(storage, memory.writer), context.run.threshold
    data = read_map(storage, metric, context)
    title = (
        f"{context.run.env.name}, {context.run.memory.name} (a_T {threshold.activation:g}, h_T "
        f"{threshold.habituation:g}): {len(data.nodes):,} nodes at {context.env_steps:,} env steps"
    )
    scale = reach(threshold.activation, metric.alphas)
    yield Picture("map", map_figure(data, title, scale), title)
    if context.play is None:
        return
    if len(storage.observation_shape) == 3:
        yield Picture("prototypes", _prototypes(data, storage, context, title), vector=False)
    yield Table("nodes", nodes_table(data))
    fits = {
        policy: Fit(metric.match(episodes)[1], threshold.activation, len(episodes))
        for policy, episodes in context.play(metric.embed).items()
    }
    if len(memory):
        memory.sample(1)  # a sampler counts its bytes once it has seen the edges
    table = map_table(data, memory.footprint(), fits)
    rows = pd.DataFrame({"quantity": [*table], "value": [*table.values()]}, dtype=object)
    more = f"\nno values: {data.value_name}" if data.value is None else ""
    yield Table("table", rows, render_table(table, fits) + more)


def read_map(storage: Any, metric: MapMetric, context: PictureContext) -> MapData:
    """What is drawn of a map, as plain arrays; its keys are divided by the writer's scale."""
    nodes, agent = metric.nodes, context.agent
    blocks = np.split(nodes, range(BLOCK, len(nodes), BLOCK))
    return make_map_data(
        nodes,
        storage.node_keys(nodes) / np.float32(metric.scale),
        storage.arrays.nodes[nodes],
        storage.edge_table(),
        storage.link_pairs(),
        context.values(storage.node_observations(block) for block in blocks),
        agent.value_name or f"a {type(agent).__name__} agent has no values of states",
    )


def reach(activation_threshold: float, alphas: np.ndarray) -> float | None:
    """Distance of embeddings beyond which no activity reaches the threshold: -ln(a_T) / alpha_0."""
    return float(-math.log(activation_threshold) / alphas[0]) or None


def _prototypes(data: MapData, storage: Any, context: PictureContext, title: str) -> Any:
    """The newest frame of the most and the least visited prototypes."""
    order = np.argsort(data.firings, kind="stable")
    shown = min(SHOWN, len(order))
    # Many nodes never fired: of equals, evenly spaced ones.
    equal = int((data.firings <= data.firings[order[shown - 1]]).sum())
    least = order[np.linspace(0, equal - 1, shown).astype(int)]
    groups, channels = [], context.spec.frame_shape[0]
    for name, rows in (("most", order[::-1][:shown]), ("least", least)):
        frames = storage.node_observations(data.nodes[rows])[:, -channels:]
        captions = [f"{firings:,} firings" for firings in data.firings[rows]]
        if data.value is not None:
            captions = [f"{c}\nQ {v:.3g}" for c, v in zip(captions, data.value[rows], strict=True)]
        groups.append((f"{title}: the {shown} {name} visited", frames, captions))
    return prototype_sheet(groups)
