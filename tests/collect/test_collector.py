"""The stream of batches: what it steps, stores, draws, cuts and restores."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlmem.collect.config import derive_seed
from rlmem.envs import Step, make_env
from rlmem.memories import PrioritizedSampler
from rlmem.memories.base.serialize import load_state, save_state
from tests.collect.helpers import REWARD, BlockLog, ScriptedEnv, make_stream, ring
from tests.envs.helpers import atari_cfg, gym_cfg, minatar_cfg


def test_iterating_has_no_effect_before_the_first_next() -> None:
    env, memory = ScriptedEnv(5, 7), ring()
    iter(make_stream(env, memory))
    assert (env.resets, env.steps, memory.transitions_seen) == (0, 0, 0)


@pytest.mark.parametrize(
    ("max_env_steps", "vector_steps", "batches"), [(100, 1, 50), (100, 5, 10), (99, 5, 10)]
)
def test_the_length_is_the_number_of_batches_left(
    max_env_steps: int, vector_steps: int, batches: int
) -> None:
    changes = {"max_env_steps": max_env_steps, "vector_steps": vector_steps}
    stream = make_stream(ScriptedEnv(5, 7), ring(), **changes)
    assert len(stream) == batches
    next(stream)
    assert len(stream) == batches - 1
    assert len(list(stream)) == batches - 1
    assert len(stream) == 0


def test_each_batch_steps_all_envs_vector_steps_times() -> None:
    env = ScriptedEnv(5, 7)
    stream = make_stream(env, ring(), vector_steps=3)
    for batches in (1, 2, 3):
        next(stream)
        assert stream.env_steps == 6 * batches
        assert env.steps == 3 * batches
        assert stream.frames == 4 * stream.env_steps
        assert stream.memory.transitions_seen == stream.env_steps


def test_batches_are_empty_until_learning_starts() -> None:
    stream = make_stream(ScriptedEnv(5, 7), ring(), learning_starts=20, updates=3)
    shapes = [tuple(batch["index"].shape) if batch else None for batch in stream]
    assert shapes == [None] * 9 + [(3, 8)] * 41


def test_batches_are_empty_while_the_memory_cannot_be_sampled() -> None:
    stream = make_stream(ScriptedEnv(5, 7), BlockLog())
    assert next(stream) == {}


def test_a_block_is_time_major_and_follows_the_environments() -> None:
    log, env = BlockLog(), ScriptedEnv(3, 4)
    list(make_stream(env, log, vector_steps=5, max_env_steps=20))
    observation, following = log.column("observation"), log.column("next_observation")
    assert log.column("env_id").tolist() == [0, 1] * 10
    assert observation[:, 1].tolist() == [0, 1] * 10
    assert observation[::2, 3].tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    assert following[::2, 3].tolist() == [1, 2, 3, 1, 2, 3, 1, 2, 3, 1]
    assert following[:, 2].tolist() == observation[:, 2].tolist()  # of the same episode
    terminated = log.column("terminated")
    assert terminated[::2].tolist() == [False, False, True] * 3 + [False]
    assert log.column("action").tolist() == np.concatenate(env.actions).tolist()


def test_re_seeding_ends_the_running_episodes_as_truncated_at_their_true_next_frame() -> None:
    log = BlockLog()
    stream = make_stream(ScriptedEnv(100, 5), log, reseed_every=10, max_env_steps=40)
    list(stream)
    observation, following = log.column("observation"), log.column("next_observation")
    truncated = log.column("truncated")
    # Env 0 runs on and is cut; env 1's episode has just ended by itself.
    assert truncated[::2].tolist() == [False, False, False, False, True] * 4
    assert not truncated[1::2].any()
    assert (
        log.column("terminated")[1::2].tolist() == [False] * 4 + [True] + ([False] * 4 + [True]) * 3
    )
    assert following[::2, 3].tolist() == [1, 2, 3, 4, 5] * 4
    assert observation[::2, 3].tolist() == [0, 1, 2, 3, 4] * 4
    assert len(set(observation[:, 0])) == 4  # another seed each time
    assert (observation[:, 0] == following[:, 0]).all()


def test_the_seeds_are_those_of_the_run_and_the_env_steps() -> None:
    logs = [BlockLog(), BlockLog(), BlockLog()]
    for log, seed in zip(logs, (0, 0, 1), strict=True):
        list(make_stream(ScriptedEnv(9, 9), log, seed=seed, reseed_every=20))
    first, again, other = (log.column("observation")[:, 0] for log in logs)
    np.testing.assert_array_equal(first, again)
    assert not set(first) & set(other)


@pytest.mark.parametrize(("clip", "stored"), [(True, 1.0), (False, REWARD)])
def test_rewards_are_clipped_in_the_memory_only(clip: bool, stored: float) -> None:
    log = BlockLog()
    stream = make_stream(ScriptedEnv(4, 4), log, reward_clip=clip)
    list(stream)
    assert (log.column("reward") == stored).all()
    assert {e.episode_return for e in stream.finished_episodes()} == {4 * REWARD}


@pytest.mark.parametrize("clip", [True, False])
def test_the_terminal_reward_is_what_is_stored_of_a_step_that_terminates(clip: bool) -> None:
    log = BlockLog()
    stream = make_stream(ScriptedEnv(4, 5), log, reward_clip=clip, terminal_reward=-10.0)
    list(stream)
    reward, done = log.column("reward"), log.column("terminated")
    assert reward.dtype == np.float32
    assert (reward[done] == -10).all()
    assert (reward[~done] == (1.0 if clip else REWARD)).all()
    assert {e.episode_return for e in stream.finished_episodes()} == {4 * REWARD, 5 * REWARD}


def test_a_cut_for_a_new_seed_is_no_termination() -> None:
    log = BlockLog()
    list(make_stream(ScriptedEnv(70), log, terminal_reward=-10.0, reseed_every=30))
    ends = log.column("truncated") & ~log.column("terminated")
    assert ends.any()
    assert (log.column("reward")[ends] == REWARD).all()


def test_a_number_of_episodes_ends_the_run() -> None:
    stream = make_stream(ScriptedEnv(5, 7), ring(), max_episodes=4)
    assert len(stream) == 50  # at most
    list(stream)
    assert stream.over
    assert len(stream) == 0
    assert (stream.episodes.count, stream.env_steps) == (4, 28)  # 5, 7, 10 and 14 steps of two envs


def test_the_env_steps_end_a_run_whose_episodes_do_not() -> None:
    stream = make_stream(ScriptedEnv(5, 7), ring(), max_episodes=1000)
    assert len(list(stream)) == 50


def test_the_sampler_is_annealed_by_env_steps() -> None:
    sampler = PrioritizedSampler(200, beta_start=0.0, beta_end=1.0, beta_steps=100)
    for _ in make_stream(ScriptedEnv(5, 7), stream_memory := ring(sampler=sampler)):
        assert sampler.beta == pytest.approx(stream_memory.transitions_seen / 100)


ENVS: dict[str, Callable] = {
    "cartpole": lambda: make_env(gym_cfg(), 2),
    "pendulum": lambda: make_env(gym_cfg("Pendulum-v1", 30), 2),
    "minatar": lambda: make_env(minatar_cfg("breakout"), 2),
    "atari": lambda: make_env(atari_cfg("pong"), 2),
}


def assert_same_blocks(left: list[dict[str, Any]], right: list[dict[str, Any]]) -> None:
    assert len(left) == len(right) > 0
    for a, b in zip(left, right, strict=True):
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])


@pytest.mark.parametrize("name", ENVS)
@pytest.mark.parametrize("cut", [60, 100, 130])
def test_a_loaded_stream_goes_on_as_the_saved_one(name: str, cut: int, tmp_path: Path) -> None:
    """Cuts between two seedings, at one, and after the first."""
    log, other_log = BlockLog(), BlockLog()
    changes = {"max_env_steps": 260, "vector_steps": 1, "reseed_every": 100}
    stream = make_stream(ENVS[name](), log, **changes)
    while stream.env_steps < cut:
        next(stream)
    save_state(tmp_path, stream.state_dict())
    log.blocks.clear()
    stream.finished_episodes()
    other = make_stream(ENVS[name](), other_log, **changes)
    other.load_state_dict(load_state(tmp_path))
    assert len(other) == len(stream)
    list(stream)
    list(other)
    assert_same_blocks(log.blocks, other_log.blocks)
    assert stream.finished_episodes() == other.finished_episodes()
    assert list(stream.episodes.recent_returns) == list(other.episodes.recent_returns)
    for each in (stream, other):
        each.env.close()


def test_continuous_actions_are_kept_as_they_were_played(tmp_path: Path) -> None:
    log = BlockLog()
    stream = make_stream(ENVS["pendulum"](), log, vector_steps=3)
    for _ in range(4):
        next(stream)
    played = log.column("action")
    assert (played.shape, played.dtype) == ((24, 1), np.float32)
    save_state(tmp_path, stream.state_dict())
    np.testing.assert_array_equal(load_state(tmp_path)["actions"].reshape(24, 1), played)


def test_actions_are_kept_as_played_where_the_environment_changes_them(tmp_path: Path) -> None:
    """It may halve them in place; a resumed run plays them again as they were chosen."""

    class Halving(ScriptedEnv):
        def step(self, action: np.ndarray) -> Step:
            found = super().step(action.copy())
            action[...] = action // 2
            return found

    env = Halving(5, 7)
    stream = make_stream(env, BlockLog())
    for _ in range(6):
        next(stream)
    played = np.array(env.actions)
    assert played.any()
    np.testing.assert_array_equal(stream.state_dict()["actions"], played)


def test_an_environment_is_given_the_actions_that_are_kept() -> None:
    """In the memory's dtype: from others a run that plays them again would differ."""
    stream = make_stream(ENVS["pendulum"](), BlockLog())
    given, step = [], stream.env.step
    stream.env.step = lambda action: (given.append(action.copy()), step(action))[1]
    plays = stream.policy
    stream.policy = lambda *seen: plays(*seen).astype(np.float64) + 1e-9
    for _ in range(4):
        next(stream)
    assert {action.dtype for action in given} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(stream.state_dict()["actions"], given)


