"""Environments: one stepper protocol over suites, each declared in a file of its own.

`make_env` is the way in.
"""

from __future__ import annotations

from typing import Any

from rlmem import registry
from rlmem.envs.frame_stack import FrameStack
from rlmem.envs.scores import human_normalized_score
from rlmem.envs.spec import EnvSettings, EnvSpec, EnvStepper, Step
from rlmem.errors import UserError

__all__ = [
    "EnvSettings",
    "EnvSpec",
    "EnvStepper",
    "FrameStack",
    "Step",
    "human_normalized_score",
    "make_env",
]


def make_env(cfg: Any, num_envs: int, render: bool = False, *, scoring: bool = False) -> EnvStepper:
    """Make the environments that `cfg` names.

    Args:
        cfg: the settings of a suite, or an object with their attributes whose `kind`, or else
            `suite`, says which.
        num_envs: environments stepped together, >= 1.
        render: make `EnvStepper.render` work.
        scoring: for evaluation: whole episodes, whatever training does.

    Raises:
        UserError: a value of `cfg` names nothing that exists or works; one line.
    """
    if num_envs < 1:
        raise UserError(f"env.num_envs={num_envs}: at least 1 environment is needed")
    chosen = getattr(cfg, "part", None) or registry.find("env", cfg.suite, "env.suite")
    return chosen.cls.build(cfg, num_envs, render=render, scoring=scoring)
