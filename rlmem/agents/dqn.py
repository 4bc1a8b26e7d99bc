"""DQN (Mnih et al. 2015) with double, dueling and n-step targets as switches.

A batch may bring states to consolidate: then each minibatch takes several gradient steps, on one
TD target, that also hold the network to its target network there (MeDQN, Lan et al. 2023).

Adam and the squared error instead of RMSProp and the Huber loss: that lifts plain DQN by more than
most replay variants do (Ceron & Castro 2021), so that each memory is compared on a sound baseline.
The agent knows neither storage nor environment: it takes a batch and gives TD errors.
"""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rlmem.agents.base import AgentSettings, Learner, joined, minibatches
from rlmem.agents.optimizers import apply_gradients, make_optimizer
from rlmem.errors import UserError
from rlmem.memories.base.batch import Batch
from rlmem.networks import QNetworkSettings, make_network
from rlmem.networks.base import check_kind
from rlmem.registry import part
from rlmem.settings import Settings, setting


@dataclass(kw_only=True)
class EpsilonSettings(Settings):
    """Exploration schedule, linear in env steps."""

    start: float = setting(at_least=0, at_most=1)
    end: float = setting(at_least=0, at_most=1)
    decay_steps: int = setting(at_least=1)


def _steps_or_episode(value: Any) -> str | None:
    fits = value == "episode" or (type(value) is int and value >= 1)
    return None if fits else "a whole number of env steps from 1, or episode"


def _interval(value: Any) -> str | None:
    fits = value is None or (len(value) == 2 and value[0] < value[1])
    return None if fits else "two rising numbers such as [-50,0], or null"


@dataclass(kw_only=True)
class DQNSettings(AgentSettings):
    """DQN and its switches."""

    optimizer: str = setting(choices=("adam", "rmsprop"))
    lr: float = setting(above=0)
    adam_eps: float = setting(above=0)
    loss: str = setting(choices=("mse", "huber"))
    double: bool = setting()
    dueling: bool = setting()
    target_update_every: Any = setting(check=_steps_or_episode)
    tau: float = setting(above=0, at_most=1)
    target_clip: list[float] | None = setting(check=_interval)
    max_grad_norm: float | None = setting(above=0)
    epsilon: EpsilonSettings = setting()
    network: QNetworkSettings = setting()


