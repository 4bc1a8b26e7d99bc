"""Replay buffers for Stable-Baselines3 against SB3's own, which keep every stack twice."""

import copy
import importlib
import itertools
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlmem.errors import UserError

pytest.importorskip("stable_baselines3")

from stable_baselines3 import DQN
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.vec_env import (
    VecEnv,
    VecFrameStack,
    VecNormalize,
)

from rlmem.integrations import sb3
from rlmem.integrations.sb3 import CompressedReplayBuffer, FrameReplayBuffer
from tests.integrations.sb3 import Step, make, screens, steps_of, vectors

BUFFERS = [CompressedReplayBuffer, FrameReplayBuffer]


def assert_same(own: Any, reference: Any, normalizer: VecNormalize | None = None) -> None:
    """Every position is sampled, and each sample is SB3's bit for bit."""
    assert (own.pos, own.full, own.size()) == (reference.pos, reference.full, reference.size())
    positions = np.tile(np.arange(own.size()), 1 if own.n_envs == 1 else 8)
    theirs = seeded(lambda: reference._get_samples(positions, normalizer))
    assert_equal(seeded(lambda: own._get_samples(positions, normalizer)), theirs)


def seeded(draw: Callable[[], Any]) -> Any:
    """What is drawn after seeding numpy as SB3 does."""
    np.random.seed(3)  # noqa: NPY002
    return draw()


def assert_equal(ours: Any, theirs: Any) -> None:
    for name in theirs._fields:
        a, b = getattr(ours, name), getattr(theirs, name)
        if b is None:
            assert a is None, name
            continue
        assert (a.dtype, a.shape) == (b.dtype, b.shape), name
        assert a.is_contiguous(), name
        assert torch.equal(a, b), name


@pytest.mark.parametrize("kind", BUFFERS)
@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("n_steps", [1, 3])
@pytest.mark.parametrize(
    ("env_of", "stack"),
    [
        (screens, 4),
        (lambda n: screens(n, channels_first=False), 4),
        (lambda n: screens(n, 2, channels=3), 2),
        (lambda n: screens(n, 1, channels=3), 1),
        (vectors, 1),
        (lambda n: VecFrameStack(vectors(n), 3), 3),
    ],
    ids=["chw", "hwc", "stacked rgb", "rgb", "vectors", "stacked vectors"],
)
def test_samples_are_sb3s_while_the_ring_wraps(
    kind: type[CompressedReplayBuffer],
    num_envs: int,
    n_steps: int,
    env_of: Callable[[int], VecEnv],
    stack: int,
) -> None:
    env = env_of(num_envs)
    own = make(kind, env, 60 * num_envs + 1, n_steps=n_steps, gamma=0.9, frame_stack=stack)
    options = {"n_steps": n_steps, "gamma": 0.9} if n_steps > 1 else {}
    theirs = NStepReplayBuffer if n_steps > 1 else ReplayBuffer
    reference = make(theirs, env, 60 * num_envs + 1, **options)
    timeouts = 0
    for number, step in enumerate(steps_of(env, 150), 1):
        own.add(*step)
        reference.add(*step)
        timeouts += sum(info["TimeLimit.truncated"] for info in step[5])
        if number in (1, 40, 60, 61, 150):
            assert_same(own, reference)
            own.storage.check_valid()
    assert timeouts > 0
    assert own.storage.observation_shape[0] == stack * own.storage.frame_shape[0]


@pytest.mark.parametrize("handled", [True, False])
def test_dones_are_zero_at_timeouts(handled: bool) -> None:
    env = screens(3)
    options = {"handle_timeout_termination": handled}
    own = make(CompressedReplayBuffer, env, 300, frame_stack=4, **options)
    reference = make(ReplayBuffer, env, 300, **options)
    ends, cuts = [], []
    for step in steps_of(env, 100):
        own.add(*step)
        reference.add(*step)
        ends.append(step[4])
        cuts.append([info["TimeLimit.truncated"] for info in step[5]])
    assert_same(own, reference)
    assert np.sum(cuts) > 10
    assert np.sum(ends) - np.sum(cuts) > 10
    sampled = own.storage.get(np.arange(300))["next", "terminated"].numpy().reshape(100, 3)
    expected = np.logical_and(ends, np.logical_not(cuts)) if handled else np.array(ends)
    np.testing.assert_array_equal(sampled, expected)
    np.testing.assert_array_equal(own.dones, np.array(ends, np.float32))


