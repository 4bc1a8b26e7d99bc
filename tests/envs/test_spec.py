"""EnvSpec and the seeds of the environments."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from rlmem.envs import EnvSpec, make_env
from rlmem.envs.spec import env_seeds
from rlmem.errors import UserError
from tests.envs.helpers import gym_cfg

PIXELS = EnvSpec("ALE/Pong", "atari", 2, (1, 84, 84), np.dtype(np.uint8), 4, 6, 4)


def test_observation_shape_stacks_pictures_on_the_channel_axis():
    assert PIXELS.observation_shape == (4, 84, 84)
    assert replace(PIXELS, frame_shape=(3, 8, 9), stack=2).observation_shape == (6, 8, 9)
    assert replace(PIXELS, frame_shape=(5,), stack=1).observation_shape == (5,)


def test_env_seeds_depend_on_seed_and_index_only():
    assert env_seeds(3, 4)[:2] == env_seeds(3, 2)
    drawn = [seed for base in range(50) for seed in env_seeds(base, 4)]
    assert len(set(drawn)) == len(drawn)
    assert all(0 < seed < 2**31 for seed in drawn)


def test_env_seeds_take_any_large_seed():
    assert all(0 < seed < 2**31 for seed in env_seeds(2**63, 2))


@pytest.mark.parametrize("num_envs", [0, -1])
def test_fewer_than_one_environment_is_refused(num_envs):
    with pytest.raises(UserError, match=rf"env.num_envs={num_envs}: at least 1"):
        make_env(gym_cfg(), num_envs)


def test_unknown_suite_is_refused():
    with pytest.raises(UserError, match=r"env\.suite=atary: no such suite; did you mean atari\?"):
        make_env(SimpleNamespace(suite="atary"), 1)
