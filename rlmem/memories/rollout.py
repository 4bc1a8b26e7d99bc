"""One rollout: T steps of each of E environments, learned from once and then let go.

It is no replay: nothing that an earlier policy did is held. But it is memory, so it is counted as
any other. Frames are held once, as a ring holds them; stacks are made for one minibatch at a time,
so a rollout of 8 x 128 screens takes 8.4 MB, where its stacks would take 29 MB.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from rlmem.errors import UserError
from rlmem.memories.base.batch import Batch, ones_of
from rlmem.memories.base.build import MemorySettings, Needs
from rlmem.memories.memory import ReplayMemory
from rlmem.memories.replay import read_budget
from rlmem.memories.ring.frames import FrameStorage
from rlmem.memories.ring.records import ends_of
from rlmem.memories.ring.ring import RingStorage
from rlmem.memories.ring.writer import RingWriter
from rlmem.memories.samplers.base import ReplaySampler
from rlmem.registry import part
from rlmem.settings import Settings


class RolloutWriter(RingWriter):
    """Writes whole turns: a transition of each environment, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self._rows, self._turns = 0, b""  # of the last block, and its environments

    def extend(self, data: Any) -> torch.Tensor:
        """Write a block of N transitions; their slots int64 [N].

        Raises:
            ValueError: the block is not made of whole turns; nothing is written.
        """
        block = self._storage.read_block(data)
        envs, rows = self._storage.num_envs, len(block)
        if rows != self._rows:
            self._rows, self._turns = rows, (np.arange(rows) % envs).tobytes()
        if rows % envs or block.env_id.tobytes() != self._turns:
            raise ValueError(
                f"a rollout is written in whole turns: of each of the {envs} environments a "
                "transition, in their order"
            )
        return super().extend(block)