def test_atari_stacks_are_found_by_their_shape() -> None:
    for channels_first in (True, False):
        env = screens(2, channels_first=channels_first, size=84)
        own, reference = make(CompressedReplayBuffer, env, 40), make(ReplayBuffer, env, 40)
        assert own.storage.frame_shape == (1, 84, 84)
        for step in steps_of(env, 30):
            own.add(*step)
            reference.add(*step)
        assert_same(own, reference)
    unstacked = spaces.Box(0, 255, (3, 84, 84), np.uint8), spaces.Box(0, 1, (4, 84, 84), np.float32)
    for space in unstacked:
        assert CompressedReplayBuffer(10, space, spaces.Discrete(2)).frame_stack == 1


@pytest.mark.parametrize("n_steps", [1, 4])
def test_vec_normalize(n_steps: int) -> None:
    env = VecNormalize(vectors(2), clip_reward=0.5)
    options = {"n_steps": n_steps, "gamma": 0.9} if n_steps > 1 else {}
    own = make(CompressedReplayBuffer, env, 100, **options)
    reference = make(NStepReplayBuffer if n_steps > 1 else ReplayBuffer, env, 100, **options)
    for step in steps_of(env, 80):
        own.add(*step)
        reference.add(*step)
    assert_same(own, reference, env)
    assert not torch.equal(own.sample(32).rewards, own.sample(32, env).rewards)


@pytest.mark.parametrize(
    ("observations", "actions"),
    [
        (spaces.Discrete(7), spaces.Discrete(300, start=-1)),
        (spaces.MultiDiscrete([3, 5]), spaces.MultiDiscrete([2, 4])),
        (spaces.MultiBinary(6), spaces.MultiBinary(3)),
        (spaces.Box(-1, 1, (2, 3), np.float64), spaces.Box(-1, 1, (2,), np.float64)),
    ],
    ids=str,
)
def test_spaces(observations: spaces.Space, actions: spaces.Space) -> None:
    own, reference = (
        kind(20, observations, actions, device="cpu", n_envs=2)
        for kind in (CompressedReplayBuffer, ReplayBuffer)
    )
    rng = np.random.default_rng(0)
    observations.seed(0)
    actions.seed(0)
    for _ in range(25):
        now, after, action = (
            np.array([space.sample() for _ in range(2)])
            for space in (observations, observations, actions)
        )
        step = now, after, action, rng.normal(size=2), rng.random(2) < 0.2, [{}, {}]
        own.add(*step)
        reference.add(*step)
    assert_same(own, reference)


@pytest.mark.parametrize("kind", BUFFERS)
@pytest.mark.parametrize("options", [{}, {"budget": "300 kB"}], ids=["capacity", "budget"])
def test_pickle_drops_nothing(
    kind: type[CompressedReplayBuffer], options: dict[str, Any], tmp_path: Path
) -> None:
    env = screens(2)
    model = DQN(
        "CnnPolicy",
        env,
        buffer_size=400,
        learning_starts=1000,
        replay_buffer_class=kind,
        replay_buffer_kwargs={"frame_stack": 4, **options},
        seed=0,
        device="cpu",
    )
    model.learn(500)
    before: Any = model.replay_buffer
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    model.load_replay_buffer(tmp_path / "buffer.pkl")
    after: Any = model.replay_buffer
    assert after is not before
    after.storage.check_valid()
    assert_same(after, before)
    for step in list(steps_of(env, 120, seed=1))[:90]:  # a new episode, in the middle of the old
        before.add(*step)
        after.add(*step)
    assert_same(after, before)
    assert_same(copy.deepcopy(after), before)


def test_an_episode_goes_on_after_loading(tmp_path: Path) -> None:
    env = screens(2)
    own, reference = (
        make(CompressedReplayBuffer, env, 200, frame_stack=4),
        make(ReplayBuffer, env, 200),
    )
    for number, step in enumerate(steps_of(env, 80)):
        if number == 33:
            own = copy.deepcopy(own)
        own.add(*step)
        reference.add(*step)
    assert_same(own, reference)


def test_what_is_no_stack_is_refused() -> None:
    space = spaces.Box(0, 255, (84, 84, 4), np.uint8)
    rgba = CompressedReplayBuffer(10, space, spaces.Discrete(2), device="cpu")
    images = np.random.default_rng(0).integers(0, 256, (2, 1, 84, 84, 4), np.uint8)
    zero = np.zeros(1)
    with pytest.raises(UserError, match=r"replay_buffer_kwargs=dict\(frame_stack=1\)"):
        rgba.add(images[0], images[1], zero, zero, zero, [{}])
    assert rgba.size() == 0
    whole = CompressedReplayBuffer(10, space, spaces.Discrete(2), device="cpu", frame_stack=1)
    whole.add(images[0], images[1], zero, zero, zero, [{}])
    assert torch.equal(whole.sample(1).next_observations[0], torch.from_numpy(images[1, 0]))


