"""What memories must know of an environment; `rlmem.envs.EnvSpec` says it."""

from typing import Any, Protocol

import numpy as np


class GoalSpec(Protocol):
    """What hindsight must know of goals."""

    @property
    def size(self) -> int:
        """Numbers of a goal, the last of a frame."""
        ...

    @property
    def rules(self) -> Any:
        """What any goals are worth (`reward` and `terminated` of `HindsightTransform`), or None."""
        ...

    @property
    def lacks(self) -> str:
        """Why there are no rules."""
        ...


class TransitionSpec(Protocol):
    """What a memory must know of the environment."""

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Shape of one frame."""
        ...

    @property
    def dtype(self) -> np.dtype:
        """Of a frame."""
        ...

    @property
    def stack(self) -> int:
        """Frames in an observation."""
        ...

    @property
    def num_envs(self) -> int:
        """Environments that write in turn."""
        ...

    @property
    def num_actions(self) -> int:
        """Size of the discrete action set; 0 where actions are continuous."""
        ...

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Of a continuous action, which is float32; () where actions are discrete."""
        ...

    @property
    def input_scale(self) -> float:
        """Factor that brings stored values into [0, 1]: 1/255 for pixels."""
        ...

    @property
    def goal(self) -> GoalSpec | None:
        """Of environments with goals."""
        ...

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of a stacked observation."""
        ...
