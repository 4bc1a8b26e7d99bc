"""What types cannot say: ranges, names and combinations, checked before anything is built."""

import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlmem.config.agents import AGENTS
from rlmem.config.errors import choose_from, did_you_mean, explain
from rlmem.config.objective import OBJECTIVES, check_objective
from rlmem.errors import UserError
from rlmem.units import parse_bytes


@dataclass(frozen=True)
class Range:
    """The numbers that a key takes; null is checked by the schema."""

    low: float
    high: float = math.inf
    above: bool = False  # True: `low` itself is too low

    def __contains__(self, value: float) -> bool:
        high_enough = value > self.low if self.above else value >= self.low
        return high_enough and value <= self.high and math.isfinite(value)

    def __str__(self) -> str:
        low = f"above {self.low:.12g}" if self.above else f"at least {self.low:.12g}"
        return low if self.high == math.inf else f"{low} and at most {self.high:.12g}"


_POSITIVE = Range(0, above=True)
_COUNT = Range(1)
_FROM_ZERO = Range(0)
_SHARE = Range(0, 1)
_SHARE_ABOVE_0 = Range(0, 1, above=True)

TRAIN_RANGES: dict[str, Range] = {
    "seed": Range(0, 2**32 - 1),
    "agent.lr": _POSITIVE,
    "agent.adam_eps": _POSITIVE,
    "agent.gamma": _SHARE,
    "agent.batch_size": _COUNT,
    "agent.n_step": _COUNT,
    "agent.learning_starts": _FROM_ZERO,
    "agent.train_every": _COUNT,
    "agent.updates_per_step": _COUNT,
    "agent.max_grad_norm": _POSITIVE,
    "agent.epsilon.start": _SHARE,
    "agent.epsilon.end": _SHARE,
    "agent.epsilon.decay_steps": _COUNT,
    "agent.actor_lr": _POSITIVE,
    "agent.critic_lr": _POSITIVE,
    "agent.critic_weight_decay": _FROM_ZERO,
    "agent.tau": _SHARE_ABOVE_0,
    "agent.exploration_noise": _FROM_ZERO,
    "agent.policy_delay": _COUNT,
    "agent.target_noise": _FROM_ZERO,
    "agent.target_noise_clip": _POSITIVE,
    "agent.network.hidden": _COUNT,
    "agent.network.action_layer": _COUNT,
    "memory.capacity": _COUNT,
    "memory.sampler.alpha": _SHARE,
    "memory.sampler.beta_start": _SHARE,
    "memory.sampler.beta_end": _SHARE,
    "memory.sampler.beta_steps": _COUNT,
    "memory.sampler.eps": _POSITIVE,
    "memory.k": _COUNT,
    "memory.consolidation.batch_size": _COUNT,
    "memory.consolidation.inner_steps": _COUNT,
    "memory.consolidation.weight_start": _FROM_ZERO,
    "memory.consolidation.weight_end": _FROM_ZERO,
    "memory.consolidation.weight_steps": _COUNT,
    "memory.context_beta": _SHARE,
    "memory.phi": _SHARE,
    "memory.tau_b": _SHARE,
    "memory.tau_n": _SHARE,
    "memory.kappa": _COUNT,
    "memory.eps_b": _SHARE,
    "memory.eps_n": _SHARE,
    "memory.max_age": _COUNT,
    "memory.metric.scale_samples": Range(2),
    "memory.embedding.dims": _COUNT,
    "threshold.activation": _SHARE_ABOVE_0,
    "threshold.habituation": _SHARE_ABOVE_0,
    "env.num_envs": _COUNT,
    "env.stack": _COUNT,
    "env.frame_skip": _COUNT,
    "env.screen_size": Range(36),  # the smallest that the Nature CNN's three layers take
    "env.sticky": _SHARE,
    "env.bits": _COUNT,
    "env.max_episode_steps": _COUNT,
    "env.action_levels": Range(2),
    "env.protocol.sticky": _SHARE,
    "env.protocol.noop_max": _FROM_ZERO,
    "env.protocol.max_frames": _COUNT,
    "trainer.max_env_steps": _COUNT,
    "trainer.max_episodes": _COUNT,
    "trainer.threads": _COUNT,
    "evaluation.every": _COUNT,
    "evaluation.episodes": _COUNT,
    "evaluation.epsilon": _SHARE,
    "checkpoint.every": _COUNT,
    "log.every": _COUNT,
    "log.map_every": _COUNT,
}

