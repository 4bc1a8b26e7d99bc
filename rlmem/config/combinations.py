"""What goes together, as far as a configuration alone says it; an environment's spaces say more.

Each check raises a UserError that names a key, its value and what would work.
"""

from collections.abc import Mapping
from typing import Any

from rlmem.config.ranges import POSITIVE, RING_SAMPLERS
from rlmem.errors import UserError
from rlmem.units import parse_bytes


def get(values: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key, or None where the chosen groups do not have it."""
    node: Any = values
    for name in key.split("."):
        if not isinstance(node, Mapping):
            return None
        node = node.get(name)
    return node


def check_memory(values: Mapping[str, Any]) -> None:
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


def check_consolidation(values: Mapping[str, Any]) -> None:
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


def check_hindsight(values: Mapping[str, Any]) -> None:
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
    if scale != "auto" and (not is_number or scale not in POSITIVE):
        raise UserError(f"memory.metric.scale={scale}: must be auto or a number above 0")


def check_agent(agent: Mapping[str, Any], env: Mapping[str, Any]) -> None:
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


def check_schedule(values: Mapping[str, Any]) -> None:
    agent, num_envs = values["agent"], values["env"]["num_envs"]
    max_env_steps = values["trainer"]["max_env_steps"]
    if agent["learning_starts"] >= max_env_steps:
        raise UserError(
            f"agent.learning_starts={agent['learning_starts']}: the run ends before, at "
            f"trainer.max_env_steps={max_env_steps}; lower the one or raise the other"
        )
    rounds = values["trainer"]["rounds"]
    number = isinstance(rounds, int) and not isinstance(rounds, bool) and rounds >= 1
    if rounds != "auto" and not number:
        raise UserError(f"trainer.rounds={rounds}: must be auto or a whole number from 1")
    memory = values["memory"]
    if get(memory, "metric.scale") == "auto" and values["env"]["suite"] in ("atari", "minatar"):
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
            f"{env_steps} env steps a round cannot be shared evenly by {num_envs} envs; "
            f"use env.num_envs={works}"
        )
