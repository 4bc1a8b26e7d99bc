"""How blocks of transitions are read.

A block is a TensorDict or a nested dict with TorchRL's keys (`observation`, `action`,
`("next", ...)`) and, when several environments write, `env_id` [N]. Observations are single frames,
oldest first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from rlmem.errors import UserError


@dataclass(slots=True)
class Block:
    """N transitions as numpy arrays; the rows of one environment are in the order of time.

    The collector fills the same block anew each round: who keeps any of it copies it.
    """

    observation: np.ndarray  # [N, *frame_shape]
    action: np.ndarray  # [N, *action_shape], of the dtype in which it is held
    next_observation: np.ndarray  # [N, *frame_shape]
    reward: np.ndarray  # float32 [N]
    terminated: np.ndarray  # bool [N]
    truncated: np.ndarray  # bool [N]
    env_id: np.ndarray  # int64 [N]
    columns: dict[str, np.ndarray] = field(default_factory=dict)  # more of each transition, [N, .]

    def __len__(self) -> int:
        return len(self.reward)

    def rows(self, rows: slice) -> "Block":
        """A part of the block, as views."""
        return Block(
            self.observation[rows],
            self.action[rows],
            self.next_observation[rows],
            self.reward[rows],
            self.terminated[rows],
            self.truncated[rows],
            self.env_id[rows],
            {name: column[rows] for name, column in self.columns.items()},
        )


def numpy_dtype(dtype: Any, name: str) -> np.dtype:
    """A dtype, of numpy or torch, as numpy's.

    Raises:
        ValueError: it is none that both have; the line has its `name`.
    """
    try:
        as_torch = isinstance(dtype, torch.dtype)
        return torch.empty(0, dtype=dtype).numpy().dtype if as_torch else np.dtype(dtype)
    except TypeError:
        raise ValueError(f"{name}={dtype}: use one such as uint8 or float32") from None


def checked_frames(shape: Any, dtype: Any) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of one observation, as a storage holds it.

    Raises:
        ValueError: it has no dimension, or no numbers.
    """
    kind, frame_shape = numpy_dtype(dtype, "dtype"), tuple(shape) if np.ndim(shape) else ()
    sizes = [isinstance(size, int | np.integer) and size > 0 for size in frame_shape]
    if not sizes or not all(sizes):
        raise ValueError(f"frame_shape={shape}: give the sizes of one observation, such as (4,)")
    if kind.kind not in "biuf" or kind.itemsize > 8 or not kind.isnative:
        raise ValueError(f"dtype={dtype}: use one such as uint8 or float32")
    return tuple(map(int, frame_shape)), kind


