"""Any registered gymnasium environment: classic control, Box2D, MuJoCo and others.

What the agent gets as a frame depends on the observation space (`rlmem.envs.observations`).
Actions are Discrete(n), or points of a bounded Box [A] of floats, or a grid of these.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import itertools
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlmem.envs import goals, robotics
from rlmem.envs.observations import FramesOf
from rlmem.envs.serial import SerialEnvStepper
from rlmem.envs.spec import EnvSettings, EnvSpec
from rlmem.errors import UserError, one_line, shortage
from rlmem.registry import part
from rlmem.settings import setting

EXTRAS = ("box2d", "mujoco")  # rlmem's own, which pin versions that work
MOST_ACTIONS = 4096  # of a grid: outputs of a network


@dataclass
class GymSettings(EnvSettings):
    """A Gymnasium env."""

    extends = "gym"

    id: str = setting(example="CartPole-v1")
    max_episode_steps: int | None = setting(at_least=1)
    kwargs: dict[str, Any] = setting()
    action_levels: int | None = setting(at_least=2, at_most=10_000)


def make_gym(
    cfg: Any, num_envs: int, *, render: bool = False, scoring: bool = False
) -> SerialEnvStepper:
    """Make a gymnasium environment; see `rlmem.envs.make_env`. `scoring` changes nothing."""
    if cfg.id is None:
        raise UserError("env.id is not set; name a gymnasium environment, e.g. env.id=CartPole-v1")
    limit = cfg.max_episode_steps
    if limit is not None and limit < 1:
        raise UserError(f"env.max_episode_steps={limit}: must be at least 1, or null")
    own = getattr(cfg, "kwargs", None) or {}

    def make(e: int) -> gymnasium.Env:
        return _make_one(cfg.id, limit, render and e == 0, own)

    envs = [make(e) for e in range(num_envs)]
    if render:
        _check_render(cfg.id, envs[0])
    actions = envs[0].action_space
    space = envs[0].observation_space
    frames = FramesOf(cfg.id, space)
    facts: dict[str, Any] = _action_facts(cfg.id, actions)
    table = None
    if (levels := getattr(cfg, "action_levels", None)) is not None:
        table = _action_table(cfg.id, facts, levels)
        facts = {"num_actions": len(table)}
    spec = EnvSpec(
        env_id=_name(cfg.id),
        suite="gym",
        num_envs=num_envs,
        frame_shape=frames.shape,
        dtype=frames.dtype,
        stack=1,
        frames_per_step=1,
        goal=goals.goal_spec(envs[0]) if goals.goal_sizes(space) else None,
        highest=frames.highest,
        **facts,
    )
    first_action = int(actions.start) if isinstance(actions, spaces.Discrete) else 0
    return SerialEnvStepper(
        spec, envs, frames.write, first_action, render, table, frames.check, make
    )


@part("env", "gym", settings=GymSettings)
class GymSuite:
    """Gymnasium's environments, also with continuous actions or with goals."""

    discrete = screens = images = False  # not always
    goals = True  # some have them
    build = staticmethod(make_gym)


def _name(env_id: str) -> str:
    """An id without the package that registers it."""
    return env_id.rpartition(":")[2]


def _make_one(
    env_id: str, max_episode_steps: int | None, render: bool, own: dict[str, Any]
) -> gymnasium.Env:
    if env_id.startswith("ALE/"):
        raise UserError(f"env.id={env_id}: Atari games are env=atari env.game=..., not env=gym")
    displays = "DISPLAY", "WAYLAND_DISPLAY"
    if render and sys.platform == "linux" and not any(map(os.environ.get, displays)):
        # pygame, which then draws into memory alone, would say that it has found none.
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    try:
        if _is_robotics(env_id):
            robotics.register()
        with _without_remarks(_is_mujoco(env_id)):
            return gymnasium.make(
                env_id,
                max_episode_steps=max_episode_steps,
                disable_env_checker=True,  # it checks every single step
                **({"render_mode": "rgb_array"} if render else {}),  # not every class takes it
                **own,
            )
    except (TypeError, ValueError) as error:
        line = f"env.kwargs={own}: env.id={env_id} does not take them ({one_line(error)})"
        if not own:
            line = (
                f"env.id={env_id}: cannot be made ({one_line(error)}); if it lacks an argument, "
                "give it as +env.kwargs.NAME=VALUE"
            )
        raise UserError(line) from error
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise UserError(_missing_package(env_id, error)) from error
    except gymnasium.error.Error as error:
        nearest = difflib.get_close_matches(env_id, gymnasium.registry, 3, 0.6)
        hint = f"did you mean {', '.join(nearest)}?" if nearest else "e.g. CartPole-v1"
        raise UserError(
            f"env.id={env_id}: no such gymnasium environment; {hint} "
            f"(one that another package registers: env.id=package:Name-v0)"
        ) from error
    except Exception as error:  # whatever an environment's own code makes of its arguments
        if not own or shortage(error):
            raise
        raise UserError(
            f"env.kwargs={own}: env.id={env_id} cannot be made with them "
            f"({type(error).__name__}: {one_line(error)})"
        ) from error


