"""What every storage of rlmem shares, and how blocks of transitions are read.

A block is a TensorDict or a nested dict with TorchRL's keys (`observation`, `action`,
`("next", ...)`) and, when several environments write, `env_id` [N]. Observations are single frames,
oldest first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from tensordict import TensorDict
from torchrl.data.replay_buffers.storages import Storage

from rlmem.errors import UserError
from rlmem.memories.base.batch import Batch, as_tensordict
from rlmem.memories.base.indexing import slots_of
from rlmem.memories.base.serialize import save_state
from rlmem.memories.base.state import Stateful


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


def _array(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


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
        shaped = frames.shape[1:] == frame_shape
        stacked = ": one frame a transition, not a stack"
        hint = f"; give it as {np.dtype(dtype)}" if shaped else stacked
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
            raise ValueError(
                f"actions of shape {given.shape} were given, but {n} transitions with actions of "
                f"shape {shape} have {wanted}"
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
    names = set(data.keys())
    lacking = [name for name in ("observation", "action", "next") if name not in names]
    if "next" in names:
        given = set(data["next"].keys())
        needed = ("observation", "reward", "terminated")
        lacking += [f"next.{name}" for name in needed if name not in given]
    if lacking:
        raise ValueError(f"a block without {', '.join(lacking)}: each transition needs it")


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
    truncated = following.get("truncated", None)
    if "env_id" in set(data.keys()):
        env_id = _array(data["env_id"]).reshape(n).astype(np.int64, copy=False)
        if n and not (env_id.min() >= 0 and env_id.max() < num_envs):
            raise ValueError(f"env_id must lie in [0, {num_envs}): num_envs={num_envs}")
    else:
        env_id = np.zeros(n, np.int64)
    return Block(
        observation=observation,
        action=_actions(data["action"], n, action_shape, action_dtype),
        next_observation=next_observation,
        reward=_array(following["reward"]).reshape(n).astype(np.float32, copy=False),
        terminated=_array(following["terminated"]).reshape(n).astype(np.bool_, copy=False),
        truncated=(
            np.zeros(n, np.bool_)
            if truncated is None
            else _array(truncated).reshape(n).astype(np.bool_, copy=False)
        ),
        env_id=env_id,
    )


class ReplayStorage(Stateful, Storage):
    """Base of the storages: counting bytes, saving without pickle."""

    unit = "transitions"  # what the capacity counts
    compresses = False  # whether its projected bytes are a bound that data seldom reach
    device = torch.device("cpu")  # of what is sampled
    _made_of: tuple[tuple, dict[str, Any]]  # the constructor's arguments

    _settings: tuple[str, ...] = ("_attached_entities_list",)  # what else a copy takes over

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        storage = super().__new__(cls)
        storage._made_of = arguments, options
        return storage

    def __getstate__(self) -> dict[str, Any]:
        # For pickle and deepcopy. Not the arrays, which have room for the whole capacity.
        state = {name: v() if callable(v) else v for name, v in self.state_views().items()}
        settings = {name: getattr(self, name) for name in self._settings}
        return {"made_of": self._made_of, "settings": settings, "state": state}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._made_of = arguments, options = state["made_of"]
        self.__init__(*arguments, **options)
        vars(self).update(state["settings"])
        self.load_state_dict(state["state"])

    def __len__(self) -> int:
        raise NotImplementedError

    def get(self, index: Any) -> TensorDict:
        """A sample of the index's shape."""
        raise NotImplementedError

    def locate(self, index: torch.Tensor) -> torch.Tensor:
        """Slots of the stored items `index` (int64, any shape, in [0, len))."""
        raise NotImplementedError

    @property
    def columns(self) -> Mapping[str, np.ndarray]:
        """What it holds of each transition beside what every storage holds."""
        return {}

    def buffers(self, shape: tuple[int, ...], *, pinned: bool = False) -> Any:
        """What `read` overwrites for indices of a shape; None where it makes its tensors anew.

        Args:
            pinned: in memory that a GPU copies from by itself.
        """
        return None

    def read(self, index: np.ndarray, buffers: Any = None) -> Batch:
        """The transitions at slots int64 [...], without `index` and `weight`.

        Args:
            buffers: of this storage and shape, overwritten; None: the tensors are the caller's.

        Raises:
            IndexError: a slot holds nothing.
        """
        raise NotImplementedError

    def footprint(self) -> dict[str, int]:
        """Component -> bytes held now (pages of lazily touched arrays count once written)."""
        raise NotImplementedError

    def projected_footprint(self) -> dict[str, int]:
        """Component -> bytes held when full."""
        raise NotImplementedError

    @property
    def entries(self) -> int:
        """Stored items in the storage's own unit (transitions; nodes of a map)."""
        return len(self)

    @property
    def transitions_represented(self) -> int:
        """Transitions that a sample can stand for (of a map: the counts of its edges)."""
        return len(self)

    def check_valid(self) -> None:
        """Assert the invariants."""

    def set_returns(self, n_step: int, gamma: float) -> None:
        """Give n-step returns over so many steps, of this discount, from here on.

        Args:
            n_step: 2 at least, up to those that it was made with.

        Raises:
            ValueError: it sums returns as transitions are written.
        """
        raise ValueError("its returns are summed as transitions are written")

    def limit_bytes(self, budget: int, slot_bytes: int) -> None:
        """Hold no more than `budget` bytes, `slot_bytes` for each slot elsewhere among them.

        Raises:
            ValueError: this storage knows a capacity only.
            UserError: the budget is too small for any transitions.
        """
        raise ValueError(f"{type(self).__name__} takes a capacity, not a budget")

    def drain_evicted(self) -> np.ndarray:
        """Slots that were evicted for the budget since the last call, int64 [n]."""
        return np.empty(0, np.int64)

    def changes(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """What a write of slots `index` (int64 [n]) did, before the sampler is told of it.

        Returns:
            Slots whose former items are gone, int64, and of a map the edges that were passed.
        """
        return index, None

    def save(self, folder: Path, previous: Path | None = None) -> None:
        """Save into a folder.

        Args:
            previous: folder of an earlier save, whose files may be linked.
        """
        save_state(folder, self.state_views())

    def dumps(self, path: Any) -> None:
        """Save into a folder (TorchRL's interface)."""
        self.save(Path(path))


class TransitionStorage(ReplayStorage):
    """Base of the storages that are written by blocks, a transition a slot."""

    frame_shape: tuple[int, ...]  # of one observation as the environment gives it
    dtype: np.dtype  # of an observation
    stack: int  # frames in a sampled observation
    num_envs: int  # environments that write in turn
    actions: np.ndarray  # as they are held, [capacity, *action_shape]

    def read_block(self, data: Any) -> Block:
        """A block as arrays, checked: what `set` takes.

        Raises:
            ValueError: it is of other shapes.
        """
        shape, dtype = self.actions.shape[1:], self.actions.dtype
        return as_block(data, self.frame_shape, self.dtype, self.num_envs, shape, dtype)

    def _max_size_along_dim0(self, *, single_data: Any = None, batched_data: Any = None) -> int:
        """Slots. TorchRL's writers ask with the data in hand, just before they move their cursor:
        a block that `set` would refuse is refused here, while nothing has moved."""
        data = batched_data if single_data is None else single_data
        if data is not None:
            self.read_block(data)
        return self.max_size

    def get(self, index: Any) -> TensorDict:
        """Read transitions.

        Args:
            index: int64 [B] or [U, B] slots (a number gives one transition without batch
                dimension), or what else indexes a tensor of this length
                (`rlmem.memories.base.indexing`).

        Returns:
            TensorDict of the index's shape: `observation` and `("next", "observation")`
            [B, *observation_shape], `action`, `steps_to_next` and `("next", ...)` reward,
            terminated, truncated, done [B, 1].

        Raises:
            IndexError: a slot holds no transition.
        """
        slots = slots_of(self, index)
        if not slots.shape:
            return self.get(slots[None])[0]
        return as_tensordict(self.read(slots), slots.shape)
