"""Stream Q(lambda) (Elsayed et al. 2024, arXiv 2410.14606): each step is learned from once.

No replay, no batch, no target network. What earlier steps leave is an eligibility trace z as long
as the weights. A step that would overshoot is made smaller (ObGD), observations are normalised and
rewards scaled by running statistics, layers are normalised, and first weights are sparse.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from rlmem.agents.base import AgentSettings, Learner, check_discrete, check_fixed, or_random
from rlmem.agents.optimizers import Gradients, forget_casts, gradients_of, learning_weights
from rlmem.agents.running import RunningStatistics
from rlmem.agents.schedules import RunEpsilonSettings
from rlmem.errors import UserError
from rlmem.memories.base.batch import Batch
from rlmem.memories.trace import trace_of
from rlmem.networks.base import QNetworkSettings, check_kind
from rlmem.networks.layer_norm import NO_NORMS, normalise_layers
from rlmem.networks.sparse import sparse_init
from rlmem.registry import marked, part
from rlmem.settings import setting


@dataclass(kw_only=True)
class StreamQSettings(AgentSettings):
    """Stream Q's keys."""

    lr: float = setting(above=0)
    kappa: float = setting(above=0)
    trace_lambda: float = setting(at_least=0, at_most=1)
    sparsity: float = setting(at_least=0, at_most=1)
    num_envs: int = setting(at_least=1, at_most=65_536)
    epsilon: RunEpsilonSettings = setting()
    network: QNetworkSettings = setting()