def _entry_point(env_id: str) -> str:
    registered = gymnasium.registry.get(_name(env_id))
    return str(registered.entry_point) if registered else ""


def _is_mujoco(env_id: str) -> bool:
    return _entry_point(env_id).startswith(("gymnasium.envs.mujoco", robotics.PACKAGE))


def _is_robotics(env_id: str) -> bool:
    """Whether an id names Gymnasium-Robotics, or nothing else that is known yet."""
    if ":" in env_id or env_id in gymnasium.registry:
        return env_id.startswith((f"{robotics.PACKAGE}:", f"{robotics.PACKAGE}."))
    return importlib.util.find_spec(robotics.PACKAGE) is not None


@contextmanager
def _without_remarks(mujoco_too: bool) -> Iterator[None]:
    """Leave out what is said about an older version's number, which the user chose, and about
    pictures, and about gymnasium's own model files: MuJoCo would write that to stderr and to a
    file in the cwd."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        # A class that cannot render is refused in one line.
        warnings.filterwarnings("ignore", ".*render_mode", UserWarning)
        try:
            mujoco = importlib.import_module("mujoco") if mujoco_too else None
        except ImportError:  # gymnasium says so in its own words
            mujoco = None
        if mujoco:
            mujoco.set_mju_user_warning(lambda text: None)
        try:
            yield
        finally:
            if mujoco:
                mujoco.set_mju_user_warning(None)


def _action_facts(env_id: str, space: spaces.Space) -> dict[str, Any]:
    """What the spec says about the actions."""
    if isinstance(space, spaces.Discrete):
        return {"num_actions": int(space.n)}
    if (
        not isinstance(space, spaces.Box)
        or len(space.shape) != 1
        or space.dtype.kind != "f"
        or not np.isfinite([space.low, space.high]).all()
    ):
        raise UserError(
            f"env.id={env_id}: its action space is {one_line(space)}; a Discrete one or a bounded "
            "Box of floats of shape [A] works, e.g. CartPole-v1 or Pendulum-v1"
        )
    # float32 bounds inside the box: a float64 one may be rounded to a number outside.
    low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    return {
        "num_actions": 0,
        "action_shape": space.shape,
        "action_low": np.where(low < space.low, np.nextafter(low, np.float32(np.inf)), low),
        "action_high": np.where(high > space.high, np.nextafter(high, np.float32(-np.inf)), high),
    }


def _action_table(env_id: str, facts: dict[str, Any], levels: int) -> np.ndarray:
    """All actions of `levels` values a dimension, evenly spaced over its range.

    Returns:
        float32 [levels ** A, A] in the order of `itertools.product`.
    """
    if facts["num_actions"]:
        raise UserError(
            f"env.action_levels={levels}: the {facts['num_actions']} actions of env.id={env_id} "
            "are discrete already; leave the key out"
        )
    low, high = facts["action_low"], facts["action_high"]
    if levels < 2 or levels ** len(low) > MOST_ACTIONS:
        most = int((MOST_ACTIONS + 0.5) ** (1 / len(low)))
        works = f"2 to {most}" if most >= 2 else "null, with agent=ddpg or agent=td3"
        raise UserError(
            f"env.action_levels={levels}: the {len(low)} numbers of an action of env.id={env_id} "
            f"would make {levels ** len(low)} actions, {MOST_ACTIONS} is the most; use {works}"
        )
    values = np.linspace(low, high, levels, dtype=np.float32).T
    return np.array(list(itertools.product(*values)), np.float32)


def _missing_package(env_id: str, error: Exception) -> str:
    if env_id.startswith(robotics.PACKAGE):
        return f'env.id={env_id}: a package is missing; pip install "rlmem[robotics]"'
    entry_point = _entry_point(env_id)
    if isinstance(error, gymnasium.error.DependencyNotInstalled) and entry_point.startswith(
        "gymnasium.envs."
    ):
        extra = entry_point.split(".")[2].replace("_", "-")
        package = "rlmem" if extra in EXTRAS else "gymnasium"
        return f'env.id={env_id}: a package is missing; pip install "{package}[{extra}]"'
    return f"env.id={env_id}: cannot be imported ({one_line(error)}); install its package"


def _check_render(env_id: str, env: gymnasium.Env) -> None:
    """Render once up front: a video that fails at the end of a long run helps nobody."""
    if "rgb_array" not in (env.metadata.get("render_modes") or []):
        raise UserError(f"env.id={env_id}: cannot render pictures (rgb_array); leave video off")
    try:
        env.reset()
        env.render()
    except gymnasium.error.DependencyNotInstalled as error:
        raise UserError(_missing_package(env_id, error)) from error
    except Exception as error:  # each renderer raises its own, for want of a display or OpenGL
        mend = "set MUJOCO_GL=egl, or " if _is_mujoco(env_id) else ""
        raise UserError(
            f"env.id={env_id}: cannot render here ({one_line(error)}); {mend}leave video off"
        ) from error
