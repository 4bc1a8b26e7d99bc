"""Gymnasium environments: against SyncVectorEnv, observation kinds, limits, errors."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlmem.envs import make_env
from rlmem.envs.spec import env_seeds
from rlmem.errors import UserError
from tests.envs.helpers import (
    assert_chained,
    assert_conforms,
    assert_same_play,
    gym_cfg,
    play,
    random_actions,
)


class Toy(gymnasium.Env):
    """An environment whose spaces a test chooses; observations count the steps of the episode."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, observation_space, action_space=None, render_mode=None):
        self.observation_space = observation_space
        self.action_space = action_space or spaces.Discrete(2)
        self.actions = []
        self.t = 0

    def _observation(self):
        if isinstance(self.observation_space, spaces.Discrete):
            return self.observation_space.start + self.t
        shape, dtype = self.observation_space.shape, self.observation_space.dtype
        return (np.arange(np.prod(shape)).reshape(shape) + self.t).astype(dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._observation(), {}

    def step(self, action):
        self.actions.append(action)
        self.t += 1
        return self._observation(), 1.0, self.t == 2, False, {}


@pytest.fixture
def toy():
    """Registers a Toy, or a kind of it, with the given spaces; gives its id."""

    def register(*args, kind=Toy):
        gymnasium.register("rlmem-test/Toy-v0", entry_point=lambda **kw: kind(*args, **kw))
        return "rlmem-test/Toy-v0"

    yield register
    gymnasium.registry.pop("rlmem-test/Toy-v0", None)


def test_an_environment_need_not_know_of_render_modes():
    class Plain(Toy):
        def __init__(self):
            super().__init__(spaces.Box(-1, 1, (2,)))

    gymnasium.register("rlmem-test/Plain-v0", entry_point=Plain)
    try:
        env = make_env(gym_cfg("rlmem-test/Plain-v0"), 1)
        np.testing.assert_array_equal(env.reset(0), [[0.0, 1.0]])
    finally:
        gymnasium.registry.pop("rlmem-test/Plain-v0")


def test_a_step_of_another_shape_is_refused_as_a_reset_is(toy):
    class Odd(Toy):
        def step(self, action):
            observation, *rest = super().step(action)
            return observation[:1], *rest  # numpy would stretch it

    env = make_env(gym_cfg(toy(spaces.Box(-1, 9, (3,)), kind=Odd)), 1)
    env.reset(0)
    with pytest.raises(UserError, match=r"its observation is float32 \[1\], where"):
        env.step(np.zeros(1, np.int64))


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ((np.zeros(3), 1.0, False, {}), "4 values, where observation, reward"),
        ((np.zeros(3), [1.0], False, False, {}), r"a reward of shape \[1\], where one number"),
    ],
)
def test_a_step_of_another_interface_is_one_line(toy, given, line):
    class Old(Toy):
        def step(self, action):
            return given

    env = make_env(gym_cfg(toy(spaces.Box(-1, 9, (3,)), kind=Old)), 2)
    env.reset(0)
    with pytest.raises(UserError, match=f"env.id=rlmem-test/Toy-v0: its step gives {line}"):
        env.step(np.zeros(2, np.int64))


