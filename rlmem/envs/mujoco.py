"""MuJoCo's tasks by name and version: Gymnasium's suite, with two keys more."""

from dataclasses import dataclass

from rlmem.envs.gym import GymSettings, GymSuite
from rlmem.registry import part
from rlmem.settings import setting


@dataclass
class MujocoSettings(GymSettings):
    """A MuJoCo task of Gymnasium, in one of its versions."""

    task: str = setting(example="Hopper")
    version: str = setting()


@part("env", "mujoco", settings=MujocoSettings)
class MujocoSuite(GymSuite):
    """Gymnasium's suite."""
