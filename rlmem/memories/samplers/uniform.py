"""Uniform, combined (CER), latest and newest draws: the samplers that keep no priorities."""

from typing import Any

import numpy as np
import torch
from torchrl.data.replay_buffers.storages import Storage

from rlmem.memories.base.build import Needs
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import array_of, count_of
from rlmem.memories.samplers.base import (
    ReplaySampler,
    draw_uniform,
    kept_slots,
    require_items,
    seen_in_turn,
)
from rlmem.registry import part
from rlmem.settings import Settings


@part("memory/sampler", "uniform")
class UniformSampler(ReplaySampler):
    """Each stored transition with the same probability, with replacement (Lin 1992)."""

    def sample(self, storage: Storage, batch_size: int) -> tuple[torch.Tensor, dict]:
        """Indices int64 [batch_size]; no further information."""
        return draw_uniform(storage, batch_size, self._rng), {}

    def draw(
        self, storage: Any, batch_size: int, num_batches: int
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The minibatches of a round at once; the same draws as one by one."""
        index = draw_uniform(storage, batch_size * num_batches, self._rng)
        return index.view(num_batches, batch_size).numpy(), {}


@part("memory/sampler", "combined")
class CombinedSampler(UniformSampler):
    """Combined experience replay: the newest transition and batch_size - 1 uniform ones.

    Zhang & Sutton 2017, "A Deeper Look at Experience Replay". The newest stands last. Of the
    minibatches of a round each has the transition that was the newest as of its own update, so that
    none of them is passed over where a round has as many updates as env steps.
    """

    takes_newest = True

    def __init__(self) -> None:
        super().__init__()
        self._newest, self._rows = -1, 0  # slot of the newest, rows that were written with it

    def extend(self, index: Any) -> None:
        """Remember the newest of the written slots; -1 is skipped, as a row that was not kept."""
        slots = kept_slots(index)
        self._rows = len(slots)
        if len(slots):
            self._newest = int(slots[-1])

    add = extend

    def sample(self, storage: Storage, batch_size: int) -> tuple[torch.Tensor, dict]:
        """Indices int64 [batch_size]; the last is the newest transition's."""
        index, info = super().sample(storage, batch_size)
        if self._newest >= 0:
            index[-1] = self._newest
        return index, info

    def draw(
        self, storage: Any, batch_size: int, num_batches: int
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The minibatches of a round at once, each with its own newest transition; of a storage
        that does not know which these are, all with the newest."""
        index, columns = super().draw(storage, batch_size, num_batches)
        if self._newest >= 0:
            index[:, -1] = self._newest
            if num_batches > 1 and self._rows and hasattr(storage, "newest"):
                rows = min(self._rows, len(storage))
                # Where updates are more than rows, the first have none of the round yet: its first.
                seen = np.maximum(seen_in_turn(rows, num_batches), 1)
                index[:, -1] = storage.newest(rows).numpy()[seen - 1]
        return index, columns

    def _empty(self) -> None:
        self._newest, self._rows = -1, 0

    def state_views(self) -> State:
        return {"newest": self._newest, "rows": self._rows}

    def check_state(self, state: State) -> None:
        count_of(state, "newest", low=-1)
        count_of(state, "rows")

    def take_over(self, state: State) -> None:
        self._newest, self._rows = int(state["newest"]), int(state["rows"])


@part("memory/sampler", "newest")
class NewestSampler(ReplaySampler):
    """The newest batch_size transitions, oldest first, each time: the whole of a memory of one
    minibatch.

    The minibatches of a round are those that would be the newest if updates and env steps took
    turns, as far as the storage still holds them.
    """

    in_order = True

    def __init__(self) -> None:
        super().__init__()
        self._rows = 0  # that were written last

    @classmethod
    def rows_of_a_round(cls, needs: Needs) -> int:
        """Those that come after the first minibatch."""
        return needs.round_rows - int(seen_in_turn(needs.round_rows, needs.round_updates)[0])

    def extend(self, index: Any) -> None:
        """Note how many were written."""
        self._rows = len(kept_slots(index))

    add = extend

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

    def draw(
        self, storage: Any, batch_size: int, num_batches: int
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The minibatches of a round, int64 [num_batches, batch_size]; the last is the newest.

        Raises:
            RuntimeError: fewer transitions than one minibatch are stored.
        """
        self.sample(storage, batch_size)
        later = self._rows - seen_in_turn(self._rows, num_batches)
        later = np.minimum(later, len(storage) - batch_size)
        newest = storage.newest(batch_size + int(later.max())).numpy()
        first = later.max() - later
        return newest[first[:, None] + np.arange(batch_size)], {}

    def state_views(self) -> State:
        return {"rows": self._rows}

    def check_state(self, state: State) -> None:
        count_of(state, "rows")

    def take_over(self, state: State) -> None:
        self._rows = int(state["rows"])


@part("memory/sampler", "latest")
class LatestSampler(ReplaySampler):
    """The newest transitions in the order in which they came, each used once: no replay.

    Args:
        history: how many unused ones are remembered beside those that were written last, at least
            the batch size [transitions].
        rows: that are written at once at most, for the bytes when full.
    """

    @classmethod
    def rows_of_a_round(cls, needs: Needs) -> int:
        """All, beside what is left of the rounds before."""
        return needs.round_rows

    @classmethod
    def build(cls, settings: Settings, needs: Needs, capacity: int) -> "LatestSampler":
        """Make the sampler for a run: it remembers a minibatch."""
        return cls(needs.batch_size, needs.round_rows)

    def __init__(self, history: int, rows: int = 1) -> None:
        super().__init__()
        self.history, self.rows = history, rows
        self._recent = np.empty(0, np.int64)

    def extend(self, index: Any) -> None:
        """Remember the written slots, oldest first; -1 is skipped, as a row that was not kept."""
        slots = kept_slots(index)
        if not len(slots):
            return  # what is unused of the rows before stays
        recent = np.concatenate([self._recent, slots])[-(self.history + len(slots)) :]
        # Of a slot that was written again only the last transition is there.
        _, from_the_end = np.unique(recent[::-1], return_index=True)
        self._recent = recent[np.sort(len(recent) - 1 - from_the_end)]

    add = extend

    def remove(self, index: np.ndarray) -> None:
        """Forget slots."""
        self._recent = self._recent[~np.isin(self._recent, index)]

    def available(self, storage: Storage, batch_size: int, num_batches: int) -> int:
        """All whole minibatches of transitions that were not used yet, however many are asked
        for."""
        return len(self._recent) // batch_size

    def sample(self, storage: Storage, batch_size: int) -> tuple[torch.Tensor, dict]:
        """Indices int64 [batch_size] of the oldest unused transitions, oldest first.

        Raises:
            RuntimeError: fewer than batch_size unused transitions are there.
        """
        self.forget_evicted(storage)
        if len(self._recent) < batch_size:
            raise RuntimeError(
                f"{len(self._recent)} unused transitions, {batch_size} are asked for"
            )
        # The rest is copied: a view would keep what was drawn as well.
        index, self._recent = self._recent[:batch_size], self._recent[batch_size:].copy()
        return torch.from_numpy(index), {}

    def _empty(self) -> None:
        self._recent = np.empty(0, np.int64)

    def bytes_a_slot(self) -> int:
        return 8  # at most: each slot in use is remembered once

    def footprint(self) -> dict[str, int]:
        return {"sampler_history": self._recent.nbytes}

    def projected_footprint(self) -> dict[str, int]:
        return {"sampler_history": 8 * (self.history + self.rows)}

    def state_views(self) -> State:
        return {"recent": self._recent}

    def check_state(self, state: State) -> None:
        array_of(state, "recent", np.int64, (-1,))

    def take_over(self, state: State) -> None:
        self._recent = np.array(state["recent"])
