"""Rewards and observations that are no finite numbers are refused where they come in: in a loss
they would look as if learning had diverged. Apart from memories, which take long to import."""

import math

import numpy as np

from rlmem.envs.spec import Step
from rlmem.errors import UserError


def no_number(env: int, reward: float, length: int) -> str:
    """What is said of an environment whose return is no finite number.

    Args:
        reward: its newest.
        length: env steps of its episode so far.
    """
    return (
        f"env: environment {env} gave the reward {reward} in step {length:,} of an episode; "
        "rewards must be finite numbers: correct the environment"
    )


def first_no_number(total: np.ndarray, reward: np.ndarray, length: np.ndarray) -> str:
    """What is said of the first of E environments whose return is no finite number.

    Args:
        total, reward: its return so far and its newest reward, float [E].
        length: env steps of its episode so far, int [E].
    """
    env = int(np.flatnonzero(~np.isfinite(total))[0])
    return no_number(env, reward[env], length[env])


def check_step(step: Step, length: np.ndarray, first: int = 0) -> None:
    """Refuse a step to, or an episode that begins with, what is no finite number as float32.

    Args:
        length: env steps of each environment's episode so far, this one included, int [E].
        first: number of the first of the environments.

    Raises:
        UserError: names the environment.
    """
    _check(step.next_observation, length, first)
    if step.observation is not step.next_observation:
        begins = step.terminated | step.truncated
        _check(step.observation, np.where(begins, 0, length), first)


def check_first(frames: np.ndarray, first: int = 0) -> None:
    """Refuse first frames of episodes, [E, *frame_shape], as `check_step` does."""
    _check(frames, np.zeros(len(frames), np.int64), first)


def _check(frames: np.ndarray, length: np.ndarray, first: int) -> None:
    # The sum of squares takes a third of the time of `isfinite`; that of large numbers may be
    # infinite, so it says only where to look.
    if frames.dtype.kind == "u" or math.isfinite(np.vdot(frames, frames)):
        return
    finite = np.isfinite(frames).reshape(len(frames), -1)
    for env in np.flatnonzero(~finite.all(1)):
        value = frames[env].reshape(-1)[~finite[env]][0]
        place = f"after step {length[env]:,} of an episode" if length[env] else "at a start"
        raise UserError(
            f"env: environment {first + env} gave an observation with {value} in it {place}; "
            "observations must be finite numbers of float32: correct the environment"
        )
