"""Configs and loops that the tests of the environments share."""

from types import SimpleNamespace

import numpy as np

from rlmem.envs import EnvStepper, Step


def atari_cfg(game: str | None = "road_runner", **changes: object) -> SimpleNamespace:
    """An Atari config under the machado protocol; keywords change the protocol or the config."""
    protocol = {
        "sticky": 0.25,
        "noop_max": 0,
        "fire_reset": False,
        "episodic_life": False,
        "max_frames": 108000,
    }
    top = {"suite": "atari", "game": game, "stack": 4, "frame_skip": 4, "screen_size": 84}
    for key, value in changes.items():
        (protocol if key in protocol else top)[key] = value
    return SimpleNamespace(**top, protocol=SimpleNamespace(**protocol))


def gym_cfg(
    env_id: str | None = "CartPole-v1",
    limit: int | None = None,
    levels: int | None = None,
    **kwargs: object,
) -> SimpleNamespace:
    return SimpleNamespace(
        suite="gym", id=env_id, max_episode_steps=limit, kwargs=kwargs, action_levels=levels
    )


def minatar_cfg(game: str | None = "breakout", sticky: float = 0.1) -> SimpleNamespace:
    return SimpleNamespace(suite="minatar", game=game, sticky=sticky, max_episode_steps=None)


def random_actions(env: EnvStepper, steps: int, seed: int = 0) -> np.ndarray:
    """int64 [steps, E], or float32 [steps, E, A] in the box of actions."""
    rng, spec = np.random.default_rng(seed), env.spec
    if spec.continuous:
        shape = (steps, spec.num_envs, *spec.action_shape)
        return rng.uniform(spec.action_low, spec.action_high, shape).astype(np.float32)
    return rng.integers(0, spec.num_actions, (steps, spec.num_envs))


def play(env: EnvStepper, seed: int, actions: np.ndarray) -> tuple[np.ndarray, list[Step]]:
    """First frames and the steps that follow."""
    return env.reset(seed), [env.step(action) for action in actions]


def assert_same_play(
    left: tuple[np.ndarray, list[Step]], right: tuple[np.ndarray, list[Step]]
) -> None:
    np.testing.assert_array_equal(left[0], right[0])
    for a, b in zip(left[1], right[1], strict=True):
        for field in ("observation", "next_observation", "reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(a, field), getattr(b, field))


def assert_conforms(env: EnvStepper, steps: list[Step]) -> None:
    """Shapes and dtypes of the steps are those that the spec and `Step` promise."""
    spec, num_envs = env.spec, env.spec.num_envs
    for step in steps:
        for frames in (step.observation, step.next_observation):
            assert frames.shape == (num_envs, *spec.frame_shape)
            assert frames.dtype == spec.dtype
            assert frames.flags.c_contiguous
        assert step.reward.dtype == np.float32
        assert step.terminated.dtype == np.bool_
        assert step.truncated.dtype == np.bool_
        assert step.reward.shape == step.terminated.shape == step.truncated.shape == (num_envs,)


def assert_chained(first: np.ndarray, steps: list[Step]) -> None:
    """A step that ends no episode hands on its next observation."""
    for step in steps:
        running = ~(step.terminated | step.truncated)
        np.testing.assert_array_equal(step.observation[running], step.next_observation[running])
