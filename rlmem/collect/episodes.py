"""Returns and lengths of the episodes of a vector environment."""

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from rlmem.collect.finite import check_step, first_no_number
from rlmem.envs.spec import Step
from rlmem.errors import UserError
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import count_of, entry


@dataclass(frozen=True)
class Episode:
    """One finished episode."""

    env_steps: int  # of the run when it ended
    number: int  # from 1
    episode_return: float  # sum of unclipped rewards
    length: int  # env steps


@njit(cache=True)
def _add(
    value: np.ndarray, length: np.ndarray, reward: np.ndarray, done: np.ndarray
) -> tuple[bool, bool]:
    """Add a step to the episodes that run; whether one of them ended, whether all are numbers."""
    ended, finite = False, True
    for env in range(len(value)):
        value[env] += reward[env]
        length[env] += 1
        ended |= done[env]
        finite &= np.isfinite(value[env])
    return ended, finite


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

    def push(self, env_steps: int, step: Step, done: np.ndarray) -> None:
        """Take in one step, and which episodes it ended, bool [E].

        Raises:
            UserError: a reward or an observation is no finite number; nothing can be learned from
                it.
        """
        ended, finite = _add(self._return, self._length, step.reward, done)
        if not finite:
            raise UserError(first_no_number(self._return, step.reward, self._length))
        check_step(step, self._length)
        if not ended:
            return
        for env in np.flatnonzero(done):
            self.add(env_steps, float(self._return[env]), int(self._length[env]))
            self._return[env], self._length[env] = 0.0, 0

    def add(self, env_steps: int, episode_return: float, length: int) -> None:
        """Take in an episode that has ended."""
        self.count += 1
        self._finished.append(Episode(env_steps, self.count, episode_return, length))
        self.recent_returns.append(episode_return)
        self.recent_lengths.append(length)

    def drain(self) -> list[Episode]:
        """Episodes that ended since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def state_views(self) -> dict[str, Any]:
        """What a checkpoint keeps: how many ended, and the newest of them."""
        return {
            "episodes": self.count,
            "recent_returns": list(self.recent_returns),
            "recent_lengths": list(self.recent_lengths),
        }

    def check_state(self, state: State) -> None:
        """Refuse a state that does not fit; nothing is changed.

        Raises:
            ValueError: a count or an episode is no number.
        """
        count_of(state, "episodes", "stream")
        for name in ("recent_returns", "recent_lengths"):
            values = entry(state, name, "stream")
            if not isinstance(values, list) or not all(type(v) in (int, float) for v in values):
                raise ValueError(f"the saved stream's {name} are no list of numbers")

    def take_over(self, state: State) -> None:
        """Go on where the saved one stood; what ended meanwhile is forgotten."""
        self.drain()
        self.count = int(state["episodes"])
        self.recent_returns = deque(state["recent_returns"], maxlen=100)
        self.recent_lengths = deque(state["recent_lengths"], maxlen=100)
