"""Rainbow (Hessel et al. 2018, arXiv 1710.02298) in switches, and what came after it for runs of
100,000 steps: DER (van Hasselt et al. 2019, arXiv 1906.05243), DrQ(eps) (Agarwal et al. 2021, arXiv
2108.13264), resets of the head (Nikishin et al. 2022, arXiv 2205.07802), shorter and longer returns
(Schwarzer et al. 2023, arXiv 2305.19452).

It is DQN, whose switches it has as well; prioritized replay is the memory's part.
"""

import contextlib
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from rlmem import distributed, registry
from rlmem.agents.anneal import AnnealSettings
from rlmem.agents.augment import AugmentSettings
from rlmem.agents.base import check_discrete, discount
from rlmem.agents.distributions import GROUP, Distribution
from rlmem.agents.dqn import DQN, DQNSettings, steps_or_episode
from rlmem.agents.optimizers import apply_gradients, forget_casts
from rlmem.errors import UserError
from rlmem.memories.base.batch import Batch
from rlmem.networks.noisy import NoisyLinear, draw_noise, noisy_layers
from rlmem.registry import part
from rlmem.settings import beside, setting


@dataclass(kw_only=True)
class RainbowSettings(DQNSettings):
    """Rainbow's switches beside DQN's."""

    double: bool = setting(idle=beside(target_network=False))
    target_update_every: Any = setting(check=steps_or_episode, idle=beside(target_network=False))
    target_network: bool = setting()
    distribution: str = setting()
    atoms: int = setting(at_least=1, at_most=10_000, idle=lambda s: _unread("atoms", s))
    support: list[float] = setting(
        check=lambda value: _rising(value), idle=lambda s: _unread("support", s)
    )
    noisy: bool = setting()
    noisy_std: float = setting(above=0, idle=beside(noisy=False))
    weight_decay: float = setting(at_least=0)
    reset_every: int | None = setting(at_least=1)
    augment: AugmentSettings = setting()
    anneal: AnnealSettings = setting()


def _unread(key: str, settings: RainbowSettings) -> tuple[str, ...]:
    chosen = registry.parts(GROUP).get(settings.distribution)
    reads = chosen and getattr(chosen.cls, "reads", None)
    return () if reads is None or key in reads else ("distribution",)


def _rising(value: Any) -> str | None:
    fits = len(value) == 2 and value[0] < value[1] and all(map(math.isfinite, value))
    return None if fits else "two rising numbers such as [-10,10]"


