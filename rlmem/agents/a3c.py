"""A3C (Mnih et al. 2016, arXiv 1602.01783): asynchronous advantage actor-critic.

Worker processes play an environment each (`rlmem.agents.a3c_worker`). After a rollout of some steps
each finds the gradient of its loss with its own copy of the network, steps the shared weights by
it, and fetches them. This agent is the main process's: it hands out the weights, keeps a copy that
is brought up to date between Trainer steps, and plays with that in evaluation.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rlmem import registry
from rlmem.agents.a3c_worker import Job, LossSettings
from rlmem.agents.base import (
    AgentSettings,
    Learner,
    check_discrete,
    check_fixed,
    or_random,
)
from rlmem.agents.shared import LocalCopy, SharedWeights
from rlmem.collect.config import StreamConfig
from rlmem.collect.module import Rounds
from rlmem.collect.rollouts import MOST_ACTIONS, rollout_bytes
from rlmem.collect.workers import WorkerStream
from rlmem.errors import UserError
from rlmem.machine import usable_cores
from rlmem.networks.policies import GROUP, PolicySettings, make_policy
from rlmem.registry import part
from rlmem.settings import setting


@dataclass(kw_only=True)
class A3CSettings(AgentSettings):
    """A3C's keys; `n_step` is the steps of a rollout."""

    workers: int | None = setting(at_least=1, at_most=1024, free=True)
    lr: float = setting(above=0)
    adam_eps: float = setting(above=0)
    gae_lambda: float = setting(at_least=0, at_most=1)
    value_weight: float = setting(at_least=0)
    entropy_weight: float = setting(at_least=0)
    reward_scale: float = setting(above=0)
    max_grad_norm: float | None = setting(above=0)
    screen: Any = setting()
    num_envs: int = setting(at_least=1, at_most=65_536)
    network: PolicySettings = setting()


