"""What a memory and its parts are told when they are built for a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlmem.memories.base.spec import TransitionSpec
from rlmem.settings import Settings, setting


@dataclass(kw_only=True)
class MemorySettings(Settings):
    """The keys that every memory has."""

    extends = "/memory@_here_"

    name: str = setting()
    capacity: int = setting(at_least=1, at_most=10**9, divided=True)
    budget: Any = setting(divided=True)  # null, or a size in bytes such as 64MiB


def capacity_or_budget() -> Any:
    """`capacity` of a memory that under a budget holds what it holds of bytes."""

    def idle(settings: MemorySettings) -> tuple[str, ...]:
        return () if settings.budget is None else ("budget",)

    return setting(at_least=1, at_most=10**9, divided=True, idle=idle)


@dataclass(frozen=True)
class Needs:
    """What the run needs of its memory.

    Attributes:
        spec: shapes of the environment's transitions.
        batch_size: transitions a minibatch.
        n_step, gamma: of the returns that are sampled.
        seed: of every draw.
        round_rows: transitions that are written at once, N.
        round_updates: minibatches that are then drawn at once, U.
        columns: name -> (shape, dtype) of what the agent adds to each transition.
        threshold: GWR's two thresholds: `activation` and `habituation`.
    """

    spec: TransitionSpec
    batch_size: int
    n_step: int
    gamma: float
    seed: int
    threshold: Any = None
    round_rows: int = 1
    round_updates: int = 1
    columns: Mapping[str, tuple[tuple[int, ...], Any]] = field(default_factory=dict)

    @property
    def layout(self) -> dict[str, Any]:
        """What a storage of transitions is told of them: arguments of its constructor. Discrete
        actions are held in a byte where it has room for them."""
        spec = self.spec
        discrete = np.uint8 if spec.num_actions <= 256 else np.int64
        return {
            "frame_shape": spec.frame_shape,
            "dtype": spec.dtype,
            "stack": spec.stack,
            "num_envs": spec.num_envs,
            "action_shape": spec.action_shape,
            "action_dtype": np.float32 if spec.action_shape else discrete,
            "num_actions": spec.num_actions,
        }