@part("agent", "stream_q", settings=StreamQSettings)
class StreamQ(Learner):
    """Learns from the newest step of one environment with discrete actions.

    Args:
        cfg: the `agent` node of the configuration.
        observation_shape: of one observation as it is sampled.
        num_actions: number of discrete actions.
        max_env_steps: of the run, over which exploration falls.

    Attributes:
        z: the trace, float32 [weights], in the order of the network's parameters.
        returned: float64 [], the discounted return so far, of which rewards are scaled.
    """

    has_action_values = True
    if_diverged = "a smaller step size (agent.lr)"
    traces = True

    @classmethod
    def check(cls, settings: StreamQSettings, run: Any) -> None:
        """What it needs.

        Raises:
            UserError: the memory has no trace, or a step is not learned from as it comes.
        """
        check_kind(settings.network)
        if not getattr(run.memory.part.cls, "traces", False):
            raise UserError(
                f"memory={run.memory.name}: agent={settings.name} learns from each step as it "
                f"comes and stores none; use memory={marked('memory', 'traces')}"
            )
        check_fixed(settings, {"learning_starts": 0}, "learns from its first step on")
        for key, value in (
            ("env.num_envs", run.env.num_envs),
            ("agent.batch_size", settings.batch_size),
            ("agent.train_every", settings.train_every),
            ("agent.updates_per_step", settings.updates_per_step),
            ("agent.n_step", settings.n_step),
        ):
            if value != 1:
                raise UserError(
                    f"{key}={value}: agent={settings.name} learns from one step of one env at a "
                    f"time; use {key}=1"
                )

    @classmethod
    def build(cls, settings: StreamQSettings, run: Any, spec: Any) -> "StreamQ":
        """The agent for an environment.

        Raises:
            UserError: its actions are not discrete.
        """
        check_discrete(settings, run, spec)
        return cls(settings, spec.observation_shape, spec.num_actions, run.trainer.max_env_steps)

    def __init__(
        self, cfg: Any, observation_shape: tuple[int, ...], num_actions: int, max_env_steps: int
    ) -> None:
        super().__init__()
        self.cfg, self.num_actions, self.max_env_steps = cfg, num_actions, max_env_steps
        # Observations are normalised here, so the network does not scale them.
        self.online = cfg.network.make(observation_shape, num_actions, 1.0)
        norms = normalise_layers(self.online, affine=False, activation=nn.LeakyReLU)
        self.remark = "" if norms else NO_NORMS
        if cfg.sparsity:
            sparse_init(self.online, cfg.sparsity)
        self.weights: list[torch.Tensor] = [*learning_weights(self.online)]
        self.observations = RunningStatistics(observation_shape)
        self.returns = RunningStatistics(())
        self.returned: torch.Tensor
        self.register_buffer("returned", torch.zeros((), dtype=torch.float64))
        self.z: torch.Tensor
        # In no file of the networks: it is the memory's to save.
        self.register_buffer("z", torch.zeros(sum(w.numel() for w in self.weights)), False)
        self._parts: tuple[torch.Tensor, list[torch.Tensor]] | None = None
        self.grad_steps = 0

    def configure_optimizers(self) -> None:
        """None: see `obgd_step`."""

    def join(self, memory: Any) -> None:
        """Have this memory count and save what is kept between steps."""
        trace_of(memory).hold(
            lambda: {
                "trace": {"z": self.z},
                "statistics": {
                    **{f"observations.{n}": t for n, t in self.observations.named_buffers()},
                    **{f"returns.{n}": t for n, t in self.returns.named_buffers()},
                    "returned": self.returned,
                },
            }
        )

    def columns(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Whether the action was the best one."""
        return {"greedy": ((), np.bool_)}

    def epsilon(self, env_steps: int) -> float:
        """Exploration rate after `env_steps`."""
        return self.cfg.epsilon.at(env_steps, self.max_env_steps)

    def state_values(self, observation: torch.Tensor) -> torch.Tensor:
        """Values of states [n, *observation_shape], [n], of scaled rewards."""
        return self.online(self.observations.normalise(observation)).amax(-1)

    def act(self, observation: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
        """Epsilon-greedy actions int64 [E]; the statistics stay as they are, and each observation
        is normalised as if it had been counted, as it is in training."""
        seen = torch.from_numpy(observation).to(self.device)
        return or_random(self._best(seen, seen), epsilon, self.num_actions, rng)

    def explore(
        self, observation: np.ndarray, epsilon: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The same for one environment, whose observation is counted, and whether it was greedy."""
        seen = torch.from_numpy(observation).to(self.device)
        self.observations.note(seen[0])
        best = self._best(seen)
        action = best
        if rng.random() < epsilon:
            action = rng.integers(self.num_actions, size=len(best))
        return action, {"greedy": action == best}

    @torch.no_grad()
    def _best(self, observation: torch.Tensor, newest: torch.Tensor | None = None) -> np.ndarray:
        normal = self.observations.normalise(observation, newest)
        return self.online(normal).argmax(-1).cpu().numpy()

    def update(self, batch: Batch) -> dict[str, torch.Tensor]:
        """One step of each of U single transitions, columns [U, 1].

        Returns:
            `td_error` float32 [U, 1], of scaled rewards, and `loss` [U], half its square.
        """
        errors = [
            self._update({name: column[u] for name, column in batch.items()})
            for u in range(len(batch["index"]))
        ]
        self.grad_steps += len(errors)
        error = torch.stack(errors)
        return {"td_error": error[:, None], "loss": error.square() / 2}

    def _update(self, row: Batch) -> torch.Tensor:
        """Learn from a transition, columns [1]; its TD error []."""
        terminated, z = bool(row["terminated"]), self.z
        ended = terminated or bool(row["truncated"])
        reward = self._scaled(row["reward"].squeeze(), ended)
        # The next observation is counted when it is acted on; its value needs it counted now.
        both = torch.cat((row["observation"], row["next_observation"]))
        q = self.online(self.observations.normalise(both, row["next_observation"]))
        taken = q.detach().float()
        value = taken[0].gather(0, row["action"])[0]
        following = reward.new_zeros(()) if terminated else taken[1].amax()
        error = reward + self.cfg.gamma * following - value
        slope = torch.zeros_like(q)
        slope[0].scatter_(0, row["action"], 1)
        gradients = gradients_of(q, self.weights, slope)
        z.mul_(self.cfg.gamma * self.cfg.trace_lambda)
        torch._foreach_add_(self._trace_parts(), gradients)  # pyright: ignore[reportPrivateImportUsage]
        obgd_step(self.weights, self._trace_parts(), z, error, self.cfg.lr, self.cfg.kappa)
        if ended or not bool(row["greedy"]):
            z.zero_()
        forget_casts(q)
        return error

    def _scaled(self, reward: torch.Tensor, ended: bool) -> torch.Tensor:
        """A reward [] over the deviation of discounted returns, float32."""
        self.returned.mul_(self.cfg.gamma).add_(reward)
        self.returns.note(self.returned)
        if ended:
            self.returned.zero_()
        return (reward / self.returns.deviation()).float()

    def _trace_parts(self) -> list[torch.Tensor]:
        """The trace as views of the weights' shapes."""
        if self._parts is None or self._parts[0] is not self.z:
            cut = self.z.split([w.numel() for w in self.weights])
            views = [part.view(w.shape) for part, w in zip(cut, self.weights, strict=True)]
            self._parts = self.z, views
        return self._parts[1]


@torch.no_grad()
def obgd_step(
    weights: list[torch.Tensor],
    traces: Gradients,
    z: torch.Tensor,
    error: torch.Tensor,
    lr: float,
    kappa: float,
) -> None:
    """Overshooting-bounded gradient descent (Elsayed et al. 2024, algorithm 3), in place.

    w += step error z, with step = lr / max(1, lr kappa max(|error|, 1) |z|_1): no step changes the
    error by more than 1 / kappa of it, as far as values are linear in the weights.

    Args:
        weights, traces: tensors of the same shapes.
        z: all traces in one, [weights].
        error: the TD error, [].
    """
    delta = float(error)
    step = lr / max(1.0, lr * kappa * max(abs(delta), 1.0) * float(z.abs().sum()))
    most = torch.finfo(torch.float32).max
    alpha = min(max(step * delta, -most), most)  # beyond it torch would refuse the number
    torch._foreach_add_(weights, list(traces), alpha=alpha)  # pyright: ignore[reportPrivateImportUsage]