@part("agent", "dqn", settings=DQNSettings)
class DQN(Learner):
    """Value-based agent over discrete actions.

    Args:
        cfg: the `agent` node of the configuration.
        observation_shape: of one observation as it is sampled.
        num_actions: number of discrete actions.
        input_scale: factor that brings observations into [0, 1].
    """

    has_action_values = True
    compiles = True

    @classmethod
    def check(cls, settings: DQNSettings, run: Any) -> None:
        """Raise a UserError if the network is none."""
        check_kind(settings.network)

    @classmethod
    def build(cls, settings: DQNSettings, run: Any, spec: Any) -> "DQN":
        """The agent for an environment.

        Raises:
            UserError: its actions are not discrete.
        """
        if spec.continuous:
            raise UserError(
                f"agent={settings.name}: its actions are discrete, those of env={run.env.name} "
                f"({spec.env_id}) are {spec.action_shape[0]} continuous numbers; use agent=ddpg or "
                "agent=td3, env.action_levels=3 for a grid of actions, or an env such as "
                "env=cartpole"
            )
        return cls(settings, spec.observation_shape, spec.num_actions, spec.input_scale)

    def __init__(
        self,
        cfg: Any,
        observation_shape: tuple[int, ...],
        num_actions: int,
        input_scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.cfg, self.num_actions = cfg, num_actions
        net = cfg.network
        self.online = make_network(
            net.kind,
            observation_shape,
            num_actions,
            list(net.hidden),
            cfg.dueling,
            input_scale,
            net.init,
        )
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        discounts = torch.tensor([cfg.gamma**k for k in range(cfg.n_step + 1)])
        self.discounts: torch.Tensor
        self.register_buffer("discounts", discounts, persistent=False)
        self.grad_steps = 0
        # In gradient steps; None: when episodes end.
        self.target_update_every = (
            None
            if cfg.target_update_every == "episode"
            else max(1, round(cfg.target_update_every / cfg.train_every))
        )
        self.optimizer = make_optimizer(cfg.optimizer, self.online, cfg.lr, cfg.adam_eps)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """That of the online network."""
        return self.optimizer

    def epsilon(self, env_steps: int) -> float:
        """Exploration rate after `env_steps`: random before learning starts, then linear."""
        schedule = self.cfg.epsilon
        if env_steps < self.cfg.learning_starts:
            return 1.0
        fraction = min(1.0, env_steps / schedule.decay_steps)
        return schedule.start + fraction * (schedule.end - schedule.start)

    def act(self, observation: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
        """Epsilon-greedy actions.

        Args:
            observation: [E, *observation_shape].
            epsilon: probability of a random action.
            rng: generator of the exploration.

        Returns:
            int64 [E].
        """
        envs = len(observation)
        explores = rng.random(envs) < epsilon
        if explores.all():
            return rng.integers(self.num_actions, size=envs)
        with torch.no_grad():
            q = self.online(torch.from_numpy(observation).to(self.device))
        greedy = q.cpu().numpy().argmax(-1)
        if explores.any():
            return np.where(explores, rng.integers(self.num_actions, size=envs), greedy)
        return greedy

    explore = act  # training and evaluation differ in epsilon only

    def update(self, batch: Batch) -> dict[str, torch.Tensor]:
        """One gradient step on each of U minibatches [U, B], or E where the batch has
        `consolidation` states [U, E, B', *observation_shape] of weight `consolidation_weight` [U].

        Returns:
            `td_error` float32 [U, B] (target - Q), `loss` [U] and, of consolidation,
            `consolidation_loss` [U] without its weight: before each minibatch's first step,
            detached.
        """
        columns = [batch["action"].unsqueeze(-1), *minibatches(batch, self.discounts)]
        if "consolidation" in batch:
            columns += [batch["consolidation"], batch["consolidation_weight"]]
        found = []
        for number, row in enumerate(zip(*columns, strict=True), start=self.grad_steps + 1):
            found.append(self._update(*row))
            if self.target_update_every and number % self.target_update_every == 0:
                self.update_target()
        self.grad_steps += len(found)
        return joined(found)

    def round_ended(self, episodes_ended: int) -> None:
        """Copy the target network at the end of episodes, where it is copied then."""
        if episodes_ended and self.target_update_every is None:
            self.update_target()

    @torch.no_grad()
    def update_target(self) -> None:
        """Move the target network: to the online one, or by `tau` of the way."""
        if self.cfg.tau == 1.0:
            self.target.load_state_dict(self.online.state_dict())
        else:
            torch._foreach_lerp_(  # pyright: ignore[reportPrivateImportUsage]
                [*self.target.parameters()], [*self.online.parameters()], self.cfg.tau
            )

    def _update(
        self,
        action: torch.Tensor,
        observation: torch.Tensor,
        next_observation: torch.Tensor,
        reward: torch.Tensor,
        discount: torch.Tensor,
        weight: torch.Tensor,
        consolidation: torch.Tensor | None = None,
        consolidation_weight: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        """The gradient steps of a minibatch, columns [B, 1]; `discount` is 0 where the episode
        terminated."""
        target = self._target(next_observation, reward, discount)
        if consolidation is None or consolidation_weight is None:
            td_error, loss = self._td_loss(self.online(observation), action, target, weight)
            self._step(loss)
            return {"td_error": td_error.detach(), "loss": loss.detach()}
        first: dict[str, torch.Tensor] = {}
        with torch.no_grad():
            anchor = self.target(consolidation.flatten(0, 1)).unflatten(0, consolidation.shape[:2])
        for states, values in zip(consolidation, anchor, strict=True):
            q = self.online(torch.cat((observation, states)))
            td_error, loss = self._td_loss(q[: len(action)], action, target, weight)
            gap = (q[len(action) :] - values).square().mean()
            loss = loss + consolidation_weight * gap
            self._step(loss)
            first = first or {
                "td_error": td_error.detach(),
                "loss": loss.detach(),
                "consolidation_loss": gap.detach(),
            }
        return first

    @torch.no_grad()
    def _target(
        self, next_observation: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor
    ) -> torch.Tensor:
        """Reward + discount * the value of the next observation, [B, 1]."""
        q_next = self.target(next_observation)
        if self.cfg.double:
            best = self.online(next_observation).argmax(-1, keepdim=True)
            value = q_next.gather(-1, best)
        else:
            value = q_next.amax(-1, keepdim=True)
        target = torch.addcmul(reward, discount, value.to(reward.dtype))
        return target if self.cfg.target_clip is None else target.clamp(*self.cfg.target_clip)

    def _td_loss(
        self, q: torch.Tensor, action: torch.Tensor, target: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """TD errors [B, 1] and their weighted loss, of Q values [B, actions]."""
        td_error = target - q.gather(-1, action)
        if self.cfg.loss == "huber":
            zero = torch.zeros_like(td_error)
            loss = torch.nn.functional.huber_loss(td_error, zero, reduction="none")
        else:
            loss = td_error.square()
        return td_error, (weight * loss).mean()

    def _step(self, loss: torch.Tensor) -> None:
        weights = self.optimizer.param_groups[0]["params"]
        gradients = torch.autograd.grad(loss, weights)
        apply_gradients(self.optimizer, 0, gradients, self.cfg.max_grad_norm)
        if not torch.compiler.is_compiling() and torch.is_autocast_enabled(loss.device.type):
            # The Trainer's autocast region spans all updates and caches the weights' bf16 copies.
            torch.clear_autocast_cache()
