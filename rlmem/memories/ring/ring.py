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
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlmem.memories.base.batch import Batch
from rlmem.memories.base.blocks import Block, held_exactly
from rlmem.memories.base.build import Needs
from rlmem.memories.base.serialize import State, load_state, save_state
from rlmem.memories.ring.budget import RingBudget
from rlmem.memories.ring.checkpoint import RingCheckpoint
from rlmem.memories.ring.load import RingLoader
from rlmem.memories.ring.order import ENOUGH, warn_of_gaps
from rlmem.memories.ring.plan_kernels import continues
from rlmem.memories.ring.read_kernels import read
from rlmem.memories.ring.reading import SampleArrays
from rlmem.memories.ring.records import ROW, after_ends
from rlmem.memories.ring.slots import RingFrames
from rlmem.memories.ring.write_kernels import evict, plan_write

MAX_ROWS = 4096  # transitions that are written at once
MOST_EVICTED = 1024  # runs of evicted slots that wait to be asked for, one by one
_BYTE = np.dtype(np.uint8)


class RingStorage(RingFrames):
    """A TorchRL storage of the newest transitions, each observation held once.

    Args:
        capacity: transitions held at most; the oldest goes first.
        frame_shape: shape of one observation as the environment gives it: (1, 84, 84) for Atari,
            (C, H, W) for other images, (D,) for vectors.
        dtype: of an observation.
        options: keywords of `rlmem.memories.ring.slots.RingOptions`: stack, num_envs,
            action_shape, action_dtype, num_actions, n_step, gamma, chunk, budget, columns.

    Written in order only (TorchRL's `RoundRobinWriter` or rlmem's `RingWriter`). A block that is
    refused leaves storage and writer as they were.

    Raises:
        ValueError: an argument out of its range.
    """

    _watched = True  # whether its order is yet to be looked at

    @classmethod
    def build(
        cls, settings: Any, needs: Needs, capacity: int, budget: int | None = None
    ) -> "RingStorage":
        """Make the storage for a run.

        Args:
            capacity: transitions; under a budget as many as it holds at most.
            budget: bytes, or None.
        """
        spec = needs.spec
        if budget is not None:  # an upper bound: memory is taken as it is written
            frame = 0 if cls.compresses else int(np.prod(spec.frame_shape)) * spec.dtype.itemsize
            capacity = budget // (ROW.itemsize + 1 + frame) + spec.num_envs
        capacity = max(capacity, spec.num_envs)  # which write at once
        return cls(
            capacity,
            **needs.layout,
            n_step=needs.n_step,
            gamma=needs.gamma,
            budget=budget,
            columns=needs.columns,
            **cls.options(settings),
        )

    @classmethod
    def options(cls, settings: Any) -> dict[str, Any]:
        """Further arguments, of the settings of a kind of storage: its keys."""
        return settings.as_arguments()

    @property
    def _last_cursor_index(self) -> int | None:
        # The slot of the newest transition, at which TorchRL's slice samplers cut.
        if self.budget is not None or self.num_envs > 1 or self.n_step > 1:
            raise ValueError(
                f"{type(self).__name__}: TorchRL's slice samplers take neighbouring slots, which "
                "with a budget, or num_envs above 1, are no steps in a row, and with n_step above "
                "1 end where episodes do not; use SequenceSampler"
            )
        size = int(self.arrays.head["size"])
        return (int(self.arrays.head["cursor"]) - 1) % size if size else None

    def set(self, cursor: Any, data: Any, *, set_cursor: bool = True) -> None:
        """Write a block at the slots `cursor`, which must follow the last written ones.

        Args:
            cursor: int or int64 [N].
            data: the block (see `rlmem.memories.base.blocks`).
            set_cursor: False, TorchRL's sign of a write in place, is refused.

        Raises:
            ValueError: slots out of order or in place, a block of other shapes, or there is a
                budget: then the ring may turn early, and only `RingWriter` asks it where.
        """
        if self.budget is not None:
            raise ValueError(
                f"{type(self).__name__} has a budget, under which it says itself where a "
                "transition goes: use writer=RingWriter()"
            )
        if not set_cursor:
            raise ValueError(
                f"{type(self).__name__} is written behind its newest transition only: use extend"
            )
        block = self.read_block(data)
        slots = np.atleast_1d(np.asarray(cursor, np.int64))
        if len(slots) != len(block):
            raise ValueError(f"{len(slots)} slots were given for {len(block)} transitions")
        following = int(self.arrays.head["cursor"]) % self.max_size
        if len(slots) and slots[0] != following:
            raise ValueError(
                f"slot {slots[0]} was written, {following} comes next: {type(self).__name__} is "
                "written in order, use RoundRobinWriter, or RingWriter where what was saved of a "
                "smaller one is loaded"
            )
        if not np.array_equal(slots, (following + np.arange(len(slots))) % self.max_size):
            raise ValueError(
                f"slots {slots[:4].tolist()} ... were written: {type(self).__name__} is "
                "written in order, each slot behind the one before"
            )
        self.append(block)

    def read_block(self, data: Any) -> Block:
        block = super().read_block(data)
        if self._columns and not isinstance(data, Block):
            block.columns = {
                name: self._read_column(data, name, len(block)) for name in self.columns
            }
        return block

    def _read_column(self, data: Any, name: str, n: int) -> np.ndarray:
        column, given = self._columns[name], data.get(name, None)
        if given is None:
            raise ValueError(f"a block without {name!r}: this storage holds it of each transition")
        values = given.detach().cpu().numpy() if isinstance(given, torch.Tensor) else given
        wanted = (n, *column.shape[1:])
        # Alike but for dimensions of 1, as of a single transition.
        sizes = [[size for size in shape if size != 1] for shape in (np.shape(values), wanted)]
        if sizes[0] != sizes[1]:
            raise ValueError(f"{name} of shape {np.shape(values)} was given, not {wanted}")
        return held_exactly(np.asarray(values), column.dtype, name).reshape(wanted)

    @property
    def columns(self) -> Mapping[str, np.ndarray]:
        return self._columns

    def append(self, data: Any) -> np.ndarray:
        """Write a block of N transitions behind the last ones; their slots, int64 [N].

        Raises:
            ValueError: a block of other shapes.
            UserError: the budget is too small to hold it, or a disk is full; the storage stays
                valid.
        """
        block = self.read_block(data)
        longest = min(MAX_ROWS, self.max_size)
        if self.limit is not None:
            longest = min(longest, self.limit.longest_run)
        if self.may_be_full and len(block) > longest:
            # A disk that is full is found before anything is entered, not behind some of the runs.
            self._reserve(block.env_id, self._follows(block))
        slots, done = [], 0
        while done < len(block):
            whole = done == 0 and len(block) <= longest
            run = block if whole else block.rows(slice(done, done + longest))
            first, count = self._write(run)
            slots.append(np.arange(first, first + count))
            done += count
        if self._watched and len(self) >= ENOUGH:
            self._watched = False
            warn_of_gaps(self.arrays)
        return slots[0] if len(slots) == 1 else np.concatenate([np.empty(0, np.int64), *slots])

    def _place(self, count: int) -> tuple[int, int]:
        """First slot and length of the next run of at most `count` slots, made free."""
        size, cursor, window = self.arrays.cursors()
        if cursor == size and window == size and size < self.max_size:
            return cursor, min(count, self.max_size - size)
        first = cursor % size
        count = min(count, size - first)
        self.evict(count - (size - window))
        return first, count

    def _write(self, block: Block) -> tuple[int, int]:
        """Write a run of a block; the first slot and how many rows it was.

        What may be refused is asked for before anything is entered.
        """
        done = block.terminated | block.truncated
        follows = self._follows(block)
        self._reserve(block.env_id, follows)
        if self.limit is None:
            first, count = self._place(len(block))
        else:
            first, count = self.limit.place(block.env_id, follows)
        if count < len(block):
            block, done, follows = block.rows(slice(count)), done[:count], follows[:count]
        slots = slice(first, first + count)
        places = plan_write(self.arrays.memory, first, block.env_id, done, follows)
        self.actions[slots] = block.action
        rows = self.arrays.rows[slots]
        rows["reward"] = block.reward
        rows["after"][done] = after_ends(block.terminated[done], block.truncated[done])
        self._write_columns(block, slots)
        self._put(block, *places, first)
        if self.limit is not None:
            self.limit.settle()
        return first, count

    def _follows(self, block: Block) -> np.ndarray:
        """Whether each row's observation is the next one of its environment's row before."""
        done = block.terminated | block.truncated
        frames = as_bytes(block.observation), as_bytes(block.next_observation)
        return continues(self.arrays.memory, block.env_id, done, *frames, self._tails())

    def _write_columns(self, block: Block, slots: slice) -> None:
        for name, column in self._columns.items():
            column[slots] = block.columns[name][: slots.stop - slots.start]

    def evict(self, count: int) -> None:
        """Drop the `count` oldest transitions, none if it is negative."""
        if count <= 0:
            return
        if self.budget is not None:
            oldest = int(self.arrays.head["written"]) - len(self)
            self._evicted.append(self.arrays.slots_of(oldest, oldest + count))
            if len(self._evicted) > MOST_EVICTED:  # nobody asks for them
                self._evicted = [np.unique(np.concatenate(self._evicted))]
        freed = evict(self.arrays.memory, count)
        if len(freed):
            self._release(freed)

    def limit_bytes(self, budget: int, slot_bytes: int) -> None:
        if self.budget is not None and budget > self.budget:
            raise ValueError(f"budget={budget}: this storage was made for {self.budget} bytes")
        self.budget, self.slot_bytes = budget, slot_bytes
        self.limit = RingBudget(self, budget)

    @cached_property
    def limit(self) -> RingBudget | None:
        """What places runs within the budget; None without one."""
        return None if self.budget is None else RingBudget(self, self.budget)

    def drain_evicted(self) -> np.ndarray:
        """Slots that were evicted for the budget since the last call, int64 [n]."""
        if not self._evicted:
            return np.empty(0, np.int64)
        slots = np.concatenate(self._evicted)
        self._evicted.clear()
        return slots

    def buffers(self, shape: tuple[int, ...], *, pinned: bool = False) -> SampleArrays:
        # A GPU copies by itself what is contiguous, and torch would copy a view of the rest first.
        return SampleArrays(self, shape, pinned=pinned, apart=pinned)

    def read(self, index: np.ndarray, buffers: SampleArrays | None = None) -> Batch:
        out = buffers or SampleArrays(self, index.shape, pinned=False, apart=True)
        flat = index.reshape(-1)
        held = read(
            self.arrays.memory,
            self._flat_actions,
            flat,
            self.n_step,
            self.gamma,
            out.places,
            out.action,
            out.columns,
        )
        if not held:
            raise IndexError(
                f"a slot of {flat.min()} .. {flat.max()} holds no transition; draw with a sampler "
                "of rlmem or TorchRL's RandomSampler"
            )
        self._take(flat, out.last, out.places, out.frames)
        for name, column in out.more.items():
            self._columns[name].take(flat, axis=0, out=column, mode="clip")  # they are checked
        return out.batch

    # Saving: see `rlmem.memories.ring.checkpoint`.

    def state_views(self) -> State:
        return RingCheckpoint(self).state(None)

    def check_state(self, state: State) -> None:
        """Refuse a state that does not fit.

        Raises:
            ValueError: it is of other frames, environments, another kind of storage or a larger
                memory, passes the budget, or is damaged.
        """
        RingLoader(self, state).check()

    def take_over(self, state: State) -> None:
        """Take over a checked state; under a smaller budget, what is the oldest in it goes.

        Raises:
            UserError: a disk has no room for its frames; the storage stays as it was.
        """
        RingLoader(self, state).load()
        self._saved = state.get("token")
        within = self.limit is None or self.limit.shrink()
        assert within, "a state was let pass that its budget does not hold"
        if self.budget is not None:
            # Of what was evicted before the save a sampler that asks as it draws may not know yet.
            slots = np.arange(self.slots_in_use)
            self._evicted.append(slots[~self.held(slots)])

    def save(self, folder: Path, previous: Path | None = None) -> None:
        """Write the state into a folder.

        Args:
            previous: folder of an earlier state. If it is the one that this storage saved or
                loaded last, what stands there is linked and only what is new is written.
        """
        checkpoint, since = RingCheckpoint(self), None
        if previous is not None and self._saved is not None:
            with contextlib.suppress(OSError, ValueError):
                since = load_state(previous)
        reuse = [] if since is None else checkpoint.reusable(since)
        if since is not None and (since.get("token") != self._saved or not since.intact(reuse)):
            since, reuse = None, []
        token = uuid.uuid4().hex
        state = {"token": token, **checkpoint.state(since)}
        save_state(folder, state, previous if since else None, reuse)
        self._saved = token

    def check_valid(self) -> None:
        RingCheckpoint(self).check_valid()


def as_bytes(frames: np.ndarray) -> np.ndarray:
    """The bytes of frames [N, ...] as uint8 [N, bytes]."""
    whole = frames if frames.flags.c_contiguous else np.ascontiguousarray(frames)
    return whole.reshape(len(frames), -1).view(_BYTE)