@pytest.mark.parametrize("given", [True, 0, 2.5, "4"])
def test_a_stack_is_of_a_whole_number_of_frames(given: Any) -> None:
    space, action = spaces.Box(0, 255, (84, 84, 4), np.uint8), spaces.Discrete(2)
    four: Any = np.int64(4)
    with pytest.raises(UserError, match="use 'auto', 1, 2"):
        CompressedReplayBuffer(10, space, action, frame_stack=given)
    assert CompressedReplayBuffer(10, space, action, frame_stack=four).frame_stack == 4


def running_step(env: VecEnv, buffer: Any, seed: int = 0) -> list[Step]:
    """Add steps until an episode has a full stack; the next two steps."""
    steps = list(steps_of(env, 60, seed))
    for number, step in enumerate(steps):
        buffer.add(*step)
        after = steps[number + 1]
        if step[0][0, 0].any() and after[0][0, 3].any() and not (step[4] | after[4]).any():
            return steps[number + 1 : number + 3]
    raise AssertionError("no episode is long enough")


def test_missing_frames_are_refused_and_a_reset_is_taken() -> None:
    env = screens(1)
    own, reference = (
        make(CompressedReplayBuffer, env, 200, frame_stack=4),
        make(ReplayBuffer, env, 200),
    )
    following, skipped_to = running_step(env, own)
    running_step(env, reference)
    with pytest.raises(UserError, match="frames are missing"):
        own.add(*skipped_to)
    assert_same(own, reference)
    emptied, ended = copy.deepcopy(own), copy.deepcopy(own)
    emptied.reset()
    with pytest.raises(UserError, match="frames are missing"):
        emptied.add(*following)
    ended.add(*following[:4], np.array([True]), following[5])
    with pytest.raises(UserError, match="frames are missing"):  # its stack was not zeroed
        ended.add(*skipped_to)
    # A reset that shows the very frame that the last step ended with.
    first = np.zeros_like(following[0])
    first[:, 3] = following[0][:, 3]
    second = np.concatenate([first[:, 1:], np.full_like(first[:, :1], 9)], 1)
    for buffer in (own, reference):
        buffer.add(first, second, *following[2:])
    assert_same(own, reference)


def test_reset_empties() -> None:
    env = screens(2)
    own, reference = (
        make(CompressedReplayBuffer, env, 50, frame_stack=4),
        make(ReplayBuffer, env, 50),
    )
    for step in steps_of(env, 40):
        own.add(*step)
    own.reset()
    assert (own.size(), own.pos, own.full) == (0, 0, False)
    for step in steps_of(env, 40, seed=1):
        own.add(*step)
        reference.add(*step)
    assert_same(own, reference)


@pytest.mark.parametrize("kind", BUFFERS)
def test_budget_keeps_the_newest(kind: type[CompressedReplayBuffer]) -> None:
    env, budget = screens(3), 400_000
    own = make(kind, env, 10_000, frame_stack=4, budget=budget)
    reference = make(ReplayBuffer, env, 4500)
    for step in steps_of(env, 1500):
        own.add(*step)
        reference.add(*step)
        assert sum(own.footprint().values()) <= budget
    count = own.size()
    assert own.full
    assert 50 < count < 1500
    own.storage.check_valid()
    # Slots are in no order that is promised, but no two rewards are the same.
    sample = own.storage.get(own.storage.locate(torch.arange(3 * count)))
    ours = np.argsort(sample["next", "reward"].reshape(-1))
    theirs = np.argsort(reference.rewards[-count:].reshape(-1))
    for name, values in (
        ("observation", reference.observations),
        (("next", "observation"), reference.next_observations),
        (("next", "reward"), reference.rewards),
        ("action", reference.actions),
    ):
        newest = values[-count:].reshape(3 * count, -1)[theirs]
        np.testing.assert_array_equal(sample[name].reshape(3 * count, -1)[ours], newest)
    assert own.sample(64).observations.shape == (64, 4, 36, 36)


