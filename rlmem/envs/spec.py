"""What every environment looks like from outside: its spec, a step's data, the stepper protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from rlmem.settings import Settings, setting


@dataclass
class EnvSettings(Settings):
    """The keys that every suite has."""

    extends = "/env@_here_"

    name: str = setting()
    suite: str = setting()
    num_envs: int = setting(at_least=1, at_most=65_536, divided=True)
    reward_clip: bool = setting()
    terminal_reward: float | None = setting(at_least=-1e9, at_most=1e9)
    recommended: dict[str, Any] = setting()  # what suits the env, for agents and memories to read


class GoalRules(Protocol):
    """Reward and termination as functions of an achieved and a desired goal."""

    def reward(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        """Rewards float32 [N] of goals float32 [N, G]."""
        ...

    def terminated(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        """Whether an episode ends there, bool [N], of goals float32 [N, G]."""
        ...


@dataclass(frozen=True)
class GoalSpec:
    """What a goal environment has beside others.

    Attributes:
        size: G; the last G numbers of a frame are the desired goal.
        rules: what any goals are worth; None where the environment cannot say.
        lacks: why it cannot.
    """

    size: int
    rules: GoalRules | None = field(default=None, compare=False)
    lacks: str = field(default="", compare=False)


@dataclass(frozen=True)
class EnvSpec:
    """Static facts about a vectorised environment.

    Attributes:
        env_id: name for people and files, e.g. "ALE/RoadRunner", "MinAtar/Breakout", "CartPole-v1".
        suite: that made it, such as "atari".
        num_envs: E, the number of environments stepped together.
        frame_shape: one frame, [C, H, W] for pictures, [D] for vectors.
        dtype: dtype of a frame (uint8 for pictures, float32 for vectors).
        stack: frames that make one observation of the agent (1 except on Atari).
        num_actions: size of the discrete action set; actions are 0 .. num_actions - 1. 0 where
            actions are continuous.
        frames_per_step: emulator frames that one agent step takes.
        action_shape: (A,) where actions are continuous, () where they are discrete.
        action_low, action_high: float32 [A], the box of continuous actions, in the environment's
            own units; None where they are discrete.
        goal: of goal environments, whose frames are observation | desired goal; else None.
        highest: largest value of a frame of uint8: 255 of pixels, 1 of planes of bits.
        video_fps: frames a second at which a video looks as fast as the game is played.
    """

    env_id: str
    suite: str
    num_envs: int
    frame_shape: tuple[int, ...]
    dtype: np.dtype
    stack: int
    num_actions: int
    frames_per_step: int
    action_shape: tuple[int, ...] = ()
    action_low: np.ndarray | None = field(default=None, compare=False)
    action_high: np.ndarray | None = field(default=None, compare=False)
    goal: GoalSpec | None = None
    highest: int = 255
    video_fps: int = 30

    @property
    def continuous(self) -> bool:
        """Whether actions are points of a box: float32 [E, A]; else they are int64 [E]."""
        return bool(self.action_shape)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of what the agent sees: frames stacked on the channel axis, newest last."""
        if len(self.frame_shape) != 3:
            return self.frame_shape
        return (self.stack * self.frame_shape[0], *self.frame_shape[1:])

    @property
    def input_scale(self) -> float:
        """Factor that brings stored values into [0, 1]: 1/255 for pixels, 1 for 0/1 planes."""
        return 1 / self.highest if self.dtype == np.uint8 else 1.0


@dataclass(frozen=True)
class Board:
    """An environment whose states are cells of a grid, for pictures: the first cell is the start,
    the last one the goal. A suite that has one says so by a static method `board(settings)`.

    Attributes:
        blocked: cells that cannot be entered, bool [H, W].
        frames: what is seen in each cell, row by row, [H * W, *frame_shape].
        moves: (columns, rows) that each action moves by.
    """

    blocked: np.ndarray
    frames: np.ndarray
    moves: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class Step:
    """What one vectorised step returns.

    The arrays are the caller's: no later step writes into them. Where no environment is done,
    `next_observation` may be the same array as `observation`.

    Attributes:
        observation: [E, *frame_shape], after autoreset: what the next action is chosen from.
        next_observation: [E, *frame_shape], the true successor frame, before autoreset.
        reward: float32 [E], never clipped.
        terminated: bool [E], the task ended (no bootstrapping).
        truncated: bool [E], a time limit cut the episode (bootstrap from `next_observation`).
        achieved_goal: float32 [E, G], the goal achieved at `next_observation`; None without goals.
        success: float32 [E], 1 or 0: whether that is the desired goal; NaN where the environment
            does not say. Some say it of an episode's last step alone. None without goals.
    """

    observation: np.ndarray
    next_observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    achieved_goal: np.ndarray | None = None
    success: np.ndarray | None = None


class EnvStepper(Protocol):
    """A batch of environments that reset themselves in the step in which they end."""

    spec: EnvSpec

    def reset(self, seed: int) -> np.ndarray:
        """Start all episodes anew; what follows depends on (seed, actions) alone.

        Args:
            seed: any integer >= 0.

        Returns:
            First frames, [E, *frame_shape].
        """
        ...

    def step(self, action: np.ndarray) -> Step:
        """Step every environment with `action`: int64 [E], or float32 [E, A] in a box."""
        ...

    def render(self) -> np.ndarray:
        """Picture of environment 0 as it is now (after autoreset), uint8 [H, W, 3].

        Raises:
            RuntimeError: the stepper was not made with render=True.
        """
        ...

    def close(self) -> None:
        """Free emulators and windows."""
        ...


def env_seeds(seed: int, num_envs: int) -> list[int]:
    """Independent seeds of the environments, a function of (seed, environment index) only.

    They lie in [1, 2^31 - 1]: ale-py takes signed 32-bit seeds and gives 0 and negatives a meaning.
    """
    words = [np.random.SeedSequence((seed, e)).generate_state(1)[0] for e in range(num_envs)]
    return [1 + int(word) % (2**31 - 1) for word in words]
