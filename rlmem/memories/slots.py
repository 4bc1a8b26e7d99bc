"""A storage whose slots are written in any order: for memories that choose what they keep.

Rings are written in the order of time and let the oldest go. A reservoir, the best k, a memory of
rare states write where they like, and need a transition to stand alone: so each slot holds its
observation and its next observation whole. That costs twice the bytes of a ring of frames (56,448
an Atari transition, as `DenseStorage`), and there is no n-step return.

It works with TorchRL's writers too (`TensorDictMaxValueWriter` keeps the best k).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rlmem.errors import UserError
from rlmem.memories.base.batch import Batch
from rlmem.memories.base.blocks import Block, checked_frames, numpy_dtype
from rlmem.memories.base.lazy import give_back_all, lazy_zeros
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import array_of, check_actions
from rlmem.memories.base.storage import TransitionStorage, check_whole


class SlotStorage(TransitionStorage):
    """A TorchRL storage of transitions in slots that are free to be written.

    Args:
        capacity: slots.
        frame_shape: shape of one observation as the environment gives it.
        dtype: of an observation.
        stack: frames in a sampled observation, concatenated along the first axis; 1 for vectors.
            With more, `set` must be shown every transition: those that are not kept at slot -1.
        num_envs: environments that write in turn, told apart by the block's `env_id`.
        action_shape, action_dtype: of one action as it is held; integers are sampled as int64.
        num_actions: of discrete ones: a saved state with others than 0 .. num_actions - 1 is
            refused; 0: any are right.

    Examples:
        >>> import numpy as np
        >>> storage = SlotStorage(4, frame_shape=(3,), dtype=np.float32)
        >>> states, done = np.random.rand(3, 3).astype(np.float32), np.zeros((2, 1), bool)
        >>> storage.set(np.array([3, 0]), {"observation": states[:-1], "action": np.array([1, 0]),
        ...     "next": {"observation": states[1:], "reward": np.ones((2, 1), np.float32),
        ...              "terminated": done, "truncated": done}})
        >>> len(storage), storage.get(3)["action"].item()
        (2, 1)
    """

    single_steps = True
    _settings = (*TransitionStorage._settings, "max_size")  # which a budget lowers

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
        num_actions: int = 0,
    ) -> None:
        check_whole(capacity=capacity, stack=stack, num_envs=num_envs, num_actions=num_actions)
        if min(capacity, stack, num_envs) < 1:
            raise ValueError(
                f"capacity={capacity}, stack={stack}, num_envs={num_envs}: each must be at least 1"
            )
        super().__init__(int(capacity))
        self.frame_shape, self.dtype = checked_frames(frame_shape, dtype)
        self.stack, self.num_envs, self.num_actions = int(stack), int(num_envs), int(num_actions)
        rows = (stack * frame_shape[0], *frame_shape[1:])
        held = numpy_dtype(action_dtype, "action_dtype")
        self.actions = lazy_zeros((capacity, *action_shape), held)
        self._columns: dict[str, np.ndarray] = {
            "observation": lazy_zeros((capacity, *rows), self.dtype, huge=True),
            "next_observation": lazy_zeros((capacity, *rows), self.dtype, huge=True),
            "action": self.actions,
            "reward": lazy_zeros((capacity, 1), np.float32),
            "terminated": lazy_zeros((capacity, 1), np.bool_),
            "truncated": lazy_zeros((capacity, 1), np.bool_),
        }
        self._order = lazy_zeros((capacity,), np.int64)  # slots held, in the order of first use
        self._held = lazy_zeros((capacity,), np.bool_)
        self._count = 0
        self._end = 0  # behind the highest slot that is held
        self._running = np.zeros((num_envs, stack, *frame_shape), self.dtype)  # newest frames
        self._runs = np.zeros(num_envs, np.bool_)  # whether these wait for their transition

    def __len__(self) -> int:
        return self._count

    def contains(self, item: int) -> bool:
        """Whether a slot holds a transition."""
        return 0 <= item < self.max_size and bool(self._held[item])

    def set(self, cursor: Any, data: Any, *, set_cursor: bool = True) -> None:
        """Write a block at slots.

        Args:
            cursor: int or int64 [N]; -1 for a transition that is seen and not kept.
            data: the block (`rlmem.memories.base.blocks`), single frames in the order of time.

        Raises:
            ValueError: a block of other shapes, or `set_cursor=False`, TorchRL's sign of a write
                in place; nothing is written.
            IndexError: a slot out of range.
        """
        if not set_cursor:
            raise ValueError(f"{type(self).__name__} is written by extend alone, not in place")
        block = self.read_block(data)
        slots = np.atleast_1d(np.asarray(cursor, np.int64))
        if len(slots) != len(block):
            raise ValueError(f"{len(slots)} slots were given for {len(block)} transitions")
        if len(slots) and not (slots.min() >= -1 and slots.max() < self.max_size):
            raise IndexError(f"slots must lie in [0, {self.max_size}), or be -1: not kept")
        before, after = self._stacks(block)
        newest_first = np.flatnonzero(slots >= 0)[::-1]
        # Of a slot given twice, the last transition stands.
        into, first = np.unique(slots[newest_first], return_index=True)
        kept = newest_first[first]
        rows = {
            "observation": before,
            "next_observation": after,
            "action": block.action,
            "reward": block.reward[:, None],
            "terminated": block.terminated[:, None],
            "truncated": block.truncated[:, None],
        }
        for name, column in self._columns.items():
            column[into] = rows[name][kept]
        fresh = into[~self._held[into]]
        self._order[self._count : self._count + len(fresh)] = fresh
        self._held[fresh] = True
        self._count += len(fresh)
        self._end = max(self._end, int(into.max(initial=-1)) + 1)

    def free_slots(self, most: int) -> np.ndarray:
        """The lowest slots that hold nothing, int64, `most` of them or all that there are."""
        if self._end == self._count:  # there is none below
            return np.arange(self._count, min(self._count + most, self.max_size))
        return np.flatnonzero(~self._held[: self.max_size])[:most]

    def _stacks(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Whole observations and next observations of a block's rows, zeros before an episode."""
        shape = (len(block), *self._columns["observation"].shape[1:])
        if self.stack == 1:
            return block.observation.reshape(shape), block.next_observation.reshape(shape)
        before, after = np.empty(shape, self.dtype), np.empty(shape, self.dtype)
        for row, env in enumerate(block.env_id):
            running = self._running[env]
            # A frame that is not the one that was waited for begins an episode.
            given = block.observation[row]
            if not (self._runs[env] and running[-1].tobytes() == given.tobytes()):
                running[:-1] = 0
                running[-1] = given
            before[row] = running.reshape(shape[1:])
            running[:-1] = running[1:].copy()
            running[-1] = block.next_observation[row]
            after[row] = running.reshape(shape[1:])
            self._runs[env] = not (block.terminated[row] or block.truncated[row])
        return before, after

    def locate(self, index: torch.Tensor) -> torch.Tensor:
        """Slots of the stored items `index` (int64, any shape, in [0, len))."""
        return torch.from_numpy(self._order[index.numpy()])

    def buffers(self, shape: tuple[int, ...], *, pinned: bool = False) -> Batch:
        columns: Mapping[str, np.ndarray] = self._columns
        batch = {
            name: torch.empty(
                (*shape, *column.shape[1:]), dtype=torch.from_numpy(column[:0]).dtype, device="cpu"
            )
            for name, column in columns.items()
        }
        if self.actions.dtype.kind in "iu":
            batch["action"] = batch["action"].long()
        batch["steps_to_next"] = torch.ones(*shape, 1, dtype=torch.int64, device="cpu")
        return {name: t.pin_memory() if pinned else t for name, t in batch.items()}

    def read(self, index: np.ndarray, buffers: Batch | None = None) -> Batch:
        flat = index.reshape(-1)
        if not (flat.min(initial=0) >= 0 and flat.max(initial=0) < self.max_size):
            raise IndexError(f"slots must lie in [0, {self.max_size})")
        if not self._held[flat].all():
            raise IndexError(f"slot {flat[~self._held[flat]][0]} holds no transition")
        batch = self.buffers(index.shape) if buffers is None else buffers
        for name, column in self._columns.items():
            out = batch[name].numpy()
            if out.dtype == column.dtype:  # in one copy; the slots are checked
                column.take(index, axis=0, out=out, mode="clip")
            else:
                out[...] = column[index]
        return batch

    def limit_bytes(self, budget: int, slot_bytes: int) -> None:
        """See `ReplayStorage`: as many slots as fit, up to the capacity."""
        fixed = sum(self._bytes(0).values())
        a_slot = self.bytes_a_transition() + slot_bytes
        if budget < fixed + a_slot:
            raise UserError(
                f"memory.budget={budget}: too small for this memory, of which one transition takes "
                f"{fixed + a_slot} bytes; use that much or more"
            )
        most = (budget - fixed) // a_slot
        if most < self._end:
            raise UserError(
                f"budget={budget}: has room for {most} slots, and slot {self._end - 1} is held; "
                "use more"
            )
        self.max_size = min(self.max_size, most)

    def bytes_a_transition(self) -> int:
        """Bytes that one more transition takes."""
        return sum(self._bytes(1).values()) - sum(self._bytes(0).values())

    def footprint(self) -> dict[str, int]:
        return self._bytes(self._count)

    def projected_footprint(self) -> dict[str, int]:
        return self._bytes(self.max_size)

    def _bytes(self, slots: int) -> dict[str, int]:
        def a_slot(*names: str) -> int:
            return sum(self._columns[name][:1].nbytes for name in names)

        index = a_slot("terminated", "truncated") + self._order.itemsize + self._held.itemsize
        return {
            "frames": slots * a_slot("observation", "next_observation") + self._running.nbytes,
            "actions": slots * a_slot("action"),
            "rewards": slots * a_slot("reward"),
            "index": slots * index + self._runs.nbytes,
        }

    def _empty(self) -> None:
        self._held[self._order[: self._count]] = False
        give_back_all(self._held)
        give_back_all(self._order)
        self._count = self._end = 0
        self._runs[:] = False
        for column in self._columns.values():
            give_back_all(column)

    def state_views(self) -> State:
        order = self._order[: self._count]
        held = {name: lambda c=column: c[order] for name, column in self._columns.items()}
        return {**held, "order": order, "running": self._running, "runs": self._runs}

    def check_state(self, state: State) -> None:
        """See `Stateful`; the slots must be of this storage, each once."""
        order = array_of(state, "order", np.int64, (-1,))
        count = len(order)
        if count and not (order.min() >= 0 and order.max() < self.max_size):
            raise UserError(f"the saved memory has slots beyond this one's {self.max_size}")
        if len(np.unique(order)) != count:
            raise UserError("the saved memory is damaged: a slot is held twice")
        for name, column in self._columns.items():
            array_of(state, name, column.dtype, (count, *column.shape[1:]))
        check_actions(state["action"], self.num_actions)
        array_of(state, "running", self.dtype, self._running.shape)
        array_of(state, "runs", np.bool_, self._runs.shape)

    def take_over(self, state: State) -> None:
        order = np.array(state["order"])
        self._empty()
        for name, column in self._columns.items():
            column[order] = state[name]
        self._order[: len(order)], self._count = order, len(order)
        self._held[order], self._end = True, int(order.max(initial=-1)) + 1
        self._running[:], self._runs[:] = state["running"], state["runs"]

    def check_valid(self) -> None:
        order = self._order[: self._count]
        assert len(np.unique(order)) == len(order), "a slot is held twice"
        assert self._held[order].all(), "a held slot is not marked"
        assert self._end == order.max(initial=-1) + 1, "the highest slot is another one"
        assert int(np.count_nonzero(self._held)) == len(order), "a slot is marked and not held"
