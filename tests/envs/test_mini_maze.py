"""MiniMaze: what a step does, which mazes there are, what is seen."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

from rlmem.envs import make_env
from rlmem.envs.mini_maze import (
    AGENT,
    GOAL,
    PIT,
    RELEASED_PITS,
    MiniMazeEnv,
    maze_pits,
    steps_to_goal,
)
from rlmem.errors import UserError
from tests.envs.helpers import play
from tests.settings import settings

UP, DOWN, RIGHT, LEFT = range(4)


@pytest.mark.parametrize("observation", ["position", "one_hot", "pixels"])
def test_mini_maze_is_a_gymnasium_environment(observation: str) -> None:
    check_env(MiniMazeEnv(observation=observation, render_mode="rgb_array"))


def test_a_wall_costs_nothing_a_pit_one_and_both_leave_the_agent_where_it_is() -> None:
    env = MiniMazeEnv()
    env.reset(seed=0)
    position, reward, terminated, truncated, info = env.step(UP)
    assert (position.tolist(), reward, terminated, truncated) == ([0, 0], 0.0, False, False)
    for _ in range(6):
        assert env.step(RIGHT)[1] == 0.0
    position, reward, terminated, _, info = env.step(RIGHT)  # (7, 0) is a pit
    assert (position.tolist(), reward, terminated) == ([6, 0], -1.0, False)
    assert not info["is_success"]
    assert env.step(LEFT)[0].tolist() == [5, 0]
    assert env.step(DOWN)[0].tolist() == [5, 1]


def test_the_goal_gives_200_and_ends_the_episode() -> None:
    env = MiniMazeEnv(size=2, maze=0, pits=0)
    env.reset(seed=0)
    assert env.step(RIGHT)[1:3] == (0.0, False)
    position, reward, terminated, truncated, info = env.step(DOWN)
    assert (position.tolist(), reward, terminated, truncated) == ([1, 1], 200.0, True, False)
    assert info["is_success"]


def test_an_episode_has_200_steps() -> None:
    env = gymnasium.make("rlmem/MiniMaze-v0")
    env.reset(seed=0)
    ends = [env.step(UP)[2:4] for _ in range(200)]
    assert ends[:-1] == [(False, False)] * 199
    assert ends[-1] == (False, True)


def test_the_released_maze_is_the_published_one() -> None:
    pits = maze_pits(10, "released", 12)
    assert {(x, y) for y, x in np.argwhere(pits)} == set(RELEASED_PITS)
    assert steps_to_goal(pits)[0, 0] == 18


@given(seed=st.integers(0, 10_000), size=st.integers(2, 12), share=st.floats(0, 0.4))
def test_a_random_maze_has_its_pits_and_a_way_to_the_goal(
    seed: int, size: int, share: float
) -> None:
    pits = int(share * (size * size - 2))
    grid = maze_pits(size, seed, pits)
    assert grid.sum() == pits
    assert not grid[0, 0]
    assert not grid[-1, -1]
    assert steps_to_goal(grid)[0, 0] >= 2 * (size - 1)
    np.testing.assert_array_equal(grid, maze_pits(size, seed, pits))


def test_random_mazes_of_different_seeds_differ() -> None:
    assert len({maze_pits(10, seed, 12).tobytes() for seed in range(30)}) == 30


def test_the_three_observations_show_the_same_play() -> None:
    actions = np.random.default_rng(0).integers(4, size=(300, 1))
    shown = {}
    for kind in ("position", "one_hot", "pixels"):
        env = make_env(configured("env.maze=3", f"env.observation={kind}", "env.cell=2"), 1)
        shown[kind] = [step.next_observation[0] for step in play(env, 0, actions)[1]]
    assert shown["pixels"][0].shape == (3, 20, 20)
    for position, cell, picture in zip(*shown.values(), strict=True):
        x, y = position.astype(int)
        assert cell.argmax() == 10 * y + x
        red = (picture == np.array(AGENT)[:, None, None]).all(0)
        assert np.argwhere(red).tolist() == [
            [2 * y + i, 2 * x + j] for i in range(2) for j in range(2)
        ]


def test_a_picture_shows_pits_goal_and_agent() -> None:
    env = MiniMazeEnv(render_mode="rgb_array")
    env.reset(seed=0)
    image = env.render()
    assert (image.shape, image.dtype) == ((320, 320, 3), np.uint8)
    assert tuple(image[16, 16]) == AGENT
    assert tuple(image[-16, -16]) == GOAL
    for x, y in RELEASED_PITS:
        assert tuple(image[32 * y + 16, 32 * x + 16]) == PIT


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["env.maze=relased"], "env.maze=relased: must be released, or a whole number"),
        (["env.size=5"], "env.size=5: the released maze has 10; use env.maze=0"),
        (["env.maze=1", "env.size=3", "env.pits=7"], "env.pits=7: no maze of size=3"),
        (["env.observation=pixel"], "env.observation=pixel: no such observation"),
    ],
)
def test_a_maze_that_cannot_be_is_one_line(overrides: list[str], line: str) -> None:
    with pytest.raises(UserError, match=line) as error:
        configured(*overrides)
    assert "\n" not in str(error.value)


def configured(*overrides: str) -> Any:
    return settings("env=mini_maze", *overrides).env
