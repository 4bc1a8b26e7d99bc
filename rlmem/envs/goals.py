"""Goal environments: what is observed holds a goal, and rewards are a function of goals.

The interface is that of Gymnasium-Robotics' `GoalEnv` (Plappert et al. 2018, arXiv 1802.09464):
observations are Dict(observation, achieved_goal, desired_goal), and `compute_reward` and
`compute_terminated` say what any two goals are worth. A frame is observation | desired_goal, so
that every agent and memory takes goal environments as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlmem.envs.spec import GoalSpec
from rlmem.errors import one_line

KEYS = ("observation", "achieved_goal", "desired_goal")
VECTORS = (spaces.Box, spaces.MultiBinary)
Function = Callable[[np.ndarray, np.ndarray, dict], Any]  # compute_reward and its like


def goal_sizes(space: spaces.Space) -> tuple[int, int] | None:
    """Numbers D of an observation and G of a goal; None: no goal environment, or not of vectors."""
    if not isinstance(space, spaces.Dict) or set(space.spaces) != set(KEYS):
        return None
    vectors = [part for part in map(space.__getitem__, KEYS) if isinstance(part, VECTORS)]
    shapes = [
        part.shape for part in vectors if part.shape and len(part.shape) == 1 and part.shape[0]
    ]
    if len(shapes) < len(KEYS) or shapes[1] != shapes[2]:
        return None
    return shapes[0][0], shapes[1][0]


def write_frame(row: np.ndarray, observation: dict[str, np.ndarray]) -> None:
    """Write observation | desired_goal into `row` [D + G]."""
    goal = observation["desired_goal"]
    row[: -len(goal)] = observation["observation"]
    row[-len(goal) :] = goal


def goal_spec(env: gymnasium.Env) -> GoalSpec:
    """Size and rules of an environment's goals; the environment is reset, and takes steps."""
    sizes = goal_sizes(env.observation_space)
    assert sizes is not None
    try:
        return GoalSpec(sizes[1], GoalRules(env))
    except Exception as error:  # whatever compute_reward raises for want of more than goals
        return GoalSpec(sizes[1], None, one_line(f"{type(error).__name__}: {error}", 1000))


class GoalRules:
    """Reward and termination of an environment for any two goals.

    Whether its functions take batches is tried once, on goals of a first reset; those that do not
    are called row by row.

    Args:
        env: a goal environment; it is reset, and takes a few steps.

    Raises:
        Exception: it has no `compute_reward`, one that needs more than goals, or one that steps do
            not reward by.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        space: Any = env.observation_space
        self._dtype = space["desired_goal"].dtype
        first = env.reset(seed=0)[0]
        # One row more than a goal has numbers, so that a result for each number does not pass
        # for one for each row.
        rows = np.arange(len(first["desired_goal"]) + 1) % 2 == 0
        desired = np.tile(first["desired_goal"], (len(rows), 1))
        achieved = np.where(rows[:, None], first["achieved_goal"], desired)
        # The outermost: a wrapper that changes rewards says so here as well.
        self._reward = _batched(env.get_wrapper_attr("compute_reward"), achieved, desired)
        try:
            ends = env.get_wrapper_attr("compute_terminated")
            self._terminated = _batched(ends, achieved, desired)
        except (AttributeError, NotImplementedError):  # goals end no episode
            self._terminated = None
        self._try(env)

    def _try(self, env: gymnasium.Env, steps: int = 5) -> None:
        """See that steps reward what the rule says. One that adds a cost of actions, say, would be
        mixed with rewards that lack it.

        Raises:
            ValueError: they differ.
        """
        actions = copy.deepcopy(env.action_space)  # whose random state is the environment's
        actions.seed(0)
        for _ in range(steps):
            observation, reward, terminated, truncated, _ = env.step(actions.sample())
            given = np.asarray(reward).item()
            (made,) = self.reward(*(np.atleast_2d(observation[key]) for key in KEYS[1:]))
            if not np.isclose(given, made, rtol=1e-4, atol=1e-6):
                raise ValueError(f"a step rewarded {given:.6g} where it gives {made:.6g}")
            if terminated or truncated:
                return

    def reward(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        """Rewards for coming to `achieved` under the goals `desired`.

        Args:
            achieved, desired: float32 [N, G].

        Returns:
            float32 [N].
        """
        return self._call(self._reward, achieved, desired).astype(np.float32)

    def terminated(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        """Whether coming to `achieved` ends an episode of the goals `desired`.

        Args:
            achieved, desired: float32 [N, G].

        Returns:
            bool [N].
        """
        if self._terminated is None:
            return np.zeros(len(achieved), np.bool_)
        return self._call(self._terminated, achieved, desired).astype(np.bool_)

    def _call(self, function: Any, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        goals = achieved.astype(self._dtype), desired.astype(self._dtype)
        return np.asarray(function(*goals, {})).reshape(len(achieved))


def _batched(function: Function, achieved: np.ndarray, desired: np.ndarray) -> Function:
    """`function` for batches [N, G]: itself if it gives each row's result, or one that loops.

    Raises:
        ValueError: it gives more than one number for a pair of goals.
    """

    def by_row(achieved: np.ndarray, desired: np.ndarray, info: dict) -> np.ndarray:
        return np.array([function(a, d, info) for a, d in zip(achieved, desired, strict=True)])

    expected = by_row(achieved, desired, {})
    if expected.size != len(achieved):
        raise ValueError(
            f"it gives {expected[0].size} numbers for a pair of goals, of which one is wanted"
        )
    try:
        together = np.asarray(function(achieved, desired, {}))
    except Exception:  # of any kind: rows one by one have worked above, and are right
        return by_row
    same = together.shape == expected.shape and np.allclose(together, expected)
    return function if same else by_row