@part("agent", "rainbow", settings=RainbowSettings)
class Rainbow(DQN):
    """DQN that may learn distributions of returns, explore by noise, and change what it sees.

    Args:
        cfg: the `agent` node of the configuration.
        observation_shape: of one observation as it is sampled.
        num_actions: number of discrete actions.
        input_scale: factor that brings observations into [0, 1].
        updates: gradient steps of the whole run.
    """

    compiles = False
    cfg: RainbowSettings

    @classmethod
    def check(cls, settings: RainbowSettings, run: Any) -> None:
        """Raise a UserError if switches contradict each other."""
        super().check(settings, run)
        registry.find(GROUP, settings.distribution, "agent.distribution")
        if settings.distribution != "none" and settings.loss != "mse":
            raise UserError(
                f"agent.loss={settings.loss}: is a loss of the TD error, but agent.distribution="
                f"{settings.distribution} has a loss of its own; use agent.loss=mse, or "
                "agent.distribution=none"
            )
        if settings.distribution != "none" and settings.target_clip is not None:
            raise UserError(
                f"agent.target_clip={list(settings.target_clip)}: clips targets that are numbers, "
                f"but those of agent.distribution={settings.distribution} are distributions; use "
                "agent.target_clip=null"
            )
        if not settings.target_network and settings.tau != 1:
            raise UserError(
                f"agent.tau={settings.tau}: without a target network there is nothing to move; use "
                "agent.target_network=true, or leave agent.tau out"
            )
        if not (settings.noisy or settings.epsilon.start or settings.epsilon.end):
            raise UserError(
                "agent.noisy=false: with agent.epsilon.start=0 and agent.epsilon.end=0 nothing "
                "explores; use agent.epsilon.start=1 agent.epsilon.end=0.01"
            )
        shorter = settings.anneal.n_step
        if shorter is not None and settings.n_step < 2:
            raise UserError(
                f"agent.anneal.n_step={shorter}: with agent.n_step=2 or more only; agent.n_step="
                f"{settings.n_step} has nothing to shorten"
            )
        if shorter is not None and not 2 <= shorter <= settings.n_step:
            raise UserError(
                f"agent.anneal.n_step={shorter}: must be at least 2 and at most "
                f"agent.n_step={settings.n_step}"
            )
        if settings.anneal.gamma is not None and settings.n_step < 2:
            raise UserError(
                f"agent.anneal.gamma={settings.anneal.gamma}: with agent.n_step=2 or more only"
            )
        if settings.anneal.gamma is not None and settings.gamma == 1:
            raise UserError(
                f"agent.anneal.gamma={settings.anneal.gamma}: from agent.gamma=1 there is no way "
                "to it; use agent.gamma=0.97"
            )

    @classmethod
    def consolidates(cls, settings: Any) -> bool:
        return settings.target_network

    @classmethod
    def build(cls, settings: RainbowSettings, run: Any, spec: Any) -> "Rainbow":
        """The agent for an environment.

        Raises:
            UserError: its actions are not discrete, or its observations no images to change.
        """
        check_discrete(settings, run, spec)
        shape = spec.observation_shape
        if settings.augment.changes and len(shape) != 3:
            raise UserError(
                f"agent.augment: it changes images; observations of env={run.env.name} have the "
                f"shape {tuple(shape)}; set agent.augment.shift=0 agent.augment.intensity=0"
            )
        steps = run.trainer.max_env_steps - settings.learning_starts
        updates = max(0, steps) // settings.train_every
        agent = cls(settings, shape, spec.num_actions, spec.input_scale, updates)
        if settings.reset_every and run.trainer.max_episodes:
            agent.remark = agent.remark or (
                f"agent.reset_every={settings.reset_every}: counts what is left of the run by "
                "trainer.max_env_steps; one that trainer.max_episodes ends may stop soon after a "
                "new head"
            )
        return agent

    def __init__(
        self,
        cfg: RainbowSettings,
        observation_shape: tuple[int, ...],
        num_actions: int,
        input_scale: float = 1.0,
        updates: int = 0,
    ) -> None:
        super().__init__(cfg, observation_shape, num_actions, input_scale)
        self.distribution = make_distribution(cfg)
        self.updates = updates
        if updates and cfg.reset_every and not self._resets(updates):
            self.remark = (
                f"agent.reset_every={cfg.reset_every}: no head begins anew, as the run makes "
                f"{updates:,} updates and as many must be left; {updates // 2} or less does"
            )
        if not cfg.target_network:
            del self.target
        self._noisy = noisy_layers(self.online)
        self._noisy_target = noisy_layers(self.target) if cfg.target_network else []
        self._fresh = functools.partial(self.make_network, observation_shape, input_scale)
        self._storage: Any = None
        if not cfg.learning_starts:  # else epsilon is 1 until the first update, which draws noise
            draw_noise(self._noisy)

    def make_network(self, observation_shape: tuple[int, ...], input_scale: float) -> Any:
        cfg = self.cfg
        layer = functools.partial(NoisyLinear, std=cfg.noisy_std) if cfg.noisy else nn.Linear
        return cfg.network.make(
            observation_shape,
            self.num_actions,
            input_scale,
            cfg.dueling,
            atoms=make_distribution(cfg).atoms,
            layer=layer,
        )

    # Playing: training explores with noise, all else is without.

    def values(self, observation: torch.Tensor) -> torch.Tensor:
        return self.distribution.values(self.online(observation))

    def state_values(self, observation: torch.Tensor) -> torch.Tensor:
        with self._without_noise():
            return super().state_values(observation)

    def epsilon(self, env_steps: int) -> float:
        """As DQN's, but 1 until the first update where that draws the first noise: it may come
        after `learning_starts`, at a round's end or once the memory has a minibatch."""
        if self._noisy and self.cfg.learning_starts and not self.grad_steps:
            return 1.0
        return super().epsilon(env_steps)

    def act(self, observation: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
        """Epsilon-greedy actions int64 [E] for observations [E, ...], without noise."""
        with self._without_noise():
            return super().act(observation, epsilon, rng)

    def explore(
        self, observation: np.ndarray, epsilon: float, rng: np.random.Generator
    ) -> np.ndarray:
        """The same with the noise of the newest update, where the network has any."""
        return super().act(observation, epsilon, rng)

    @contextlib.contextmanager
    def _without_noise(self) -> Iterator[None]:
        layers = [*self._noisy, *self._noisy_target]
        for layer in layers:
            layer.quiet = True
        try:
            yield
        finally:
            for layer in layers:
                layer.quiet = False

    # Learning.

    def update(self, batch: Batch) -> dict[str, torch.Tensor]:
        """One gradient step on each of U minibatches [U, B].

        Returns:
            `td_error` float32 [U, B] (mean of the target - Q), `loss` [U], and `priority` [U, B]:
            what the distribution says of it. All detached.
        """
        before = self.grad_steps
        outputs = super().update(batch)
        every = self.cfg.reset_every
        if every and self._resets(self.grad_steps) > self._resets(before):
            self.reset_head()
        self._set_returns()
        return outputs

    def losses(self, batch: Batch, outputs: dict[str, torch.Tensor]) -> torch.Tensor:
        return outputs["loss"]

    def _update(self, row: Batch) -> dict[str, torch.Tensor]:
        """The gradient steps of a minibatch, columns [B, ...]: one, or one for each set of states
        that are consolidated meanwhile.

        Both sides of a consolidation are without noise: under two draws a network would differ
        from its own copy, and what is held together would be the noise that explores.
        """
        draw_noise(self._noisy)
        draw_noise(self._noisy_target)
        target, seen = self.td_target(row), self.cfg.augment(row["observation"])
        if not self.cfg.target_network:  # what was learned from has noise of its own
            draw_noise(self._noisy)
        if "consolidation" not in row:
            found, loss = self._loss(row, seen, target)
            self._descend(loss)
            return found | {"loss": loss.detach()}
        states, share = row["consolidation"], row["consolidation_weight"]
        with torch.no_grad(), self._without_noise():
            anchor = self.distribution.values(self.target(states.flatten(0, 1)))
        first: dict[str, torch.Tensor] = {}
        for some, held in zip(states, anchor.unflatten(0, states.shape[:2]), strict=True):
            found, loss = self._loss(row, seen, target)
            with self._without_noise():
                gap = (self.values(some) - held).square().mean()
            loss = loss + share * gap
            self._descend(loss)
            first = first or found | {"loss": loss.detach(), "consolidation_loss": gap.detach()}
        return first

    def _loss(
        self, row: Batch, seen: torch.Tensor, target: torch.Tensor
    ) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """TD errors and priorities [B] of a minibatch, and its loss."""
        outputs, action = self.online(seen).float(), row["action"]
        losses = self.distribution.losses(_of(outputs, action), target)
        with torch.no_grad():
            td_error = self.distribution.mean(target)
            td_error = td_error - _of(self.distribution.values(outputs), action)
            priority = self.distribution.priority(td_error, losses.detach())
        found = {"td_error": td_error, "priority": priority}
        return found, (row["weight"].squeeze(-1) * losses).mean()

    @torch.no_grad()
    def td_target(self, row: Batch) -> torch.Tensor:
        """What is learned from, [B] or [B, K]."""
        following = self.cfg.augment(row["next_observation"])
        network = self.target if self.cfg.target_network else self.online
        outputs = network(following).float()
        chooses = outputs
        if self.cfg.double and self.cfg.target_network:
            chooses = self.online(following).float()
        chosen = _of(outputs, self.distribution.values(chooses).argmax(-1))
        target = self.distribution.target(chosen, row["reward"], discount(row, self.discounts))
        return target if self.cfg.target_clip is None else target.clamp(*self.cfg.target_clip)

    def _descend(self, loss: torch.Tensor) -> None:
        """A step down a loss, and what weights lose by it."""
        weights = self.optimizer.param_groups[0]["params"]
        gradients = torch.autograd.grad(loss, weights)
        if self.cfg.weight_decay:  # apart from Adam's moments (Loshchilov & Hutter 2019)
            with torch.no_grad():
                for weight in weights:
                    weight.mul_(1 - self.cfg.lr * self.cfg.weight_decay)
        apply_gradients(self.optimizer, 0, gradients, self.cfg.max_grad_norm)
        forget_casts(loss)

    def update_target(self) -> None:
        if self.cfg.target_network:
            super().update_target()

    # What begins anew.

    def _resets(self, grad_steps: int) -> int:
        """How often the head has begun anew after so many gradient steps: each `reset_every`, but
        only where as many are left, as a new head plays badly at first."""
        every = self.cfg.reset_every
        return min(grad_steps // every, max(0, self.updates // every - 1)) if every else 0

    @torch.no_grad()
    def reset_head(self) -> None:
        """Draw the fully connected layers anew, forget the optimizer's moments of them."""
        weights = self._fresh().head.state_dict()
        distributed.share_first(weights.values())
        self.online.head.load_state_dict(weights)
        if self.cfg.target_network:
            self.target.head.load_state_dict(weights)
        for weight in self.online.head.parameters():
            for moment in self.optimizer.state.get(weight, {}).values():
                moment.zero_()
        draw_noise(self._noisy)  # fresh layers have none yet, and the next actions explore by it

    def join(self, memory: Any) -> None:
        """Told of the memory whose returns change.

        Raises:
            UserError: its returns cannot.
        """
        if self.cfg.anneal.changes:
            self._storage = memory.storage
            self._set_returns()

    def on_train_start(self) -> None:
        super().on_train_start()
        self._set_returns()  # of a run that goes on

    def _set_returns(self) -> None:
        """Steps and discount of the returns of the next batches."""
        if self._storage is None:
            return
        cfg, since = (
            self.cfg,
            self.grad_steps - self._resets(self.grad_steps) * (self.cfg.reset_every or 0),
        )
        n_step, gamma = cfg.anneal.at(since, cfg.n_step, cfg.gamma)
        try:
            self._storage.set_returns(n_step, gamma)
        except ValueError as error:
            raise UserError(
                f"agent.anneal: not with this memory: {error}; use memory=per"
            ) from None
        powers = torch.arange(len(self.discounts), device=self.discounts.device)
        self.discounts.copy_(gamma**powers)


def _of(outputs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Outputs [B, A, ...] of the actions int64 [B], [B, ...]."""
    return outputs[torch.arange(len(action), device=action.device), action]


def make_distribution(cfg: RainbowSettings) -> Distribution:
    """What `agent.distribution` names."""
    return registry.find(GROUP, cfg.distribution).cls(cfg)
