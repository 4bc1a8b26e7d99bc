"""A replay memory: storage, sampler, writer and transforms, as in TorchRL's `ReplayBuffer`.

This is the thin glue that rlmem's trainer uses in place of `torchrl.data.ReplayBuffer`: it draws
several minibatches at once, counts every byte, and saves without pickle. The parts are TorchRL
parts and work in a `ReplayBuffer` as they are.
"""

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import torch
from tensordict import TensorDict

from rlmem.errors import UserError
from rlmem.memories.base.batch import Batch, as_tensordict, ones_of
from rlmem.memories.base.observer import Observer
from rlmem.memories.base.serialize import (
    check_together,
    load_state,
    marks_of,
    save_state,
    saving_whole,
    where_saved,
)
from rlmem.memories.base.state import count_of, generator_of
from rlmem.memories.base.storage import ReplayStorage, check_whole
from rlmem.memories.base.writer import ReplayWriter
from rlmem.memories.budget import share_budget
from rlmem.memories.samplers.base import ReplaySampler, as_index, held_slots
from rlmem.memories.transforms.base import ReplayTransform, check_names
from rlmem.units import parse_bytes

Given = ParamSpec("Given")
Found = TypeVar("Found")


def one_at_a_time(
    method: Callable[Concatenate[Any, Given], Found],
) -> Callable[Concatenate[Any, Given], Found]:
    """Let a method of a memory wait until no other thread is in such a method."""

    @functools.wraps(method)
    def wait(self: Any, *args: Given.args, **options: Given.kwargs) -> Found:
        with self._lock:
            return method(self, *args, **options)

    return wait


