"""The numbers and names that keys take."""

import math
from dataclasses import dataclass

from rlmem.config.agents import AGENTS
from rlmem.config.objective import OBJECTIVES


@dataclass(frozen=True)
class Range:
    """The numbers that a key takes; null is checked by the schema."""

    low: float
    high: float = math.inf
    above: bool = False  # True: `low` itself is too low

    def __contains__(self, value: float) -> bool:
        high_enough = value > self.low if self.above else value >= self.low
        return high_enough and value <= self.high and math.isfinite(value)

    def __str__(self) -> str:
        low = f"above {self.low:.12g}" if self.above else f"at least {self.low:.12g}"
        return low if self.high == math.inf else f"{low} and at most {self.high:.12g}"


POSITIVE = Range(0, above=True)
_COUNT = Range(1)
_FROM_ZERO = Range(0)
_SHARE = Range(0, 1)
_SHARE_ABOVE_0 = Range(0, 1, above=True)

TRAIN_RANGES: dict[str, Range] = {
    "seed": Range(0, 2**32 - 1),
    "agent.lr": POSITIVE,
    "agent.adam_eps": POSITIVE,
    "agent.gamma": _SHARE,
    "agent.batch_size": _COUNT,
    "agent.n_step": _COUNT,
    "agent.learning_starts": _FROM_ZERO,
    "agent.train_every": _COUNT,
    "agent.updates_per_step": _COUNT,
    "agent.max_grad_norm": POSITIVE,
    "agent.epsilon.start": _SHARE,
    "agent.epsilon.end": _SHARE,
    "agent.epsilon.decay_steps": _COUNT,
    "agent.actor_lr": POSITIVE,
    "agent.critic_lr": POSITIVE,
    "agent.critic_weight_decay": _FROM_ZERO,
    "agent.tau": _SHARE_ABOVE_0,
    "agent.exploration_noise": _FROM_ZERO,
    "agent.policy_delay": _COUNT,
    "agent.target_noise": _FROM_ZERO,
    "agent.target_noise_clip": POSITIVE,
    "agent.network.hidden": _COUNT,
    "agent.network.action_layer": _COUNT,
    "memory.capacity": _COUNT,
    "memory.sampler.alpha": _SHARE,
    "memory.sampler.beta_start": _SHARE,
    "memory.sampler.beta_end": _SHARE,
    "memory.sampler.beta_steps": _COUNT,
    "memory.sampler.eps": POSITIVE,
    "memory.k": _COUNT,
    "memory.consolidation.batch_size": _COUNT,
    "memory.consolidation.inner_steps": _COUNT,
    "memory.consolidation.weight_start": _FROM_ZERO,
    "memory.consolidation.weight_end": _FROM_ZERO,
    "memory.consolidation.weight_steps": _COUNT,
    "memory.context_beta": _SHARE,
    "memory.phi": _SHARE,
    "memory.tau_b": _SHARE,
    "memory.tau_n": _SHARE,
    "memory.kappa": _COUNT,
    "memory.eps_b": _SHARE,
    "memory.eps_n": _SHARE,
    "memory.max_age": _COUNT,
    "memory.metric.scale_samples": Range(2),
    "memory.embedding.dims": _COUNT,
    "threshold.activation": _SHARE_ABOVE_0,
    "threshold.habituation": _SHARE_ABOVE_0,
    "env.num_envs": _COUNT,
    "env.stack": _COUNT,
    "env.frame_skip": _COUNT,
    "env.screen_size": Range(36),  # the smallest that the Nature CNN's three layers take
    "env.sticky": _SHARE,
    "env.bits": _COUNT,
    "env.max_episode_steps": _COUNT,
    "env.action_levels": Range(2),
    "env.protocol.sticky": _SHARE,
    "env.protocol.noop_max": _FROM_ZERO,
    "env.protocol.max_frames": _COUNT,
    "trainer.max_env_steps": _COUNT,
    "trainer.max_episodes": _COUNT,
    "trainer.threads": _COUNT,
    "evaluation.every": _COUNT,
    "evaluation.episodes": _COUNT,
    "evaluation.epsilon": _SHARE,
    "checkpoint.every": _COUNT,
    "log.every": _COUNT,
    "log.map_every": _COUNT,
}

RING_SAMPLERS = ("uniform", "prioritized", "rank", "combined", "latest", "newest")

TRAIN_NAMES: dict[str, tuple[str, ...]] = {
    "agent.name": tuple(AGENTS),
    "agent.optimizer": ("adam", "rmsprop"),
    "agent.loss": ("mse", "huber"),
    "agent.network.init": ("torch", "kaiming"),
    "agent.network.kind": ("auto", "nature", "minatar", "mlp"),
    "memory.storage.kind": ("auto", "dense", "frames", "compressed", "memmap", "map"),
    "memory.sampler.kind": (*RING_SAMPLERS, "visits"),
    "memory.consolidation.states": ("bounds", "stored"),
    "memory.strategy": ("future", "final", "episode", "random"),
    "memory.prototype": ("auto", "moving", "exemplar"),
    "memory.terminals": ("edge", "node"),
    "memory.episodes": ("apart", "joined"),
    "memory.eviction": ("auto", "merge", "lru"),
    "memory.embedding.kind": ("auto", "random_projection", "identity"),
    "env.suite": ("atari", "gym", "minatar"),
    "objective.kind": OBJECTIVES,
    "trainer.accelerator": ("auto", "cpu", "gpu"),
    "trainer.precision": ("32-true", "bf16-mixed"),
    "logger.wandb.mode": ("online", "offline", "disabled"),
}

EVALUATE_RANGES: dict[str, Range] = {
    "episodes": _COUNT,
    "epsilon": _SHARE,
    "seed": TRAIN_RANGES["seed"],
}
EVALUATE_NAMES: dict[str, tuple[str, ...]] = {
    "mode": ("score", "map", "report", "status", "plot", "dashboard"),
    "checkpoint": ("last", "best"),
}
