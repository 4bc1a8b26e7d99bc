"""MinAtar: against the package's own Environment, determinism, pictures, errors."""

import subprocess
import sys

import numpy as np
import pytest

from rlmem.envs import make_env
from rlmem.envs.minatar import GAMES, MinAtarGame
from rlmem.errors import UserError
from tests.envs.helpers import (
    assert_chained,
    assert_conforms,
    assert_same_play,
    minatar_cfg,
    play,
    random_actions,
)

pytest.importorskip("minatar")


@pytest.mark.parametrize("game", GAMES)
def test_game_equals_the_environment_of_the_package(game):
    from minatar import Environment

    reference = Environment(game, sticky_action_prob=0.1)
    reference.seed(3)
    reference.reset()
    ours = MinAtarGame(game, sticky=0.1)
    observation, _ = ours.reset(seed=3)
    np.testing.assert_array_equal(observation, reference.state())
    rng = np.random.default_rng(0)
    for action in rng.integers(0, ours.num_actions, 1000):
        observation, reward, terminated, _, _ = ours.step(action)
        assert (reward, terminated) == reference.act(reference.minimal_action_set()[action])
        np.testing.assert_array_equal(observation, reference.state())
        if terminated:
            reference.reset()
            np.testing.assert_array_equal(ours.reset()[0], reference.state())


@pytest.mark.parametrize("game", GAMES)
def test_trajectory_depends_on_seed_and_actions_only(game):
    env, other = make_env(minatar_cfg(game), 2), make_env(minatar_cfg(game), 2)
    actions = random_actions(env, 500)
    first = play(env, 8, actions)
    assert_conforms(env, first[1])
    assert_chained(*first)
    assert set(np.unique(first[1][-1].observation)) <= {0, 1}
    assert_same_play(first, play(env, 8, actions))
    assert_same_play(first, play(other, 8, actions))


@pytest.mark.parametrize(
    ("game", "env_id", "channels", "actions"),
    [
        ("asterix", "MinAtar/Asterix", 4, 5),
        ("breakout", "MinAtar/Breakout", 4, 3),
        ("freeway", "MinAtar/Freeway", 7, 3),
        ("seaquest", "MinAtar/Seaquest", 10, 6),
        ("space_invaders", "MinAtar/SpaceInvaders", 6, 4),
    ],
)
def test_spec(game, env_id, channels, actions):
    spec = make_env(minatar_cfg(game), 3).spec
    assert (spec.env_id, spec.suite, spec.num_envs) == (env_id, "minatar", 3)
    assert spec.frame_shape == spec.observation_shape == (channels, 10, 10)
    assert spec.dtype == np.uint8
    assert (spec.num_actions, spec.stack, spec.frames_per_step) == (actions, 1, 1)


def test_final_board_is_kept_at_the_end_of_an_episode():
    env = make_env(minatar_cfg("breakout"), 2)
    _, steps = play(env, 0, random_actions(env, 200))
    ended = [(s, e) for s in steps for e in np.flatnonzero(s.terminated)]
    assert ended
    ball_row = [np.flatnonzero(s.next_observation[e, 1].any(axis=1))[0] for s, e in ended]
    assert set(ball_row) == {9}  # the ball reached the floor
    assert all(s.observation[e, 1, 3].any() for s, e in ended)  # and starts anew in row 3


def test_max_episode_steps_truncates():
    cfg = minatar_cfg("freeway")
    cfg.max_episode_steps = 5
    env = make_env(cfg, 1)
    _, steps = play(env, 0, random_actions(env, 10))
    assert [bool(s.truncated[0]) for s in steps] == ([False] * 4 + [True]) * 2


def test_render_gives_a_picture_with_one_colour_a_channel():
    env = make_env(minatar_cfg("breakout"), 1, render=True)
    env.reset(0)
    for _ in range(3):
        board = env.step(np.array([0])).observation[0]
    picture = env.render()
    assert picture.shape == (240, 240, 3)
    assert picture.dtype == np.uint8
    assert (picture[::24, ::24].any(axis=2) == board.any(axis=0)).all()
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) == 5  # none, paddle, ball, trail, brick


def test_making_a_game_imports_no_drawing_package():
    code = (
        "import sys; from types import SimpleNamespace as N; from rlmem.envs import make_env\n"
        "cfg = N(suite='minatar', game='seaquest', sticky=.1, max_episode_steps=None)\n"
        "env = make_env(cfg, 1, render=True)\n"
        "env.reset(0); env.render()\n"
        "print(sorted({'matplotlib', 'seaborn', 'ale_py', 'gymnasium'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_unknown_game_names_the_five():
    with pytest.raises(UserError, match=r"did you mean breakout.* space_invaders"):
        make_env(minatar_cfg("Breakot"), 1)


def test_game_that_is_not_set_is_refused():
    with pytest.raises(UserError, match=r"env.game=None"):
        make_env(minatar_cfg(None), 1)


def test_sticky_outside_its_range_is_refused():
    with pytest.raises(UserError, match=r"env.sticky=1.5"):
        make_env(minatar_cfg(sticky=1.5), 1)
