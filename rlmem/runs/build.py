"""From the settings of a run to its parts."""

from pathlib import Path
from typing import Any

import torch

from rlmem import distributed
from rlmem.agents.base import Learner
from rlmem.collect.collector import Columns
from rlmem.collect.config import SeedOf, StreamConfig, derive_seed
from rlmem.collect.rollout import evaluation_envs
from rlmem.collect.stream import Stream
from rlmem.config.schema import TrainSettings
from rlmem.envs import EnvSpec, EnvStepper, make_env
from rlmem.errors import UserError
from rlmem.memories.base.build import Needs
from rlmem.memories.memory import ReplayMemory


def build_agent(run: TrainSettings, spec: EnvSpec) -> Learner:
    """The agent, its weights drawn from the run's seed.

    Raises:
        UserError: it cannot act in this environment.
    """
    torch.manual_seed(derive_seed(run.seed, SeedOf.WEIGHTS))
    agent = run.agent.build(run, spec).eval()
    agent.stops_diverged = run.agent.on_divergence == "stop"
    as_given = getattr(run.memory.part.cls, "rewards_as_given", False)
    agent.rewards_are_raw = not (run.env.reward_clip or as_given)
    return agent


def build_memory(run: TrainSettings, spec: EnvSpec, columns: Columns | None = None) -> ReplayMemory:
    """The memory that `memory=...` names, for this environment and agent.

    Args:
        columns: what the agent adds to each transition.

    Raises:
        UserError: the environment lacks what it needs, or it cannot hold the columns.
    """
    agent = run.agent
    needs = Needs(
        spec=spec,
        batch_size=agent.batch_size,
        n_step=agent.n_step,
        gamma=agent.gamma,
        seed=derive_seed(run.seed, SeedOf.REPLAY),
        threshold=run.threshold,
        round_rows=agent.train_every * agent.updates_per_step // distributed.size,
        round_updates=agent.updates_per_step,
        columns=columns or {},
    )
    memory = run.memory.build(needs)
    if lacks := [name for name in needs.columns if name not in memory.columns]:
        raise UserError(
            f"memory={run.memory.name}: it does not hold {', '.join(lacks)}, which "
            f"agent={run.agent.name} adds to each transition; use memory=uniform"
        )
    if agent.n_step > 1 and memory.storage.single_steps:
        raise UserError(
            f"agent.n_step={agent.n_step}: memory={run.memory.name} does not hold what followed a "
            "transition, so it has no returns over several steps; use agent.n_step=1"
        )
    return memory


def build_stream(run: TrainSettings, env: EnvStepper, memory: ReplayMemory, agent: Any) -> Stream:
    """The stream that has the environment stepped and the memory filled."""
    steps = run.agent.train_every * run.agent.updates_per_step
    config = StreamConfig(
        seed=run.seed,
        max_env_steps=run.trainer.max_env_steps,
        learning_starts=run.agent.learning_starts,
        batch_size=run.agent.batch_size,
        updates=run.agent.updates_per_step,
        vector_steps=steps // (env.spec.num_envs * distributed.size),
        reseed_every=run.checkpoint.reseed_every,
        reward_clip=run.env.reward_clip,
        max_episodes=run.trainer.max_episodes,
        terminal_reward=run.env.terminal_reward,
    )
    return agent.make_stream(run, env, memory, config)


def build_env(run: TrainSettings) -> EnvStepper:
    """The environment that is trained on."""
    return make_env(run.env, run.env.num_envs)


def build_evaluation_env(run: TrainSettings, episodes: int, *, render: bool) -> EnvStepper:
    """The environment that `episodes` episodes are scored on: full games always."""
    return make_env(run.env, evaluation_envs(episodes), render=render, scoring=True)


def build_loggers(run: TrainSettings, run_dir: Path, run_name: str) -> list[Any]:
    """Loggers besides the files, as `logger=` names them."""
    loggers = [chosen.build(run, run_dir, run_name) for chosen in run.logger.values()]
    return [logger for logger in loggers if logger is not None]
