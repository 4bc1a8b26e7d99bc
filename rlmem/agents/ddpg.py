"""DDPG (Lillicrap et al. 2016) for continuous actions; TD3 (Fujimoto et al. 2018) as switches.

TD3 is DDPG with twin critics (the target takes the smaller value), a policy and targets that are
updated less often, and smoothed target actions: `conf/agent/td3.yaml` sets the three.

What differs from the papers: exploration is uncorrelated Gaussian noise in both, as in TD3's paper
(no Ornstein-Uhlenbeck process), the importance weights of prioritized replay weigh the policy's
loss as well as the critics', and n-step returns are off-policy without a correction.
"""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from rlmem.agents.base import AgentSettings, Diverged, Learner, check_fixed, discount, joined
from rlmem.agents.optimizers import FusedAdam, apply_gradients, forget_casts
from rlmem.collect.config import SeedOf, derive_seed
from rlmem.errors import UserError
from rlmem.memories.base.batch import Batch
from rlmem.networks import Actor, Critic
from rlmem.registry import part
from rlmem.settings import Settings, beside, setting


@dataclass(kw_only=True)
class ActorCriticSettings(Settings):
    """Widths of actor and critics, and where the critics take the action."""

    hidden: list[int] = setting(at_least=1, at_most=65_536)
    action_layer: int = setting(at_least=1, at_most=1000)


@dataclass(kw_only=True)
class DDPGSettings(AgentSettings):
    """DDPG, and TD3 by its switches."""

    actor_lr: float = setting(above=0)
    critic_lr: float = setting(above=0)
    critic_weight_decay: float = setting(at_least=0)
    tau: float = setting(above=0, at_most=1)
    exploration_noise: float = setting(at_least=0)
    twin_critics: bool = setting()
    policy_delay: int = setting(at_least=1, at_most=10**6)
    target_noise: float = setting(at_least=0)
    target_noise_clip: float = setting(above=0, idle=beside(target_noise=0))
    network: ActorCriticSettings = setting()


