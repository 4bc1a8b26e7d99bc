"""The hand-written frame ring of the bare Atari loop: each frame once, stacks restored at sampling.

Time-major, one column an env. Row `t` holds the frame that action `t` was chosen from, so a
transition costs one 84x84 frame (7,056 B) and 15 B beside it; its next frame is in row `t + 1`.
Only at an episode's end is the true next frame not there: that of a truncation is kept aside.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import njit

STACK = 4


@njit(cache=True)
def _plan(age, time, env, slots):
    """Slots [B, STACK + 1] of the frames t - 3 .. t + 1 of rows (time, env); slot 0 is zeros."""
    rows, envs = age.shape
    for b in range(time.shape[0]):
        t, e = time[b], env[b]
        for k in range(STACK):  # k frames before t
            slots[b, STACK - 1 - k] = 1 + (t - k) % rows * envs + e if k <= age[t, e] else 0
        slots[b, STACK] = 1 + (t + 1) % rows * envs + e


class FrameRing:
    """Ring of `rows` x `num_envs` transitions.

    Args:
        capacity: transitions, divided among the envs.
        frame_shape: shape of one uint8 frame, e.g. (84, 84).
    """

    def __init__(
        self, capacity: int, num_envs: int, frame_shape: tuple[int, int] = (84, 84)
    ) -> None:
        self.rows = capacity // num_envs + 1  # the row of the current frame is not a transition yet
        self.num_envs = num_envs
        self.frame_shape = frame_shape
        shape = (self.rows, num_envs)
        size = frame_shape[0] * frame_shape[1]
        self.slots = np.empty((1 + self.rows * num_envs, size), np.uint8)  # slot 0 is zeros
        self.slots[0] = 0
        self.frames = self.slots[1:].reshape(*shape, size)
        self.age = np.zeros(
            shape, np.uint8
        )  # frames before this one in its episode, at most STACK - 1
        self.action = np.zeros(shape, np.int64)
        self.reward = np.zeros(shape, np.float32)
        self.terminated = np.zeros(shape, np.bool_)
        self.truncated = np.zeros(shape, np.bool_)
        self.final: dict[tuple[int, int], np.ndarray] = {}  # true next frame of truncated rows
        self.cursor = 0  # row of the current frames
        self.full = False

    def start(self, frame: np.ndarray) -> None:
        """Take the first frames, uint8 [E, ...]."""
        self.frames[0] = frame.reshape(self.num_envs, -1)

    def add(self, action, reward, terminated, truncated, frame, final_frame=None) -> None:
        """Finish the current row and begin the next.

        Args:
            action, reward, terminated, truncated: [E].
            frame: uint8 [E, ...], what the next actions are chosen from (after an autoreset).
            final_frame: uint8 [E, ...], the true next frames; read at truncated rows only.
        """
        t = self.cursor
        self.action[t], self.reward[t] = action, reward
        self.terminated[t], self.truncated[t] = terminated, truncated
        if self.final:
            for e in range(self.num_envs):
                self.final.pop((t, e), None)
        for e in np.flatnonzero(truncated):
            self.final[t, int(e)] = final_frame[e].reshape(-1).copy()
        after = (t + 1) % self.rows
        self.frames[after] = frame.reshape(self.num_envs, -1)
        self.age[after] = np.where(
            terminated | truncated, 0, np.minimum(self.age[t] + 1, STACK - 1)
        )
        self.full = self.full or after == 0
        self.cursor = after

    def __len__(self) -> int:
        return (self.rows - 1 if self.full else self.cursor) * self.num_envs

    def sample_index(
        self, rng: np.random.Generator, batch_size: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows and envs of random transitions whose whole stack is still in the ring."""
        if not self.full:
            time = rng.integers(0, self.cursor, batch_size)
        else:  # the oldest rows have lost the frames before them
            time = (self.cursor + rng.integers(STACK, self.rows, batch_size)) % self.rows
        return time, rng.integers(0, self.num_envs, batch_size)

    def get(self, time: np.ndarray, env: np.ndarray) -> tuple[torch.Tensor, ...]:
        """Read transitions.

        Returns:
            Observation and next observation uint8 [B, 4, H, W], action, reward, terminated [B].
        """
        slots = np.empty((len(time), STACK + 1), np.int64)
        _plan(self.age, time, env, slots)
        stacks = self.slots.take(slots, axis=0)
        if self.final:
            for b in np.flatnonzero(self.truncated[time, env]):
                stacks[b, STACK] = self.final[int(time[b]), int(env[b])]
        frames = torch.from_numpy(stacks).view(len(time), STACK + 1, *self.frame_shape)
        return (
            frames[:, :STACK],
            frames[:, 1:],
            torch.from_numpy(self.action[time, env]),
            torch.from_numpy(self.reward[time, env]),
            torch.from_numpy(self.terminated[time, env]),
        )
