"""Bit flipping: what an action does, what is drawn, how long an episode lasts."""

from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rlmem.envs import make_env
from rlmem.envs.bit_flip import BitFlipEnv
from tests.envs.helpers import play
from tests.settings import settings


@pytest.mark.parametrize("bits", [1, 4, 15])
def test_bit_flip_is_a_gymnasium_environment(bits: int) -> None:
    check_env(BitFlipEnv(bits), skip_render_check=True)


def test_an_action_flips_its_bit_and_the_goal_ends_the_episode() -> None:
    env = BitFlipEnv(6)
    for seed in range(20):
        state = env.reset(seed=seed)[0]
        assert (state["observation"] != state["desired_goal"]).any()
        wrong = np.flatnonzero(state["observation"] != state["desired_goal"])
        for left, bit in zip(range(len(wrong) - 1, -1, -1), wrong, strict=True):
            after, reward, terminated, truncated, info = env.step(int(bit))
            changed = np.flatnonzero(after["observation"] != state["observation"])
            assert changed.tolist() == [bit]
            np.testing.assert_array_equal(after["achieved_goal"], after["observation"])
            np.testing.assert_array_equal(after["desired_goal"], state["desired_goal"])
            assert (reward, terminated) == ((0.0, True) if left == 0 else (-1.0, False))
            assert (truncated, info) == (False, {"is_success": left == 0})
            state = after


def test_states_and_goals_of_bit_flip_are_uniform() -> None:
    env = BitFlipEnv(2)
    counts = np.zeros((4, 4), int)
    env.reset(seed=0)
    for _ in range(6000):
        state = env.reset()[0]
        counts[state["observation"] @ [1, 2], state["desired_goal"] @ [1, 2]] += 1
    assert (np.diag(counts) == 0).all()
    pairs = counts[~np.eye(4, dtype=bool)]
    assert (abs(pairs - 500) < 5 * np.sqrt(500)).all()


@pytest.mark.parametrize("bits", [1, 5, 30])
def test_an_episode_of_bit_flip_has_as_many_steps_as_bits(bits: int) -> None:
    env = make_env(configured(bits), 2)
    assert (env.spec.num_actions, env.spec.frame_shape) == (bits, (2 * bits,))
    _, steps = play(env, 0, np.zeros((bits, 2), np.int64))
    ends = [step.truncated | step.terminated for step in steps]
    assert all(e.all() for e in ends[bits - 1 :])
    longer = make_env(configured(bits, "env.max_episode_steps=50"), 1)
    assert longer._envs[0].spec.max_episode_steps == 50


def test_bit_flip_needs_a_bit() -> None:
    with pytest.raises(ValueError, match="bits=0"):
        BitFlipEnv(0)


def configured(bits: int, *overrides: str) -> Any:
    return settings("env=bit_flip", f"env.bits={bits}", *overrides).env
