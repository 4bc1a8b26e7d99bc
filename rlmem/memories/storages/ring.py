"""What the ring storages share: slots in the order of time, frames in chains, n-step returns.

A subclass says how frames are held: as they are (`FrameStorage`), compressed
(`CompressedFrameStorage`), or as whole stacks (`DenseStorage`). Everything else is here. The next
observation of a transition is the observation of its successor and is held once; an episode's last
one stands at its end. Stacks are rebuilt exactly as the environment would stack them, zero-padded
at an episode's start; n-step returns are summed at sampling by following the successors, so that
one storage serves any n.

A transition whose observation is not the next observation that its environment wrote before starts
a stack of its own, as after a reset, even if no done flag was given.
"""

import contextlib
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from rlmem.errors import UserError
from rlmem.memories.lazy import lazy_zeros
from rlmem.memories.serialize import State, load_state, save_state
from rlmem.memories.storages import ring_kernels as kernels
from rlmem.memories.storages.base import Block, ReplayStorage, as_block, make_sample
from rlmem.memories.storages.ring_state import RingLog

MAX_ROWS = 4096  # transitions that are written at once


class RingStorage(ReplayStorage):
    """A TorchRL storage of the newest transitions, each observation held once.

    Args:
        capacity: transitions held at most; the oldest goes first.
        frame_shape: shape of one observation as the environment gives it: (1, 84, 84) for Atari,
            (C, H, W) for other images, (D,) for vectors.
        dtype: of an observation.
        stack: frames in a sampled observation, concatenated along the first axis; 1 for vectors.
        num_envs: environments that write in turn, told apart by the block's `env_id`.
        action_shape, action_dtype: of one action as it is held; integers are sampled as int64.
        n_step: steps of the sampled return; 1 is the plain transition.
        gamma: discount inside the n-step return.
        chunk: frames a chunk, 2 to 255.

    Written in order only (TorchRL's `RoundRobinWriter` or rlmem's `RingWriter`).

    Raises:
        ValueError: an argument out of its range.
    """

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
        self.budget: int | None = None  # bytes, with `slot_bytes` for each slot
        self.slot_bytes = 0
        # A transition begins two frames at most; each chain has an open and a half-used chunk.
        self._max_chunks = -(-2 * capacity // chunk) + num_envs * (3 + -(-stack // chunk))
        self._ring = np.zeros(1, kernels.RING)
        self._rows = lazy_zeros((capacity,), kernels.ROW)
        self._action = lazy_zeros((capacity, *action_shape), action_dtype)
        self._chunks = lazy_zeros((self._max_chunks,), kernels.CHUNK)
        self._free = lazy_zeros((self._max_chunks,), np.int32)  # stack of free chunk places
        self._chains = np.zeros(num_envs, kernels.CHAIN)
        self._recent = np.zeros((num_envs, stack), np.int64)
        self._evicted: list[np.ndarray] = []
        self._saved: str | None = None  # token of the state that was saved or loaded last
        self._empty()

    # How frames are held: for the subclasses.

    def _tails(self) -> np.ndarray:
        """Bytes of each chain's newest frame, uint8 [E, frame bytes]; any for an empty chain."""
        raise NotImplementedError

    def _put(self, block: Block, first: np.ndarray, ahead: np.ndarray, slot: int) -> None:
        """Take in the frames of a block at the places of `plan_write`."""
        raise NotImplementedError

    def _take(self, index: np.ndarray, last: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Frames at the places of `plan_read`, zeros for -1; dtype [B, count, frame size]."""
        raise NotImplementedError

    def _release(self, chunks: np.ndarray) -> None:
        """Let go of the frames of chunks."""

    gives_back = False  # whether evicting can lower the bytes that are held

    def _give_back(self, size: int) -> int:
        """Return `size` unused bytes to the system, as far as there are; the bytes."""
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

    def __len__(self) -> int:
        return int(self._ring["window"][0])

    def set(self, cursor: Any, data: Any, *, set_cursor: bool = True) -> None:
        """Write a block at the slots `cursor`, which must follow the last written ones.

        Args:
            cursor: int or int64 [N].
            data: the block (see `rlmem.memories.storages.base`).

        Raises:
            ValueError: slots out of order, or a block of other shapes.
        """
        first = int(cursor) if isinstance(cursor, int) else int(cursor[0])
        following = int(self._ring["cursor"][0]) % self.max_size
        if first != following:
            raise ValueError(
                f"slot {first} was written, {following} comes next: {type(self).__name__} is "
                "written in order, use RoundRobinWriter or RingWriter"
            )
        self.append(data)

    def append(self, data: Any) -> np.ndarray:
        """Write a block of N transitions behind the last ones; their slots, int64 [N].

        Raises:
            ValueError: a block of other shapes.
            UserError: the budget is too small to hold it.
        """
        block = as_block(data, self.frame_shape, self.dtype, self.num_envs)
        slots = np.empty(len(block), np.int64)
        done = 0
        while done < len(block):
            first, count = self._place(min(len(block) - done, MAX_ROWS, self.max_size))
            slots[done : done + count] = np.arange(first, first + count)
            whole = count == len(block)
            self._write(block if whole else block.rows(slice(done, done + count)), first)
            done += count
        return slots

    def _place(self, count: int) -> tuple[int, int]:
        """First slot and length of the next run of at most `count` slots, made free."""
        size, cursor, window = (int(self._ring[name][0]) for name in ("size", "cursor", "window"))
        limit = size if self._exhausted(count) else self.max_size
        if cursor == size and window == size and size < limit:
            return cursor, min(count, limit - size)
        if size == 0:
            raise self._too_small()
        cursor = 0 if cursor == size else cursor
        count = min(count, size - cursor)
        self._evict(count - (size - window))
        return cursor, count

    def _write(self, block: Block, first: int) -> None:
        done = block.terminated | block.truncated
        observation, following = as_bytes(block.observation), as_bytes(block.next_observation)
        follows = kernels.continues(
            block.env_id, done, observation, following, self._chains, self._tails()
        )
        if self.budget is not None:
            self._make_room(kernels.chunks_needed(block.env_id, follows, self._chains, self.chunk))
        slots = slice(first, first + len(block))
        new, ahead = kernels.plan_write(
            first,
            block.env_id,
            done,
            follows,
            self.stack,
            self.chunk,
            self._ring,
            self._rows,
            self._chunks,
            self._free,
            self._chains,
            self._recent,
        )
        self._action[slots] = block.action
        rows = self._rows[slots]
        rows["reward"] = block.reward
        rows["terminated"] = block.terminated
        rows["truncated"] = block.truncated
        self._put(block, new, ahead, first)

    def _evict(self, count: int) -> None:
        if count <= 0:
            return
        if self.budget is not None:
            r = self._ring[0]
            oldest = (r["cursor"] - r["window"]) % r["size"]
            self._evicted.append((oldest + np.arange(count)) % r["size"])
        freed = kernels.evict(
            count,
            self.stack,
            self.chunk,
            self._ring,
            self._rows,
            self._chunks,
            self._free,
            self._chains,
        )
        if len(freed):
            self._release(freed)

    # The budget.

    def limit_bytes(self, budget: int, slot_bytes: int) -> None:
        self.budget, self.slot_bytes = budget, slot_bytes

    @property
    def nbytes(self) -> int:
        """Bytes held now, with the budgeted bytes of a slot elsewhere."""
        return sum(self.footprint().values()) + self.slot_bytes * int(self._ring["size"][0])

    def _exhausted(self, count: int) -> bool:
        """Whether `count` more slots would pass the budget."""
        if self.budget is None:
            return False
        over = self.nbytes + count * (self._row_bytes + self.slot_bytes) - self.budget
        return over > 0 and self._give_back(over) < over

    def _make_room(self, chunks: int) -> None:
        """Evict until `chunks` chunks can be begun within the budget."""
        assert self.budget is not None
        while self.gives_back and (over := self.nbytes - self.budget) > 0:
            if self._give_back(over) < over:
                self._evict_some(0)
        free = int(self._ring["free"][0])
        size = self._chunk_bytes
        while chunks > free and self.nbytes + (chunks - free) * size > self.budget:
            self._evict_some(0)
            free = int(self._ring["free"][0])

    def _evict_some(self, keep: int) -> None:
        """Evict one transition an environment, but none of the newest `keep`.

        Raises:
            UserError: nothing is left to evict.
        """
        count = min(self.num_envs, len(self) - keep)
        if count <= 0:
            raise self._too_small()
        self._evict(count)

    def _too_small(self) -> UserError:
        return UserError(
            f"memory.budget={self.budget}: too small for this memory, which takes {self.nbytes} "
            f"bytes with {len(self)} transitions; use more, or fewer env.num_envs"
        )

    def drain_evicted(self) -> np.ndarray:
        """Slots that were evicted for the budget since the last call, int64 [n]."""
        if not self._evicted:
            return np.empty(0, np.int64)
        slots = np.concatenate(self._evicted)
        self._evicted.clear()
        return slots

    def locate(self, index: torch.Tensor) -> torch.Tensor:
        """Slots of the transitions `index` (int64, any shape, in [0, len))."""
        r = self._ring[0]
        if r["window"] == r["size"]:
            return index
        return (int(r["cursor"] - r["window"]) + index) % int(r["size"])

    def get(self, index: Any) -> TensorDict:
        """Read transitions.

        Args:
            index: int64 [B] or [U, B] slots (an int gives one transition without batch dimension).

        Returns:
            TensorDict of the index's shape: `observation` and `("next", "observation")`
            [B, *observation_shape], `action`, `steps_to_next` and `("next", ...)` reward,
            terminated, truncated, done [B, 1].
        """
        if isinstance(index, (int, np.integer)):
            return self.get(np.array([index]))[0]
        if isinstance(index, slice):
            index = np.arange(*index.indices(len(self)))
        if isinstance(index, torch.Tensor):
            index = index.cpu().numpy()
        shape = np.shape(index)
        index = np.asarray(index, np.int64).reshape(-1)
        n, channels = len(index), self.frame_shape[0]
        # With one step, the stack and its successor overlap: both are views of stack + 1 frames.
        count = self.stack + 1 if self.n_step == 1 else 2 * self.stack
        places = np.empty((n, count), np.int64)
        reward = np.empty(n, np.float32)
        steps = np.empty(n, np.int64)
        last = np.empty(n, np.int64)
        kernels.plan_read(
            index,
            self.stack,
            self.chunk,
            self.n_step,
            self.gamma,
            self._ring,
            self._rows,
            self._chunks,
            places,
            reward,
            steps,
            last,
        )
        frames = torch.from_numpy(self._take(index, last, places))
        count = frames.shape[1]
        frames = frames.view(*shape, count * channels, *self.frame_shape[1:])
        batch, own = len(shape), self.stack * channels
        ends = self._rows[last]
        action = self._action[index]
        return make_sample(
            shape,
            frames.narrow(batch, 0, own),
            torch.from_numpy(action.astype(np.int64) if action.dtype.kind in "iu" else action),
            frames.narrow(batch, count * channels - own, own),
            reward,
            ends["terminated"],
            ends["truncated"],
            steps,
        )

    # Bytes.

    @property
    def _row_bytes(self) -> int:
        return self._rows.itemsize + self._action[:1].nbytes

    @property
    def _chunk_bytes(self) -> int:
        """Bytes that a chunk takes when it is begun."""
        return self._chunks.itemsize + self._free.itemsize

    def _bytes(self, slots: int, chunks: int) -> dict[str, int]:
        reward = self._rows["reward"].itemsize
        return {
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

    # Saving: see `rlmem.memories.storages.ring_state`.

    def _export_columns(self, slots: np.ndarray) -> dict[str, np.ndarray]:
        """What a transition holds beside its row."""
        return {"action": self._action[slots]}

    def _import_columns(self, slots: np.ndarray, columns: dict[str, np.ndarray]) -> None:
        self._action[slots] = columns["action"]

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

    def state_dict(self) -> State:
        """Flat state, copied; `save` does without the copy."""
        state = RingLog(self).state(None)
        return {name: v() if callable(v) else v for name, v in state.items()}

    def load_state_dict(self, state_dict: State) -> None:
        """Take over a state in place.

        Raises:
            ValueError: it is of other frames, environments or a larger memory, or damaged.
        """
        log = RingLog(self)
        log.check(state_dict)
        self._empty()
        log.load(state_dict)
        self._saved = state_dict.get("token")

    def save(self, folder: Path, previous: Path | None = None) -> None:
        """Write the state into a folder.

        Args:
            previous: folder of an earlier state. If it is the one that this storage saved or
                loaded last, what stands there is linked and only what is new is written.
        """
        log, since = RingLog(self), None
        if previous is not None and self._saved is not None:
            with contextlib.suppress(FileNotFoundError, ValueError):
                since = load_state(previous)
        if since is not None and since.get("token") != self._saved:
            since = None
        token = uuid.uuid4().hex
        state = {"token": token, **log.state(since)}
        save_state(folder, state, previous if since else None, log.reusable(since) if since else ())
        self._saved = token

    def check_valid(self) -> None:
        RingLog(self).check_valid()


def as_bytes(frames: np.ndarray) -> np.ndarray:
    """The bytes of frames [N, ...] as uint8 [N, bytes]."""
    n = len(frames)
    return np.ascontiguousarray(frames).reshape(n, -1).view(np.uint8)
