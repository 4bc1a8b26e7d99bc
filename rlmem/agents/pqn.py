"""PQN (Gallici et al. 2024, arXiv 2407.04811): Q(lambda) without replay and target network.

Many environments are stepped together; after T steps of each, the rollout is learned from for some
epochs of minibatches and let go. Layer norm in the network takes the place of the target network.

What the best action of a state was worth is kept when the agent acts there: the weights are the
same until the rollout is whole, so the targets need the network only where a state was not acted
in: after each environment's newest step, and where a time limit cut an episode.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rlmem.agents.base import AgentSettings, Learner, check_discrete, check_fixed
from rlmem.agents.optimizers import (
    apply_gradients,
    forget_casts,
    gradients_of,
    learning_weights,
)
from rlmem.agents.returns import lambda_returns
from rlmem.agents.schedules import RunEpsilonSettings
from rlmem.errors import UserError
from rlmem.memories.base.batch import Batch
from rlmem.networks.base import QNetworkSettings, check_kind
from rlmem.networks.layer_norm import NO_NORMS, normalise_layers
from rlmem.registry import marked, part
from rlmem.settings import setting


@dataclass(kw_only=True)
class PQNSettings(AgentSettings):
    """PQN's keys."""

    lr: float = setting(above=0)
    trace_lambda: float = setting(at_least=0, at_most=1)
    epochs: int = setting(at_least=1, at_most=10**6)
    max_grad_norm: float | None = setting(above=0)
    epsilon: RunEpsilonSettings = setting()
    network: QNetworkSettings = setting()


