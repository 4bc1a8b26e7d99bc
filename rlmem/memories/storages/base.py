"""What every storage of rlmem shares, and how blocks of transitions are read.

A block is a TensorDict or a nested dict with TorchRL's keys (`observation`, `action`,
`("next", ...)`) and, when several environments write, `env_id` [N]. Observations are single frames,
oldest first.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from tensordict import TensorDict
from torchrl.data.replay_buffers.storages import Storage

from rlmem.memories.serialize import save_state
from rlmem.memories.state import Stateful


@dataclass
class Block:
    """N transitions as numpy arrays; the rows of one environment are in the order of time."""

    observation: np.ndarray  # [N, *frame_shape]
    action: np.ndarray  # [N, *action_shape]
    next_observation: np.ndarray  # [N, *frame_shape]
    reward: np.ndarray  # float32 [N]
    terminated: np.ndarray  # bool [N]
    truncated: np.ndarray  # bool [N]
    env_id: np.ndarray  # int64 [N]

    def __len__(self) -> int:
        return len(self.reward)

    def rows(self, rows: slice) -> "Block":
        """A part of the block, as views."""
        return Block(*(getattr(self, field.name)[rows] for field in fields(self)))


def _array(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def _frames(name: str, data: Any, frame_shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    frames = _array(data["observation"])
    if frames.shape == frame_shape:
        frames = frames[None]
    if frames.shape[1:] != frame_shape or frames.dtype != dtype:
        raise ValueError(
            f"{name} {frames.dtype} {frames.shape[1:]} was given, but this storage holds "
            f"{np.dtype(dtype)} {frame_shape}: one frame a transition, not a stack"
        )
    return frames


def as_block(data: Any, frame_shape: tuple[int, ...], dtype: np.dtype, num_envs: int) -> Block:
    """Read a block, checking its shapes once.

    Args:
        data: TensorDict or nested dict; a single transition (no batch dimension) is a block of one.
        frame_shape, dtype: what one observation must be.
        num_envs: how many environments may write.

    Raises:
        ValueError: an observation of another shape or dtype, or an env_id out of range.
    """
    following = data["next"]
    observation = _frames("observation", data, frame_shape, dtype)
    n = len(observation)
    next_observation = _frames("next observation", following, frame_shape, dtype)
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
        action=_array(data["action"]).reshape(n, *np.shape(data["action"])[1:]),
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


def make_sample(
    shape: tuple[int, ...],
    observation: torch.Tensor,
    action: torch.Tensor,
    next_observation: torch.Tensor,
    reward: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    steps: np.ndarray,
) -> TensorDict:
    """Assemble a sample with TorchRL's keys.

    Args:
        shape: batch shape, (B,) or (U, B); the observations have it already.
        action, reward, terminated, truncated, steps: one row a transition, flat.
    """

    def column(values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values.reshape(*shape, 1))

    # Without the checks of the public constructor, a tenth of what a sample of vectors takes.
    return TensorDict._new_unsafe(  # pyright: ignore[reportPrivateUsage]
        {
            "observation": observation,
            "action": action.view(*shape, *action.shape[1:]),
            "steps_to_next": column(steps),
            "next": {
                "observation": next_observation,
                "reward": column(reward),
                "terminated": column(terminated),
                "truncated": column(truncated),
                "done": column(terminated | truncated),
            },
        },
        batch_size=torch.Size(shape),
    )


class ReplayStorage(Stateful, Storage):
    """Base of the storages: counting bytes, saving without pickle."""

    unit = "transitions"  # what the capacity counts
    compresses = False  # whether its projected bytes are a bound that data seldom reach
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
