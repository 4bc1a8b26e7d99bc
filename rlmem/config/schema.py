"""Where `conf/` lies, and the types behind its groups: a misspelt key fails by its name.

The dataclasses hold types only; every value, its unit and its meaning stand once, in `conf/`.
Where a group's options differ in their keys (memory, sampler, env), an option's yaml names its
own subclass in its defaults list (`/gwr_schema@_here_`), and OmegaConf accepts a subclass where
the base class is declared. Fields without a default are mandatory: `???` until a yaml fills them.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore

from rlmem.config.agents import AgentConfig, DDPGConfig, DQNConfig
from rlmem.config.memories import (
    GwrMemoryConfig,
    HerMemoryConfig,
    MedqnMemoryConfig,
    MemmapStorageConfig,
    MemoryConfig,
    PrioritizedSamplerConfig,
    RankSamplerConfig,
)

_PACKAGE = Path(__file__).resolve().parents[1]
# Installed, conf/ is the package rlmem.conf; in a checkout it stands beside the package.
CONF_DIR = next((d for d in (_PACKAGE / "conf", _PACKAGE.parent / "conf") if d.is_dir()), _PACKAGE)


@dataclass
class ThresholdConfig:
    """GWR's two thresholds."""

    activation: float
    habituation: float


@dataclass
class RecommendedDQNConfig:
    """What suits DQN on an env."""

    hidden: list[int]
    lr: float
    adam_eps: float
    batch_size: int
    train_every: int
    target_update_every: int
    epsilon_end: float
    epsilon_decay_steps: int
    max_grad_norm: float | None


@dataclass
class RecommendedConfig:
    """What suits an env; agent, memory and trainer read it unless they are overridden."""

    gamma: float
    learning_starts: int
    updates_per_step: int
    capacity: int
    max_env_steps: int
    dqn: RecommendedDQNConfig


@dataclass
class EnvConfig:
    """The keys that every suite has."""

    name: str
    suite: str
    num_envs: int
    reward_clip: bool
    terminal_reward: float | None
    recommended: RecommendedConfig


@dataclass
class ProtocolConfig:
    """Rules of an Atari evaluation."""

    name: str
    sticky: float
    noop_max: int
    fire_reset: bool
    episodic_life: bool
    max_frames: int


@dataclass
class AtariEnvConfig(EnvConfig):
    """An Arcade Learning Environment game."""

    game: str
    stack: int
    frame_skip: int
    screen_size: int
    protocol: ProtocolConfig


@dataclass
class GymEnvConfig(EnvConfig):
    """A Gymnasium env."""

    id: str
    max_episode_steps: int | None
    kwargs: dict[str, Any]
    action_levels: int | None


@dataclass
class BitFlipEnvConfig(GymEnvConfig):
    """Bits to flip into a goal."""

    bits: int


@dataclass
class MujocoEnvConfig(GymEnvConfig):
    """A MuJoCo task of Gymnasium, in one of its versions."""

    task: str
    version: str


@dataclass
class MinatarEnvConfig(EnvConfig):
    """A MinAtar game."""

    game: str
    sticky: float
    max_episode_steps: int | None


@dataclass
class TrainerConfig:
    """How long and on what a run trains."""

    max_env_steps: int
    max_episodes: int | None
    rounds: Any  # a union fails to merge in OmegaConf 2.3; check() holds it to auto or a number
    accelerator: str
    precision: str
    threads: int | None


@dataclass
class EvaluationConfig:
    """Evaluation episodes during and after training."""

    every: int | None
    episodes: int
    epsilon: float
    video: bool


@dataclass
class CheckpointConfig:
    """Resumable checkpoints."""

    every: int
    reseed_every: int
    keep_memory_when_finished: bool


@dataclass
class ObjectiveConfig:
    """What a search over hyper-parameters optimizes."""

    kind: str
    budget: Any  # a union fails to merge in OmegaConf 2.3; check() holds it to null or a size


@dataclass
class LogConfig:
    """Metrics rows, pictures and the progress bar."""

    every: int
    diagnostics: bool
    map_every: int | None
    progress: bool


@dataclass
class LoggerConfig:
    """A chosen logger; csv has no keys."""


@dataclass
class WandbLoggerConfig(LoggerConfig):
    """Weights & Biases."""

    project: str
    entity: str | None
    mode: str | None
    group: str | None
    tags: list[str]
    log_model: bool


@dataclass
class PathsConfig:
    """Where a run writes."""

    output_dir: str | None  # None only where no job runs, as in --cfg job --resolve


@dataclass
class TrainConfig:
    """The config of `train.py`."""

    seed: int
    label: str | None
    resume: str | None
    debug: bool
    agent: AgentConfig
    memory: MemoryConfig
    threshold: ThresholdConfig
    env: EnvConfig
    trainer: TrainerConfig
    evaluation: EvaluationConfig
    checkpoint: CheckpointConfig
    objective: ObjectiveConfig
    log: LogConfig
    paths: PathsConfig
    logger: dict[str, LoggerConfig] = field(default_factory=dict)  # the chosen ones, by name


@dataclass
class EvaluateConfig:
    """The config of `evaluate.py`."""

    mode: str
    run: str
    episodes: int
    epsilon: float | None
    video: bool
    seed: int | None
    checkpoint: str
    runs: list[str]
    sweep: Any  # a path or a list of them; check_evaluate() holds it to that
    outsiders: Any
    out: str | None
    project: str
    entity: str | None
    debug: bool


def register() -> None:
    """Put the schemas under the names that `conf/` uses in its defaults lists."""
    store = ConfigStore.instance().store
    store(name="train_schema", node=TrainConfig, provider="rlmem")
    store(name="evaluate_schema", node=EvaluateConfig, provider="rlmem")
    store(name="gwr_schema", node=GwrMemoryConfig, provider="rlmem")
    store(name="her_schema", node=HerMemoryConfig, provider="rlmem")
    store(name="medqn_schema", node=MedqnMemoryConfig, provider="rlmem")
    store(name="dqn_schema", node=DQNConfig, provider="rlmem")
    store(name="ddpg_schema", node=DDPGConfig, provider="rlmem")
    store(name="wandb_schema", node=WandbLoggerConfig, provider="rlmem")
    store(name="rank_schema", node=RankSamplerConfig, provider="rlmem")
    store(name="memmap_schema", node=MemmapStorageConfig, provider="rlmem")
    store(name="prioritized_schema", node=PrioritizedSamplerConfig, provider="rlmem")
    store(name="atari_schema", node=AtariEnvConfig, provider="rlmem")
    store(name="gym_schema", node=GymEnvConfig, provider="rlmem")
    store(name="bit_flip_schema", node=BitFlipEnvConfig, provider="rlmem")
    store(name="mujoco_schema", node=MujocoEnvConfig, provider="rlmem")
    store(name="minatar_schema", node=MinatarEnvConfig, provider="rlmem")
