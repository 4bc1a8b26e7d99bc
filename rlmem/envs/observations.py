"""Frames of a gymnasium environment's observations, by its observation space:

Box [D] -> float32 [D]; Box uint8 [H, W, C] or [C, H, W] -> uint8 [C, H, W]; Discrete(n) -> one-hot
float32 [n]; that of a goal environment (`rlmem.envs.goals`) -> observation | desired goal,
float32 [D + G].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from rlmem.envs import goals
from rlmem.errors import UserError, one_line

Writer = Callable[[np.ndarray, Any], None]


class FramesOf:
    """How an environment's observations are written into frames.

    Args:
        env_id: for messages.
        space: of the observations.

    Attributes:
        shape, dtype: of a frame.
        write: `write(row, observation)` puts an observation into `row` [*shape].
        highest: largest value of images, 255 where the space gives no other.

    Raises:
        UserError: no frame can be made of such a space.
    """

    def __init__(self, env_id: str, space: spaces.Space) -> None:
        self.env_id, self.space = env_id, space
        self.shape, dtype, self.write = _frame(env_id, space)
        self.dtype, self.highest = np.dtype(dtype), 255
        if self.dtype == np.uint8:
            self.highest = int(space.high.max()) or 255  # type: ignore[attr-defined]

    def check(self, observation: Any) -> None:
        """Refuse what does not fit its space: numpy would stretch or round it without a word.

        Raises:
            UserError: it is of another shape, or no uint8 where the space says so.
        """
        parts = {"observation": (self.space, observation)}
        if isinstance(self.space, spaces.Dict):
            each = self.space.spaces.items()
            parts = {f"observation[{k!r}]": (part, observation[k]) for k, part in each}
        for name, (wanted, given) in parts.items():
            given = np.asarray(given)
            shape, image = wanted.shape or (), wanted.dtype == np.uint8
            if given.shape != shape or (image and given.dtype != np.uint8):
                raise UserError(
                    f"env.id={self.env_id}: its {name} is {given.dtype} {list(given.shape)}, where "
                    f"its space says {wanted.dtype} {list(shape)}; mend the environment"
                )


def _frame(env_id: str, space: spaces.Space) -> tuple[tuple[int, ...], type, Writer]:
    """Frame shape, its dtype, and how an observation is written into a frame."""
    if isinstance(space, spaces.Discrete):
        return (int(space.n),), np.float32, _one_hot(int(space.start))
    if isinstance(space, spaces.Box) and 0 not in space.shape:
        if len(space.shape) == 1:
            return space.shape, np.float32, _copy
        if len(space.shape) == 3 and space.dtype == np.uint8:
            # Channels first, such as [3, 84, 84], or as many as you like of a square board.
            first, *sides = space.shape
            if first < min(sides) or (sides[0] == sides[1] != first):
                return space.shape, np.uint8, _copy
            height, width, channels = space.shape
            return (channels, height, width), np.uint8, write_channels_first
    if sizes := goals.goal_sizes(space):
        return (sum(sizes),), np.float32, goals.write_frame
    raise UserError(
        f"env.id={env_id}: its observation space is {one_line(space)}; "
        "a Box of shape [D], a uint8 Box of shape [H, W, C] or [C, H, W], a Discrete one, or a "
        "Dict of observation, achieved_goal and desired_goal, vectors all, works"
    )


def _copy(row: np.ndarray, observation: np.ndarray) -> None:
    row[:] = observation


def write_channels_first(row: np.ndarray, observation: np.ndarray) -> None:
    """Write `observation` [H, W, C] into `row` [C, H, W]."""
    row[:] = observation.transpose(2, 0, 1)


def _one_hot(start: int) -> Writer:
    def write(row: np.ndarray, observation: int) -> None:
        row[:] = 0
        row[observation - start] = 1

    return write
