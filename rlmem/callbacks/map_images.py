"""Pictures of a GWR map while it grows: map/map_<env steps>.png at intervals."""

import math
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch

from rlmem.analysis.show.map_data import MapData, make_map_data
from rlmem.callbacks.records import MetricsLogger
from rlmem.collect.collector import EnvStepStream
from rlmem.config.schema import TrainSettings
from rlmem.errors import UserError
from rlmem.integrations.wandb_dashboard import MAP
from rlmem.memories.gwr.map import MapStorage
from rlmem.memories.memory import ReplayMemory

_BATCH = 256  # prototypes that are valued at once


@torch.no_grad()
def state_values(agent: Any, storage: MapStorage, nodes: np.ndarray) -> tuple[Any, str]:
    """The agent's value of each prototype, and its name.

    Args:
        agent: with an `online` network of discrete actions, or an `actor` and `critics`.
        nodes: positions of live nodes, int [n].

    Returns:
        float64 [n] and what it is; None and the reason where the agent has neither.
    """
    if hasattr(agent, "online"):
        name = "max Q(s, a) over a"

        def value(observation: torch.Tensor) -> torch.Tensor:
            return agent.online(observation).amax(-1)
    elif hasattr(agent, "actor") and hasattr(agent, "critics"):
        several = len(agent.critics) > 1
        name = "Q(s, actor(s))" + (", the smaller critic's" if several else "")

        def value(observation: torch.Tensor) -> torch.Tensor:
            action = agent.actor(observation)
            values = [critic(observation, action) for critic in agent.critics]
            return torch.stack(values).amin(0).reshape(len(observation))
    else:
        return None, f"a {type(agent).__name__} agent has no values of states"
    found = [np.zeros(0)]
    for start in range(0, len(nodes), _BATCH):
        rows = storage.node_observations(nodes[start : start + _BATCH])
        found.append(value(torch.from_numpy(rows).to(agent.device)).double().cpu().numpy())
    return np.concatenate(found), name


def read_map(storage: MapStorage, scale: float, agent: Any) -> MapData:
    """What is drawn of a map, as plain arrays; its keys are divided by the writer's scale."""
    nodes = storage.live_nodes()
    return make_map_data(
        nodes,
        storage.node_keys(nodes) / np.float32(scale),
        storage.arrays.nodes[nodes],
        storage.edge_table(),
        storage.link_pairs(),
        *state_values(agent, storage, nodes),
    )


def reach(activation_threshold: float, contexts: int) -> float | None:
    """Distance of embeddings beyond which no activity reaches the threshold: -ln(a_T) / alpha_0."""
    alphas = np.exp(-np.arange(contexts + 1.0))
    return float(-math.log(activation_threshold) * alphas.sum()) or None


def map_title(cfg: TrainSettings, data: MapData, env_steps: int) -> str:
    """Environment, memory, nodes and env steps."""
    thresholds = f"a_T {cfg.threshold.activation:g}, h_T {cfg.threshold.habituation:g}"
    return (
        f"{cfg.env.name}, {cfg.memory.name} ({thresholds}): {len(data.nodes):,} nodes at "
        f"{env_steps:,} env steps"
    )


def check_matplotlib(key: str) -> None:
    """Say that matplotlib is missing before anything long begins.

    Raises:
        UserError: it is.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UserError(f"{key} needs matplotlib: pip install 'rlmem[plot]'") from None


class MapImages(lightning.Callback):
    """Draws the map every `log.map_every` env steps and shows the loggers.

    It draws no random number and changes nothing, so that a run with pictures is the run without.

    Args:
        cfg: the whole configuration.
        run_dir: of the run; pictures go into its `map/`.
        memory: whose storage is a map.

    Raises:
        UserError: matplotlib is missing.
    """

    def __init__(
        self,
        cfg: TrainSettings,
        run_dir: Path,
        stream: EnvStepStream,
        memory: ReplayMemory,
        loggers: list[MetricsLogger],
    ) -> None:
        check_matplotlib(f"log.map_every={cfg.log.map_every}")
        self.cfg, self.stream, self.memory, self.loggers = cfg, stream, memory, loggers
        assert cfg.log.map_every is not None
        self.folder, self.every = run_dir / "map", cfg.log.map_every
        stream.due_every(self.every)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Draw at each multiple of `every`."""
        if self.stream.crossed(self.every):
            self.draw(pl_module)

    def draw(self, agent: Any) -> Path | None:
        """Draw now; None while the map has no node (its scale is still being measured)."""
        from rlmem.analysis.show.map_figures import map_figure

        storage, writer, cfg = self.memory.storage, self.memory.writer, self.cfg
        assert isinstance(storage, MapStorage)
        if not storage.num_nodes:
            return None
        steps = self.stream.env_steps
        data = read_map(storage, writer.scale, agent)
        title = map_title(cfg, data, steps)
        drawn = map_figure(data, title, reach(cfg.threshold.activation, storage.contexts))
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"map_{steps:09d}.png"
        drawn.savefig(path, dpi=130)
        for logger in self.loggers:
            logger.image(steps, MAP, path)
        return path


def map_images(
    cfg: TrainSettings,
    run_dir: Path,
    stream: EnvStepStream,
    loggers: list[MetricsLogger],
) -> list[MapImages]:
    """The callback if it is asked for and there is a map; a memory without one says so once."""
    if cfg.log.map_every is None:
        return []
    if not isinstance(stream.memory.storage, MapStorage):
        print(f"log.map_every: memory={cfg.memory.name} is no map, nothing is drawn", flush=True)
        return []
    return [MapImages(cfg, run_dir, stream, stream.memory, loggers)]
