"""A worker's rollouts: what a frame stack sees, episodes that end, and the same after resuming."""

from dataclasses import replace

import numpy as np
import pytest

from rlmem.collect.config import StreamConfig
from rlmem.collect.rollouts import RolloutEnv, rollout_bytes
from rlmem.envs import EnvSpec, FrameStack, Step
from rlmem.errors import UserError
from tests.collect.helpers import ScriptedEnv

CONFIG = StreamConfig(
    seed=3,
    max_env_steps=1000,
    learning_starts=0,
    batch_size=5,
    updates=1,
    vector_steps=5,
    reseed_every=10_000,
    reward_clip=False,
)


class Pictures(ScriptedEnv):
    """Frames uint8 [1, 2, 2] that tell episode and step; every second episode is cut."""

    def __init__(self, length: int, stack: int) -> None:
        super().__init__(length)
        shape, dtype = (1, 2, 2), np.dtype(np.uint8)
        self.spec = EnvSpec("Pictures", "gym", 1, shape, dtype, stack, 3, 4)

    def _frames(self) -> np.ndarray:
        numbers = [self._seed % 100, self._episode[0], self._t[0] + 1, 7]
        return np.array(numbers, np.uint8).reshape(1, 1, 2, 2)

    def step(self, action: np.ndarray) -> Step:
        cut = bool(self._episode[0] % 2)
        step = super().step(action)
        if cut:
            step.terminated, step.truncated = step.truncated, step.terminated
        return step


def played(rollouts: RolloutEnv, count: int) -> list[dict]:
    """What so many rollouts held."""
    found = []
    for _ in range(count):
        rollouts.begin()
        while not rollouts.done and rollouts.length < rollouts.steps:
            rollouts.step(rollouts.env_steps % 3)
        rollouts.end()
        length = rollouts.length
        found.append(
            {
                "observations": rollouts.observations.copy(),
                "actions": rollouts.actions[:length].tolist(),
                "rewards": rollouts.rewards[:length].tolist(),
                "terminated": rollouts.terminated,
                "done": rollouts.done,
            }
        )
    return found


@pytest.mark.parametrize("stack", [1, 3])
def test_observations_are_those_of_a_frame_stack(stack: int) -> None:
    rollouts, twin = RolloutEnv(Pictures(7, stack), 3, CONFIG, 0), Pictures(7, stack)
    seen = FrameStack(twin.spec)
    found = played(rollouts, 20)
    seen.reset(twin.reset(rollouts.env._seed))
    for rollout in found:
        for observation, action in zip(rollout["observations"], rollout["actions"], strict=False):
            assert np.array_equal(observation, seen.observation[0])
            before = seen.observation[0].copy()
            step = twin.step(np.array([action]))
            last = np.concatenate([before[1:], step.next_observation[0]])
            done = step.terminated | step.truncated
            seen.push(step.observation, done)
        assert np.array_equal(rollout["observations"][-1], last)
        assert rollout["done"] == done[0]
        assert rollout["terminated"] == step.terminated[0]
    assert {r["terminated"] for r in found if r["done"]} == {True, False}


def test_a_rollout_ends_with_its_episode() -> None:
    rollouts = RolloutEnv(Pictures(7, 2), 3, CONFIG, 0)
    assert [len(r["actions"]) for r in played(rollouts, 6)] == [3, 3, 1, 3, 3, 1]
    assert rollouts.episodes == [(17.5, 7), (17.5, 7)]


def test_episodes_are_cut_and_begin_anew() -> None:
    env = Pictures(1000, 2)
    rollouts = RolloutEnv(env, 4, replace(CONFIG, reseed_every=10), 0)
    found = played(rollouts, 3)
    assert (found[-1]["done"], found[-1]["terminated"]) == (True, False)
    assert env.resets == 1
    played(rollouts, 1)
    assert env.resets == 2
    assert rollouts.episodes == []


def test_rewards_are_shaped_and_episodes_count_the_envs() -> None:
    config = replace(CONFIG, reward_clip=True, terminal_reward=-4.0)
    rollouts = RolloutEnv(Pictures(3, 1), 5, config, 0)
    first, second = played(rollouts, 2)
    assert first["rewards"] == [1.0, 1.0, -4.0]
    assert second["rewards"] == [1.0, 1.0, 1.0]  # a cut is no termination
    assert rollouts.episodes == [(7.5, 3), (7.5, 3)]


@pytest.mark.parametrize("reward", [np.nan, np.inf])
def test_a_reward_that_is_no_number_ends_a_worker(reward: float) -> None:
    env = Pictures(3, 1)
    rollouts = RolloutEnv(env, 5, CONFIG, 2)
    rollouts.begin()
    rollouts.step(0)
    step = env.step
    env.step = lambda action: replace(step(action), reward=np.array([reward], np.float32))
    with pytest.raises(UserError, match=r"environment 2 gave the reward (nan|inf) in step 2 of an"):
        rollouts.step(0)


def test_an_observation_that_is_no_number_ends_a_worker() -> None:
    env = ScriptedEnv(4)
    rollouts = RolloutEnv(env, 5, CONFIG, 2)
    rollouts.begin()
    step = env.step
    lost = np.full((1, *env.spec.frame_shape), np.nan, np.float32)
    env.step = lambda action: replace(step(action), next_observation=lost)
    with pytest.raises(UserError, match=r"environment 2 gave an observation with nan in it after"):
        rollouts.step(0)
    env.reset = lambda seed: lost
    rollouts._seeded_at = -1
    with pytest.raises(UserError, match=r"environment 2 gave .* at a start"):
        rollouts.begin()


@pytest.mark.parametrize("after", range(9))
def test_a_resumed_worker_sees_what_an_uninterrupted_one_sees(after: int) -> None:
    config = replace(CONFIG, reseed_every=15)
    whole = RolloutEnv(Pictures(7, 3), 3, config, 1)
    played(whole, after)
    state = {**whole.state_views()}
    resumed = RolloutEnv(Pictures(7, 3), 3, config, 1)
    resumed.take_over(state)
    whole.episodes.clear()
    for a, b in zip(played(whole, 12), played(resumed, 12), strict=True):
        assert np.array_equal(a.pop("observations"), b.pop("observations"))
        assert a == b
    assert whole.episodes == resumed.episodes


def test_workers_have_environments_of_their_own() -> None:
    seeds = set()
    for number in range(3):
        rollouts = RolloutEnv(Pictures(7, 1), 3, CONFIG, number)
        rollouts.begin()
        seeds.add(rollouts.env._seed)
    assert len(seeds) == 3


def test_bytes_are_those_of_the_arrays() -> None:
    rollouts = RolloutEnv(Pictures(7, 4), 20, CONFIG, 0)
    held = {
        "frames": rollouts.frames.nbytes,
        "transitions": rollouts.actions.nbytes + rollouts.rewards.nbytes,
    }
    assert rollout_bytes(rollouts.env.spec, 20) == held