RING_SAMPLERS = ("uniform", "prioritized", "rank", "combined", "latest", "newest")

TRAIN_NAMES: dict[str, tuple[str, ...]] = {
    "agent.name": tuple(AGENTS),
    "agent.optimizer": ("adam", "rmsprop"),
    "agent.loss": ("mse", "huber"),
    "agent.network.kind": ("auto", "nature", "minatar", "mlp"),
    "memory.storage.kind": ("auto", "dense", "frames", "compressed", "memmap", "map"),
    "memory.sampler.kind": (*RING_SAMPLERS, "visits"),
    "memory.consolidation.states": ("bounds", "stored"),
    "memory.strategy": ("future", "final", "episode", "random"),
    "memory.prototype": ("moving", "exemplar"),
    "memory.terminals": ("edge", "node"),
    "memory.episodes": ("apart", "joined"),
    "memory.eviction": ("auto", "merge", "lru"),
    "memory.embedding.kind": ("auto", "random_projection", "identity"),
    "env.suite": ("atari", "gym", "minatar"),
    "objective.kind": OBJECTIVES,
    "trainer.accelerator": ("auto", "cpu", "gpu"),
    "trainer.precision": ("32-true", "bf16-mixed"),
    "logger.wandb.mode": ("online", "offline", "disabled"),
}

EVALUATE_RANGES: dict[str, Range] = {
    "episodes": _COUNT,
    "epsilon": _SHARE,
    "seed": TRAIN_RANGES["seed"],
}
EVALUATE_NAMES: dict[str, tuple[str, ...]] = {
    "mode": ("score", "map", "report", "status", "plot", "dashboard"),
    "checkpoint": ("last", "best"),
}


def check(cfg: DictConfig) -> None:
    """Check a training config, fully composed.

    Raises:
        UserError: the first key whose value cannot work, and what would.
    """
    _check_keys(cfg)
    values = _resolve(cfg, throw_on_missing=True)
    if values["paths"]["output_dir"] is None:
        raise UserError("paths.output_dir=null: a run needs a folder; leave the key out")
    _check_ranges(values, TRAIN_RANGES)
    _check_names(values, TRAIN_NAMES)
    _check_memory(values)
    _check_consolidation(values)
    _check_hindsight(values)
    _check_agent(values["agent"], values["env"])
    _check_schedule(values)
    check_objective(values["objective"])


def check_evaluate(cfg: DictConfig) -> None:
    """Check the config of `evaluate.py`.

    Raises:
        UserError: the first key whose value cannot work, and what would.
    """
    _check_keys(cfg)
    values = _resolve(cfg, throw_on_missing=False)
    _check_ranges(values, EVALUATE_RANGES)
    _check_names(values, EVALUATE_NAMES)
    if values["mode"] in ("score", "map") and values["run"] == "???":
        raise UserError("run is not set; give the run directory, such as run=outputs/...")
    if values["mode"] == "plot" and not values["runs"]:
        raise UserError("runs=[]: nothing to plot; give run directories, such as runs=[a,b]")
    for key in ("sweep", "outsiders"):
        value = values[key]
        if not isinstance(value, str) and not (
            isinstance(value, list) and all(isinstance(part, str) for part in value)
        ):
            raise UserError(f"{key}={value}: must be a path or a list of them, such as [a,b]")
    if values["mode"] in ("report", "status") and not values["sweep"]:
        raise UserError(
            "sweep=[]: nothing to look at; give the folder of a sweep, such as "
            "sweep=multirun/2026-01-01_12-00-00, or several: sweep=[a,b]"
        )


