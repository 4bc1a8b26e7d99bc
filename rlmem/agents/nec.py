"""Neural episodic control (Pritzel et al. 2017, arXiv 1703.01988).

The network gives a key h of an observation, no values. What an action is worth at h is read from a
memory that answers (`rlmem.memories.values`): it knows the returns of states whose keys are near.
The network learns from a replay of (observation, action, return) to move its keys so that what is
read comes near the return: (R - Q(s, a))^2, of the action that was taken. The gradient goes through
the weights of the neighbours to h; what is stored is not learned. There is no target network:
returns bootstrap with the value that was read when the agent acted.

Any memory goes with it whose part `takes_keys`; one that makes keys of its own (MFEC's random
projections) leaves the network untrained.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rlmem.agents.base import (
    AgentSettings,
    Diverged,
    Learner,
    best_at_random,
    check_discrete,
    check_fixed,
    joined,
    or_random,
)
from rlmem.agents.optimizers import (
    OPTIMIZERS,
    apply_gradients,
    forget_casts,
    make_optimizer,
    own_epsilon,
)
from rlmem.agents.schedules import EpsilonSettings
from rlmem.errors import UserError
from rlmem.memories.base.batch import Batch
from rlmem.memories.values.base import hashes, state_values, visit_columns, weighted
from rlmem.memories.values.checks import LostKeys, no_key
from rlmem.networks.base import QNetworkSettings, check_kind
from rlmem.networks.keys import StandardKeys
from rlmem.registry import marked, part
from rlmem.settings import setting

# Its keys of the network and of how that learns.
_NETWORK = "network", "standard_keys"
_LEARNING = "optimizer", "lr", "adam_eps", "batch_size", "max_grad_norm"


@dataclass(kw_only=True)
class NECSettings(AgentSettings):
    """NEC's keys."""

    key_size: int = setting(at_least=1, at_most=65_536)
    reward_clip: bool = setting()  # Atari's, where env.reward_clip is not given
    standard_keys: bool = setting()
    optimizer: str = setting(choices=tuple(OPTIMIZERS))
    lr: float = setting(above=0)
    adam_eps: float = setting(above=0, idle=own_epsilon)
    max_grad_norm: float | None = setting(above=0)
    epsilon: EpsilonSettings = setting()
    network: QNetworkSettings = setting()


@part("agent", "nec", settings=NECSettings)
class NEC(Learner):
    """Plays what its memory says of the keys that its network makes.

    Args:
        cfg: the `agent` node of the configuration.
        observation_shape: of one observation as it is sampled.
        num_actions: number of discrete actions.
        input_scale: factor that brings observations into [0, 1].
    """

    asks = makes_keys = data_parallel = True

    @classmethod
    def check(cls, settings: NECSettings, run: Any) -> None:
        """Raise a UserError if the memory does not answer, or the network is none."""
        check_kind(settings.network)
        settings.epsilon.check()
        check_fixed(settings, {"on_divergence": "stop"}, "cannot act without numbers")
        processes = run.trainer.devices * run.trainer.num_nodes  # which share a minibatch
        if settings.standard_keys and settings.batch_size * processes == 1:
            raise UserError(
                "agent.batch_size=1: agent.standard_keys=true standardises keys over a minibatch, "
                "and that of one is 0 and learns nothing; use agent.batch_size=2 or more"
            )
        if not getattr(run.memory.part.cls, "takes_keys", False):
            raise UserError(
                f"memory={run.memory.name}: agent={settings.name} asks its memory what to play; "
                f"use memory={marked('memory', 'takes_keys')}"
            )

    @classmethod
    def build(cls, settings: NECSettings, run: Any, spec: Any) -> "NEC":
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
        network = cfg.network.make(observation_shape, cfg.key_size, input_scale)
        self.online = StandardKeys(network, cfg.key_size) if cfg.standard_keys else network
        self.optimizer = make_optimizer(cfg.optimizer, self.online, cfg.lr, cfg.adam_eps)
        self.grad_steps = 0
        self.eval()

    def columns(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        """The key, what was read with it, and which state it was."""
        return visit_columns(self.cfg.key_size)

    def join(self, memory: Any) -> None:
        """Ask this memory from here on."""
        self.values = memory.values
        if not self.values.trains:
            self.unread = *_NETWORK, *_LEARNING
            self.unread_with = "a memory that makes keys of its own"
        memory.look = self.look

    def epsilon(self, env_steps: int) -> float:
        """Exploration rate after `env_steps`."""
        return self.cfg.epsilon.at(env_steps, self.cfg.learning_starts)

    def keys(self, observation: np.ndarray) -> np.ndarray:
        """Keys float32 [n, d] of observations [n, *observation_shape]."""
        if not self.values.trains:
            return self.values.embed(observation)
        with torch.no_grad():
            return self.online(torch.from_numpy(observation).to(self.device)).cpu().numpy()

    def look(self, observation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Keys float32 [n, d] and state values [n] of observations; nothing is changed."""
        keys = self.keys(observation)
        return keys, state_values(*self._ask(self.values.read, keys, touch=False))

    def _ask(self, question: Callable[..., Any], *given: Any, **how: Any) -> Any:
        """What the memory answers to keys. Where they are none, a network that was trained has
        diverged; else it is the observation's fault."""
        try:
            return question(*given, **how)
        except LostKeys as error:
            if not (self.values.trains and self.grad_steps):
                raise no_key() from None
            raise Diverged(str(error), self) from error

    def act(self, observation: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
        """Epsilon-greedy actions int64 [E] for observations [E, ...]; the memory stays as it is."""
        values, _ = self._ask(self.values.read, self.keys(observation), touch=False)
        return or_random(best_at_random(values, rng), epsilon, self.num_actions, rng)

    def explore(
        self, observation: np.ndarray, epsilon: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The same, and what the memory is to know of the visit."""
        if self.cfg.standard_keys and self.values.trains and not self.grad_steps:
            # Nothing was learned yet, so that the first keys are already those of later statistics.
            self.online.observe(torch.from_numpy(observation).to(self.device))
        keys = self.keys(observation)
        values, near = self._ask(self.values.read, keys)
        columns = {"key": keys, "value": state_values(values, near), "hash": hashes(observation)}
        return or_random(best_at_random(values, rng), epsilon, self.num_actions, rng), columns

    def update(self, batch: Batch) -> dict[str, torch.Tensor]:
        """One gradient step on each of U minibatches [U, B], whose `reward` is the return.

        Returns:
            `td_error` float32 [U, B] (return - Q) and `loss` [U], detached.
        """
        found = []
        for row in self.minibatches(batch):
            keys = self.online(row["observation"])
            action = row["action"].cpu().numpy()
            near = self._ask(self.values.near, keys.detach().float().cpu().numpy(), action)
            read = weighted(
                keys.float(),
                torch.from_numpy(near.key).to(self.device),
                torch.from_numpy(near.value).to(self.device),
                torch.from_numpy(near.held).to(self.device),
                self.values.delta,
            )
            td_error = row["reward"].squeeze(-1) - read
            loss = (row["weight"].squeeze(-1) * td_error.square()).mean()
            weights = self.optimizer.param_groups[0]["params"]
            gradients = torch.autograd.grad(loss, weights)
            apply_gradients(self.optimizer, 0, gradients, self.cfg.max_grad_norm)
            forget_casts(loss)
            found.append({"td_error": td_error.detach(), "loss": loss.detach()})
            self.grad_steps += 1
        return joined(found)
