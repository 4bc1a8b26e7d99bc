"""Bit flipping: n bits, one action a bit, a random goal (Andrychowicz et al. 2017, section 3.1).

The reward tells nothing before the goal is reached, which random play does in one of 2^n states.
"""

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlmem.envs.gym import GymSettings, GymSuite
from rlmem.registry import part
from rlmem.settings import setting

ENV_ID = "rlmem/BitFlip-v0"
State = dict[str, np.ndarray]


class BitFlipEnv(gymnasium.Env):
    """A goal environment in Gymnasium-Robotics' sense (`rlmem.envs.goals`).

    State and goal of an episode are drawn uniformly and differ. Action i flips bit i. The reward is
    0 at the goal, which ends the episode, and -1 elsewhere. The episode's limit, n steps in the
    paper, is the time limit of `gymnasium.make`.

    Args:
        bits: n, at least 1.
        render_mode: None: it has no pictures.

    Raises:
        ValueError: bits below 1.

    Examples:
        >>> import gymnasium
        >>> import rlmem.envs.bit_flip
        >>> env = gymnasium.make("rlmem/BitFlip-v0", bits=4, max_episode_steps=4)
        >>> observation, _ = env.reset(seed=0)
        >>> sorted((key, value.shape) for key, value in observation.items())
        [('achieved_goal', (4,)), ('desired_goal', (4,)), ('observation', (4,))]
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, bits: int = 15, render_mode: str | None = None) -> None:
        if bits < 1:
            raise ValueError(f"bits={bits}: at least 1 is needed")
        self.bits, self.render_mode = bits, render_mode
        self.action_space = spaces.Discrete(bits)
        self.observation_space = spaces.Dict(
            {
                name: spaces.MultiBinary(bits)
                for name in ("observation", "achieved_goal", "desired_goal")
            }
        )
        self._state = self._goal = np.zeros(bits, np.int8)

    def _observe(self) -> State:
        return {
            "observation": self._state.copy(),
            "achieved_goal": self._state.copy(),
            "desired_goal": self._goal.copy(),
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[State, dict]:
        """Draw a state and a goal; options are not used."""
        super().reset(seed=seed)
        self._state = self.np_random.integers(2, size=self.bits, dtype=np.int8)
        self._goal = self._state
        while (self._goal == self._state).all():
            self._goal = self.np_random.integers(2, size=self.bits, dtype=np.int8)
        return self._observe(), {"is_success": False}

    def step(self, action: int) -> tuple[State, float, bool, bool, dict]:
        """Flip bit `action`."""
        self._state[action] ^= 1
        reached = bool((self._state == self._goal).all())
        reward = 0.0 if reached else -1.0
        return self._observe(), reward, reached, False, {"is_success": reached}

    def compute_reward(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Any) -> Any:
        """0 where the goals [..., n] are the same, -1 elsewhere; float64 [...]."""
        return np.where((achieved_goal == desired_goal).all(-1), 0.0, -1.0)

    def compute_terminated(
        self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Any
    ) -> Any:
        """Whether the goals [..., n] are the same, bool [...]."""
        return (achieved_goal == desired_goal).all(-1)

    def compute_truncated(
        self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Any
    ) -> Any:
        """No goals cut an episode: False [...]."""
        return np.zeros(np.shape(achieved_goal)[:-1], np.bool_)


gymnasium.register(ENV_ID, entry_point="rlmem.envs.bit_flip:BitFlipEnv")


@dataclass
class BitFlipSettings(GymSettings):
    """Bits to flip into a goal."""

    bits: int = setting(at_least=1, at_most=10_000)


@part("env", "bit_flip", settings=BitFlipSettings)
class BitFlipSuite(GymSuite):
    """Gymnasium's suite, with a number of bits among its keys."""
