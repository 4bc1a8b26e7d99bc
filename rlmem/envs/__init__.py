"""Environments: one stepper protocol over Atari, MinAtar and gymnasium's environments.

`make_env` is the way in. It imports a suite's packages only when that suite is asked for.
"""

from __future__ import annotations

from typing import Any

from rlmem.envs.frame_stack import FrameStack
from rlmem.envs.scores import human_normalized_score
from rlmem.envs.spec import EnvSpec, EnvStepper, Step
from rlmem.errors import UserError

__all__ = [
    "EnvSpec",
    "EnvStepper",
    "FrameStack",
    "Step",
    "human_normalized_score",
    "make_env",
]


def make_env(cfg: Any, num_envs: int, render: bool = False) -> EnvStepper:
    """Make the environments that `cfg` (the `env` node of the config) names.

    Args:
        cfg: an object with attributes. All suites: `suite`. atari: `game`, `stack`, `frame_skip`,
            `screen_size`, `protocol` (`sticky`, `noop_max`, `fire_reset`, `episodic_life`,
            `max_frames`). minatar: `game`, `sticky`,
            `max_episode_steps`. gym: `id`, `max_episode_steps`, `kwargs`, `action_levels`.
        num_envs: environments stepped together, >= 1.
        render: make `EnvStepper.render` work.

    Raises:
        UserError: a value of `cfg` names nothing that exists or works; one line.
    """
    if num_envs < 1:
        raise UserError(f"env.num_envs={num_envs}: at least 1 environment is needed")
    if cfg.suite == "atari":
        from rlmem.envs.atari import make_atari

        return make_atari(cfg, num_envs, render)
    if cfg.suite == "minatar":
        from rlmem.envs.minatar import make_minatar

        return make_minatar(cfg, num_envs, render)
    if cfg.suite == "gym":
        from rlmem.envs.gym import make_gym

        return make_gym(cfg, num_envs, render)
    raise UserError(f"env.suite={cfg.suite}: no such suite; valid: atari, gym, minatar")
