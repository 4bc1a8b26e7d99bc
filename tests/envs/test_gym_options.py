"""An environment's own arguments, Gymnasium-Robotics' registration, grids of actions."""

import itertools
import sys

import numpy as np
import pytest

from rlmem.envs import make_env
from rlmem.errors import UserError
from tests.envs.helpers import assert_same_play, gym_cfg, play, random_actions
from tests.settings import settings


def test_arguments_reach_the_environment() -> None:
    env = make_env(gym_cfg("rlmem/BitFlip-v0", bits=7), 1)
    assert env.spec.frame_shape == (14,)
    with pytest.raises(
        UserError, match=r"env.kwargs=\{'bit': 7\}: env.id=rlmem/Bit.*'bit'"
    ) as caught:
        make_env(gym_cfg("rlmem/BitFlip-v0", bit=7), 1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("env_id", "given", "error"),
    [
        ("FrozenLake-v1", {"map_name": "9x9"}, "KeyError"),
        ("LunarLander-v3", {"gravity": 5.0}, "AssertionError"),
        ("Hopper-v5", {"xml_file": "nope.xml"}, "OSError"),
        ("Hopper-v5", {"frame_skip": 0}, "ZeroDivisionError"),
    ],
)
def test_whatever_an_argument_breaks_is_one_line(env_id: str, given: dict, error: str) -> None:
    with pytest.raises(UserError, match=rf"env\.kwargs=.*env\.id={env_id} .*{error}") as caught:
        make_env(gym_cfg(env_id, **given), 1)
    assert "\n" not in str(caught.value)


def test_arguments_of_a_configuration_are_plain() -> None:
    pytest.importorskip("gymnasium_robotics")
    maze = "[[1,1,1,1],[1,r,g,1],[1,1,1,1]]"
    env = make_env(settings("env=point_maze", f"+env.kwargs.maze_map={maze}").env, 1)
    given = env._envs[0].unwrapped.maze.maze_map
    assert (type(given), type(given[0])) == (list, list)


@pytest.mark.parametrize("prefix", ["", "gymnasium_robotics:"])
def test_robotics_is_registered_when_it_is_asked_for(prefix: str, capfd) -> None:
    pytest.importorskip("gymnasium_robotics")
    env = make_env(gym_cfg(f"{prefix}FetchReach-v4"), 1)
    assert env.spec.env_id == "FetchReach-v4"
    assert capfd.readouterr() == ("", "")


def test_without_robotics_the_extra_is_named(monkeypatch) -> None:
    for name in [n for n in sys.modules if n.startswith("gymnasium_robotics")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "gymnasium_robotics", None)
    with pytest.raises(UserError) as caught:
        make_env(settings("env=fetch_reach").env, 1)
    assert str(caught.value) == (
        "env.id=gymnasium_robotics:FetchReach-v4: a package is missing; "
        'pip install "rlmem[robotics]"'
    )


def test_levels_make_a_grid_of_actions_in_the_order_of_product() -> None:
    env = make_env(gym_cfg("LunarLander-v3", None, 3, continuous=True), 2)
    assert (env.spec.num_actions, env.spec.continuous, env.spec.action_shape) == (9, False, ())
    expected = list(itertools.product([-1.0, 0.0, 1.0], repeat=2))
    np.testing.assert_array_equal(env._action_table, expected)
    free = make_env(gym_cfg("LunarLander-v3", continuous=True), 2)
    actions = random_actions(env, 150)
    chosen = np.array(expected, np.float32)[actions]
    assert_same_play(play(env, 3, actions), play(free, 3, chosen))


def test_levels_span_the_range_of_each_dimension() -> None:
    env = make_env(gym_cfg("Pendulum-v1", None, 5), 1)
    np.testing.assert_allclose(env._action_table, [[-2], [-1], [0], [1], [2]])
    assert env._action_table.dtype == np.float32


@pytest.mark.parametrize(
    ("env_id", "levels", "message"),
    [
        ("CartPole-v1", 3, "env.action_levels=3: the 2 actions of env.id=CartPole-v1 are discrete"),
        (
            "HalfCheetah-v5",
            5,
            "env.action_levels=5: the 6 numbers .* 15625 actions, .*; use 2 to 4",
        ),
        ("Humanoid-v5", 2, "env.action_levels=2: the 17 numbers .*; use null, with agent=ddpg"),
        ("Pendulum-v1", 1, "env.action_levels=1: .*; use 2 to 4096"),
    ],
)
def test_levels_that_do_not_work_are_one_line(env_id: str, levels: int, message: str) -> None:
    if env_id.startswith(("Half", "Human")):
        pytest.importorskip("mujoco")
    with pytest.raises(UserError, match=message) as caught:
        make_env(gym_cfg(env_id, None, levels), 1)
    assert "\n" not in str(caught.value)
