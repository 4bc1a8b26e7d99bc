"""One environment as a worker plays it: a rollout of some steps at a time, each frame held once.

It is resumed as the `Collector` is: no emulator can be saved, so the actions since the environment
was seeded are kept, and played again.
"""

import math
from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlmem.collect.config import SeedOf, StreamConfig, derive_seed
from rlmem.collect.finite import check_first, check_step, no_number
from rlmem.envs import EnvSpec, EnvStepper
from rlmem.errors import UserError

MOST_ACTIONS = 2**16  # of an environment: those that were played are kept as uint16


class RolloutEnv:
    """Plays one environment and holds the newest rollout: its frames, actions and rewards.

    A rollout ends after `steps` steps, or with its episode. So its frames lie in one array, one
    behind the other, and a stack of frames is a view of that array: with what came before the
    first of them, or zeros at an episode's start.

    Args:
        env: the environment, `num_envs` 1.
        steps: of a rollout at most, T.
        config: of the run's stream: its seed, how rewards are shaped, when episodes are cut.
        number: of the worker; its environment has seeds of its own.

    Attributes:
        length: steps of the rollout so far.
        rewards: float32 [T], as they are learned from; the first `length` count.
        actions: int64 [T], likewise.
        terminated: whether the last step ended the task; then nothing follows.
        done: whether the episode is over, by its end or by a limit.
        episodes: unclipped return and steps of those that ended; whoever reads it empties it.
    """

    def __init__(self, env: EnvStepper, steps: int, config: StreamConfig, number: int) -> None:
        self.env, self.steps, self.config, self.number = env, steps, config, number
        spec = env.spec
        self.frames = np.zeros((spec.stack + steps, *spec.frame_shape), spec.dtype)
        # Observation n begins at frame n: a view in which stacks overlap.
        self._stacks = np.lib.stride_tricks.as_strided(
            self.frames, (steps + 1, *spec.observation_shape), self.frames.strides
        )
        self.actions, self.rewards = np.zeros(steps, np.int64), np.zeros(steps, np.float32)
        self.env_steps = self.length = 0
        self.terminated = self.done = False
        self.episodes: list[tuple[float, int]] = []
        self._return, self._steps = 0.0, 0  # of the running episode
        self._following = np.zeros(spec.frame_shape, spec.dtype)  # first frame of what comes
        self._seeded_at = -1  # env_steps when the env was seeded; -1: seed before the next rollout
        self._played = array("H")  # actions since then

    @property
    def observations(self) -> np.ndarray:
        """What the rollout's steps began with, and what the last led to: [length + 1,
        *observation_shape], a view of the frames."""
        return self._stacks[: self.length + 1]

    @property
    def newest(self) -> np.ndarray:
        """The last of `observations` for a network, [1, 1, *observation_shape]."""
        return self._stacks[None, self.length : self.length + 1]

    def begin(self) -> None:
        """A rollout begins where the one before ended, or with a new episode."""
        stack = self.env.spec.stack
        if self._seeded_at < 0:
            self._seed()
        elif self.done:
            self.frames[: stack - 1] = 0
            self.frames[stack - 1] = self._following
        else:
            # One by one: numpy would copy all frames aside where the ranges overlap.
            for slot in range(stack):
                self.frames[slot] = self.frames[self.length + slot]
        self.length = 0
        self.done = self.terminated = False

    def step(self, action: int) -> None:
        """Play an action; `done` says whether the rollout is over before its T steps.

        Raises:
            UserError: the episode's return or an observation is no finite number.
        """
        stack, n = self.env.spec.stack, self.length
        step = self.env.step(np.array([action]))
        self.frames[stack + n] = step.next_observation[0]
        self.terminated = bool(step.terminated[0])
        self.done = self.terminated or bool(step.truncated[0])
        self.actions[n], self.rewards[n] = action, self._shaped(float(step.reward[0]))
        self.length = n + 1
        self.env_steps += 1
        self._played.append(action)
        self._return += float(step.reward[0])
        self._steps += 1
        if not math.isfinite(self._return):
            raise UserError(no_number(self.number, step.reward[0], self._steps))
        check_step(step, np.array([self._steps]), self.number)
        if self.done:
            self._following = step.observation[0]
            self.episodes.append((self._return, self._steps))
            self._return, self._steps = 0.0, 0

    def end(self) -> None:
        """The rollout is learned from; where episodes are due to be cut, this one is."""
        every = self.config.reseed_every
        if self.env_steps // every > (self.env_steps - self.length) // every:
            self.done, self._seeded_at = True, -1

    def _shaped(self, reward: float) -> float:
        config = self.config
        if self.terminated and config.terminal_reward is not None:
            return config.terminal_reward
        return min(1.0, max(-1.0, reward)) if config.reward_clip else reward

    def _seed(self) -> None:
        self._seeded_at = self.env_steps
        del self._played[:]
        frames = self.env.reset(
            derive_seed(self.config.seed, SeedOf.WORKER_EPISODES, self.number, self.env_steps)
        )
        check_first(frames, self.number)
        stack = self.env.spec.stack
        self.frames[: stack - 1] = 0
        self.frames[stack - 1] = frames[0]
        self._return, self._steps = 0.0, 0

    def state_views(self) -> dict[str, Any]:
        """Between two rollouts: the actions that lead from the last seeding to here."""
        return {
            "env_steps": self.env_steps,
            "seeded_at": self._seeded_at,
            "actions": np.array(self._played, np.uint16),
            "done": self.done,
        }

    def take_over(self, state: Mapping[str, Any]) -> None:
        """Go on where the saved one stood, playing its actions again."""
        seeded_at = int(state["seeded_at"])
        if seeded_at >= 0:
            self.env_steps = seeded_at
            self.begin()
            for action in np.asarray(state["actions"]).tolist():
                if self.done or self.length == self.steps:
                    self.begin()
                self.step(action)
        self.env_steps, self._seeded_at = int(state["env_steps"]), seeded_at
        self.done = bool(state["done"])
        self.episodes.clear()


def rollout_bytes(spec: EnvSpec, steps: int) -> dict[str, int]:
    """Bytes of what a `RolloutEnv` holds, by component."""
    frame = int(np.prod(spec.frame_shape)) * np.dtype(spec.dtype).itemsize
    return {"frames": (spec.stack + steps) * frame, "transitions": steps * (8 + 4)}
