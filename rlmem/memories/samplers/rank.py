"""Rank-based prioritized replay (Schaul et al. 2016, arXiv 1511.05952).

P(i) ~ (1 / rank(i))^alpha, 24 to 32 bytes an item. Strata, weights and beta are in
`priorities.py`.
"""

from dataclasses import dataclass

import numpy as np
import torch

from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import count_of
from rlmem.memories.samplers.priorities import Prioritized, ScheduleSettings
from rlmem.memories.samplers.rank_heap import RankHeap
from rlmem.registry import part


@dataclass(kw_only=True)
class RankSettings(ScheduleSettings):
    """Rank-based prioritisation (Schaul 2016)."""


@part("memory/sampler", "rank", settings=RankSettings)
class RankSampler(Prioritized):
    """Rank-based prioritization: P(i) ~ (1 / rank(i))^alpha.

    The ranks are the positions in a binary max-heap, sorted anew every `sort_every` updates: as in
    the paper, an approximation that is exact just after each sort.

    Args:
        capacity: number of slots of the storage.
        alpha, beta_start, beta_end, beta_steps: see `PrioritizedSampler`.
        sort_every: priority updates between two sorts.
    """

    def __init__(
        self,
        capacity: int,
        *,
        alpha: float = 0.7,
        beta_start: float = 0.5,
        beta_end: float = 1.0,
        beta_steps: int | None = None,
        sort_every: int = 10_000,
    ) -> None:
        super().__init__(capacity, alpha, beta_start, beta_end, beta_steps, 0.0)
        self.sort_every = sort_every
        self._heap = RankHeap(capacity)
        self._cdf = np.empty(0)
        self._updates = 0

    def _set(self, index: np.ndarray, priority: np.ndarray) -> None:
        self._heap.update(index, priority)
        self._weigh()
        self._updates += len(index)
        if self._updates >= self.sort_every:
            self._heap.sort()
            self._updates = 0

    def _has_weight(self) -> bool:
        return self._heap.size > 0

    def _weigh(self) -> None:
        """Have a weight for each slot that was ever used. It follows the state alone, so that a
        memory that is loaded holds as many bytes as the saved one."""
        if len(self._cdf) < self._heap.used:
            ranks = min(1 << (self._heap.used - 1).bit_length(), self._heap.capacity)
            probabilities = torch.arange(1, ranks + 1, dtype=torch.float64, device="cpu").pow(
                -self.alpha
            )
            self._cdf = probabilities.cumsum(0).numpy()

    def _at(self, fractions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        cdf = self._cdf[: self._heap.size]
        rank = np.searchsorted(cdf, fractions * cdf[-1], side="right")
        rank = np.minimum(rank, self._heap.size - 1)
        return self._heap.item_at(rank), (rank + 1.0) ** -self.alpha

    def _reweigh(self, before: float) -> None:
        self._cdf = np.empty(0)
        self._weigh()

    def remove(self, index: np.ndarray) -> None:
        """Take slots out of the ranking."""
        self._heap.remove(index)

    def bytes_a_slot(self) -> int:
        return 32

    def _empty(self) -> None:
        self._heap, self._cdf = RankHeap(self._heap.capacity), np.empty(0)
        self._largest, self._updates, self._told = 1.0, 0, False

    def footprint(self) -> dict[str, int]:
        return {"priorities": self._heap.footprint() + self._cdf.nbytes}

    def projected_footprint(self) -> dict[str, int]:
        return {"priorities": 24 * self._heap.capacity}

    def state_views(self) -> State:
        updates = {"updates": self._updates}
        return {**self._heap.state_views(), **updates, **super().state_views()}

    def check_state(self, state: State) -> None:
        super().check_state(state)
        count_of(state, "updates")
        self._heap.check_state(state)

    def take_over(self, state: State) -> None:
        super().take_over(state)
        self._heap.take_over(state)
        self._cdf, self._updates = np.empty(0), int(state["updates"])
        self._weigh()

    def check_valid(self) -> None:
        """The heap is consistent."""
        self._heap.check_valid()