def test_options_are_checked() -> None:
    image, actions = spaces.Box(0, 255, (3, 36, 36), np.uint8), spaces.Discrete(2)
    with pytest.raises(UserError, match="Dict"):
        CompressedReplayBuffer(10, spaces.Dict({"image": image}), actions)
    for options in ({"frame_stack": 2}, {"frame_stack": 0}, {"channels_order": "middle"}):
        with pytest.raises(UserError, match=next(iter(options))):
            CompressedReplayBuffer(10, image, actions, **options)
    with pytest.raises(ValueError, match=r"buffer_size=100000\.0: a whole number is wanted"):
        CompressedReplayBuffer(1e5, image, actions)  # pyright: ignore
    with pytest.raises(UserError, match="buffer_size=10, n_steps=0: each must be at least 1"):
        CompressedReplayBuffer(10, image, actions, n_steps=0)
    with pytest.raises(UserError, match=r"replay_buffer_kwargs=dict\(budget='much'\): .* of bytes"):
        CompressedReplayBuffer(10, image, actions, budget="much")
    env = screens(2)
    small = make(CompressedReplayBuffer, env, 100, frame_stack=4, budget=12_000)
    with pytest.raises(UserError, match=r"budget=12000\): too small .*, \d+ bytes are missing"):
        small.add(*next(steps_of(env, 1)))


def test_a_buffer_that_does_not_fit_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    image, actions = spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(2)
    there = SimpleNamespace(available=100 * 2**20)
    monkeypatch.setattr(sb3.psutil, "virtual_memory", lambda: there)
    with pytest.warns(UserWarning, match=r"^buffer_size=20000: .* 13\d.\d MiB .* 100.0 MiB are"):
        FrameReplayBuffer(20_000, image, actions)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FrameReplayBuffer(10_000, image, actions)
        FrameReplayBuffer(20_000, image, actions, budget="90MiB")
        CompressedReplayBuffer(20_000, image, actions)


@pytest.mark.parametrize("kind", BUFFERS)
def test_observations_of_another_number_of_environments_are_refused(kind: Any) -> None:
    """As of a buffer that a model of other environments has saved."""
    own, (step,) = make(kind, vectors(2), 40), steps_of(vectors(1), 1)
    with pytest.raises(UserError, match=r"those of n_envs=2 environments, \(2, \d+\); make the m"):
        own.add(*step)
    assert own.size() == 0


@pytest.mark.parametrize("kind", BUFFERS)
def test_observations_may_be_single_numbers(kind: type[CompressedReplayBuffer]) -> None:
    own = kind(50, spaces.Box(-1, 1, (), np.float32), spaces.Discrete(2), "cpu", n_envs=3)
    values = np.random.default_rng(0).normal(size=(11, 3)).astype(np.float32)
    for now, later in itertools.pairwise(values):
        own.add(now, later, np.zeros(3, int), np.ones(3), np.zeros(3, bool), [{}] * 3)
    batch = own.sample(40)
    assert batch.observations.shape == (40,)
    for number, after in zip(batch.observations, batch.next_observations, strict=True):
        step, env = np.argwhere(values == number.item())[0]
        assert values[step + 1, env] == after.item()


@pytest.mark.parametrize("n_steps", [1, 3])
def test_samples_lie_on_the_device(n_steps: int) -> None:
    env = screens(2)
    own = make(CompressedReplayBuffer, env, 50, n_steps=n_steps)
    for step in steps_of(env, 20):
        own.add(*step)
    own.device = torch.device("meta")  # as load_replay_buffer sets it
    sampled = [t for t in own.sample(5) if t is not None]
    assert len(sampled) == (5 if n_steps == 1 else 6)
    assert {t.device.type for t in sampled} == {"meta"}


class Missing:
    """A finder that knows no SB3."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name == "stable_baselines3":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_the_extra_is_named_where_sb3_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.split(".")[0] == "stable_baselines3" or name == "rlmem.integrations.sb3":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    with pytest.raises(ImportError, match=r"pip install 'rlmem\[sb3\]'"):
        importlib.import_module("rlmem.integrations.sb3")


def test_actions_of_half_precision_come_back_as_they_were() -> None:
    space = spaces.Box(-1, 1, (3,), np.float32)
    buffer = CompressedReplayBuffer(8, space, spaces.Box(-1, 1, (2,), np.float16), device="cpu")
    state = np.zeros((1, 3), np.float32)
    actions = np.linspace(-1, 1, 8, dtype=np.float16).reshape(4, 1, 2)
    for action in actions:
        buffer.add(state, state, action, np.zeros(1), np.zeros(1), [{}])
    drawn = buffer.sample(64).actions
    assert drawn.dtype == torch.float16
    assert {tuple(a) for a in drawn.tolist()} <= {tuple(a) for a in actions[:, 0].tolist()}