class RolloutSampler(ReplaySampler):
    """All that is held, once it is a whole rollout: an environment a row, in the order of time."""

    def available(self, storage: Any, batch_size: int, num_batches: int) -> int:
        """One where the rollout is whole, however many are asked for; else none."""
        return int(len(storage) == storage.max_size)

    def draw(
        self, storage: RingStorage, batch_size: int, num_batches: int
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Slots int64 [1, E, T], whatever sizes are asked for.

        Raises:
            RuntimeError: the rollout is not whole.
        """
        held, size = len(storage), storage.max_size
        if held < size:
            raise RuntimeError(f"the rollout has {held} of {size} transitions")
        turns = storage.newest(size).numpy().reshape(-1, storage.num_envs)
        return np.ascontiguousarray(turns.T)[None], {}

    def sample(self, storage: Any, batch_size: int) -> tuple[torch.Tensor, dict]:
        """Slots int64 [E, T]; no further information."""
        return torch.from_numpy(self.draw(storage, batch_size, 1)[0][0]), {}


class RolloutMemory(ReplayMemory):
    """Holds a rollout until it was learned from; the agent reads its minibatches itself.

    Args:
        storage: with room for T x E transitions of E environments.
        seed: of its generator, from which nothing is drawn.
        budget: bytes that it stays below, for the run's summary.
    """

    storage: RingStorage

    def __init__(self, storage: RingStorage, *, seed: int, budget: int | None = None) -> None:
        super().__init__(storage, RolloutSampler(), RolloutWriter(), seed=seed)
        self.budget = budget
        self._newest: Batch = {}  # minibatch that was read

    @property
    def transitions_represented(self) -> int:
        """Those of a whole rollout: what its bytes are for, however far this one has come."""
        return self.storage.max_size if self.transitions_seen else 0

    def draw(self, batch_size: int, num_batches: int) -> Batch:
        """The whole rollout, without its observations (see `minibatch`).

        Returns:
            `index` int64 [1, E, T], and of each transition `action` [1, E, T], `reward`,
            `terminated`, `truncated` and `weight` [1, E, T, 1] and the agent's own columns.

        Raises:
            RuntimeError: it is not whole.
        """
        index, _ = self.sampler.draw(self.storage, batch_size, num_batches)
        rows = self.storage.arrays.rows[index]
        terminated, truncated = ends_of(rows)
        action = self.storage.actions[index]
        columns: Mapping[str, np.ndarray] = {
            "index": index,
            "action": action.astype(np.int64) if action.dtype.kind in "iu" else action,
            "reward": rows["reward"].copy()[..., None],  # torch takes no column of odd rows
            "terminated": terminated[..., None],
            "truncated": truncated[..., None],
            "weight": np.ones((*index.shape, 1), np.float32),
            **{name: column[index] for name, column in self.storage.columns.items()},
        }
        return {name: torch.from_numpy(column) for name, column in columns.items()}

    def minibatch(self, index: np.ndarray) -> Batch:
        """Read a minibatch of the rollout.

        Args:
            index: slots int64 [B].

        Returns:
            Columns [1, B, ...] (`rlmem.memories.base.batch`). The tensors are the memory's own: the
            next minibatch of the same size overwrites them.
        """
        index = index[None]
        for observer in self.observers:
            observer.drawn(index)
        if index.shape != self._shape:
            self._shape, self._ones = index.shape, ones_of(index.shape)
            self._buffers = self.storage.buffers(index.shape, pinned=self.pinned)
        self._newest = dict(self.storage.read(index, self._buffers))
        self._newest["index"], self._newest["weight"] = torch.from_numpy(index), self._ones
        return self._newest

    def next_observations(self, index: np.ndarray) -> torch.Tensor:
        """What followed some transitions, [n, *observation_shape], of slots int64 [n]: at an
        episode's end its last observation, not the next one's first."""
        return self.storage.read(index)["next_observation"]

    def learned(self, batch: Batch, outputs: Mapping[str, torch.Tensor]) -> None:
        """The rollout was learned from: let go of it.

        Args:
            batch: as it was drawn.
            outputs: of the last minibatch that was read, `td_error` [1, B].
        """
        for observer in self.observers:
            observer.learned(self._newest, outputs)
        slots = batch["index"].numpy().reshape(-1)
        self.storage.evict(len(slots))
        for observer in self.observers:
            observer.forgotten(slots)


@dataclass(kw_only=True)
class RolloutSettings(MemorySettings):
    """The keys of every memory; the capacity is that of the rollout, T x E."""


@part("memory", "rollout", settings=RolloutSettings)
class Rollout:
    """What was played since the last update, and nothing else.

    Attributes:
        rollout: that an agent can learn from all of it at once.
    """

    colours: ClassVar = {"rollout": 19}  # in figures

    rollout = True

    @classmethod
    def check(cls, settings: RolloutSettings, run: Any) -> None:
        """The agent learns from rollouts, whose parts come out even.

        Raises:
            UserError: not so, or the budget is no size.
        """
        if not run.agent.part.cls.takes_rollouts:
            raise UserError(
                f"memory={settings.name}: it is used once and emptied, and "
                f"agent={run.agent.name} learns from minibatches of a replay; use agent=pqn, or "
                "memory=none"
            )
        if settings.budget is not None:
            read_budget(settings.budget)
        size, turn = settings.capacity, run.agent.train_every * run.agent.updates_per_step
        if size % turn:
            even = math.lcm(turn, run.agent.batch_size)  # so that minibatches come out even, too
            raise UserError(
                f"memory.capacity={size}: a rollout is made of rounds of {turn} env steps "
                "(agent.train_every x agent.updates_per_step); use "
                f"memory.capacity={max(1, size // even) * even}"
            )

    @classmethod
    def build(cls, settings: RolloutSettings, needs: Needs) -> RolloutMemory:
        """Make the memory.

        Raises:
            UserError: the budget does not hold the rollout.
        """
        spec = needs.spec
        storage = FrameStorage.build(Settings(), needs, settings.capacity)
        budget = None if settings.budget is None else read_budget(settings.budget)
        if budget is not None and budget < (most := _most_bytes(storage)):
            raise UserError(
                f"memory.budget={settings.budget}: a rollout of {settings.capacity} transitions of "
                f"{spec.num_envs} envs takes up to {most} bytes; use memory.budget={most} or a "
                "smaller memory.capacity"
            )
        return RolloutMemory(storage, seed=needs.seed, budget=budget)


def _most_bytes(storage: RingStorage) -> int:
    """Bytes of a storage if every episode had one step: then each takes two frames."""
    chunks = len(storage.arrays.chunks)
    rows = sum(storage.bytes_of(storage.max_size, 0).values())
    return rows + (chunks + 1) * storage.chunk_bytes  # one more: there is a frame of zeros
