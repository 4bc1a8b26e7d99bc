"""`mode=map`: the GWR map that a run left, in pictures and figures."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rlmem.analysis.map_data import (
    Fit,
    MapData,
    map_table,
    render_table,
    write_nodes,
    write_table,
)
from rlmem.callbacks.checkpoint import find_checkpoint, read_manifest
from rlmem.callbacks.map_images import check_matplotlib, map_title, reach, read_map
from rlmem.collect.collector import Policy, derive_seed
from rlmem.collect.rollout import evaluate_policy
from rlmem.config.run_directory import run_settings
from rlmem.config.schema import EvaluateSettings, TrainSettings
from rlmem.config.validate import check_output_dir
from rlmem.envs import EnvSpec, EnvStepper
from rlmem.envs.spec import Step
from rlmem.errors import UserError
from rlmem.memories.gwr.map import MapStorage
from rlmem.memories.gwr.metric import MapMetric
from rlmem.memories.memory import ReplayMemory
from rlmem.runs import build
from rlmem.runs.score import load_networks

SHOWN = 24  # prototypes of each group on the contact sheet


def show_map(cfg: EvaluateSettings) -> None:
    """Draw and measure a run's map into map/ of the run directory.

    Raises:
        UserError: there is no run or no checkpoint, its memory is no map or was not kept, or
            matplotlib is missing.
    """
    check_matplotlib("mode=map")
    run_dir = Path(cfg.run)
    run_cfg, folder = _find_map(cfg, run_dir)
    env = build.build_evaluation_env(run_cfg, cfg.episodes, render=False)
    try:
        agent = build.build_agent(run_cfg, env.spec)
        env_steps = load_networks(run_dir, cfg.checkpoint, agent)
        memory = _load_memory(run_cfg, env.spec, folder, cfg.run)
        storage, activation = memory.storage, run_cfg.threshold.activation
        assert isinstance(storage, MapStorage)
        metric = MapMetric(storage, memory.writer)
        data = read_map(storage, metric.scale, agent)
        out = Path(cfg.out) if cfg.out else run_dir / "map"
        check_output_dir(out, "out", "out=map")
        title = map_title(run_cfg, data, int(read_manifest(folder)["env_steps"]))
        print(title)
        names = _draw(data, title, out, reach(activation, storage.contexts))
        if len(storage.observation_shape) == 3:
            names += _draw_prototypes(data, storage, env.spec.frame_shape[0], title, out)
        write_nodes(data, out / "nodes.csv")
        print(f"written: {out}/{', '.join([*names, 'nodes.csv'])}")
        epsilon = run_cfg.evaluation.epsilon if cfg.epsilon is None else cfg.epsilon
        seed = derive_seed(run_cfg.seed, 5) if cfg.seed is None else cfg.seed
        print(
            f"playing {cfg.episodes} episodes by the {cfg.checkpoint} networks, of {env_steps:,} "
            f"env steps, with epsilon {epsilon:g}, and as many at random",
            flush=True,
        )
        # Every agent's epsilon is the probability of a random action, so that 1 is random play.
        fits = {
            name: measure_fit(metric, env, agent.act, cfg.episodes, share, seed, activation)
            for name, share in (("run's", epsilon), ("random", 1.0))
        }
    finally:
        env.close()
    table = map_table(data, memory.footprint(), fits)
    write_table(table, out / "table.csv")
    print(render_table(table, fits))
    if data.value is None:
        print(f"no values: {data.value_name}")
    print(f"written: {out}/table.csv")


def _find_map(cfg: EvaluateSettings, run_dir: Path) -> tuple[TrainSettings, Path]:
    """The run's configuration, and the checkpoint that holds its map."""
    run_cfg = run_settings(run_dir, f"run={cfg.run}")
    memory = run_cfg.memory
    if not memory.part.cls.is_map:
        raise UserError(
            f"run={cfg.run}: its memory is {memory.name}, which is no map; mode=map draws runs "
            "with memory=gwr"
        )
    folder = find_checkpoint(run_dir)
    if folder is None:
        raise UserError(f"run={cfg.run}: it has no checkpoint yet")
    if not read_manifest(folder)["memory_saved"]:
        raise UserError(
            f"run={cfg.run}: it finished and its memory's files were not kept; to draw one, train "
            "with checkpoint.keep_memory_when_finished=true (a run that was cut off has the files)"
        )
    return run_cfg, folder


