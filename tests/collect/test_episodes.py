"""Returns and lengths of episodes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmem.collect.episodes import Episode, EpisodeTracker
from rlmem.errors import UserError


@given(
    num_envs=st.integers(1, 4),
    steps=st.integers(1, 60),
    end=st.sampled_from([0.05, 0.3, 1.0]),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=50)
def test_episodes_are_the_sums_between_two_ends(
    num_envs: int, steps: int, end: float, seed: int
) -> None:
    rng, tracker = np.random.default_rng(seed), EpisodeTracker(num_envs)
    rewards = rng.integers(-5, 6, (steps, num_envs)).astype(np.float32)
    ends = rng.random((steps, num_envs)) < end
    expected, began = [], [0] * num_envs
    for t in range(steps):
        tracker.push((t + 1) * num_envs, rewards[t], ends[t])
        for env in np.flatnonzero(ends[t]):
            value = float(rewards[began[env] : t + 1, env].sum())
            length = t + 1 - began[env]
            expected.append(Episode((t + 1) * num_envs, len(expected) + 1, value, length))
            began[env] = t + 1
    assert tracker.drain() == expected
    assert tracker.count == len(expected)
    assert list(tracker.recent_returns) == [e.episode_return for e in expected][-100:]
    assert list(tracker.recent_lengths) == [e.length for e in expected][-100:]


def test_drained_episodes_do_not_come_again() -> None:
    tracker = EpisodeTracker(1)
    tracker.push(1, np.ones(1), np.array([True]))
    assert len(tracker.drain()) == 1
    assert tracker.drain() == []


def test_a_reset_forgets_the_running_episodes_but_not_the_finished() -> None:
    tracker = EpisodeTracker(1)
    tracker.push(1, np.ones(1), np.array([True]))
    tracker.push(2, np.full(1, 50.0), np.array([False]))
    tracker.reset()
    tracker.push(3, np.full(1, 3.0), np.array([True]))
    assert [(e.episode_return, e.length) for e in tracker.drain()] == [(1.0, 1), (3.0, 1)]


@pytest.mark.parametrize("reward", [np.nan, np.inf])
def test_a_reward_that_is_no_number_is_named_where_it_comes_from(reward: float) -> None:
    tracker, goes_on = EpisodeTracker(2), np.zeros(2, np.bool_)
    tracker.push(2, np.ones(2, np.float32), goes_on)
    line = f"env: environment 1 gave the reward {reward} in step 2 of an episode"
    with pytest.raises(UserError, match=line):
        tracker.push(4, np.array([1, reward], np.float32), goes_on)
