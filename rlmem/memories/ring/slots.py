"""The arrays of a ring storage, their bytes, and what a subclass says of its frames."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch

from rlmem.memories.base.blocks import Block, checked_frames, numpy_dtype
from rlmem.memories.base.lazy import give_back_all, lazy_zeros
from rlmem.memories.base.serialize import State
from rlmem.memories.base.storage import TransitionStorage, check_whole
from rlmem.memories.ring.records import CHUNK, ROW, new_arrays
from rlmem.units import parse_bytes

Columns = Mapping[str, tuple[tuple[int, ...], Any]]  # name -> shape of a row, dtype
# What a saved ring, a batch or a footprint calls its own.
TAKEN = frozenset(("rows", "chunks", "data", "action", "observation", "next", "next_observation"))
TAKEN |= {"reward", "terminated", "truncated", "steps_to_next", "steps_to_next_obs"}
TAKEN |= {"index", "weight", "mask", "actions", "rewards"}
TAKEN |= {"frames", "frames_on_disk", "open_chunks", "dictionaries"}


@dataclass(kw_only=True)
class RingOptions:
    """Options of a ring storage.

    Raises:
        ValueError: one is out of its range, a column's name is taken or no identifier, or a dtype
            is none that is written and sampled.
    """

    stack: int = 1  # frames in a sampled observation, along the first axis; 1 for vectors
    num_envs: int = 1  # environments that write in turn, told apart by the block's `env_id`
    action_shape: tuple[int, ...] = ()  # of one action as it is held
    action_dtype: Any = np.int64  # of that; integers are sampled as int64
    # Discrete ones; a saved state with others than 0 .. num_actions - 1 is refused; 0: any is right
    num_actions: int = 0
    n_step: int = 1  # steps of the sampled return; 1 is the plain transition
    gamma: float = 0.99  # discount inside the n-step return
    chunk: int = 16  # frames a chunk, 2 to 255
    # Bytes that it may hold, also "64MiB"; the capacity is then an upper bound.
    budget: int | str | None = None
    # What a block brings of each transition beside these, such as log-probabilities or hidden
    # states; they are kept and sampled like the action.
    columns: Columns = field(default_factory=dict)

    def check(self, capacity: int) -> None:
        """Refuse options that are out of their range; see above."""
        if self.budget is not None:
            self.budget = parse_bytes(self.budget)
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"gamma={self.gamma}: a discount lies in [0, 1]")
        sizes = {"capacity": capacity, "stack": self.stack, "num_envs": self.num_envs}
        check_whole(**sizes, n_step=self.n_step, chunk=self.chunk, num_actions=self.num_actions)
        least = min(capacity, self.stack, self.num_envs, self.n_step)
        if capacity < self.num_envs or least < 1:
            raise ValueError(
                f"capacity={capacity}, stack={self.stack}, num_envs={self.num_envs}, "
                f"n_step={self.n_step}: each must be at least 1, and the capacity at least num_envs"
            )
        if not 2 <= self.chunk <= 255 or self.stack > 255:
            raise ValueError(
                f"chunk={self.chunk}, stack={self.stack}: use a chunk of 2 to 255 frames and a "
                "stack of 255 at most"
            )
        held = self.action_dtype = numpy_dtype(self.action_dtype, "action_dtype")
        if held.kind not in "biuf" or held == np.float16 or held.itemsize > 8:  # compiled loops
            raise ValueError(
                f"action_dtype={held}: hold actions as whole numbers, float32 or float64"
            )
        self.columns = _checked_columns(self.columns)
        for name, (_, held) in self.columns.items():
            if held.kind not in "biufc" or held.itemsize > (16 if held.kind == "c" else 8):
                raise ValueError(f"column {name!r}: {held} is no dtype of torch's")
            if name in TAKEN or not name.isidentifier():
                raise ValueError(f"column {name!r}: taken by the memory itself, or no identifier")


def _checked_columns(columns: Any) -> Columns:
    """Columns with their dtypes as numpy's.

    Raises:
        ValueError: they are none.
    """
    try:
        pairs = {str(name): (tuple(shape), dtype) for name, (shape, dtype) in columns.items()}
    except (AttributeError, TypeError, ValueError):
        raise ValueError(
            f"columns={columns}: give the shape of a row and the dtype of each by its name, such "
            "as {'log_prob': ((), 'float32')}"
        ) from None
    return {
        name: (shape, numpy_dtype(dtype, f"dtype of column {name!r}"))
        for name, (shape, dtype) in pairs.items()
    }


class RingFrames(TransitionStorage):
    """Transitions and chunks as `rlmem.memories.ring.records` has them; the arguments are those of
    `RingStorage`.

    What is public here is also for the ring's own budget, checkpoint and loader.
    """

    def __init__(
        self, capacity: int, frame_shape: tuple[int, ...], dtype: Any = np.uint8, **options: Any
    ) -> None:
        own = [option.name for option in fields(RingOptions)]
        if unknown := [name for name in options if name not in own]:
            raise TypeError(
                f"{type(self).__name__}: {unknown[0]}= is no argument of it; those of each ring "
                f"are capacity, frame_shape, dtype, {', '.join(own)}"
            )
        given = RingOptions(**options)
        given.check(capacity)
        super().__init__(int(capacity))
        self.frame_shape, self.dtype = checked_frames(frame_shape, dtype)
        # As Python's own: they are saved as JSON.
        self.stack, self.num_envs = int(given.stack), int(given.num_envs)
        self.chunk, self.n_step = int(given.chunk), int(given.n_step)
        self.num_actions = int(given.num_actions)
        self.gamma, self.budget = float(given.gamma), given.budget
        self.slot_bytes = 0  # of each slot, which others hold and the budget counts
        self.arrays = new_arrays(capacity, given.num_envs, given.stack, given.chunk)
        self.actions = lazy_zeros((capacity, *given.action_shape), given.action_dtype)
        self._flat_actions = self.actions.reshape(capacity, -1)  # a view, for the compiled loops
        self._columns = {
            name: lazy_zeros((capacity, *shape), dtype)
            for name, (shape, dtype) in given.columns.items()
        }
        self._evicted: list[np.ndarray] = []
        self._saved: str | None = None  # token of the state that was saved or loaded last

    _settings = (
        *TransitionStorage._settings,
        "n_step",
        "gamma",
        "budget",
        "slot_bytes",
        "_evicted",
    )

    def set_returns(self, n_step: int, gamma: float) -> None:
        if self.n_step == 1:  # its stacks may overlap in what an update is read into
            raise ValueError("its storage was made for returns of one step")
        assert n_step >= 2
        self.n_step, self.gamma = n_step, gamma

    # Which slots hold a transition.

    def __len__(self) -> int:
        return int(self.arrays.counts["window"][0])

    def locate(self, index: torch.Tensor) -> torch.Tensor:
        """Slots of the transitions `index` (int64, any shape, in [0, len))."""
        size, cursor, window = self.arrays.cursors()
        return index if window == size else (cursor - window + index) % size

    def contains(self, item: Any) -> Any:
        """Whether slots hold a transition, as in TorchRL's storages: bool for a number, bool [...]
        for a tensor of them; negative ones count from the end."""
        slot = torch.as_tensor(item).cpu().numpy()
        held = self.held(slot) | ((slot < 0) & (slot >= -len(self)))
        return bool(held) if held.ndim == 0 else torch.from_numpy(held)

    def held(self, slot: np.ndarray) -> np.ndarray:
        """Whether slots (int64 [...]) hold a transition, bool [...]."""
        size, cursor, window = self.arrays.cursors()
        age = (cursor - 1 - slot) % max(1, size)
        return (slot >= 0) & (slot < size) & (age < window)

    def newest(self, count: int) -> torch.Tensor:
        """Slots of the `count` newest transitions, oldest first, int64 [count]."""
        size, cursor, _ = self.arrays.cursors()
        return (cursor - count + torch.arange(count, device="cpu")) % size

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
        """Copy the frames at the places of `read_kernels.read`, zeros for -1, to `out`, which has
        the places' shape and the frame size behind."""
        raise NotImplementedError

    def _release(self, chunks: np.ndarray) -> None:
        """Let go of the frames of chunks."""

    may_be_full = False  # whether `_reserve` may be refused

    def _reserve(self, env_id: np.ndarray, follows: np.ndarray) -> None:
        """Take what a block of frames needs and may be refused."""

    # What a budget must know of the frames.

    gives_back = False  # whether evicting can lower the bytes that are held

    @property
    def likely_frame(self) -> int:
        """Bytes that a frame will take."""
        return -(-self.chunk_bytes // self.chunk)

    def likely_bytes(self, frames: np.ndarray) -> tuple[int, int]:
        """Bytes that so many frames more of each environment (int64 [E]) will take beside their
        chunks, and bytes of those that they store away."""
        return 0, 0

    def growth(self, stored: int) -> int:
        """Bytes by which this storage grows if `stored` bytes are stored away."""
        return 0

    @property
    def least(self) -> int:
        """Bytes at least, whatever the frames are like."""
        return 0

    @property
    def spare(self) -> int:
        """Bytes that no new slot may take, as slots stay and frames could need more later."""
        return 0

    def give_back(self, size: int, keep: int) -> int:
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
    def row_columns(self) -> dict[str, np.ndarray]:
        """What a transition holds beside its row, [capacity, ...]; saved under these names."""
        return {"action": self.actions, **self._columns}

    @property
    def row_bytes(self) -> int:
        """Bytes of a slot."""
        return ROW.itemsize + sum(column[:1].nbytes for column in self.row_columns.values())

    @property
    def chunk_bytes(self) -> int:
        """Bytes that a chunk takes when it is begun."""
        return CHUNK.itemsize

    def bytes_of(self, slots: int, chunks: int) -> dict[str, int]:
        """Component -> bytes of so many slots and chunks, without the frames."""
        arrays, reward = self.arrays, ROW["reward"].itemsize
        index = slots * (ROW.itemsize - reward) + chunks * CHUNK.itemsize
        return {
            **{name: slots * column[:1].nbytes for name, column in self._columns.items()},
            "actions": slots * self.actions[:1].nbytes,
            "rewards": slots * reward,
            "index": index + arrays.chains.nbytes + arrays.recent.nbytes,
        }

    def footprint(self) -> dict[str, int]:
        head = self.arrays.head
        return {**self._frame_bytes(), **self.bytes_of(self.slots_in_use, int(head["chunks"]))}

    @property
    def slots_in_use(self) -> int:
        """Slots for each of which other parts hold bytes: those of evicted transitions as well."""
        return int(self.arrays.head["size"])

    @property
    def nbytes(self) -> int:
        """Bytes held now, with those that each slot takes elsewhere."""
        return sum(self.footprint().values()) + self.slot_bytes * self.slots_in_use

    def projected_footprint(self) -> dict[str, int]:
        """Bytes when full, with as many frames a transition as there are now (one at the start)."""
        chunks = self._projected_chunks()
        return {**self._projected_frame_bytes(chunks), **self.bytes_of(self.max_size, chunks)}

    def _projected_chunks(self) -> int:
        held, chunks = len(self), int(self.arrays.head["chunks"])
        frames = self.max_size + self.num_envs * self.stack
        full = -(-frames // self.chunk) + self.num_envs
        if held == 0:
            return max(full, chunks)
        return min(len(self.arrays.chunks), max(full, -(-chunks * self.max_size // held)))

    def clear(self) -> None:
        """Hold nothing; what was held goes back to the system."""
        made_of = self.arrays.counts.copy()
        for array in (self.arrays.memory, *self.row_columns.values()):
            give_back_all(array)
        self.arrays.counts[:] = made_of
        self.arrays.clear()
        self._evicted.clear()
        self._saved = None  # its pieces are numbered anew, and no older state has them

    def _empty(self) -> None:  # as TorchRL calls it
        self.clear()

    # Saving: see `rlmem.memories.ring.checkpoint`.

    def chunk_sizes(self, chunks: np.ndarray) -> np.ndarray:
        """Bytes of the frames of full chunks, int64 [n]."""
        return np.zeros(len(chunks), np.int64)

    def chunk_data(self, chunks: np.ndarray) -> np.ndarray:
        """The frames of full chunks as they are held, uint8."""
        return np.empty(0, np.uint8)

    def load_chunk_data(self, chunks: np.ndarray, sizes: np.ndarray, data: np.ndarray) -> None:
        """Take over what `chunk_sizes` and `chunk_data` gave."""

    def export_open(self) -> dict[str, np.ndarray]:
        """What changes with each frame."""
        raise NotImplementedError

    def import_open(self, state: State) -> None:
        """Take over what `export_open` gave."""
        raise NotImplementedError

    def import_layout(self, state: State) -> None:
        """Take over how `chunk_data` lay, before it comes."""

    def check_frames(self, state: State, chains: np.ndarray, chunks: np.ndarray) -> None:
        """Refuse a state whose frames do not fit.

        Args:
            chains, chunks: those of the state that are held, SAVED_CHAIN [E] and SAVED_CHUNK [n].

        Raises:
            ValueError: frames are missing, or of another shape or dtype.
        """
        raise NotImplementedError

    def make_room(self, state: State, chunks: int) -> None:
        """Take what so many chunks of a checked state need and may be refused.

        Raises:
            UserError: it was refused; nothing was changed.
        """

    def least_loaded(self, state: State, chains: np.ndarray, chunks: np.ndarray) -> int:
        """Bytes of a state's frames, of which as many were evicted as can be; see
        `check_frames`."""
        raise NotImplementedError