def _load_memory(cfg: TrainSettings, spec: EnvSpec, folder: Path, run: str) -> ReplayMemory:
    """The memory as the run had it: for as many environments as it trained on."""
    memory = build.build_memory(cfg, replace(spec, num_envs=cfg.env.num_envs))
    try:
        memory.load(folder / "memory")
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise UserError(f"run={run}: {folder}/memory cannot be loaded: {error}") from None
    if len(memory):
        memory.sample(1)  # a sampler counts its bytes once it has seen the edges
    return memory


class _Watched:
    """An environment whose episodes are kept as the map's writer sees them: each observation once,
    the last one of an episode among them, embedded."""

    def __init__(self, env: EnvStepper, metric: MapMetric) -> None:
        self.spec, self._env, self._metric = env.spec, env, metric
        self._running: list[list[np.ndarray]] = [[] for _ in range(env.spec.num_envs)]
        self.finished: list[list[np.ndarray]] = [[] for _ in range(env.spec.num_envs)]
        self._seen = np.zeros(0)

    def see(self, observation: np.ndarray) -> None:
        """Take down what actions are chosen from, [E, *observation_shape]."""
        self._seen = observation.copy()
        for running, row in zip(self._running, self._metric.embed(observation), strict=True):
            running.append(row)

    def reset(self, seed: int) -> np.ndarray:
        return self._env.reset(seed)

    def step(self, action: np.ndarray) -> Step:
        step = self._env.step(action)
        over = np.flatnonzero(step.terminated | step.truncated)
        if len(over):
            older = self._seen[over, self.spec.frame_shape[0] :]
            last = np.concatenate([older, step.next_observation[over]], axis=1)
            for e, row in zip(over, self._metric.embed(last), strict=True):
                self.finished[e].append(np.stack([*self._running[e], row]))
                self._running[e] = []
        return step

    def render(self) -> np.ndarray:
        return self._env.render()

    def close(self) -> None:
        self._env.close()


def measure_fit(
    metric: MapMetric,
    env: EnvStepper,
    policy: Policy,
    episodes: int,
    epsilon: float,
    seed: int,
    activation: float,
) -> Fit:
    """Play the episodes that a scoring would play and measure how far each observation is.

    Args:
        metric: of the map.
        policy, episodes, epsilon, seed: as for `evaluate_policy`.
        activation: the activation threshold.
    """
    watched = _Watched(env, metric)

    def watching(observation: np.ndarray, share: float, rng: Any) -> np.ndarray:
        watched.see(observation)
        return policy(observation, share, rng)

    result = evaluate_policy(watched, watching, episodes=episodes, epsilon=epsilon, seed=seed)
    # Environments that were done earlier than others played on: only scored episodes count.
    quota = np.full(env.spec.num_envs, episodes // env.spec.num_envs)
    quota[: episodes % env.spec.num_envs] += 1
    played = [e for rows, n in zip(watched.finished, quota, strict=True) for e in rows[:n]]
    assert sum(map(len, played)) == sum(result.lengths) + episodes
    return Fit(metric.match(played)[1], activation, episodes)


def _draw(data: MapData, title: str, out: Path, scale: float | None) -> list[str]:
    from rlmem.analysis.figures import save
    from rlmem.analysis.map_figures import map_figure

    save(map_figure(data, title, scale), out, "map")
    return ["map.png", "map.svg"]


def _draw_prototypes(
    data: MapData, storage: MapStorage, channels: int, title: str, out: Path
) -> list[str]:
    """The newest frame of the most and the least visited prototypes."""
    from rlmem.analysis.map_figures import prototype_sheet

    order = np.argsort(data.firings, kind="stable")
    shown = min(SHOWN, len(order))
    # Many nodes never fired: of equals, evenly spaced ones.
    equal = int((data.firings <= data.firings[order[shown - 1]]).sum())
    least = order[np.linspace(0, equal - 1, shown).astype(int)]
    groups = []
    for name, rows in (("most", order[::-1][:shown]), ("least", least)):
        frames = storage.node_observations(data.nodes[rows])[:, -channels:]
        captions = [f"{firings:,} firings" for firings in data.firings[rows]]
        if data.value is not None:
            captions = [f"{c}\nQ {v:.3g}" for c, v in zip(captions, data.value[rows], strict=True)]
        groups.append((f"{title}: the {shown} {name} visited", frames, captions))
    prototype_sheet(groups).savefig(out / "prototypes.png", dpi=130)
    return ["prototypes.png"]
