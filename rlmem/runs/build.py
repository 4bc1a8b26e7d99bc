"""From the composed configuration to the parts of a run."""

from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from rlmem.agents.ddpg import DDPG
from rlmem.agents.dqn import DQN
from rlmem.collect.collector import EnvStepStream, StreamConfig, derive_seed
from rlmem.collect.rollout import evaluation_envs
from rlmem.config.agents import AGENTS
from rlmem.envs import EnvSpec, EnvStepper, make_env
from rlmem.errors import UserError
from rlmem.memories.factory import make_memory
from rlmem.memories.memory import ReplayMemory

Agent = DQN | DDPG  # what acts, explores and learns


def build_agent(cfg: DictConfig, spec: EnvSpec) -> Agent:
    """The agent, its weights drawn from the run's seed.

    Raises:
        UserError: it cannot act in this environment.
    """
    _check_spaces(cfg, spec)
    torch.manual_seed(derive_seed(cfg.seed, 0))
    # A plain object: each look-up in an OmegaConf node resolves interpolations, some 0.1 ms.
    values = OmegaConf.to_container(cfg.agent, resolve=True)
    agent = OmegaConf.to_object(OmegaConf.merge(AGENTS[cfg.agent.name], values))
    if cfg.agent.name == "dqn":
        return DQN(agent, spec.observation_shape, spec.num_actions, spec.input_scale)
    assert spec.action_low is not None
    assert spec.action_high is not None
    generator = torch.Generator().manual_seed(derive_seed(cfg.seed, 6))
    features = spec.observation_shape[0]
    return DDPG(agent, features, spec.action_low, spec.action_high, generator)


def _check_spaces(cfg: DictConfig, spec: EnvSpec) -> None:
    """An agent that does not fit the environment's actions or observations is named."""
    name, shape = cfg.agent.name, spec.observation_shape
    env = f"env={cfg.env.name} ({spec.env_id})"
    if name == "dqn" and spec.continuous:
        raise UserError(
            f"agent=dqn: its actions are discrete, those of {env} are {spec.action_shape[0]} "
            "continuous numbers; use agent=ddpg or agent=td3, env.action_levels=3 for a grid of "
            "actions, or an env such as env=cartpole"
        )
    if name != "dqn" and not spec.continuous:
        grid = cfg.env.get("action_levels") is not None
        works = "env.action_levels=null" if grid else "an env such as env=reacher"
        raise UserError(
            f"agent={name}: its actions are continuous, those of {env} are {spec.num_actions} "
            f"discrete ones; use agent=dqn, or {works}"
        )
    if name != "dqn" and len(shape) != 1:
        raise UserError(
            f"agent={name}: it takes vectors, {env} gives images of shape {shape}; use an env "
            "such as env=reacher"
        )


def _check_goals(cfg: DictConfig, spec: EnvSpec) -> None:
    """Hindsight needs goals, and what any of them is worth."""
    env = f"env={cfg.env.name} ({spec.env_id})"
    if spec.goal is None:
        raise UserError(
            f"memory={cfg.memory.name}: {env} has no goals; use an env such as env=bit_flip"
        )
    if spec.goal.rules is None:
        raise UserError(
            f"memory={cfg.memory.name}: {env} does not say what another goal is worth: "
            f"compute_reward(achieved_goal, desired_goal, {{}}) fails ({spec.goal.lacks}); use "
            "another memory, or an env such as env=bit_flip"
        )


def build_memory(cfg: DictConfig, spec: EnvSpec) -> ReplayMemory:
    """The memory that `memory=...` names, for this environment and agent.

    Raises:
        UserError: it needs goals, and the environment has none that it can reward.
    """
    if "strategy" in cfg.memory:
        _check_goals(cfg, spec)
    return make_memory(
        cfg.memory,
        spec,
        batch_size=cfg.agent.batch_size,
        n_step=cfg.agent.n_step,
        gamma=cfg.agent.gamma,
        activation_threshold=cfg.threshold.activation,
        habituation_threshold=cfg.threshold.habituation,
        seed=derive_seed(cfg.seed, 4),
    )


def build_stream(
    cfg: DictConfig, env: EnvStepper, memory: ReplayMemory, agent: Agent
) -> EnvStepStream:
    """The stream that steps the environment and fills the memory."""
    steps = cfg.agent.train_every * cfg.agent.updates_per_step
    config = StreamConfig(
        seed=cfg.seed,
        max_env_steps=cfg.trainer.max_env_steps,
        learning_starts=cfg.agent.learning_starts,
        batch_size=cfg.agent.batch_size,
        updates=cfg.agent.updates_per_step,
        vector_steps=steps // env.spec.num_envs,
        reseed_every=cfg.checkpoint.reseed_every,
        reward_clip=cfg.env.reward_clip,
        max_episodes=cfg.trainer.max_episodes,
        terminal_reward=cfg.env.terminal_reward,
    )
    return EnvStepStream(env, memory, agent.explore, agent.epsilon, config, agent.columns())


def build_env(cfg: DictConfig) -> EnvStepper:
    """The environment that is trained on."""
    return make_env(cfg.env, cfg.env.num_envs)


def build_evaluation_env(cfg: DictConfig, episodes: int, *, render: bool) -> EnvStepper:
    """The environment that `episodes` episodes are scored on: full games always."""
    env = cfg.env
    if env.suite == "atari":
        env = OmegaConf.merge(env, {"protocol": {"episodic_life": False}})
    return make_env(env, evaluation_envs(episodes), render=render)


def metrics_loggers(cfg: DictConfig, run_dir: Any, run_name: str) -> list[Any]:
    """Loggers besides the files, as `logger=` names them."""
    if "wandb" not in cfg.logger:
        return []
    from rlmem.callbacks.wandb_logger import WandbLogger

    return [WandbLogger(cfg, run_dir, run_name)]