def test_an_environment_that_cannot_be_closed_is_told_and_ends_nothing(toy, monkeypatch, capsys):
    def close(self):
        raise RuntimeError("no window")

    monkeypatch.setattr(Toy, "close", close, raising=False)
    env = make_env(gym_cfg(toy(spaces.Box(-1, 9, (3,)))), 2)
    env.close()
    env.close()  # which has nothing left to close
    line = "env.id=rlmem-test/Toy-v0: could not be closed (RuntimeError: no window)\n"
    assert capsys.readouterr().out == 2 * line


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "Pendulum-v1"])
def test_stepper_equals_sync_vector_env(env_id, num_envs):
    limit = 60
    env = make_env(gym_cfg(env_id, limit), num_envs)
    reference = SyncVectorEnv(
        [lambda: gymnasium.make(env_id, max_episode_steps=limit)] * num_envs,
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    np.testing.assert_array_equal(env.reset(9), reference.reset(seed=env_seeds(9, num_envs))[0])
    ends = 0
    for action in random_actions(env, 400):
        step = env.step(action)
        observation, reward, terminated, truncated, info = reference.step(action)
        expected = observation.copy()
        for e in np.flatnonzero(terminated | truncated):
            expected[e] = info["final_obs"][e]
            ends += 1
        np.testing.assert_array_equal(step.observation, observation)
        np.testing.assert_array_equal(step.next_observation, expected)
        np.testing.assert_array_equal(step.reward, reward.astype(np.float32))
        np.testing.assert_array_equal(step.terminated, terminated)
        np.testing.assert_array_equal(step.truncated, truncated)
    assert ends >= 4


@pytest.mark.parametrize("env_id", ["CartPole-v1", "LunarLander-v3"])
def test_trajectory_depends_on_seed_and_actions_only(env_id):
    if env_id.startswith("Lunar"):
        pytest.importorskip("Box2D")
    env, other = make_env(gym_cfg(env_id), 2), make_env(gym_cfg(env_id), 2)
    actions = random_actions(env, 400)
    first = play(env, 5, actions)
    assert sum(s.terminated.sum() for s in first[1]) >= 4
    assert_conforms(env, first[1])
    assert_chained(*first)
    assert_same_play(first, play(env, 5, actions))
    assert_same_play(first, play(other, 5, actions))
    assert (play(env, 6, actions)[0] != first[0]).any()


def test_nothing_is_kept_over_a_seeding(toy) -> None:
    """As a physics engine's world is, for which a run that goes on would be another one."""
    env = make_env(gym_cfg(toy(spaces.Box(0, 255, (4, 5, 3), np.uint8))), 2)
    made = list(env._envs)
    env.reset(0)
    assert env._envs == made
    env.step(np.zeros(2, np.int64))
    env.reset(0)
    assert not {*map(id, env._envs)} & {*map(id, made)}


def test_a_seeded_world_is_that_of_a_fresh_one():
    pytest.importorskip("Box2D")
    env, fresh = (make_env(gym_cfg("BipedalWalker-v3"), 1) for _ in range(2))
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (200, 1, 4)).astype(np.float32)
    play(env, 5, actions)
    assert_same_play(play(env, 6, actions), play(fresh, 6, actions))
    drawn = make_env(gym_cfg("BipedalWalker-v3"), 1, render=True)  # a picture was tried
    assert_same_play(play(drawn, 6, actions), play(fresh, 6, actions))


def test_spec_of_cartpole():
    spec = make_env(gym_cfg(), 2).spec
    assert (spec.env_id, spec.suite, spec.num_envs) == ("CartPole-v1", "gym", 2)
    assert spec.frame_shape == spec.observation_shape == (4,)
    assert spec.dtype == np.float32
    assert (spec.num_actions, spec.stack, spec.frames_per_step) == (2, 1, 1)


def test_max_episode_steps_truncates_and_keeps_the_final_observation():
    env = make_env(gym_cfg("MountainCar-v0", 7), 2)
    whole = make_env(gym_cfg("MountainCar-v0"), 2)
    actions = random_actions(env, 7)
    _, cut = play(env, 2, actions)
    _, rest = play(whole, 2, actions)
    assert [s.truncated.all() for s in cut] == [False] * 6 + [True]
    assert not any(s.terminated.any() for s in cut)
    np.testing.assert_array_equal(cut[-1].next_observation, rest[-1].observation)
    assert (cut[-1].observation != cut[-1].next_observation).any()


def test_discrete_observations_become_one_hot(toy):
    env = make_env(gym_cfg(toy(spaces.Discrete(4, start=5))), 2)
    assert env.spec.frame_shape == (4,)
    assert env.reset(0).tolist() == [[1, 0, 0, 0]] * 2
    step = env.step(np.array([0, 1]))
    assert step.observation.tolist() == [[0, 1, 0, 0]] * 2
    assert step.observation.dtype == np.float32


