"""What a worker of A3C does: play a rollout, find its gradient, step the shared weights."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rlmem import registry
from rlmem.agents.shared import LocalCopy, SharedWeights
from rlmem.collect.config import SeedOf, StreamConfig, derive_seed
from rlmem.collect.rollouts import RolloutEnv
from rlmem.collect.worker import Desk, Report, State
from rlmem.envs import make_env
from rlmem.networks.policies import Policy, make_policy


@dataclass(frozen=True)
class LossSettings:
    """Constants of the loss."""

    gamma: float
    gae_lambda: float
    value_weight: float
    entropy_weight: float
    reward_scale: float
    max_grad_norm: float | None


@dataclass(frozen=True)
class Job:
    """What a worker's process is given; it is pickled, and tensors in shared memory stay there."""

    env: Any  # settings of the environment
    network: tuple[str, list[int]]  # its kind, and the units of its hidden layers
    steps: int  # of a rollout, at most
    loss: LossSettings
    config: StreamConfig
    shared: SharedWeights
    plugins: list[str]

    def make(self, number: int, desk: Desk, state: State | None) -> "A3CWorker":
        """The worker, in its process."""
        registry.load_plugins(self.plugins)
        return A3CWorker(self, number, desk, state)


def returns_of(
    rewards: np.ndarray, values: np.ndarray, settings: LossSettings
) -> tuple[np.ndarray, np.ndarray]:
    """What a rollout's steps were worth.

    Args:
        rewards: float [n].
        values: float [n + 1], V of the states; the last, which the rollout led to, is 0 where the
            task ended there.

    Returns:
        Discounted returns [n] that bootstrap with the last value, and advantages [n] by GAE
        (Schulman et al. 2016, arXiv 1506.02438); with lambda 1 these are the returns less V.
    """
    gamma, decay = settings.gamma, settings.gamma * settings.gae_lambda
    returns, advantages = np.empty(len(rewards)), np.empty(len(rewards))
    following, advantage = float(values[-1]), 0.0
    for n in range(len(rewards) - 1, -1, -1):
        following = float(rewards[n]) + gamma * following
        delta = float(rewards[n]) + gamma * float(values[n + 1]) - float(values[n])
        advantage = delta + decay * advantage
        returns[n], advantages[n] = following, advantage
    return returns, advantages


def rollout_loss(
    network: Policy, env: RolloutEnv, state: torch.Tensor, settings: LossSettings
) -> tuple[torch.Tensor, dict[str, float]]:
    """The loss of a rollout, summed over its steps, and what it is made of, as means.

    -log pi(a) A - c_e entropy + c_v (R - V)^2, where nothing flows back through A. All steps run
    through the network at once; what the rollout led to is one more, of which only the value is
    read, unless the task ended there.

    Args:
        state: of the network before the first step, [1, state_size].
    """
    steps = env.length
    seen = torch.from_numpy(env.observations[: steps + (not env.terminated)]).unsqueeze(1)
    logits, values, _ = network(seen, state)
    logits, values = logits[:steps, 0], values[:, 0]
    known = np.zeros(steps + 1, np.float32)
    known[: len(values)] = values.detach().numpy()
    rewards = settings.reward_scale * env.rewards[:steps]
    returns, advantages = (
        torch.from_numpy(part).float() for part in returns_of(rewards, known, settings)
    )
    log_policy = torch.log_softmax(logits, -1)
    taken = log_policy.gather(1, torch.from_numpy(env.actions[:steps, None]))[:, 0]
    policy_loss = -(taken * advantages).sum()
    value_loss = (returns - values[:steps]).square().sum()
    entropy = -(log_policy.exp() * log_policy).sum()
    loss = policy_loss + settings.value_weight * value_loss - settings.entropy_weight * entropy
    found = {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
    return loss, {name: value.item() / steps for name, value in found.items()}


class A3CWorker:
    """An environment, a copy of the network, and the shared weights.

    Args:
        job: what all workers are given.
        number: of this worker, from 0.
        desk: where all count.
        state: of this worker in a checkpoint; None: it begins.
    """

    def __init__(self, job: Job, number: int, desk: Desk, state: State | None) -> None:
        env = make_env(job.env, 1)
        spec, (kind, hidden) = env.spec, job.network
        self.env = RolloutEnv(env, job.steps, job.config, number)
        self.settings, self.shared, self.number, self.desk = job.loss, job.shared, number, desk
        self.copy = LocalCopy(
            make_policy(kind, spec.observation_shape, spec.num_actions, hidden, spec.input_scale)
        )
        self.rng = np.random.default_rng(derive_seed(job.config.seed, SeedOf.PROCESS, number))
        self.state = self.copy.network.first_state(1)
        self.new_episode = True
        if state is not None:
            self.env.take_over(state)
            self.rng.bit_generator.state = state["rng"]
            self.state = torch.from_numpy(np.array(state["hidden"], np.float32))
            self.new_episode = self.env.done or int(state["seeded_at"]) < 0

    def round(self, report: Report) -> int:
        """Play a rollout and learn from it; its steps."""
        env, network, began = self.env, self.copy.network, time.perf_counter()
        self.shared.fetch(self.copy)
        updates = self.desk.updates_made()
        env.begin()
        before = self.state = network.first_state(1) if self.new_episode else self.state
        spent = self._play()
        played = time.perf_counter()
        loss, found = rollout_loss(network, env, before, self.settings)
        norm = self.copy.find_gradient(loss, self.settings.max_grad_norm)
        self.shared.fetch_statistics(self.copy)  # others have written since; `step` writes all
        network.observe(torch.from_numpy(env.observations[: env.length]))
        found |= {"grad_norm": norm, "staleness": float(self.desk.updates_made() - updates)}
        self.shared.step(self.copy)
        env.end()
        self.new_episode = env.done
        report.add(found, act=played - began - spent, env=spent)
        return env.length

    @torch.no_grad()
    def _play(self) -> float:
        """Play until the rollout is over; seconds in the environment."""
        env, network, spent = self.env, self.copy.network, 0.0
        while not env.done and env.length < env.steps:
            seen = torch.from_numpy(env.newest)
            logits, _, self.state = network(seen, self.state)
            # The cumulative distribution, and where a uniform number falls in it.
            policy = torch.softmax(logits[0, 0].double(), -1).cumsum(-1).numpy()
            action = min(int(policy.searchsorted(self.rng.random(), "right")), len(policy) - 1)
            started = time.perf_counter()
            env.step(action)
            spent += time.perf_counter() - started
        return spent

    def episodes_ended(self) -> list[tuple[float, int]]:
        """Unclipped return and length of those that ended since the last call."""
        ended, self.env.episodes = self.env.episodes, []
        return ended

    def state_views(self) -> dict[str, Any]:
        """What a checkpoint keeps, between two rollouts."""
        return {
            **self.env.state_views(),
            "rng": self.rng.bit_generator.state,
            "hidden": self.state.numpy(),
        }

    def close(self) -> None:
        """Let go of the environment."""
        self.env.env.close()
