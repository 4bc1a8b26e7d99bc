"""The types behind the group `agent`: see `rlmem.config.schema`.

`network` stands in each agent's own class: OmegaConf does not narrow a nested key to a subclass.
"""

from dataclasses import dataclass
from typing import Any


@dataclass
class EpsilonConfig:
    """Exploration schedule, linear in env steps."""

    start: float
    end: float
    decay_steps: int


@dataclass
class QNetworkConfig:
    """The Q-network's torso."""

    kind: str
    hidden: list[int]
    init: str


@dataclass
class ActorCriticNetworkConfig:
    """Widths of actor and critics, and where the critics take the action."""

    hidden: list[int]
    action_layer: int


@dataclass
class AgentConfig:
    """The keys that every agent has, besides its `network`."""

    name: str
    gamma: float
    batch_size: int
    n_step: int
    learning_starts: int
    train_every: int
    updates_per_step: int


@dataclass
class DQNConfig(AgentConfig):
    """DQN and its switches."""

    optimizer: str
    lr: float
    adam_eps: float
    loss: str
    double: bool
    dueling: bool
    target_update_every: Any  # a number or "episode", of which OmegaConf 2.3 merges no union
    tau: float
    target_clip: list[float] | None
    max_grad_norm: float | None
    epsilon: EpsilonConfig
    network: QNetworkConfig


@dataclass
class DDPGConfig(AgentConfig):
    """DDPG, and TD3 by its switches."""

    actor_lr: float
    critic_lr: float
    critic_weight_decay: float
    tau: float
    exploration_noise: float
    twin_critics: bool
    policy_delay: int
    target_noise: float
    target_noise_clip: float
    network: ActorCriticNetworkConfig


AGENTS: dict[str, type[AgentConfig]] = {"dqn": DQNConfig, "ddpg": DDPGConfig, "td3": DDPGConfig}