@part("agent", "pqn", settings=PQNSettings)
class PQN(Learner):
    """Learns from rollouts of discrete actions.

    Args:
        cfg: the `agent` node of the configuration.
        observation_shape: of one observation as it is sampled.
        num_actions: number of discrete actions.
        max_env_steps: of the run, over which exploration and step size fall.
        rollouts: of the run.
        input_scale: factor that brings observations into [0, 1].
    """

    has_action_values = True
    takes_rollouts = True

    @classmethod
    def check(cls, settings: PQNSettings, run: Any) -> None:
        """What it needs.

        Raises:
            UserError: the memory is no rollout, or does not come out even in minibatches.
        """
        check_kind(settings.network)
        check_fixed(settings, {"learning_starts": 0}, "learns from its first rollout on")
        if not getattr(run.memory.part.cls, "rollout", False):
            raise UserError(
                f"memory={run.memory.name}: agent={settings.name} learns from what was just played "
                f"and from nothing else; use memory={marked('memory', 'rollout')}"
            )
        size = run.memory.capacity
        if size % settings.batch_size:
            raise UserError(
                f"agent.batch_size={settings.batch_size}: memory.capacity={size} is no multiple of "
                f"it; use a divisor of {size}"
            )
        if settings.n_step > 1:
            raise UserError(
                f"agent.n_step={settings.n_step}: agent={settings.name} mixes returns of all "
                "lengths (agent.trace_lambda); use agent.n_step=1"
            )
        if size > run.trainer.max_env_steps:
            raise UserError(
                f"memory.capacity={size}: the run ends before a rollout is whole, at "
                f"trainer.max_env_steps={run.trainer.max_env_steps}; lower the one or raise the "
                "other"
            )

    @classmethod
    def build(cls, settings: PQNSettings, run: Any, spec: Any) -> "PQN":
        """The agent for an environment.

        Raises:
            UserError: its actions are not discrete.
        """
        check_discrete(settings, run, spec)
        steps = run.trainer.max_env_steps
        return cls(
            settings,
            spec.observation_shape,
            spec.num_actions,
            steps,
            max(1, steps // run.memory.capacity),
            spec.input_scale,
        )

    def __init__(
        self,
        cfg: Any,
        observation_shape: tuple[int, ...],
        num_actions: int,
        max_env_steps: int,
        rollouts: int,
        input_scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.cfg, self.num_actions = cfg, num_actions
        self.max_env_steps, self.rollouts = max_env_steps, rollouts
        self.online = cfg.network.make(observation_shape, num_actions, input_scale)
        self.remark = "" if normalise_layers(self.online) else NO_NORMS
        # Foreach: a kernel for all tensors at once, where torch's choice on a CPU is one by one.
        self.optimizer = torch.optim.RAdam(learning_weights(self.online), lr=cfg.lr, foreach=True)
        self.grad_steps = 0

    def columns(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        """What the best action of the state was worth."""
        return {"value": ((), np.float32)}

    def join(self, memory: Any) -> None:
        """Read minibatches from this memory."""
        self._memory = memory

    def epsilon(self, env_steps: int) -> float:
        """Exploration rate after `env_steps`."""
        return self.cfg.epsilon.at(env_steps, self.max_env_steps)

    def step_size(self) -> float:
        """That of the next rollout: from `lr` linearly to 0 over the run's rollouts."""
        a_rollout = self.cfg.epochs * (self._memory.storage.max_size // self.cfg.batch_size)
        done = self.grad_steps / a_rollout
        return self.cfg.lr * max(0.0, 1 - done / self.rollouts)

    def act(self, observation: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
        """Epsilon-greedy actions int64 [E] for observations [E, *observation_shape]."""
        return self.explore(observation, epsilon, rng)[0]

    def explore(
        self, observation: np.ndarray, epsilon: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The same, and the values of the best actions, float32 [E]."""
        q = self._values(torch.from_numpy(observation))
        action, envs = q.argmax(-1), len(q)
        explores = rng.random(envs) < epsilon
        if explores.any():
            action = np.where(explores, rng.integers(self.num_actions, size=envs), action)
        return action, {"value": q.max(-1)}

    @torch.no_grad()
    def _values(self, observation: torch.Tensor) -> np.ndarray:
        """Q values float32 [n, actions]."""
        return self.online(observation.to(self.device)).float().cpu().numpy()

    def update(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Epochs of minibatches over a rollout, columns [1, E, T].

        Returns:
            `td_error` float32 [1, B] (target - Q) and `loss` [1] of the last minibatch before its
            gradient step, detached.
        """
        index = batch["index"].numpy().reshape(-1)
        target = self.targets(batch).reshape(-1)
        self.optimizer.param_groups[0]["lr"] = self.step_size()
        outputs: dict[str, torch.Tensor] = {}
        for _ in range(self.cfg.epochs):
            order = torch.randperm(len(index)).numpy()
            for first in range(0, len(index), self.cfg.batch_size):
                rows = order[first : first + self.cfg.batch_size]
                outputs = self._update(self._memory.minibatch(index[rows]), target[rows])
                self.grad_steps += 1
        return outputs

    def targets(self, batch: Batch) -> np.ndarray:
        """What Q(s, a) is drawn to, float32 [E, T], of a rollout [1, E, T]."""
        index = batch["index"][0].numpy()
        reward, terminated, truncated = (
            batch[name][0, ..., 0].cpu().numpy() for name in ("reward", "terminated", "truncated")
        )
        value = batch["value"][0].cpu().numpy()
        following = np.empty_like(value)
        following[:, :-1] = value[:, 1:]
        asked = truncated & ~terminated
        asked[:, -1] = True
        with torch.autocast(self.device.type, enabled=False):  # as all other values were made
            following[asked] = self._values(self._memory.next_observations(index[asked])).max(-1)
        return lambda_returns(
            reward, following, terminated, truncated, self.cfg.gamma, self.cfg.trace_lambda
        )

    def _update(self, batch: Batch, target: np.ndarray) -> dict[str, torch.Tensor]:
        """One gradient step on the mean squared error of a minibatch [1, B]."""
        device = self.device
        q = self.online(batch["observation"][0].to(device))
        action = batch["action"][0].to(device).unsqueeze(-1)
        error = torch.from_numpy(target).to(device).unsqueeze(-1) - q.detach().gather(-1, action)
        slope = torch.zeros_like(q).scatter_(-1, action, (-2 / len(error) * error).to(q.dtype))
        weights = self.optimizer.param_groups[0]["params"]
        gradients = gradients_of(q, weights, slope)
        apply_gradients(self.optimizer, 0, gradients, self.cfg.max_grad_norm)
        forget_casts(q)
        error = error.squeeze(-1)
        return {"td_error": error[None], "loss": error.square().mean()[None]}