@part("agent", "a3c", settings=A3CSettings)
class A3C(Learner):
    """Stochastic policy over discrete actions, learned by workers with shared weights.

    Args:
        settings: the `agent` node of the configuration.
        spec: of the environment.
    """

    has_workers = True
    on_cpu = True

    @classmethod
    def check(cls, settings: A3CSettings, run: Any) -> None:
        """What it needs.

        Raises:
            UserError: the memory is none of workers, an environment steps several at once, or the
                Trainer is to compute as the workers do not.
        """
        registry.check_name(GROUP, settings.network.kind, "agent.network.kind")
        if not getattr(run.memory.part.cls, "of_workers", False):
            raise UserError(
                f"memory={run.memory.name}: agent={settings.name} learns from what its workers "
                "have just played and draws nothing; use "
                f"memory={registry.marked('memory', 'of_workers')}, its default"
            )
        if run.env.num_envs != 1:
            raise UserError(
                f"env.num_envs={run.env.num_envs}: each worker has one; use "
                f"agent.workers={run.env.num_envs} env.num_envs=1"
            )
        steps = settings.n_step
        usual = {"batch_size": steps, "train_every": steps}
        usual |= {"updates_per_step": 1, "learning_starts": 0}
        check_fixed(settings, usual, "learns from each rollout of agent.n_step, once")
        if run.trainer.accelerator == "gpu" or run.trainer.precision != "32-true":
            name = "accelerator" if run.trainer.accelerator == "gpu" else "precision"
            raise UserError(
                f"trainer.{name}={getattr(run.trainer, name)}: the workers compute on the CPU, in "
                "32 bits; leave the key out"
            )

    @classmethod
    def build(cls, settings: A3CSettings, run: Any, spec: Any) -> "A3C":
        """The agent for an environment.

        Raises:
            UserError: its actions are not discrete, or too many.
        """
        check_discrete(settings, run, spec)
        if spec.num_actions >= MOST_ACTIONS:
            raise UserError(
                f"agent={settings.name}: env={run.env.name} ({spec.env_id}) has "
                f"{spec.num_actions:,} actions; fewer than {MOST_ACTIONS:,} can be kept to resume"
            )
        return cls(settings, spec)

    def __init__(self, settings: A3CSettings, spec: Any) -> None:
        super().__init__()
        self.cfg, self.spec = settings, spec
        self.workers = settings.workers or usable_cores()
        self.online = self.make_network()
        self._copy = LocalCopy(self.online)
        self.shared = SharedWeights(self._copy, settings.lr, settings.adam_eps)
        self.optimizer = self.shared.as_optimizer()
        self.grad_steps = 0
        self._state = self.online.first_state(0)

    def make_network(self) -> Any:
        """A network of its kind, with weights from torch's generator."""
        net, spec = self.cfg.network, self.spec
        shape, scale = spec.observation_shape, spec.input_scale
        return make_policy(net.kind, shape, spec.num_actions, net.hidden, scale).eval()

    def configure_optimizers(self) -> None:
        """None: the workers step."""

    def join(self, memory: Any) -> None:
        """Say what the workers' rollouts take."""
        components = rollout_bytes(self.spec, self.cfg.n_step)
        if self.online.state_size:
            components["hidden_state"] = 4 * self.online.state_size
        memory.count(self.workers, self.cfg.n_step, components)

    def make_stream(self, run: Any, env: Any, memory: Any, config: StreamConfig) -> WorkerStream:
        """The stream of the workers' reports."""

        def start() -> Job:
            self.shared.share()
            self.optimizer = self.shared.as_optimizer()
            loss = LossSettings(
                gamma=self.cfg.gamma,
                gae_lambda=self.cfg.gae_lambda,
                value_weight=self.cfg.value_weight,
                entropy_weight=self.cfg.entropy_weight,
                reward_scale=self.cfg.reward_scale,
                max_grad_norm=self.cfg.max_grad_norm,
            )
            network = self.cfg.network.kind, list(self.cfg.network.hidden)
            steps, plugins = self.cfg.n_step, list(run.plugins)
            return Job(run.env, network, steps, loss, config, self.shared, plugins)

        every = run.checkpoint.every
        self._stream = WorkerStream(env, memory, config, start, self.workers, every)
        return self._stream

    def training_step(self, rounds: Rounds, batch_idx: int) -> dict[str, torch.Tensor]:
        """Hear the workers for a while, and take the weights that they have come to."""
        outputs = super().training_step(rounds, batch_idx)
        self.fetch()
        self._stream.weights_taken()
        # Its batches are empty, as the workers learn: what went wrong there shows in the weights.
        self.check_weights()
        return outputs

    def on_train_start(self) -> None:
        """Begin with the weights as they were built, or loaded: `fetch` may be called from here."""
        super().on_train_start()
        self.shared.take(self._copy, self.optimizer)

    def on_train_end(self) -> None:
        """The workers are at rest now: take what they learned last."""
        self.fetch()

    def fetch(self) -> None:
        """Bring `online` up to date, and the count of updates."""
        self.shared.fetch(self._copy)
        self.grad_steps = self._stream.updates

    def epsilon(self, env_steps: int) -> float:
        """0: its policy is random by itself."""
        return 0.0

    @property
    def value_name(self) -> str:
        """See `Learner`."""
        return "V(s)"

    def state_values(self, observation: torch.Tensor) -> torch.Tensor:
        """Values of states as an episode's first, [n]."""
        state = self.online.first_state(len(observation))
        return self.online(observation.unsqueeze(0), state)[1][0]

    def restart(self, done: np.ndarray) -> None:
        """Episodes begin anew: forget what was seen of the ones before."""
        if len(self._state) != len(done):
            self._state = self.online.first_state(len(done))
        self._state[torch.from_numpy(done)] = 0

    @torch.no_grad()
    def act(self, observation: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
        """The likeliest actions int64 [E] for observations [E, ...], random ones with probability
        `epsilon`. A recurrent network remembers what it was given since `restart`."""
        envs = len(observation)
        if len(self._state) != envs:
            self._state = self.online.first_state(envs)
        rows = torch.from_numpy(observation).unsqueeze(0)
        logits, _, self._state = self.online(rows, self._state)
        return or_random(logits[0].argmax(-1).numpy(), epsilon, self.spec.num_actions, rng)
