"""Goal environments: frames, achieved goals, successes, rules of rewards."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlmem.envs import make_env
from rlmem.envs.goals import GoalRules, goal_spec
from rlmem.errors import UserError
from tests.envs.helpers import (
    assert_chained,
    assert_conforms,
    assert_same_play,
    gym_cfg,
    play,
    random_actions,
)
from tests.settings import settings

ENVS = ("bit_flip", "point_maze", "fetch_reach")
each_env = pytest.mark.parametrize("name", ENVS)


def configured(name: str, *overrides: str) -> Any:
    if name != "bit_flip":
        pytest.importorskip("gymnasium_robotics")
    return settings(f"env={name}", *overrides).env


class Walk(gymnasium.Env):
    """A walk in float64 towards a goal; the observation is three numbers beside the place.

    Args:
        goal_space: of a place and a goal.
        missing: what it does not have.
        single: its functions take no batches.
        info: its steps tell success, at the third; "last": the last step alone tells it.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        goal_space: spaces.Space | None = None,
        missing: str = "",
        single: bool = False,
        info: bool | str = False,
        render_mode: Any = None,
    ) -> None:
        goal_space = goal_space or spaces.Box(-9, 9, (2,), np.float64)
        observation = spaces.Box(-9, 9, (3,), np.float64)
        parts = {"achieved_goal": goal_space, "desired_goal": goal_space}
        self.observation_space = spaces.Dict({"observation": observation, **parts})
        self.action_space = spaces.Discrete(2)
        self.missing, self.single, self.info = missing, single, info

    def _observe(self) -> dict[str, np.ndarray]:
        return {
            "observation": np.full(3, self.t + 0.1),
            "achieved_goal": self.place.copy(),
            "desired_goal": self.goal.copy(),
        }

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        shape = self.observation_space["desired_goal"].shape
        self.t, self.place, self.goal = 0, np.zeros(shape), np.full(shape, 2)
        return self._observe(), {}

    def step(self, action: int) -> Any:
        self.t += 1
        self.place[0] = 2 * (self.t // 2)
        self.place[1:] = action
        told = self.t == 4 if self.info == "last" else self.info
        info = {"success": self.t == 3} if told else {}
        reward = self.compute_reward(self.place, self.goal, info)
        return self._observe(), reward, self.t == 4, False, info

    def compute_reward(self, achieved: np.ndarray, desired: np.ndarray, info: Any) -> Any:
        if self.missing == "compute_reward":
            raise NotImplementedError("no reward")
        if self.missing == "info":
            return info["speed"]
        distance = np.abs(achieved - desired)
        return -float(distance.sum()) if self.single else -distance.sum(-1)

    def compute_terminated(self, achieved: np.ndarray, desired: np.ndarray, info: Any) -> Any:
        if self.missing == "compute_terminated":
            raise NotImplementedError
        near = np.abs(achieved - desired) < 0.5
        return bool(near.all()) if self.single else near.all(-1)


@pytest.fixture
def walk():
    """Registers a Walk with the given arguments; gives its id."""

    def register(kind: type[Walk] = Walk, **given: Any) -> str:
        gymnasium.register("rlmem-test/Walk-v0", entry_point=lambda **kw: kind(**given, **kw))
        return "rlmem-test/Walk-v0"

    yield register
    gymnasium.registry.pop("rlmem-test/Walk-v0", None)


@each_env
def test_a_seed_and_actions_decide_what_is_played(name: str) -> None:
    limit = [] if name == "bit_flip" else ["env.max_episode_steps=50"]
    cfg = configured(name, *limit)
    env, other = make_env(cfg, 2), make_env(cfg, 1)
    actions = random_actions(env, 160)
    first = play(env, 5, actions)
    assert sum((s.terminated | s.truncated).sum() for s in first[1]) >= 2
    assert_conforms(env, first[1])
    assert_chained(*first)
    play(env, 8, actions[:70])
    again = play(env, 5, actions)
    assert_same_play(first, again)
    for a, b in zip(first[1], again[1], strict=True):
        np.testing.assert_array_equal(a.achieved_goal, b.achieved_goal)
    alone = play(other, 5, actions[:, :1])
    np.testing.assert_array_equal(alone[1][-1].observation[0], first[1][-1].observation[0])


@each_env
def test_a_step_tells_the_goal_achieved_before_autoreset(name: str) -> None:
    env = make_env(configured(name), 3)
    goal = env.spec.goal
    _, steps = play(env, 2, random_actions(env, 160))
    for step in steps:
        desired = step.next_observation[:, -goal.size :]
        assert step.achieved_goal.dtype == np.float32
        assert step.achieved_goal.shape == desired.shape
        np.testing.assert_array_equal(goal.rules.reward(step.achieved_goal, desired), step.reward)
        ends = goal.rules.terminated(step.achieved_goal, desired)
        np.testing.assert_array_equal(ends, step.terminated)
        if name == "bit_flip":
            np.testing.assert_array_equal(step.achieved_goal, step.next_observation[:, :15])
            np.testing.assert_array_equal(step.success, step.terminated)


@each_env
def test_rules_take_batches_as_they_take_single_goals(name: str) -> None:
    env = make_env(configured(name), 1)
    goal, rng = env.spec.goal, np.random.default_rng(0)
    goals = rng.integers(2, size=(2, 40, goal.size)).astype(np.float32)
    goals[1, ::2] = goals[0, ::2]
    reward, terminated = goal.rules.reward(*goals), goal.rules.terminated(*goals)
    assert (reward.dtype, terminated.dtype) == (np.float32, np.bool_)
    assert len(set(reward.tolist())) == 2
    for i in range(40):
        pair = goals[:, i : i + 1]
        assert goal.rules.reward(*pair) == reward[i]
        assert goal.rules.terminated(*pair) == terminated[i]
    assert goal.rules.reward(*goals[:, :0]).shape == goal.rules.terminated(*goals[:, :0]).shape


def test_frames_are_observation_and_desired_goal_in_float32(walk) -> None:
    env = make_env(gym_cfg(walk()), 2)
    assert (env.spec.frame_shape, env.spec.dtype) == ((5,), np.float32)
    assert env.spec.goal.size == 2
    np.testing.assert_allclose(env.reset(0), [[0.1, 0.1, 0.1, 2, 2]] * 2)
    step = env.step(np.array([0, 1]))
    np.testing.assert_allclose(step.observation[:, :3], 1.1)
    np.testing.assert_array_equal(step.achieved_goal, [[0, 0], [0, 1]])
    assert np.isnan(step.success).all()
    for _ in range(3):
        step = env.step(np.array([0, 1]))
    assert step.terminated.all()
    np.testing.assert_array_equal(step.achieved_goal, [[4, 0], [4, 1]])
    np.testing.assert_allclose(step.observation[:, :3], 0.1)


def test_success_is_what_the_environment_says_of_its_last_step(walk) -> None:
    env = make_env(gym_cfg(walk(info=True)), 1)
    _, steps = play(env, 0, np.zeros((5, 1), np.int64))
    assert [step.success[0] for step in steps] == [0, 0, 1, 0, 0]
    assert steps[0].success.dtype == np.float32


def test_what_the_last_step_alone_says_counts_for_its_own_environment(walk) -> None:
    env = make_env(gym_cfg(walk(info="last"), 6), 2)
    env.reset(0)
    env._envs[1].reset()  # the second is a step behind
    env._envs[0].step(0)
    told = [env.step(np.zeros(2, np.int64)).success for _ in range(4)]
    expected = [[np.nan] * 2, [np.nan] * 2, [0, np.nan], [np.nan, 0]]
    np.testing.assert_array_equal(told, expected)


def test_an_environment_that_tries_its_goals_begins_as_one_that_does_not() -> None:
    """A run that goes on makes its environments anew, where the other one seeds them once more."""

    class Older(Walk):
        age = 0

        def _observe(self) -> dict[str, np.ndarray]:
            return {**super()._observe(), "observation": np.full(3, float(self.age))}

        def step(self, action: int) -> Any:
            self.age += 1
            return super().step(action)

    gymnasium.register("rlmem-test/Older-v0", entry_point=Older)
    try:
        env = make_env(gym_cfg("rlmem-test/Older-v0"), 2)
        seen = env.reset(0)[:, 0].tolist()
        env.step(np.zeros(2, np.int64))
        assert seen == env.reset(0)[:, 0].tolist() == [0, 0]
    finally:
        gymnasium.registry.pop("rlmem-test/Older-v0", None)


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_functions_of_single_goals_are_called_row_by_row(walk, single: bool, size: int) -> None:
    space = spaces.Box(-9, 9, (size,), np.float64)
    rules = make_env(gym_cfg(walk(goal_space=space, single=single)), 1).spec.goal.rules
    achieved = np.arange(4 * size, dtype=np.float32).reshape(4, size)
    desired = np.where(np.arange(4)[:, None] == 2, achieved, 1 - achieved)
    np.testing.assert_allclose(rules.reward(achieved, desired), -np.abs(achieved - desired).sum(1))
    assert rules.terminated(achieved, desired).tolist() == [False, False, True, False]


def test_a_result_a_number_of_the_goal_is_not_taken_for_one_a_row() -> None:
    class Wrong(Walk):
        def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
            return (
                -(np.abs(achieved - desired) > 1).any(0).astype(float)
                if achieved.ndim == 2
                else 0.0
            )

    rules = GoalRules(Wrong())
    assert rules.reward(*np.random.default_rng(0).normal(size=(2, 2, 2)) * 9).tolist() == [0, 0]


class Tenfold(gymnasium.Wrapper):
    def step(self, action: Any) -> Any:
        observation, reward, *ends = self.env.step(action)
        return observation, 10 * float(reward), *ends

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        base: Any = self.env.unwrapped
        return 10 * base.compute_reward(achieved, desired, info)


class CostsActions(gymnasium.Wrapper):
    def step(self, action: Any) -> Any:
        observation, reward, *ends = self.env.step(action)
        return observation, float(reward) - 0.2, *ends


def test_rewards_that_the_rule_does_not_give_are_not_mixed_with_its_own() -> None:
    """What is made anew would lack the cost that what was played has."""
    assert goal_spec(Walk()).rules is not None
    spec = goal_spec(CostsActions(Walk()))
    assert spec.rules is None
    assert "a step rewarded -3.2 where it gives -3" in spec.lacks


def test_a_wrapper_that_changes_rewards_says_what_goals_are_worth() -> None:
    """As SB3 asks the outermost; others would stand beside what was played."""
    rules = GoalRules(Tenfold(Walk()))
    achieved, desired = np.zeros((2, 3, 2), np.float32)
    desired[1] = 1
    assert rules.reward(achieved, desired).tolist() == [0, -20, 0]


@pytest.mark.parametrize("size", [1, 2])
def test_a_result_for_each_number_of_a_goal_is_one_of_a_goal_of_one_number(size: int) -> None:
    class Elementwise(Walk):
        def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
            return -(np.abs(achieved - desired) > 0.5).astype(np.float32)

    env = Elementwise(goal_space=spaces.Box(-9, 9, (size,), np.float64))
    if size == 2:
        assert "gives 2 numbers for a pair of goals" in goal_spec(env).lacks
        return
    achieved, desired = np.zeros((2, 3, 1), np.float32)
    desired[1] = 1
    assert GoalRules(env).reward(achieved, desired).tolist() == [0, -1, 0]


def test_without_compute_terminated_no_goal_ends_an_episode(walk) -> None:
    rules = make_env(gym_cfg(walk(missing="compute_terminated")), 1).spec.goal.rules
    assert not rules.terminated(np.zeros((3, 2)), np.zeros((3, 2))).any()
    assert (rules.reward(np.zeros((3, 2)), np.zeros((3, 2))) == 0).all()


@pytest.mark.parametrize(
    ("missing", "lacks"), [("compute_reward", "no reward"), ("info", "KeyError: 'speed'")]
)
def test_an_environment_that_cannot_reward_any_goal_plays_and_says_why(
    walk, missing: str, lacks: str
) -> None:
    env = make_env(gym_cfg(walk(missing=missing)), 1)
    assert (env.spec.goal.size, env.spec.goal.rules) == (2, None)
    assert lacks in env.spec.goal.lacks
    assert env.reset(0).shape == (1, 5)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Dict(
            {"observation": spaces.Box(-1, 1, (2,)), "desired_goal": spaces.Box(-1, 1, (2,))}
        ),
        spaces.Dict(
            {
                "observation": spaces.Box(-1, 1, (2, 2)),
                "achieved_goal": spaces.Box(-1, 1, (2,)),
                "desired_goal": spaces.Box(-1, 1, (2,)),
            }
        ),
        spaces.Dict(
            {
                "observation": spaces.Box(-1, 1, (2,)),
                "achieved_goal": spaces.Box(-1, 1, (3,)),
                "desired_goal": spaces.Box(-1, 1, (2,)),
            }
        ),
        spaces.Dict(
            {
                "observation": spaces.Box(-1, 1, (2,)),
                "achieved_goal": spaces.Discrete(3),
                "desired_goal": spaces.Discrete(3),
            }
        ),
    ],
    ids=["no achieved goal", "not a vector", "two sizes", "a number"],
)
def test_other_dicts_are_refused(walk, space: spaces.Dict) -> None:
    class Other(Walk):
        def __init__(self, **given: Any) -> None:
            super().__init__()
            self.observation_space = space

    with pytest.raises(UserError, match=r"its observation space is Dict.*desired_goal") as caught:
        make_env(gym_cfg(walk(Other)), 1)
    assert "\n" not in str(caught.value)
