"""Returns and lengths of the episodes of a vector environment."""

from collections import deque
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Episode:
    """One finished episode."""

    env_steps: int  # of the run when it ended
    number: int  # from 1
    episode_return: float  # sum of unclipped rewards
    length: int  # env steps


class EpisodeTracker:
    """Adds up the unclipped rewards of E environments.

    Args:
        num_envs: E.
    """

    def __init__(self, num_envs: int) -> None:
        self.count = 0
        self.recent_returns: deque[float] = deque(maxlen=100)
        self.recent_lengths: deque[int] = deque(maxlen=100)
        self._finished: list[Episode] = []
        self._return = np.zeros(num_envs)
        self._length = np.zeros(num_envs, np.int64)

    def reset(self) -> None:
        """Forget the running episodes."""
        self._return[:] = 0.0
        self._length[:] = 0

    def push(self, env_steps: int, reward: np.ndarray, done: np.ndarray) -> None:
        """Take in one step: reward float [E], done bool [E]."""
        self._return += reward
        self._length += 1
        if not done.any():
            return
        for env in np.flatnonzero(done):
            self.count += 1
            value, length = float(self._return[env]), int(self._length[env])
            self._finished.append(Episode(env_steps, self.count, value, length))
            self.recent_returns.append(value)
            self.recent_lengths.append(length)
            self._return[env], self._length[env] = 0.0, 0

    def drain(self) -> list[Episode]:
        """Episodes that ended since the last call."""
        finished, self._finished = self._finished, []
        return finished
