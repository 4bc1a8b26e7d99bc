"""Uniform, combined (CER), latest and newest draws: the samplers that keep no priorities."""

from typing import Any

import numpy as np
import torch
from torchrl.data.replay_buffers.storages import Storage

from rlmem.memories.base.build import Needs
from rlmem.memories.base.serialize import State
from rlmem.memories.samplers.base import ReplaySampler, draw_uniform, kept_slots, require_items
from rlmem.registry import part
from rlmem.settings import Settings


@part("memory/sampler", "uniform")
class UniformSampler(ReplaySampler):
    """Each stored transition with the same probability, with replacement (Lin 1992)."""

    def sample(self, storage: Storage, batch_size: int) -> tuple[torch.Tensor, dict]:
        """Indices int64 [batch_size]; no further information."""
        return draw_uniform(storage, batch_size, self._rng), {}


@part("memory/sampler", "combined")
class CombinedSampler(UniformSampler):
    """Combined experience replay: the newest transition and batch_size - 1 uniform ones.

    Zhang & Sutton 2017, "A Deeper Look at Experience Replay". The newest stands last.
    """

    def __init__(self) -> None:
        super().__init__()
        self._newest = -1

    def extend(self, index: Any) -> None:
        """Remember the newest of the written slots; -1 is skipped, as a row that was not kept."""
        slots = kept_slots(index)
        if len(slots):
            self._newest = int(slots[-1])

    add = extend

    def sample(self, storage: Storage, batch_size: int) -> tuple[torch.Tensor, dict]:
        """Indices int64 [batch_size]; the last is the newest transition's."""
        index, info = super().sample(storage, batch_size)
        if self._newest >= 0:
            index[-1] = self._newest
        return index, info

    def _empty(self) -> None:
        self._newest = -1

    def state_dict(self) -> State:
        return {"newest": self._newest}

    def load_state_dict(self, state_dict: State) -> None:
        self._newest = int(state_dict["newest"])


@part("memory/sampler", "newest")
class NewestSampler(ReplaySampler):
    """The newest batch_size transitions, oldest first, each time: the whole of a memory of one
    minibatch."""

    def available(self, storage: Storage, batch_size: int, num_batches: int) -> int:
        """All, once a minibatch is stored."""
        return num_batches if len(storage) >= batch_size else 0  # pyright: ignore[reportArgumentType]

    def sample(self, storage: Storage, batch_size: int) -> tuple[torch.Tensor, dict]:
        """Indices int64 [batch_size].

        Raises:
            RuntimeError: fewer transitions are stored.
        """
        size = require_items(storage)
        if size < batch_size:
            raise RuntimeError(f"{size} transitions are stored, {batch_size} are asked for")
        return storage.newest(batch_size), {}  # pyright: ignore[reportAttributeAccessIssue]


@part("memory/sampler", "latest")
class LatestSampler(ReplaySampler):
    """The newest transitions in the order in which they came, each used once: no replay.

    Args:
        history: how many unused ones are remembered, at least the batch size [transitions].
    """

    @classmethod
    def build(cls, settings: Settings, needs: Needs, capacity: int) -> "LatestSampler":
        """Make the sampler for a run: it remembers a minibatch."""
        return cls(history=needs.batch_size)

    def __init__(self, history: int) -> None:
        super().__init__()
        self.history = history
        self._recent = np.empty(0, np.int64)

    def extend(self, index: Any) -> None:
        """Remember the written slots, oldest first; -1 is skipped, as a row that was not kept."""
        self._recent = np.concatenate([self._recent, kept_slots(index)])[-self.history :]

    add = extend

    def remove(self, index: np.ndarray) -> None:
        """Forget slots."""
        self._recent = self._recent[~np.isin(self._recent, index)]

    def available(self, storage: Storage, batch_size: int, num_batches: int) -> int:
        """Minibatches of transitions that were not used yet."""
        return min(num_batches, len(self._recent) // batch_size)

    def sample(self, storage: Storage, batch_size: int) -> tuple[torch.Tensor, dict]:
        """Indices int64 [batch_size] of the oldest unused transitions, oldest first.

        Raises:
            RuntimeError: fewer than batch_size unused transitions are there.
        """
        if len(self._recent) < batch_size:
            raise RuntimeError(
                f"{len(self._recent)} unused transitions, {batch_size} are asked for"
            )
        index, self._recent = self._recent[:batch_size].copy(), self._recent[batch_size:]
        return torch.from_numpy(index), {}

    def _empty(self) -> None:
        self._recent = np.empty(0, np.int64)

    def footprint(self) -> dict[str, int]:
        return {"sampler_history": self._recent.nbytes}

    def projected_footprint(self) -> dict[str, int]:
        return {"sampler_history": 8 * self.history}

    def state_dict(self) -> State:
        return {"recent": self._recent}

    def load_state_dict(self, state_dict: State) -> None:
        self._recent = np.array(state_dict["recent"])
