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

from rlmem.agents.base import AgentSettings, Learner, check_discrete, discount, joined
from rlmem.agents.optimizers import (
    OPTIMIZERS,
    apply_gradients,
    forget_casts,
    gradients_of,
    make_optimizer,
    own_epsilon,
)
from rlmem.agents.schedules import EpsilonSettings
from rlmem.errors import UserError
from rlmem.memories.base.batch import Batch
from rlmem.networks.base import QNetworkSettings, check_kind
from rlmem.registry import part
from rlmem.settings import setting


def steps_or_episode(value: Any) -> str | None:
    """What a period of env steps must be, where it is none."""
    fits = value == "episode" or (type(value) is int and value >= 1)
    return None if fits else "a whole number of env steps from 1, or episode"


def _interval(value: Any) -> str | None:
    fits = value is None or (len(value) == 2 and value[0] < value[1])
    return None if fits else "two rising numbers such as [-50,0], or null"


@dataclass(kw_only=True)
class DQNSettings(AgentSettings):
    """DQN and its switches."""

    optimizer: str = setting(choices=tuple(OPTIMIZERS))
    lr: float = setting(above=0)
    adam_eps: float = setting(above=0, idle=own_epsilon)
    loss: str = setting(choices=("mse", "huber"))
    double: bool = setting()
    dueling: bool = setting()
    target_update_every: Any = setting(check=steps_or_episode)
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
    compiles = recordable = data_parallel = True

    @classmethod
    def check(cls, settings: DQNSettings, run: Any) -> None:
        """Raise a UserError if the network's kind is unknown, or the optimizer is not compiled."""
        check_kind(settings.network)
        settings.epsilon.check()
        if run.trainer.compile is True and settings.optimizer != "adam":
            raise UserError(
                f"agent.optimizer={settings.optimizer}: trainer.compile=true works with adam only; "
                "use agent.optimizer=adam or trainer.compile=false"
            )

    @classmethod
    def consolidates(cls, settings: Any) -> bool:
        return True

    @classmethod
    def build(cls, settings: DQNSettings, run: Any, spec: Any) -> "DQN":
        """The agent for an environment.

        Raises:
            UserError: its actions are not discrete.
        """
        check_discrete(settings, run, spec)
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
        self.online = self.make_network(observation_shape, input_scale)
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

    def make_network(self, observation_shape: tuple[int, ...], input_scale: float) -> Any:
        """A Q network, newly drawn."""
        cfg = self.cfg
        return cfg.network.make(observation_shape, self.num_actions, input_scale, cfg.dueling)

    def values(self, observation: torch.Tensor) -> torch.Tensor:
        """Q values [n, actions] of observations [n, *observation_shape]."""
        return self.online(observation)

    def state_values(self, observation: torch.Tensor) -> torch.Tensor:
        return self.values(observation).amax(-1)

    def epsilon(self, env_steps: int) -> float:
        """Exploration rate after `env_steps`."""
        return self.cfg.epsilon.at(env_steps, self.cfg.learning_starts)

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
        exploring = np.count_nonzero(explores)
        if exploring == envs:
            return rng.integers(self.num_actions, size=envs)
        with torch.no_grad():
            q = self.values(torch.from_numpy(observation).to(self.device))
        greedy = q.cpu().numpy().argmax(-1)
        if exploring:
            return np.where(explores, rng.integers(self.num_actions, size=envs), greedy)
        return greedy

    def explore(
        self, observation: np.ndarray, epsilon: float, rng: np.random.Generator
    ) -> np.ndarray:
        """As `act`: training and evaluation differ in epsilon only."""
        return self.act(observation, epsilon, rng)

    def update(self, batch: Batch) -> dict[str, torch.Tensor]:
        """One gradient step on each of U minibatches [U, B], or E where the batch has
        `consolidation` states [U, E, B', *observation_shape] of weight `consolidation_weight` [U].

        Returns:
            `td_error` float32 [U, B] (target - Q) and, of consolidation, `consolidation_loss` [U]
            without its weight: before each minibatch's first step, detached. The loss itself is
            nothing that learning needs: see `losses`.
        """
        found = []
        for number, row in enumerate(self.minibatches(batch), start=self.grad_steps + 1):
            found.append(self._update(row))
            if self.target_update_every and number % self.target_update_every == 0:
                self.update_target()
        vars(self)["grad_steps"] += len(found)  # a module's own way of setting looks for weights
        return joined(found)

    @torch.no_grad()
    def losses(self, batch: Batch, outputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """The mean of the weighted loss of each minibatch, with its consolidation."""
        td_error = outputs["td_error"].unsqueeze(-1)
        if self.cfg.loss == "huber":
            zero = torch.zeros_like(td_error)
            each = torch.nn.functional.huber_loss(td_error, zero, reduction="none")
        else:
            each = td_error.square()
        # One by one, so that a sum is the same however many minibatches a round has.
        loss = torch.stack([row.mean() for row in batch["weight"] * each])
        if "consolidation_loss" in outputs:
            loss += batch["consolidation_weight"] * outputs["consolidation_loss"]
        return loss

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
            for own, online in zip(self.target.buffers(), self.online.buffers(), strict=True):
                own.copy_(online)  # such as the mean of a batch norm, which is no weight

    def _update(self, row: Batch) -> dict[str, torch.Tensor]:
        """The gradient steps of a minibatch, columns [B, ...]."""
        target, observation = self.td_target(row), row["observation"]
        if "consolidation" not in row:
            q = self.online(observation)
            td_error, slope = self._slope(q.detach(), target, row)
            self._step(q, slope)
            return {"td_error": td_error.squeeze(-1)}
        first: dict[str, torch.Tensor] = {}
        consolidation, share, size = row["consolidation"], row["consolidation_weight"], len(target)
        with torch.no_grad():
            anchor = self.target(consolidation.flatten(0, 1)).unflatten(0, consolidation.shape[:2])
        for states, values in zip(consolidation, anchor, strict=True):
            q = self.online(torch.cat((observation, states)))
            td_error, slope = self._slope(q.detach()[:size], target, row)
            gap = q.detach()[size:] - values
            self._step(q, torch.cat((slope, share / gap.numel() * (2 * gap))))
            first = first or {
                "td_error": td_error.squeeze(-1),
                "consolidation_loss": gap.square().mean(),
            }
        return first

    @torch.no_grad()
    def td_target(self, row: Batch) -> torch.Tensor:
        """Reward + discount * the value of the next observation, [B, 1]."""
        following, reward = row["next_observation"], row["reward"]
        q_next = self.target(following)
        if self.cfg.double:
            best = self.online(following).argmax(-1, keepdim=True)
            value = q_next.gather(-1, best)
        else:
            value = q_next.amax(-1, keepdim=True)
        target = torch.addcmul(reward, discount(row, self.discounts), value.to(reward.dtype))
        return target if self.cfg.target_clip is None else target.clamp(*self.cfg.target_clip)

    def _slope(
        self, q: torch.Tensor, target: torch.Tensor, row: Batch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """TD errors [B, 1] of Q values [B, actions], and the gradient of their loss by the Q
        values: by hand, as autograd's way through this handful of numbers takes longer than that
        through a small network."""
        action, weight = row["action"].unsqueeze(-1), row["weight"]
        td_error = target - q.gather(-1, action)
        if self.cfg.loss == "huber":
            slope, factor = td_error.clamp(-1.0, 1.0), -1
        else:
            slope, factor = td_error, -2
        taken = weight * (factor / weight.shape[0]) * slope
        return td_error, torch.zeros_like(q).scatter_(-1, action, taken.to(q.dtype))

    def _step(self, q: torch.Tensor, gradient: torch.Tensor) -> None:
        """Step down the loss whose gradient by the Q values is given."""
        weights = self.optimizer.param_groups[0]["params"]
        gradients = gradients_of(q, weights, gradient)
        apply_gradients(self.optimizer, 0, gradients, self.cfg.max_grad_norm)
        forget_casts(q)