def test_an_agent_is_told_where_the_next_observation_begins_an_episode(tmp_path: Path) -> None:
    told: list[list[bool]] = []
    stream = make_stream(ScriptedEnv(2, 3), BlockLog(), reseed_every=8)
    stream.restart = lambda done: told.append(done.tolist())
    for _ in range(5):
        next(stream)
    seeded, neither, first, second = [True, True], [False, False], [True, False], [False, True]
    assert told == [seeded, neither, first, second, first, seeded, neither]
    kept = stream.state_dict()
    told.clear()
    stream.load_state_dict(kept)  # what was played is not told again
    assert told == []


def test_a_state_of_another_number_of_envs_is_refused(tmp_path: Path) -> None:
    stream = make_stream(ScriptedEnv(5, 7), ring())
    next(stream)
    with pytest.raises(ValueError, match="the saved run had 2 environments, this one 3"):
        make_stream(ScriptedEnv(5, 7, 9), ring(3)).load_state_dict(stream.state_dict())


SEED_PARTS = ((0, 1), (1, 0), (0, 1, 2), (0, 2), (0, 2, 0), (7,), (7, 0), (7, 0, 0))


def test_a_seed_depends_on_every_part() -> None:
    seeds = [derive_seed(*parts) for parts in SEED_PARTS]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert derive_seed(0, 1) == derive_seed(0, 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("actions", np.full((3, 3), 99)),
        ("actions", "x"),
        ("env_steps", "many"),
        ("seeded_at", 10**6),
        ("rng", {"state": 1}),
        ("episodes", -1),
        ("recent_returns", ["x"]),
    ],
)
def test_a_state_of_no_stream_is_refused_and_changes_nothing(name: str, value: Any) -> None:
    stream = make_stream(ScriptedEnv(5, 7, 9), ring(3))
    next(stream)
    before = copy.deepcopy(stream.state_dict())
    with pytest.raises(ValueError, match=r"the saved stream's"):
        stream.load_state_dict({**before, name: value})
    np.testing.assert_equal(stream.state_dict(), before)
