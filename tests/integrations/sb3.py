"""Environments for Stable-Baselines3 and what it adds to a buffer of them."""

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("stable_baselines3")

from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecEnv,
    VecFrameStack,
    VecTransposeImage,
)

Step = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]


class Screens(gymnasium.Env):
    """Frames drawn from five, a blank one among them, so that frames repeat across resets.

    An episode terminates at random, or a `TimeLimit` of 9 cuts it.
    """

    def __init__(self, channels: int = 1, size: int = 36) -> None:
        pool = np.random.default_rng(0).integers(0, 256, (5, size, size, channels), np.uint8)
        self.pool = np.where(np.arange(5)[:, None, None, None] == 0, 0, pool).astype(np.uint8)
        self.observation_space = spaces.Box(0, 255, pool.shape[1:], np.uint8)
        self.action_space = spaces.Discrete(3)

    def _frame(self) -> np.ndarray:
        return self.pool[self.np_random.integers(5)]

    def reset(self, **options: Any) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(**options)
        return self._frame(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        ends = self.np_random.random() < 0.1
        return self._frame(), float(self.np_random.normal() + action), ends, False, {}


def screens(
    num_envs: int, stack: int = 4, *, channels_first: bool = True, **options: Any
) -> VecEnv:
    """Stacked screens with time limits, as DQN("CnnPolicy") gets them."""
    make = lambda: gymnasium.wrappers.TimeLimit(Screens(**options), 9)  # noqa: E731
    env: VecEnv = DummyVecEnv([make] * num_envs)
    if stack > 1:
        env = VecFrameStack(env, stack)
    return VecTransposeImage(env) if channels_first else env


def vectors(num_envs: int) -> VecEnv:
    """CartPole with a time limit that cuts episodes."""
    make = lambda: gymnasium.make("CartPole-v1", max_episode_steps=15)  # noqa: E731
    return DummyVecEnv([make] * num_envs)


def steps_of(env: VecEnv, count: int, seed: int = 0) -> Iterator[Step]:
    """What SB3 adds to a buffer, `count` times."""
    env.seed(seed)
    env.action_space.seed(seed)
    observation = env.reset().copy()
    for _ in range(count):
        action = np.array([env.action_space.sample() for _ in range(env.num_envs)])
        following, reward, done, infos = env.step(action)
        final = following.copy()
        for i in np.flatnonzero(done):
            final[i] = infos[i]["terminal_observation"]
        yield observation, final, action, reward, done, infos
        observation = following.copy()


def make(kind: type[ReplayBuffer], env: VecEnv, size: int, **options: Any) -> Any:
    """A buffer of `size` transitions for an environment."""
    spaces_of = env.observation_space, env.action_space
    return kind(size, *spaces_of, device="cpu", n_envs=env.num_envs, **options)
