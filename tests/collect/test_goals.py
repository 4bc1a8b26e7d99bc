"""Goals on their way: from the environment into blocks and scores."""

import numpy as np
import pytest

from rlmem.collect.rollout import EvaluationResult, evaluate_policy
from rlmem.envs import make_env
from tests.collect.helpers import COLUMNS, BlockLog, make_stream
from tests.envs.helpers import gym_cfg
from tests.settings import settings


def bit_flip(bits: int, num_envs: int):
    return make_env(settings("env=bit_flip", f"env.bits={bits}").env, num_envs)


@pytest.mark.parametrize("vector_steps", [1, 5])
def test_a_block_holds_the_goal_achieved_after_each_action(vector_steps: int) -> None:
    log = BlockLog()
    stream = make_stream(bit_flip(3, 2), log, vector_steps=vector_steps, reseed_every=30)
    for _ in stream:
        pass
    achieved = log.column("achieved_goal")
    assert (achieved.shape, achieved.dtype) == ((100, 3), np.float32)
    np.testing.assert_array_equal(achieved, log.column("next_observation")[:, :3])
    done = log.column("terminated") | log.column("truncated")
    assert done.sum() > 20


def test_other_environments_give_no_goals() -> None:
    log = BlockLog()
    for _ in make_stream(make_env(gym_cfg(), 2), log):
        pass
    assert set(log.blocks[0]) == set(COLUMNS)


def towards(observation: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Flips a wrong bit, or any where epsilon is 1."""
    bits = observation.shape[1] // 2
    if epsilon == 1.0:
        return rng.integers(bits, size=len(observation))
    return (observation[:, :bits] != observation[:, bits:]).argmax(1)


def test_the_share_of_episodes_that_end_at_their_goal_is_the_success_rate() -> None:
    env = bit_flip(4, 3)
    result = evaluate_policy(env, towards, episodes=20, epsilon=0.0, seed=0)
    assert (result.success_rate, len(result.successes or [])) == (1.0, 20)
    missed = evaluate_policy(env, towards, episodes=20, epsilon=1.0, seed=0)
    reached = [total > -4 for total in missed.returns]
    assert missed.successes == reached
    assert 0 < missed.success_rate == np.mean(reached) < 1


def test_a_success_that_the_last_steps_alone_tell_counts(monkeypatch) -> None:
    env = bit_flip(4, 3)
    told = evaluate_policy(env, towards, episodes=20, epsilon=1.0, seed=0).successes
    play = env.step

    def last_alone(action: np.ndarray):
        step = play(action)
        step.success[~(step.terminated | step.truncated)] = np.nan
        return step

    monkeypatch.setattr(env, "step", last_alone)
    assert evaluate_policy(env, towards, episodes=20, epsilon=1.0, seed=0).successes == told

    def reached_alone(action: np.ndarray):
        step = play(action)
        step.success[step.success == 0] = np.nan
        return step

    monkeypatch.setattr(env, "step", reached_alone)  # a share of those would be 1
    assert evaluate_policy(env, towards, episodes=20, epsilon=1.0, seed=0).successes is None


def test_without_goals_there_is_no_success_rate() -> None:
    def still(observation: np.ndarray, *_: object) -> np.ndarray:
        return np.zeros(len(observation), np.int64)

    result = evaluate_policy(make_env(gym_cfg(), 2), still, episodes=3, epsilon=0.0, seed=0)
    assert (result.successes, result.success_rate) == (None, None)
    assert EvaluationResult([1.0], [1]).success_rate is None
