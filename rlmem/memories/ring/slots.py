"""The arrays of a ring storage, their bytes, and what a subclass says of its frames."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rlmem.memories.base.lazy import lazy_zeros
from rlmem.memories.base.serialize import State
from rlmem.memories.base.storage import Block, ReplayStorage
from rlmem.memories.ring import kernels

Columns = Mapping[str, tuple[tuple[int, ...], Any]]  # name -> shape of a row, dtype
# What a saved ring or a batch calls its own.
TAKEN = frozenset(("rows", "chunks", "data", "action", "observation", "next", "next_observation"))
TAKEN |= {"reward", "terminated", "truncated", "steps_to_next", "index", "weight", "mask"}


def checked_columns(columns: Columns) -> Columns:
    """Columns that a ring can hold beside its own.

    Raises:
        ValueError: a name is taken or no identifier.
    """
    for name in columns:
        if name in TAKEN or not name.isidentifier():
            raise ValueError(f"column {name!r}: taken by the memory itself, or no identifier")
    return columns


class RingFrames(ReplayStorage):
    """Transitions and chunks as `rlmem.memories.ring.kernels` has them; the arguments are
    those of `RingStorage`."""

    def __init__(
        self,
        capacity: int,
        frame_shape: tuple[int, ...],
        dtype: Any = np.uint8,
        *,
        stack: int = 1,
        num_envs: int = 1,
        action_shape: tuple[int, ...] = (),
        action_dtype: Any = np.int64,
        n_step: int = 1,
        gamma: float = 0.99,
        chunk: int = 16,
        budget: int | None = None,
        columns: Columns | None = None,
    ) -> None:
        if capacity < num_envs or min(capacity, stack, num_envs, n_step) < 1:
            raise ValueError(
                f"capacity={capacity}, stack={stack}, num_envs={num_envs}, n_step={n_step}: each "
                "must be at least 1, and the capacity at least num_envs"
            )
        if not 2 <= chunk <= 255 or stack > 255:
            raise ValueError(f"chunk={chunk}, stack={stack}: 2 to 255, and 255 at most")
        super().__init__(capacity)
        self.frame_shape, self.dtype = tuple(frame_shape), np.dtype(dtype)
        self.stack, self.num_envs, self.chunk = stack, num_envs, chunk
        self.n_step, self.gamma = n_step, gamma
        self.budget = budget
        self.slot_bytes = 0  # of each slot, which others hold and the budget counts
        # A transition begins two frames at most; each chain has an open and a half-used chunk.
        self._max_chunks = -(-2 * capacity // chunk) + num_envs * (3 + -(-stack // chunk))
        self._ring = np.zeros(1, kernels.RING)
        self._rows = lazy_zeros((capacity,), kernels.ROW)
        self._action = lazy_zeros((capacity, *action_shape), action_dtype)
        self._flat_action = self._action.reshape(capacity, -1)  # a view, for the compiled loops
        self._columns = {
            name: lazy_zeros((capacity, *shape), dtype)
            for name, (shape, dtype) in checked_columns(columns or {}).items()
        }
        self._chunks = lazy_zeros((self._max_chunks,), kernels.CHUNK)
        self._free = lazy_zeros((self._max_chunks,), np.int32)  # stack of free chunk places
        self._chains = np.zeros(num_envs, kernels.CHAIN)
        self._recent = np.zeros((num_envs, stack), np.int64)
        self._evicted: list[np.ndarray] = []
        self._saved: str | None = None  # token of the state that was saved or loaded last
        self._empty()

    _settings = (*ReplayStorage._settings, "n_step", "gamma", "budget", "slot_bytes", "_evicted")

    # Which slots hold a transition.

    def __len__(self) -> int:
        return int(self._ring["window"][0])

    def _cursors(self) -> tuple[int, int, int]:
        """Slots in use, the slot after the newest, transitions held."""
        r = self._ring[0]
        return int(r["size"]), int(r["cursor"]), int(r["window"])

    def locate(self, index: torch.Tensor) -> torch.Tensor:
        """Slots of the transitions `index` (int64, any shape, in [0, len))."""
        r = self._ring[0]
        if r["window"] == r["size"]:
            return index
        return (int(r["cursor"] - r["window"]) + index) % int(r["size"])

    def contains(self, item: Any) -> Any:
        """Whether slots hold a transition, as in TorchRL's storages: bool for a number, bool [...]
        for a tensor of them; negative ones count from the end."""
        slot = torch.as_tensor(item)
        size, cursor, window = self._cursors()
        age = (cursor - 1 - slot) % max(1, size)
        held = ((slot >= 0) & (slot < size) & (age < window)) | ((slot < 0) & (slot >= -window))
        return bool(held) if held.ndim == 0 else held

    def newest(self, count: int) -> torch.Tensor:
        """Slots of the `count` newest transitions, oldest first, int64 [count]."""
        r = self._ring[0]
        return (int(r["cursor"]) - count + torch.arange(count)) % int(r["size"])

    # How frames are held: for the subclasses.

    kind = ""  # of storage; a state is of one kind

    def _tails(self) -> np.ndarray:
        """Bytes of each chain's newest frame, uint8 [E, frame bytes]; any for an empty chain."""
        raise NotImplementedError

    def _put(self, block: Block, first: np.ndarray, ahead: np.ndarray, slot: int) -> None:
        """Take in the frames of a block at the places of `plan_write`."""
        raise NotImplementedError

    def _take(
        self, index: np.ndarray, last: np.ndarray, places: np.ndarray, out: np.ndarray
    ) -> None:
        """Copy the frames at the places of `kernels.read`, zeros for -1, to `out`, which is
        [B, count, frame size]."""
        raise NotImplementedError

    def _release(self, chunks: np.ndarray) -> None:
        """Let go of the frames of chunks."""

    def _reserve(self, env_id: np.ndarray, follows: np.ndarray) -> None:
        """Take what a block of frames needs and may be refused."""

    # What a budget must know of the frames.

    gives_back = False  # whether evicting can lower the bytes that are held

    @property
    def _likely_frame(self) -> int:
        """Bytes that a frame will take."""
        return -(-self._chunk_bytes // self.chunk)

    def _likely_bytes(self, frames: np.ndarray) -> tuple[int, int]:
        """Bytes that so many frames more of each environment (int64 [E]) will take beside their
        chunks, and bytes of those that they store away."""
        return 0, 0

    def _growth(self, stored: int) -> int:
        """Bytes by which this storage grows if `stored` bytes are stored away."""
        return 0

    @property
    def _least(self) -> int:
        """Bytes that it comes to whatever the frames are like."""
        return 0

    @property
    def _spare(self) -> int:
        """Bytes that no new slot may take, as slots stay and frames could need more later."""
        return 0

    def _give_back(self, size: int, keep: int) -> int:
        """Return `size` unused bytes to the system, but not what `keep` bytes to be stored away
        need; the bytes that were returned."""
        return 0

    def _frame_bytes(self) -> dict[str, int]:
        """Component -> bytes of the frames held now."""
        raise NotImplementedError

    def _projected_frame_bytes(self, chunks: int) -> dict[str, int]:
        """Component -> bytes of the frames when full, in so many chunks."""
        raise NotImplementedError

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of a sampled observation."""
        return (self.stack * self.frame_shape[0], *self.frame_shape[1:])

    # Bytes.

    @property
    def _row_bytes(self) -> int:
        more = sum(column[:1].nbytes for column in self._columns.values())
        return self._rows.itemsize + self._action[:1].nbytes + more

    @property
    def _chunk_bytes(self) -> int:
        """Bytes that a chunk takes when it is begun."""
        return self._chunks.itemsize + self._free.itemsize

    def _bytes(self, slots: int, chunks: int) -> dict[str, int]:
        reward = self._rows["reward"].itemsize
        return {
            **{name: slots * column[:1].nbytes for name, column in self._columns.items()},
            "actions": slots * self._action[:1].nbytes,
            "rewards": slots * reward,
            "index": slots * (self._rows.itemsize - reward)
            + chunks * (self._chunks.itemsize + self._free.itemsize)
            + self._chains.nbytes
            + self._recent.nbytes,
        }

    def footprint(self) -> dict[str, int]:
        size, chunks = int(self._ring["size"][0]), int(self._ring["chunks"][0])
        return {**self._frame_bytes(), **self._bytes(size, chunks)}

    @property
    def nbytes(self) -> int:
        """Bytes held now, with those that each slot takes elsewhere."""
        return sum(self.footprint().values()) + self.slot_bytes * int(self._ring["size"][0])

    def projected_footprint(self) -> dict[str, int]:
        """Bytes when full, with as many frames a transition as there are now (one at the start)."""
        chunks = self._projected_chunks()
        return {**self._projected_frame_bytes(chunks), **self._bytes(self.max_size, chunks)}

    def _projected_chunks(self) -> int:
        held, chunks = len(self), int(self._ring["chunks"][0])
        frames = self.max_size + self.num_envs * self.stack
        full = -(-frames // self.chunk) + self.num_envs
        if held == 0:
            return full
        return min(self._max_chunks, max(full, -(-chunks * self.max_size // held)))

    def _empty(self) -> None:
        self._ring[:] = np.zeros(1, kernels.RING)
        self._chains["head"] = self._chains["chunk"] = -1
        for name in ("position", "chunks", "depth", "running", "slot", "seq"):
            self._chains[name] = 0
        self._evicted.clear()

    # Saving: see `rlmem.memories.ring.checkpoint`.

    def _export_columns(self, slots: np.ndarray) -> dict[str, np.ndarray]:
        """What a transition holds beside its row."""
        more = {name: column[slots] for name, column in self._columns.items()}
        return {"action": self._action[slots], **more}

    def _import_columns(self, slots: np.ndarray, columns: dict[str, np.ndarray]) -> None:
        self._action[slots] = columns["action"]
        for name, column in self._columns.items():
            column[slots] = columns[name]

    def _chunk_sizes(self, chunks: np.ndarray) -> np.ndarray:
        """Bytes of the frames of full chunks, int64 [n]."""
        return np.zeros(len(chunks), np.int64)

    def _chunk_data(self, chunks: np.ndarray) -> np.ndarray:
        """The frames of full chunks as they are held, uint8."""
        return np.empty(0, np.uint8)

    def _load_chunk_data(self, chunks: np.ndarray, sizes: np.ndarray, data: np.ndarray) -> None:
        """Take over what `_chunk_sizes` and `_chunk_data` gave."""

    def _export_open(self) -> dict[str, np.ndarray]:
        """What changes with each frame."""
        raise NotImplementedError

    def _import_open(self, state: State) -> None:
        raise NotImplementedError

    def _import_layout(self, state: State) -> None:
        """Take over how `_chunk_data` lay, before it comes."""

    def _check_frames(self, state: State, chains: np.ndarray, chunks: np.ndarray) -> None:
        """Refuse a state whose frames do not fit.

        Args:
            chains, chunks: those of the state that are held, SAVED_CHAIN [E] and SAVED_CHUNK [n].

        Raises:
            ValueError: frames are missing, or of another shape or dtype.
        """
        raise NotImplementedError

    def _make_room(self, state: State, chunks: int) -> None:
        """Take what so many chunks of a checked state need and may be refused.

        Raises:
            UserError: it was refused; nothing was changed.
        """

    def _least_loaded(self, state: State, chains: np.ndarray, chunks: np.ndarray) -> int:
        """Bytes of a state's frames, of which as many were evicted as can be; see
        `_check_frames`."""
        raise NotImplementedError
