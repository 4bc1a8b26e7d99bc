"""FrameStack against ale-py's own stacks and against a list of frames."""

import numpy as np
import pytest
import torch
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from rlmem.envs import EnvSpec, FrameStack
from rlmem.envs.spec import env_seeds


def vector_env(game: str, stack: int) -> AtariVectorEnv:
    return AtariVectorEnv(
        game,
        2,
        num_threads=1,
        max_num_frames_per_episode=1200,
        repeat_action_probability=0.25,
        autoreset_mode=AutoresetMode.SAME_STEP,
        stack_num=stack,
        noop_max=30,
        reward_clipping=False,
        use_fire_reset=True,
    )


@pytest.mark.parametrize("game", ["road_runner", "pong", "breakout"])
def test_stack_equals_the_one_of_ale_py(game):
    single, stacked = vector_env(game, 1), vector_env(game, 4)
    spec = EnvSpec(game, "atari", 2, (1, 84, 84), np.dtype(np.uint8), 4, 4, 4)
    seeds = np.array(env_seeds(5, 2))
    frames = FrameStack(spec)
    np.testing.assert_array_equal(
        frames.reset(single.reset(seed=seeds)[0]), stacked.reset(seed=seeds)[0]
    )
    rng = np.random.default_rng(0)
    starts = 0
    for _ in range(1000):  # of two environments: 2,000 stacks
        action = rng.integers(0, single.single_action_space.n, 2)
        observation, _, terminated, truncated, _ = single.step(action)
        starts += int((terminated | truncated).sum())
        frames.push(observation, terminated | truncated)
        np.testing.assert_array_equal(frames.observation, stacked.step(action)[0])
    assert starts >= 4


def test_only_the_stacks_of_ended_episodes_start_anew():
    spec = EnvSpec("x", "atari", 2, (2, 1, 1), np.dtype(np.uint8), 3, 4, 4)
    stack = FrameStack(spec)
    frame = lambda a, b: np.array([[a, a], [b, b]], np.uint8).reshape(2, 2, 1, 1)  # noqa: E731
    stack.reset(frame(1, 10))
    stack.push(frame(2, 20), np.array([False, False]))
    observation = stack.push(frame(3, 30), np.array([False, True]))
    assert observation[:, :, 0, 0].tolist() == [[1, 1, 2, 2, 3, 3], [0, 0, 0, 0, 30, 30]]
    stack.reset(frame(7, 8))
    assert observation[:, :, 0, 0].tolist() == [[0, 0, 0, 0, 7, 7], [0, 0, 0, 0, 8, 8]]


def test_vectors_pass_through_and_torch_shares_the_memory():
    stack = FrameStack(EnvSpec("x", "gym", 2, (3,), np.dtype(np.float32), 1, 2, 1))
    view = torch.from_numpy(stack.reset(np.ones((2, 3), np.float32)))
    stack.push(np.full((2, 3), 2, np.float32), np.array([True, False]))
    assert view.tolist() == [[2.0] * 3] * 2


def test_vectors_cannot_be_stacked():
    with pytest.raises(ValueError, match=r"only"):
        FrameStack(EnvSpec("x", "gym", 2, (3,), np.dtype(np.float32), 4, 2, 1))