class ReplayMemory:
    """Storage x sampler x writer, and transforms of the batches, with one random generator.

    Threads may write, sample, learn and save at once: their calls wait for each other.

    Args:
        storage: how transitions are held.
        sampler: which are drawn.
        writer: which are kept.
        seed: of the generator that all parts draw from, transforms among them.
        budget: bytes ("64MiB" or a number) that all parts may hold together; the capacity is then
            an upper bound. The oldest transitions of a ring go when a new one would not fit; a map
            grows no more.
        transforms: what each batch goes through, in this order; each has a `name` of its own.

    Raises:
        ValueError: two transforms have one name.
        TypeError: a sampler, writer or transform of another library.

    Attributes:
        draws: whether minibatches are drawn, so that there is something to say of them.
        observers: are told of what is written, forgotten, drawn and learned; they are no part of
            the memory.
        pinned: whether drawn batches lie in memory that a GPU copies from by itself.

    Examples:
        >>> import numpy as np
        >>> from rlmem.memories import FrameStorage, ReplayMemory, RingWriter, UniformSampler
        >>> storage = FrameStorage(100, frame_shape=(4,), dtype=np.float32)
        >>> memory = ReplayMemory(storage, UniformSampler(), RingWriter(), seed=0)
        >>> states = np.random.rand(11, 4).astype(np.float32)
        >>> done = np.zeros((10, 1), bool)
        >>> _ = memory.extend({"observation": states[:-1], "action": np.zeros(10, np.int64),
        ...     "next": {"observation": states[1:], "reward": np.ones((10, 1), np.float32),
        ...              "terminated": done, "truncated": done}})
        >>> memory.sample(batch_size=8)["next", "observation"].shape
        torch.Size([8, 4])
    """

    draws = True

    def __init__(
        self,
        storage: ReplayStorage,
        sampler: ReplaySampler,
        writer: Any,
        *,
        seed: int,
        budget: int | str | None = None,
        transforms: Sequence[ReplayTransform] | ReplayTransform = (),
    ) -> None:
        ours = (sampler, ReplaySampler, "UniformSampler()"), (writer, ReplayWriter, "RingWriter()")
        for part, kind, instead in ours:
            if not isinstance(part, kind):
                raise TypeError(
                    f"{type(part).__name__} is no {kind.__name__}; use one of rlmem's, such as "
                    f"{instead}, or TorchRL's ReplayBuffer"
                )
        self.storage, self.sampler, self.writer = storage, sampler, writer
        single = isinstance(transforms, ReplayTransform)
        self.transforms = (transforms,) if single else tuple(transforms)
        check_names(self.transforms)
        self.observers: list[Observer] = []
        self.pinned = False
        self._lock = threading.RLock()  # a part that is half told of a block gives other rows
        self._shape: tuple[int, ...] = ()  # of the indices drawn last, and their arrays
        self._buffers: Any = None
        self._ones = torch.empty(0)
        self.generator = torch.Generator().manual_seed(seed)
        self.transitions_seen = 0
        self._evicting = False  # transitions went for the budget when a block came last
        self._most_held = 0  # transitions, after any block
        for part in (writer, *self.transforms):
            part.register_storage(storage)
        sampler.check_storage(storage)
        self.budget = budget = None if budget is None else parse_bytes(budget)
        if budget is not None:
            share_budget(budget, storage, sampler, writer, self.transforms)
        storage.drain_evicted()  # before the sampler was told of anything
        if len(storage):  # it was filled before
            newest = getattr(storage, "newest", None)  # in the order of time, if it knows that
            unordered = torch.from_numpy(held_slots(storage))
            sampler.extend(unordered if newest is None else newest(len(storage)))
        self._share_generator()

    def _share_generator(self) -> None:
        for part in self._parts().values():
            part._rng = self.generator

    def __copy__(self) -> "ReplayMemory":
        """The same parts, generator and lock under another name."""
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other

    def __getstate__(self) -> dict[str, Any]:
        # For pickle and deepcopy. The generator as an array: torch sends none to another process.
        state = {**vars(self), "generator": self.generator.get_state().numpy()}
        del state["_lock"], state["_buffers"]  # copied, arrays and tensors would share no memory
        return state | {"_shape": ()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _buffers=None, _lock=threading.RLock())
        self.generator = torch.Generator()
        self.generator.set_state(torch.from_numpy(state["generator"]))
        self._share_generator()  # which the parts leave out of their copies

    def _parts(self) -> dict[str, Any]:
        transforms = {part.name: part for part in self.transforms}
        parts = {"storage": self.storage, "sampler": self.sampler, "writer": self.writer}
        return {**parts, **transforms}

    def __len__(self) -> int:
        return len(self.storage)

    @property
    def columns(self) -> Mapping[str, Any]:
        """What it takes of each transition beside what every memory takes, by name."""
        return self.storage.columns

    @property
    def entries(self) -> int:
        """Stored items in the memory's own unit (transitions; nodes of a map)."""
        return self.storage.entries

    @property
    def room(self) -> str:
        """What it holds when full, in words."""
        return f"{self.storage.max_size:,} {self.storage.unit}"

    @property
    def transitions_represented(self) -> int:
        """Transitions that what is stored can stand for."""
        return self.storage.transitions_represented

    @one_at_a_time
    def extend(self, block: Any) -> Any:
        """Take in a block of N transitions (`rlmem.memories.base.blocks`); their slots int64 [N],
        -1 for one that is not kept (yet).

        Raises:
            ValueError: a part cannot use the block; nothing was changed.
            UserError: the budget is too small for it, or a disk is full; the memory stays valid.
        """
        for part in self.transforms:
            part.check(block)
        try:
            index = self.writer.extend(block)
        finally:
            evicted = self._evicting = self._forget_evicted()
            self._most_held = max(self._most_held, len(self.storage))
        # Of a block for which a budget has no room, the last rows are held.
        held = index[-len(self.storage) :] if evicted else index
        self.sampler.extend(held)
        for part in self.transforms:
            part.extend(block, index)
        self.transitions_seen += len(index)
        if self.observers:
            self._tell_written(as_index(held))
        self.sampler.synchronise(self.storage)  # the next block's changes are then its own
        return index

    def _forget_evicted(self) -> bool:
        """Tell the sampler what was evicted; whether anything was."""
        evicted = self.storage.drain_evicted()
        if len(evicted):
            self.sampler.remove(evicted)
            for observer in self.observers:
                observer.forgotten(evicted)
        return len(evicted) > 0

    def _tell_written(self, index: np.ndarray) -> None:
        """Tell the observers of the newest transitions' slots int64 [n], -1: none (yet)."""
        numbers = np.arange(self.transitions_seen - len(index), self.transitions_seen)
        numbers, index = numbers[index >= 0], index[index >= 0]
        forgotten, passed = self.storage.changes(index)
        if passed is not None:
            # Edges that rows of earlier blocks made count as written with this block's last.
            numbers = np.append(np.full(len(passed), self.transitions_seen - 1), numbers)
            index = np.append(passed, index)
        for observer in self.observers:
            observer.forgotten(forgotten)
            observer.written(index, numbers)

    def available(self, batch_size: int, num_batches: int) -> int:
        """Minibatches that a round draws if it asks for `num_batches`: so many, unless nothing is
        stored or the sampler uses each transition once.

        Raises:
            UserError: the budget never has room for a minibatch of a sampler that takes only whole
                ones, so that nothing would ever be learned.
        """
        found = self.sampler.available(self.storage, batch_size, num_batches)
        if not found and self._evicting and self._most_held < batch_size:
            raise UserError(
                f"memory.budget={self.budget}: too small for one batch, agent.batch_size="
                f"{batch_size}: it holds {self._most_held} transitions at most; use more"
            )
        return found

    def sample(self, batch_size: int, num_batches: int | None = None) -> TensorDict:
        """Draw minibatches with TorchRL's keys, in tensors that are the caller's.

        Args:
            batch_size: transitions a minibatch, B.
            num_batches: minibatches, U.

        Returns:
            TensorDict [B], or [U, B] when num_batches is given, with `index` int64 and `weight`
            float32 [..., 1] beside the transition.

        Raises:
            RuntimeError: the memory is empty.
            ValueError: a size is less than 1, or no whole number.
        """
        updates = 1 if num_batches is None else num_batches
        check_whole(batch_size=batch_size, num_batches=updates)
        batch = self._draw(batch_size, updates, keep=True)
        shape = tuple(batch["index"].shape)
        # Columns that are not one a transition, as states to consolidate: a batch of size [U].
        whole = all(column.shape[: len(shape)] == shape for column in batch.values())
        shape = shape if whole else shape[:1]
        if num_batches is None:
            batch, shape = {name: column[0] for name, column in batch.items()}, shape[1:]
        return as_tensordict(batch, shape)

    def draw(self, batch_size: int, num_batches: int) -> Batch:
        """Draw the minibatches of a round (`rlmem.memories.base.batch`); with several threads use
        `sample`.

        Args:
            batch_size: transitions a minibatch, B.
            num_batches: minibatches, U.

        Returns:
            Columns [U, B, ...]. The tensors are the memory's own: the next draw overwrites them,
            and an observation and the next one may share frames.

        Raises:
            RuntimeError: the memory is empty.
        """
        return self._draw(batch_size, num_batches, keep=False)

    @one_at_a_time
    def _draw(self, batch_size: int, num_batches: int, keep: bool) -> Batch:
        if batch_size < 1 or num_batches < 1:
            raise ValueError(
                f"batch_size={batch_size}, num_batches={num_batches}: each must be at least 1"
            )
        index, columns = self.sampler.draw(self.storage, batch_size, num_batches)
        for observer in self.observers:
            observer.drawn(index)
        shape = index.shape
        if keep:
            batch = self.storage.read(index)
            weight = ones_of(shape)
        else:
            if shape != self._shape:
                self._shape, self._ones = shape, ones_of(shape)
                self._buffers = self.storage.buffers(shape, pinned=self.pinned)
            batch = dict(self.storage.read(index, self._buffers))
            weight = self._ones
        batch["index"], batch["weight"] = torch.from_numpy(index), weight
        for name, values in columns.items():
            batch[name] = torch.from_numpy(values).unsqueeze(-1)
        for part in self.transforms:
            batch = part.apply(batch)
        return batch

    def learned(self, batch: Batch, outputs: Mapping[str, torch.Tensor]) -> None:
        """The agent learned from a batch: write priorities, tell transforms and observers.

        Args:
            batch: as it was drawn, `index` int64 [U, B].
            outputs: `priority` or `td_error` [U, B] of the batch, for a prioritized memory.
        """
        if self.prioritized:
            priority = outputs.get("priority", outputs.get("td_error"))
            if priority is None:
                raise UserError(
                    "memory/sampler: draws by TD errors, and the agent's update returns neither "
                    "td_error nor priority; use memory=uniform"
                )
            self.update_priority(batch["index"], priority)
        for part in (*self.transforms, *self.observers):
            part.learned(batch, outputs)

    @one_at_a_time
    def anneal(self, env_steps: int) -> None:
        """Tell all schedules how far the run is."""
        for part in (self.sampler, *self.transforms):
            part.anneal(env_steps)

    @one_at_a_time
    def update_priority(self, index: torch.Tensor, td_error: torch.Tensor) -> None:
        """Tell the sampler the TD errors of sampled transitions, both [...] of one shape."""
        if self.prioritized:
            self.sampler.update_priority(index.reshape(-1), td_error.reshape(-1))

    @property
    def prioritized(self) -> bool:
        """Whether the sampler wants TD errors."""
        return type(self.sampler).update_priority is not ReplaySampler.update_priority

    def footprint(self) -> dict[str, int]:
        """Component -> bytes held now, over all parts."""
        return self._collect("footprint")

    def projected_footprint(self) -> dict[str, int]:
        """Component -> bytes held when full; a budget, which may end it before, is not in it."""
        return self._collect("projected_footprint")

    def _collect(self, method: str) -> dict[str, int]:
        total: dict[str, int] = {}
        for part in self._parts().values():
            for name, size in getattr(part, method)().items():
                total[name] = total.get(name, 0) + size
        return total

    def check_valid(self) -> None:
        """Assert the invariants of all parts."""
        for part in self._parts().values():
            part.check_valid()

    @one_at_a_time
    def save(self, folder: Path | str, previous: Path | str | None = None) -> None:
        """Write the whole memory into a folder, one sub-folder a part, in place of what an earlier
        save wrote there: whatever interrupts it, one of both is there to be loaded.

        Args:
            previous: folder of the memory's last save, of which a ring storage links what has not
                changed.

        Raises:
            UserError: a part's place below the folder is taken by what no memory saved.
        """
        with saving_whole(Path(folder), (*self._parts(), "memory")) as fresh:
            before = None if previous is None else where_saved(Path(previous), "storage")
            self.storage.save(fresh / "storage", before)
            for name, part in self._parts().items():
                if part is not self.storage:
                    save_state(fresh / name, part.state_views())
            own = {
                "generator": self.generator.get_state().numpy(),
                "transitions_seen": self.transitions_seen,
                "parts": marks_of(fresh, self._parts()),
            }
            save_state(fresh / "memory", own)

    def save_answers(self, folder: Path) -> None:
        """Write what an agent that asks needs to play: nothing."""

    def load_answers(self, folder: Path) -> None:
        """Take over what `save_answers` wrote."""

    @one_at_a_time
    def load(self, folder: Path | str) -> None:
        """Take over what `save` wrote, in place; the next samples are those of the saved memory.

        Raises:
            FileNotFoundError: the folder holds no memory.
            ValueError: it holds a memory of another shape, or a file of it is damaged; the memory
                stays as it was.
        """
        folder, parts = Path(folder), self._parts()
        states = {name: load_state(where_saved(folder, name)) for name in (*parts, "memory")}
        for name, part in parts.items():
            part.check_state(states[name])
        for part in self.transforms:
            part.check_beside(states[part.name], states["storage"])
        own = states["memory"]
        generator = generator_of(own, "generator", self.generator)
        seen = count_of(own, "transitions_seen")
        check_together(folder, parts, own.get("parts", {}))  # earlier versions wrote none
        for name, part in parts.items():
            part.take_over(states[name])
        self._forget_evicted()
        self.sampler.synchronise(self.storage)
        self.generator.set_state(torch.from_numpy(np.array(generator)))
        self.transitions_seen = seen
        self._most_held = self.storage.max_size  # what it held before is not known: no refusal
