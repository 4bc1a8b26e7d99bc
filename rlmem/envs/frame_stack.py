"""Frame stacks for the policy: the last few frames of every environment, rolled in place.

The stack equals the one ale-py's AtariVectorEnv makes itself: at an episode's start the frames
before the first one are zero. Memories store single frames and restack when they are sampled.
"""

from __future__ import annotations

import numpy as np

from rlmem.envs.spec import EnvSpec
from rlmem.errors import UserError


class FrameStack:
    """Observations of the agent, [E, *spec.observation_shape], kept up to date frame by frame.

    `reset` and `push` return the buffer itself (no copy, C-contiguous, fit for
    `torch.from_numpy`): the next `push` overwrites it, so copy it to keep it.
    """

    def __init__(self, spec: EnvSpec) -> None:
        if spec.stack > 1 and len(spec.frame_shape) != 3:
            raise UserError(
                f"env={spec.env_id}: it stacks {spec.stack} frames of shape "
                f"{tuple(spec.frame_shape)}, and only [C, H, W] frames can be stacked; give its "
                "EnvSpec stack=1"
            )
        self._observation = np.zeros((spec.num_envs, *spec.observation_shape), spec.dtype)
        self._slots = self._observation.reshape(spec.num_envs, spec.stack, *spec.frame_shape)

    @property
    def observation(self) -> np.ndarray:
        """The current observations, [E, *observation_shape]."""
        return self._observation

    def reset(self, frames: np.ndarray) -> np.ndarray:
        """Start all stacks with `frames` [E, *frame_shape], zeros before them."""
        self._slots[:, :-1] = 0
        self._slots[:, -1] = frames
        return self._observation

    def push(self, frames: np.ndarray, done: np.ndarray) -> np.ndarray:
        """Append `Step.observation`.

        Args:
            frames: [E, *frame_shape], the frames after autoreset.
            done: bool [E], terminated | truncated: these stacks start anew with their frame.
        """
        if self._slots.shape[1] == 1:
            self._observation[...] = frames
            return self._observation
        # Slot by slot: an overlapping copy in one go would make numpy allocate a temporary.
        for slot in range(self._slots.shape[1] - 1):
            self._slots[:, slot] = self._slots[:, slot + 1]
        if done.any():
            self._slots[done, :-1] = 0
        self._slots[:, -1] = frames
        return self._observation