def _array(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def _column(data: Any, name: str, n: int, dtype: Any) -> np.ndarray:
    """One value of each of N transitions, dtype [N]; flags and numbers of environments exactly.

    Raises:
        ValueError: they are not so many, or no such values: finite ones beyond the dtype's range.
    """
    given, dtype = _array(data[name]), np.dtype(dtype)
    if given.dtype.kind not in "biuf" or given.shape not in ((n,), (n, 1), () if n == 1 else (n,)):
        raise ValueError(
            f"{name} of {given.dtype} and shape {given.shape} was given for {n} transitions: give "
            f"{dtype} of shape ({n},) or ({n}, 1)"
        )
    with np.errstate(invalid="ignore", over="ignore"):
        held = given.reshape(n).astype(dtype, copy=False)
    given = given.reshape(n)
    lost = np.isinf(held) & np.isfinite(given) if dtype.kind == "f" else held != given
    if lost.any():
        raise ValueError(f"{name} {given[lost][0]} was given, which is no {dtype}")
    return held


def as_frames(name: str, data: Any, frame_shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """The observations of a block or of its `next`, [N, *frame_shape].

    Raises:
        ValueError: they are of another shape or dtype.
    """
    frames = _array(data["observation"])
    if frames.shape == frame_shape:
        frames = frames[None]
    _check_frames(name, frames, frame_shape, dtype)
    return frames


def both_frames(
    block: Any, frame_shape: tuple[int, ...], dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """The observations and next observations of a block, [N, *frame_shape] each.

    Raises:
        ValueError: they are of another shape or dtype.
    """
    if isinstance(block, Block):
        return block.observation, block.next_observation
    return (
        as_frames("observation", block, frame_shape, dtype),
        as_frames("next observation", block["next"], frame_shape, dtype),
    )


def _check_frames(
    name: str, frames: np.ndarray, frame_shape: tuple[int, ...], dtype: np.dtype
) -> None:
    if frames.shape[1:] != frame_shape or frames.dtype != dtype:
        hint = ": one frame a transition, not a stack"
        if frames.shape[1:] == frame_shape:
            hint = f"; give it as {np.dtype(dtype)}"
        elif frames.shape[2:] == frame_shape:
            hint = ": give the rows of all environments as one dimension, reshape(-1), and env_id"
        raise ValueError(
            f"{name} {frames.dtype} {frames.shape[1:]} was given, but this storage holds "
            f"{np.dtype(dtype)} {frame_shape}{hint}"
        )


def _actions(value: Any, n: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """N actions as they are held, dtype [N, *shape]; dimensions of length 1 may be there or not.

    Whole numbers are held exactly or not at all: a float array of whole numbers will do. Floats
    are rounded to the precision of the dtype.
    """
    given, wanted = _array(value), (n, *shape)
    if given.shape != wanted:
        if [d for d in given.shape if d != 1] != [d for d in wanted if d != 1]:
            hint = ""
            if given.shape[:1] == (n,) and given.shape[1:]:
                numbers = "" if shape else "give an action's number, not a one-hot row, or "
                hint = f"; {numbers}make the storage with action_shape={given.shape[1:]}"
            raise ValueError(
                f"actions of shape {given.shape} were given, but {n} transitions with actions of "
                f"shape {shape} have {wanted}{hint}"
            )
        given = given.reshape(wanted)
    return held_exactly(given, dtype, "action", "action_dtype")


def held_exactly(given: np.ndarray, dtype: np.dtype, name: str, key: str = "dtype") -> np.ndarray:
    """Values as they are held; whole numbers exactly, floats rounded to the dtype's precision.

    Args:
        name, key: of a value, and of what chooses the dtype, for the message.

    Raises:
        ValueError: the dtype does not have a value.
    """
    if given.dtype == dtype:
        return given
    with np.errstate(invalid="ignore"):  # of what is no whole number, as found below
        held = given.astype(dtype)
    if dtype.kind in "iub" and (lost := held != given).any():
        raise ValueError(
            f"{name} {given[lost][0]} of {given.dtype} was given, but {name}s are held as {dtype}: "
            f"give whole numbers that it has, or make the storage with another {key}"
        )
    return held


def _check_entries(data: Any) -> None:
    """Raise a ValueError for what a block lacks."""
    if not isinstance(data, Mapping | TensorDictBase):
        raise ValueError(f"a block is a TensorDict or a dict, not {type(data).__name__}")
    names = set(data.keys())
    lacking = [name for name in ("observation", "action", "next") if name not in names]
    if "next" in names:
        following: Any = data["next"]
        if not isinstance(following, Mapping | TensorDictBase):
            raise ValueError(f"next is a TensorDict or a dict, not {type(following).__name__}")
        given = set(following.keys())
        needed = ("observation", "reward", "terminated")
        lacking += [f"next.{name}" for name in needed if name not in given]
    if lacking:
        raise ValueError(
            f"a block without {', '.join(lacking)}: each transition needs it (given: "
            f"{', '.join(sorted(map(str, names)))})"
        )


def check_single(data: Any) -> None:
    """Refuse a block where one transition is wanted.

    Raises:
        ValueError: it lacks an entry, or has not one row.
    """
    if isinstance(data, Block):
        rows = len(data)
    else:
        _check_entries(data)
        rows = _array(data["next"]["reward"]).size
    if rows != 1:
        raise ValueError(f"add takes one transition, {rows} were given: use extend")


def check_rewards(block: Block) -> None:
    """Refuse rewards that a memory which reckons with them could not save.

    Raises:
        UserError: one is not finite.
    """
    if not np.isfinite(block.reward).all():
        raise UserError("a reward is not finite: look at what the environment gives as reward")


def as_block(
    data: Any,
    frame_shape: tuple[int, ...],
    dtype: np.dtype,
    num_envs: int,
    action_shape: tuple[int, ...],
    action_dtype: np.dtype,
) -> Block:
    """Read a block, checking once all for which it could be refused.

    Args:
        data: TensorDict or nested dict; a single transition (no batch dimension) is a block of one.
            A `Block` is passed on.
        frame_shape, dtype: what one observation must be.
        num_envs: how many environments may write.
        action_shape, action_dtype: how one action is held.

    Raises:
        ValueError: an observation of another shape or dtype, an action of another shape or one that
            the dtype does not hold, or an env_id out of range.
    """
    if isinstance(data, Block):
        _check_frames("observation", data.observation, frame_shape, dtype)
        return data
    _check_entries(data)
    following = data["next"]
    observation = as_frames("observation", data, frame_shape, dtype)
    n = len(observation)
    next_observation = as_frames("next observation", following, frame_shape, dtype)
    if len(next_observation) != n:
        raise ValueError(f"{n} observations and {len(next_observation)} next ones were given")
    if "env_id" in set(data.keys()):
        env_id = _column(data, "env_id", n, np.int64)
        if n and not (env_id.min() >= 0 and env_id.max() < num_envs):
            raise ValueError(f"env_id must lie in [0, {num_envs}): num_envs={num_envs}")
    elif num_envs > 1:
        raise ValueError(
            f"a block without env_id: num_envs={num_envs}, so give each row's environment, int [N]"
        )
    else:
        env_id = np.zeros(n, np.int64)
    terminated, truncated = _ends(following, n)
    return Block(
        observation=observation,
        action=_actions(data["action"], n, action_shape, action_dtype),
        next_observation=next_observation,
        reward=_column(following, "reward", n, np.float32),
        terminated=terminated,
        truncated=truncated,
        env_id=env_id,
    )


def _ends(following: Any, n: int) -> tuple[np.ndarray, np.ndarray]:
    """`terminated` and `truncated` of N transitions, bool [N]: who gives `done` and no `truncated`
    has said that the other ends are cut off."""
    names = set(following.keys())
    terminated = _column(following, "terminated", n, np.bool_)
    if "truncated" in names:
        truncated = _column(following, "truncated", n, np.bool_)
    elif "done" in names:
        truncated = _column(following, "done", n, np.bool_) & ~terminated
    else:
        truncated = np.zeros(n, np.bool_)
    return terminated, truncated