def test_pictures_become_channels_first(toy):
    env = make_env(gym_cfg(toy(spaces.Box(0, 255, (4, 5, 3), np.uint8))), 1)
    assert env.spec.frame_shape == env.spec.observation_shape == (3, 4, 5)
    assert env.spec.dtype == np.uint8
    frame = env.reset(0)
    expected = np.arange(60, dtype=np.uint8).reshape(4, 5, 3).transpose(2, 0, 1)
    np.testing.assert_array_equal(frame[0], expected)
    assert frame.flags.c_contiguous


def test_images_whose_channels_come_first_stay_as_they_are(toy) -> None:
    env = make_env(gym_cfg(toy(spaces.Box(0, 255, (2, 4, 5), np.uint8))), 1)
    assert env.spec.frame_shape == (2, 4, 5)
    expected = np.arange(40, dtype=np.uint8).reshape(2, 4, 5)
    np.testing.assert_array_equal(env.reset(0)[0], expected)


def test_a_square_board_of_many_planes_stays_as_it_is(toy) -> None:
    assert make_env(gym_cfg(toy(spaces.Box(0, 1, (12, 8, 8), np.uint8))), 1).spec.frame_shape == (
        12, 8, 8,
    )  # fmt: skip


@pytest.mark.parametrize(("highest", "scale"), [(255, 1 / 255), (1, 1.0), (9, 1 / 9)])
def test_images_are_scaled_by_the_largest_value_of_their_space(toy, highest, scale) -> None:
    env = make_env(gym_cfg(toy(spaces.Box(0, highest, (4, 5, 3), np.uint8))), 1)
    assert env.spec.input_scale == scale


@pytest.mark.parametrize(
    ("space", "given", "line"),
    [
        (spaces.Box(0, 255, (4, 5, 3), np.uint8), np.ones((4, 5, 3)), r"is float64 \[4, 5, 3\]"),
        (spaces.Box(-1, 1, (4,)), np.ones(1, np.float32), r"is float32 \[1\], where .* \[4\]"),
        (spaces.Box(-1, 1, (4,)), 0.5, r"is float64 \[\], where its space says float32 \[4\]"),
        (spaces.Discrete(3), np.ones(3), r"is float64 \[3\], where its space says int64 \[\]"),
    ],
)
def test_an_observation_that_is_none_of_its_space_is_refused(
    toy, monkeypatch, space, given, line
) -> None:
    monkeypatch.setattr(Toy, "_observation", lambda self: given)
    env = make_env(gym_cfg(toy(space)), 2)
    with pytest.raises(UserError, match=f"env.id=rlmem-test/Toy-v0: its observation {line}"):
        env.reset(0)


def test_float64_vectors_become_float32(toy):
    env = make_env(gym_cfg(toy(spaces.Box(-1, 99, (3,), np.float64))), 1)
    assert env.reset(0).dtype == np.float32


def test_actions_are_shifted_to_the_start_of_the_action_space(toy):
    env = make_env(gym_cfg(toy(spaces.Discrete(4), spaces.Discrete(3, start=-1))), 1)
    env.reset(0)
    env.step(np.array([0]))
    env.step(np.array([2]))
    assert env.spec.num_actions == 3
    assert env._envs[0].unwrapped.actions == [-1, 1]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Dict({"a": spaces.Discrete(2)}),
        spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2))),
        spaces.Box(-1, 1, (4, 4), np.float32),
        spaces.MultiBinary(3),
        spaces.Box(-1, 1, (0,), np.float32),
    ],
)
def test_other_observation_spaces_are_refused(toy, space):
    with pytest.raises(UserError, match=r"env.id=rlmem-test/Toy-v0: its observation space is"):
        make_env(gym_cfg(toy(space)), 1)


OBSERVED = spaces.Box(-1, 99, (3,), np.float32)