def check_output_dir(
    path: str | Path,
    key: str = "paths.output_dir",
    works: str = "hydra.run.dir=outputs/mine",
) -> None:
    """Make a directory and write to it once, so that a run does not fail at its end.

    Args:
        key: that names it, works: what would.

    Raises:
        UserError: the directory cannot be made or written to.
    """
    try:
        os.makedirs(path, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as exc:
        raise UserError(
            f"{key}={path}: cannot write there ({exc.strerror}); "
            f"give a folder that you may write to, such as {works}"
        ) from exc


def _resolve(cfg: DictConfig, throw_on_missing: bool) -> dict[str, Any]:
    try:
        values = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=throw_on_missing)
    except OmegaConfBaseException as exc:
        raise UserError(explain(exc, [])) from exc
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def _get(values: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key, or None where the chosen groups do not have it."""
    node: Any = values
    for name in key.split("."):
        if not isinstance(node, Mapping):
            return None
        node = node.get(name)
    return node


def _check_keys(cfg: DictConfig, prefix: str = "") -> None:
    """Keys forced in with + or ++ that no schema knows: nothing would read them."""
    schema = OmegaConf.get_type(cfg)
    known = [f.name for f in fields(schema)] if is_dataclass(schema) else [str(k) for k in cfg]
    for name in map(str, cfg):
        key = f"{prefix}{name}"
        if name not in known:
            near = did_you_mean(name, known).replace("mean ", f"mean {prefix}")
            raise UserError(f"+{key}: no such key, nothing reads it{near or '; leave it out'}")
        child = cfg._get_node(name)
        if isinstance(child, DictConfig) and not (
            child._is_missing() or child._is_none() or child._is_interpolation()
        ):
            _check_keys(child, f"{key}.")


def _check_ranges(values: Mapping[str, Any], ranges: Mapping[str, Range]) -> None:
    for key, allowed in ranges.items():
        value = _get(values, key)
        for number in value if isinstance(value, list) else [value]:
            if number is not None and number not in allowed:
                raise UserError(f"{key}={value}: must be {allowed}")


def _check_names(values: Mapping[str, Any], names: Mapping[str, tuple[str, ...]]) -> None:
    for key, allowed in names.items():
        value = _get(values, key)
        if value is not None and value not in allowed:
            what = key.split(".")[-2 if key.endswith(".kind") else -1]
            raise UserError(f"{key}={value}: no such {what}{choose_from(value, allowed)}")


def _check_memory(values: Mapping[str, Any]) -> None:
    memory, batch_size = values["memory"], values["agent"]["batch_size"]
    storage, sampler = memory["storage"]["kind"], memory["sampler"]["kind"]
    is_map = "metric" in memory
    if is_map != (storage == "map"):
        works = "map, as memory=gwr has it" if is_map else "auto, compressed or frames"
        raise UserError(
            f"memory/storage={storage}: does not go with memory={memory['name']}; "
            f"use memory/storage={works}"
        )
    works = ("visits", "uniform", "prioritized") if is_map else RING_SAMPLERS
    if sampler not in works:
        raise UserError(
            f"memory/sampler={sampler}: does not go with memory={memory['name']}; "
            f"use memory/sampler={' or '.join(works)}"
        )
    if sampler in ("prioritized", "rank") and "alpha" not in memory["sampler"]:
        raise UserError(
            f"memory.sampler.kind={sampler}: alpha and beta are missing; "
            f"choose the group, memory/sampler={sampler}"
        )
    if storage == "memmap" and "directory" not in memory["storage"]:
        raise UserError(
            "memory.storage.kind=memmap: its directory is missing; choose the group, "
            "memory/storage=memmap memory.storage.directory=/scratch"
        )
    if memory["budget"] is not None:
        _check_budget(memory)
    if is_map:
        _check_map(memory, values["agent"]["n_step"])
        _check_scale(memory["metric"]["scale"])
    elif memory["budget"] is None and memory["capacity"] < batch_size:
        raise UserError(
            f"memory.capacity={memory['capacity']}: less than one batch, "
            f"agent.batch_size={batch_size}; use memory.capacity={batch_size} or more"
        )


def _check_consolidation(values: Mapping[str, Any]) -> None:
    memory, env = values["memory"], values["env"]
    if "consolidation" not in memory:
        return
    if values["agent"]["name"] != "dqn":
        raise UserError(
            f"memory={memory['name']}: holds the Q values of all actions to their target, which "
            f"agent={values['agent']['name']} has not; use agent=dqn"
        )
    if memory["consolidation"]["states"] == "bounds" and env["suite"] == "atari":
        raise UserError(
            f"memory.consolidation.states=bounds: screens of env={env['name']} drawn pixel by "
            "pixel are noise; use memory=medqn_r, or memory.consolidation.states=stored"
        )


def _check_hindsight(values: Mapping[str, Any]) -> None:
    """What can be said without the environment's spaces; `build_memory` says the rest."""
    memory, env, n_step = values["memory"], values["env"], values["agent"]["n_step"]
    if "strategy" not in memory:
        return
    if env["suite"] != "gym":
        raise UserError(
            f"memory={memory['name']}: env={env['name']} has no goals; use an env such as "
            "env=bit_flip"
        )
    if n_step > 1:
        raise UserError(
            f"agent.n_step={n_step}: memory={memory['name']} makes rewards of one step anew; use "
            "agent.n_step=1"
        )
    if env["reward_clip"]:
        raise UserError(
            f"env.reward_clip=true: memory={memory['name']} makes rewards anew, as the env gives "
            "them; use env.reward_clip=false"
        )
    if env["terminal_reward"] is not None:
        raise UserError(
            f"env.terminal_reward={env['terminal_reward']}: memory={memory['name']} makes rewards "
            "anew, as the env gives them; leave the key out"
        )


def _check_map(memory: Mapping[str, Any], n_step: int) -> None:
    contexts = memory["contexts"]
    if contexts != "auto" and (type(contexts) is not int or contexts < 0):
        raise UserError(
            f"memory.contexts={contexts}: must be auto or a whole number from 0; the paper has 4"
        )
    released = memory["terminals"] == "node" or memory["episodes"] == "joined"
    if released and n_step > 1:
        raise UserError(
            f"agent.n_step={n_step}: memory.terminals={memory['terminals']} and "
            f"memory.episodes={memory['episodes']} have edges of one step; use agent.n_step=1"
        )


def _check_budget(memory: Mapping[str, Any]) -> None:
    if memory["name"] == "none":
        raise UserError(
            f"memory.budget={memory['budget']}: memory=none holds one batch; leave the key out"
        )
    try:
        parse_bytes(memory["budget"])
    except ValueError as error:
        raise UserError(f"memory.budget={error}") from None


def _check_scale(scale: Any) -> None:
    is_number = isinstance(scale, int | float) and not isinstance(scale, bool)
    if scale != "auto" and (not is_number or scale not in _POSITIVE):
        raise UserError(f"memory.metric.scale={scale}: must be auto or a number above 0")


def _check_agent(agent: Mapping[str, Any], env: Mapping[str, Any]) -> None:
    """What can be said without the environment's spaces; `build_agent` says the rest."""
    network = agent["network"]
    if "target_clip" in agent:
        _check_targets(agent)
    if "action_layer" not in network:
        return
    if env["suite"] != "gym":
        raise UserError(
            f"agent={agent['name']}: its actions are continuous, those of env={env['name']} are "
            "discrete; use agent=dqn, or an env such as env=reacher"
        )
    layer, last = network["action_layer"], len(network["hidden"]) + 1
    if layer > last:
        raise UserError(
            f"agent.network.action_layer={layer}: agent.network.hidden={network['hidden']} makes "
            f"{last} layers; use agent.network.action_layer={last} or less"
        )


def _check_targets(agent: Mapping[str, Any]) -> None:
    every, clip = agent["target_update_every"], agent["target_clip"]
    if every != "episode" and (type(every) is not int or every < 1):
        raise UserError(
            f"agent.target_update_every={every}: must be a whole number of env steps from 1, or "
            "episode"
        )
    if clip is not None and (len(clip) != 2 or not clip[0] < clip[1]):
        raise UserError(
            f"agent.target_clip={clip}: must be two rising numbers such as [-50,0], or null"
        )


def _check_schedule(values: Mapping[str, Any]) -> None:
    agent, num_envs = values["agent"], values["env"]["num_envs"]
    max_env_steps = values["trainer"]["max_env_steps"]
    if agent["learning_starts"] >= max_env_steps:
        raise UserError(
            f"agent.learning_starts={agent['learning_starts']}: the run ends before, at "
            f"trainer.max_env_steps={max_env_steps}; lower the one or raise the other"
        )
    memory = values["memory"]
    if _get(memory, "metric.scale") == "auto" and values["env"]["suite"] in ("atari", "minatar"):
        samples = memory["metric"]["scale_samples"]
        if samples >= max_env_steps:
            raise UserError(
                f"memory.metric.scale_samples={samples}: the run ends before the map begins, at "
                f"trainer.max_env_steps={max_env_steps}; lower the one or raise the other"
            )
    train_every, updates = agent["train_every"], agent["updates_per_step"]
    env_steps = train_every * updates
    if env_steps % num_envs:
        several = f" and agent.updates_per_step={updates}" if updates > 1 else ""
        fits = [str(n) for n in range(1, min(env_steps, 64) + 1) if env_steps % n == 0]
        works = f"{', '.join(fits[:-1])} or {fits[-1]}" if len(fits) > 1 else fits[0]
        raise UserError(
            f"agent.train_every={train_every}{several} with env.num_envs={num_envs}: "
            f"{env_steps} env steps a Trainer step cannot be shared evenly by {num_envs} envs; "
            f"use env.num_envs={works}"
        )
