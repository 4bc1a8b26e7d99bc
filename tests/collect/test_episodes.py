"""Returns and lengths of episodes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmem.collect.episodes import Episode, EpisodeTracker
from rlmem.envs import Step
from rlmem.errors import UserError


def stepped(reward: np.ndarray, done: np.ndarray) -> Step:
    """A step of environments whose observations are four zeros."""
    frames = np.zeros((len(reward), 4), np.float32)
    following = frames.copy() if done.any() else frames
    return Step(frames, following, reward.astype(np.float32), done, np.zeros_like(done))


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
        tracker.push((t + 1) * num_envs, stepped(rewards[t], ends[t]), ends[t])
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
    tracker, end = EpisodeTracker(1), np.array([True])
    tracker.push(1, stepped(np.ones(1), end), end)
    assert len(tracker.drain()) == 1
    assert tracker.drain() == []


def test_a_reset_forgets_the_running_episodes_but_not_the_finished() -> None:
    tracker = EpisodeTracker(1)
    for at, (reward, ends) in enumerate([(1.0, True), (50.0, False), (3.0, True)], start=1):
        done = np.array([ends])
        tracker.push(at, stepped(np.array([reward]), done), done)
        if at == 2:
            tracker.reset()
    assert [(e.episode_return, e.length) for e in tracker.drain()] == [(1.0, 1), (3.0, 1)]


@pytest.mark.parametrize("reward", [np.nan, np.inf])
def test_a_reward_that_is_no_number_is_named_where_it_comes_from(reward: float) -> None:
    tracker, goes_on = EpisodeTracker(2), np.zeros(2, np.bool_)
    tracker.push(2, stepped(np.ones(2), goes_on), goes_on)
    line = f"env: environment 1 gave the reward {reward} in step 2 of an episode"
    with pytest.raises(UserError, match=line):
        tracker.push(4, stepped(np.array([1, reward]), goes_on), goes_on)


@pytest.mark.parametrize(
    ("column", "ends", "place"),
    [
        ("next_observation", False, "after step 2 of an episode"),
        ("next_observation", True, "after step 2 of an episode"),
        ("observation", True, "at a start"),
    ],
)
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_an_observation_that_is_no_number_is_named_where_it_comes_from(
    column: str, ends: bool, place: str, value: float
) -> None:
    tracker, goes_on = EpisodeTracker(3), np.zeros(3, np.bool_)
    tracker.push(3, stepped(np.ones(3), goes_on), goes_on)
    done = np.array([False, ends, False])
    step = stepped(np.ones(3), done)
    getattr(step, column)[1, 2] = value
    line = f"env: environment 1 gave an observation with {value} in it {place}; observations must"
    with pytest.raises(UserError, match=line):
        tracker.push(6, step, done)


def test_large_observations_are_numbers_and_pictures_always_are() -> None:
    tracker, goes_on = EpisodeTracker(1), np.zeros(1, np.bool_)
    for frames in (np.full((1, 4), 3e38, np.float32), np.full((1, 2, 4, 4), 255, np.uint8)):
        step = stepped(np.ones(1), goes_on)
        step.observation = step.next_observation = frames
        tracker.push(1, step, goes_on)