def test_the_spec_holds_the_box_of_continuous_actions(toy):
    box = spaces.Box(np.array([-2.0, 0.0]), np.array([1.0, 0.1]), dtype=np.float64)
    spec = make_env(gym_cfg(toy(OBSERVED, box)), 2).spec
    assert (spec.num_actions, spec.action_shape, spec.continuous) == (0, (2,), True)
    assert spec.action_low.dtype == spec.action_high.dtype == np.float32
    assert (spec.action_low >= box.low).all()
    assert (spec.action_high <= box.high).all()  # as float32, 0.1 would lie outside
    np.testing.assert_allclose(spec.action_high, box.high)


def test_continuous_actions_reach_each_environment_as_they_are(toy):
    env = make_env(gym_cfg(toy(OBSERVED, spaces.Box(-1, 1, (2,)))), 2)
    env.reset(0)
    action = np.array([[0.1, -0.2], [0.3, 0.4]], np.float32)
    env.step(action)
    for one, given in zip(env._envs, action, strict=True):
        np.testing.assert_array_equal(one.unwrapped.actions[0], given)
        assert one.unwrapped.actions[0].dtype == np.float32


def test_discrete_actions_have_no_box():
    spec = make_env(gym_cfg(), 1).spec
    assert (spec.action_shape, spec.action_low, spec.continuous) == ((), None, False)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-np.inf, 1, (2,)),
        spaces.Box(-1, 1, (2, 2)),
        spaces.Box(0, 9, (2,), np.int64),
        spaces.MultiDiscrete([2, 3]),
    ],
)
def test_other_action_spaces_are_refused(toy, space):
    with pytest.raises(UserError, match=r"its action space is .*bounded Box of floats") as caught:
        make_env(gym_cfg(toy(OBSERVED, space)), 1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("CartPol-v1", "did you mean CartPole-v1"),
        ("CartPole-v9", "did you mean CartPole-v1"),
        ("cartpole", "no such gymnasium environment"),
        ("LunarLander-v2", "LunarLander-v3"),
        ("Nowhere/CartPole-v1", "no such gymnasium environment"),
        ("no_such_package:Thing-v0", "cannot be imported"),
        ("ALE/Pong-v5", "env=atari env.game="),
    ],
)
def test_unknown_id_is_one_line(given, message):
    with pytest.raises(UserError, match=message) as caught:
        make_env(gym_cfg(given), 1)
    assert str(caught.value).startswith(f"env.id={given}: ")
    assert "\n" not in str(caught.value)


def test_id_that_is_not_set_is_refused():
    with pytest.raises(UserError, match=r"env.id is not set"):
        make_env(gym_cfg(None), 1)


def test_max_episode_steps_below_one_is_refused():
    with pytest.raises(UserError, match=r"env.max_episode_steps=0"):
        make_env(gym_cfg(limit=0), 1)


@pytest.mark.parametrize(
    ("env_id", "extra"),
    [
        ("LunarLander-v3", r"rlmem\[box2d\]"),
        ("Ant-v5", r"rlmem\[mujoco\]"),
        ("FrozenLake-v1", r"gymnasium\[toy-text\]"),
    ],
)
def test_missing_package_names_the_extra(monkeypatch, env_id, extra):
    def fail(*args, **kwargs):
        raise gymnasium.error.DependencyNotInstalled("not installed,\nrun pip")

    monkeypatch.setattr(gymnasium, "make", fail)
    with pytest.raises(UserError, match=rf'pip install "{extra}"'):
        make_env(gym_cfg(env_id), 1)


def test_render_gives_a_picture():
    pytest.importorskip("pygame")
    env = make_env(gym_cfg(), 2, render=True)
    env.reset(0)
    picture = env.render()
    assert picture.dtype == np.uint8
    assert picture.ndim == 3
    assert picture.shape[2] == 3
    env.close()


def test_render_needs_render_true():
    with pytest.raises(RuntimeError, match=r"render=True"):
        make_env(gym_cfg(), 1).render()


def test_environment_without_pictures_is_refused_when_render_is_asked_for(toy):
    with pytest.raises(UserError, match=r"cannot render pictures"):
        make_env(gym_cfg(toy(spaces.Discrete(4))), 1, render=True)