@part("agent", "ddpg", "td3", settings=DDPGSettings)
class DDPG(Learner):
    """Deterministic actor-critic agent over a box of actions.

    Args:
        cfg: the `agent` node of the configuration.
        features: D of a vector observation.
        low, high: float32 [A], the box of actions, in the environment's units.
        generator: on the CPU; target smoothing draws from it, and checkpoints hold its state.
    """

    compiles = data_parallel = True
    if_diverged = "smaller step sizes (agent.actor_lr, agent.critic_lr)"

    @classmethod
    def check(cls, settings: DDPGSettings, run: Any) -> None:
        """What can be said without the environment's spaces.

        Raises:
            UserError: the env's actions are discrete, or there is no such layer.
        """
        if getattr(run.env.part.cls, "discrete", False):
            raise UserError(
                f"agent={settings.name}: its actions are continuous, those of env={run.env.name} "
                "are discrete; use agent=dqn, or an env such as env=reacher"
            )
        check_fixed(settings, {"on_divergence": "stop"}, "cannot act without numbers")
        network = settings.network
        if network.action_layer > (last := len(network.hidden) + 1):
            raise UserError(
                f"agent.network.action_layer={network.action_layer}: "
                f"agent.network.hidden={network.hidden} makes {last} layers; use "
                f"agent.network.action_layer={last} or less"
            )

    @classmethod
    def build(cls, settings: DDPGSettings, run: Any, spec: Any) -> "DDPG":
        """The agent for an environment.

        Raises:
            UserError: its actions are discrete, or its observations are images.
        """
        env, shape = f"env={run.env.name} ({spec.env_id})", spec.observation_shape
        if not spec.continuous:
            grid = getattr(run.env, "action_levels", None) is not None
            works = "env.action_levels=null" if grid else "an env such as env=reacher"
            raise UserError(
                f"agent={settings.name}: its actions are continuous, those of {env} are "
                f"{spec.num_actions} discrete ones; use agent=dqn, or {works}"
            )
        if len(shape) != 1:
            raise UserError(
                f"agent={settings.name}: it takes vectors, {env} gives images of shape {shape}; "
                "use an env such as env=reacher"
            )
        generator = torch.Generator().manual_seed(derive_seed(run.seed, SeedOf.ACTION_NOISE))
        return cls(settings, shape[0], spec.action_low, spec.action_high, generator)

    def __init__(
        self,
        cfg: Any,
        features: int,
        low: np.ndarray,
        high: np.ndarray,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.cfg, self.low, self.high, self.generator = cfg, low, high, generator
        self.noise_scale = cfg.exploration_noise * (high - low) / 2
        hidden = list(cfg.network.hidden)
        self.actor = Actor(features, hidden, torch.from_numpy(low), torch.from_numpy(high))
        self.critics = nn.ModuleList(
            Critic(features, len(low), hidden, cfg.network.action_layer)
            for _ in range(2 if cfg.twin_critics else 1)
        )
        self.target_actor = copy.deepcopy(self.actor).requires_grad_(False)
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        discounts = torch.tensor([cfg.gamma**k for k in range(cfg.n_step + 1)])
        box = torch.from_numpy(np.stack((low, high)))
        self.discounts: torch.Tensor
        self.box: torch.Tensor
        self.register_buffer("discounts", discounts, persistent=False)
        self.register_buffer("box", box, persistent=False)
        self.grad_steps = 0
        # One optimizer of two groups, which are stepped one after the other.
        groups = [
            {
                "params": list(self.critics.parameters()),
                "lr": cfg.critic_lr,
                "weight_decay": cfg.critic_weight_decay,
            },
            {"params": list(self.actor.parameters()), "lr": cfg.actor_lr},
        ]
        self.optimizer = FusedAdam(groups)
        # Lists that the hot loop would make anew at each update.
        self._actor_weights = list(self.actor.parameters())
        self._critic_weights = list(self.critics.parameters())
        self._online: list[torch.Tensor] = [*self._critic_weights, *self._actor_weights]
        self._targets: list[torch.Tensor] = [
            *self.target_critics.parameters(),
            *self.target_actor.parameters(),
        ]

    def get_extra_state(self) -> torch.Tensor:
        """State of the generator, so that a resumed run smooths its targets by the same noise."""
        return self.generator.get_state()

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Take over the state of a saved generator."""
        self.generator.set_state(state.cpu())

    def epsilon(self, env_steps: int) -> float:
        """Probability of a random action after `env_steps`: 1 before learning starts, then 0."""
        return float(env_steps < self.cfg.learning_starts)

    def act(self, observation: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
        """The actor's own actions, or, with probability `epsilon`, uniform ones of the box.

        Args:
            observation: float32 [E, D].
            epsilon: probability of a random action.
            rng: generator of the exploration.

        Returns:
            float32 [E, A], within the box.
        """
        return self._act(observation, epsilon, rng, 0.0)

    @property
    def value_name(self) -> str:
        """What `state_values` gives."""
        return "Q(s, actor(s))" + (", the smaller critic's" if len(self.critics) > 1 else "")

    def state_values(self, observation: torch.Tensor) -> torch.Tensor:
        """Values of states [n, D] under the actor's actions, [n]."""
        action = self.actor(observation)
        values = [critic(observation, action) for critic in self.critics]
        return torch.stack(values).amin(0).reshape(len(observation))

    def explore(
        self, observation: np.ndarray, epsilon: float, rng: np.random.Generator
    ) -> np.ndarray:
        """What training plays: as `act`, with Gaussian noise on the actor's actions."""
        return self._act(observation, epsilon, rng, self.noise_scale)

    @torch.no_grad()
    def _act(
        self,
        observation: np.ndarray,
        epsilon: float,
        rng: np.random.Generator,
        noise_scale: np.ndarray | float,
    ) -> np.ndarray:
        shape = (len(observation), len(self.low))
        random = rng.random(len(observation)) < epsilon
        uniform = rng.uniform(self.low, self.high, shape) if random.any() else None
        if uniform is not None and random.all():
            return uniform.astype(np.float32)
        seen = torch.from_numpy(observation.astype(np.float32, copy=False)).to(self.device)
        action = self.actor(seen).float().cpu().numpy()
        if not np.isfinite(action).all():  # before an environment answers with a nan of its own
            raise Diverged("an action is no number", self)
        if np.any(noise_scale):
            action = action + noise_scale * rng.standard_normal(shape)
        if uniform is not None:
            action = np.where(random[:, None], uniform, action)
        return np.clip(action, self.low, self.high).astype(np.float32)

    def update(self, batch: Batch) -> dict[str, torch.Tensor]:
        """U gradient steps on a batch [U, B].

        Returns:
            `td_error` float32 [U, B] (target - Q, before each step; of twin critics the larger
            one) and `loss` [U], the critics'; both detached.
        """
        if self.cfg.target_noise:
            batch = {**batch, "target_noise": self._target_noise(batch["action"])}
        found = []
        for number, row in enumerate(self.minibatches(batch), start=self.grad_steps + 1):
            found.append(self._update(row, number % self.cfg.policy_delay == 0))
        self.grad_steps += len(found)
        return joined(found)

    def _target_noise(self, action: torch.Tensor) -> torch.Tensor:
        """Noise on the target policy's actions, [U, B, A]."""
        cfg = self.cfg
        noise = torch.randn(action.shape, generator=self.generator) * cfg.target_noise
        noise.clamp_(-cfg.target_noise_clip, cfg.target_noise_clip)
        return noise.to(action.device) * self.actor.half_range

    def _update(self, row: Batch, update_policy: bool) -> dict[str, torch.Tensor]:
        """One gradient step on a minibatch, columns [B, ...]."""
        observation, weight = row["observation"], row["weight"]
        target = self.td_target(row)
        td_errors = [target - critic(observation, row["action"]) for critic in self.critics]
        loss = sum((weight * error.square()).mean() for error in td_errors)
        assert isinstance(loss, torch.Tensor)
        gradients = torch.autograd.grad(loss, self._critic_weights)
        apply_gradients(self.optimizer, 0, gradients)
        forget_casts(observation)
        if update_policy:
            value = self.critics[0](observation, self.actor(observation))
            gain = (weight * value).mean().neg()
            gradients = torch.autograd.grad(gain, self._actor_weights)
            apply_gradients(self.optimizer, 1, gradients)
            self._move_targets()
            forget_casts(observation)
        return {"td_error": self._largest(td_errors).squeeze(-1), "loss": loss.detach()}

    @torch.no_grad()
    def td_target(self, row: Batch) -> torch.Tensor:
        """Reward + discount * the smallest target critic's value of the target policy,
        [B, 1]."""
        following, reward = row["next_observation"], row["reward"]
        action = self.target_actor(following)
        if "target_noise" in row:
            action = (action + row["target_noise"]).clamp(self.box[0], self.box[1])
        values = [critic(following, action) for critic in self.target_critics]
        value = values[0] if len(values) == 1 else torch.minimum(*values)
        return torch.addcmul(reward, discount(row, self.discounts), value.to(reward.dtype))

    @torch.no_grad()
    def _move_targets(self) -> None:
        """Targets += tau * (online - targets)."""
        torch._foreach_lerp_(  # pyright: ignore[reportPrivateImportUsage]
            self._targets, self._online, self.cfg.tau
        )

    def _largest(self, td_errors: list[torch.Tensor]) -> torch.Tensor:
        """Of each transition the TD error that is furthest from 0, [B, 1], detached."""
        if len(td_errors) == 1:
            return td_errors[0].detach()
        first, second = (error.detach() for error in td_errors)
        return torch.where(first.abs() >= second.abs(), first, second)
