"""Gymnasium-Robotics' environments, registered when one is asked for."""

import contextlib
import importlib
import io
from types import SimpleNamespace
from typing import Any

PACKAGE = "gymnasium_robotics"


def register() -> None:
    """Import the package, which registers its environments, and make it work.

    Up to 1.4.2 it asserts `joint type in (hinge, slide)`, which is false of any joint since MuJoCo
    3.12, whose enums do not equal numpy's integers from the left; plain integers do.

    Raises:
        ImportError: the package or MuJoCo is missing.
    """
    with contextlib.redirect_stderr(io.StringIO()):  # news about other environments
        utils: Any = importlib.import_module(f"{PACKAGE}.utils.mujoco_utils")
    mujoco = importlib.import_module("mujoco")
    joints = {name: int(kind) for name, kind in mujoco.mjtJoint.__members__.items()}
    utils.mujoco = SimpleNamespace(**{**vars(mujoco), "mjtJoint": SimpleNamespace(**joints)})
