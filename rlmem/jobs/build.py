"""From the composed configuration to the parts of a run."""

from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from rlmem.agents.dqn import DQN
from rlmem.config.schema import AgentConfig
from rlmem.data.rollout import evaluation_envs
from rlmem.data.stream import EnvStepStream, StreamConfig, derive_seed
from rlmem.envs import EnvSpec, EnvStepper, make_env
from rlmem.memories.factory import make_memory
from rlmem.memories.memory import ReplayMemory


def build_agent(cfg: DictConfig, spec: EnvSpec) -> DQN:
    """The agent, its weights drawn from the run's seed."""
    torch.manual_seed(derive_seed(cfg.seed, 0))
    # A plain object: each look-up in an OmegaConf node resolves interpolations, some 0.1 ms.
    values = OmegaConf.to_container(cfg.agent, resolve=True)
    agent = OmegaConf.to_object(OmegaConf.merge(AgentConfig, values))
    return DQN(agent, spec.observation_shape, spec.num_actions, spec.input_scale)


def build_memory(cfg: DictConfig, spec: EnvSpec) -> ReplayMemory:
    """The memory that `memory=...` names, for this environment and agent."""
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
    cfg: DictConfig, env: EnvStepper, memory: ReplayMemory, agent: DQN
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
    )
    return EnvStepStream(env, memory, agent.act, agent.epsilon, config)


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
