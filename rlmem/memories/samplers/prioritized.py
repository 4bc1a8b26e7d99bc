"""Proportional prioritized experience replay (Schaul et al. 2016, arXiv 1511.05952).

P(i) ~ (|delta_i| + eps)^alpha, 16 bytes an item. What it shares with the rank-based variant
(`rank.py`) is in `priorities.py`.
"""

from dataclasses import dataclass

import numpy as np

from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import array_of
from rlmem.memories.samplers.priorities import Prioritized, ScheduleSettings
from rlmem.memories.samplers.sum_tree import SumTree
from rlmem.registry import part
from rlmem.settings import setting


@dataclass(kw_only=True)
class PrioritizedSettings(ScheduleSettings):
    """Proportional prioritisation (Schaul 2016)."""

    eps: float = setting(above=0)


@part("memory/sampler", "prioritized", settings=PrioritizedSettings)
class PrioritizedSampler(Prioritized):
    """Proportional prioritization.

    Args:
        capacity: number of slots of the storage.
        alpha: exponent of the priorities; 0 is uniform.
        beta_start, beta_end: exponent of the importance weights at the run's start and end.
        beta_steps: env steps over which beta rises, as `anneal(env_steps)` tells it (rlmem's
            trainer does); None keeps `beta` where it is set.
        eps: added to |TD error|, so that no transition is lost for ever. Where all priorities are
            0, with eps=0, transitions are drawn uniformly, as dqn_zoo and Dopamine do.
    """

    def __init__(
        self,
        capacity: int,
        *,
        alpha: float = 0.6,
        beta_start: float = 0.4,
        beta_end: float = 1.0,
        beta_steps: int | None = None,
        eps: float = 1e-6,
    ) -> None:
        super().__init__(capacity, alpha, beta_start, beta_end, beta_steps, eps)
        self._tree = SumTree(capacity)

    def _set(self, index: np.ndarray, priority: np.ndarray) -> None:
        self._tree.update(index, (priority + self.eps) ** self.alpha)

    def _reweigh(self, before: float) -> None:
        leaves = self._tree.leaves()[: self._tree.used]
        held = leaves > 0  # 0: no item, or one that must not be drawn
        if before:
            with np.errstate(over="ignore"):  # the tree refuses what is not finite
                weights = leaves ** (self.alpha / before)
        else:
            weights = (self._largest + self.eps) ** self.alpha
        self._tree.load_leaves(np.where(held, weights, 0.0))

    def _has_weight(self) -> bool:
        return self._tree.total > 0.0

    def _at(self, fractions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._tree.draw_weighted(fractions)

    def remove(self, index: np.ndarray) -> None:
        """Set the weight of slots to 0."""
        self._tree.update(index, np.zeros(len(index)))

    def bytes_a_slot(self) -> int:
        return 16

    def _empty(self) -> None:
        self._tree = SumTree(self._tree.capacity)  # what the old one held goes back to the system
        self._largest, self._told = 1.0, False

    def footprint(self) -> dict[str, int]:
        return {"priorities": self._tree.footprint()}

    def projected_footprint(self) -> dict[str, int]:
        return {"priorities": 16 * self._tree.capacity}

    def state_views(self) -> State:
        return {"leaves": self._tree.leaves()[: self._tree.used], **super().state_views()}

    def check_state(self, state: State) -> None:
        super().check_state(state)
        leaves = array_of(state, "leaves", np.float64, (-1,))
        if len(leaves) > self._most_leaves:
            raise ValueError(
                f"the saved memory has {len(leaves)} priorities, this one {self._most_leaves} at "
                "most"
            )
        if not ((leaves >= 0) & (leaves < np.inf)).all():
            raise ValueError("the saved memory is damaged: a weight is negative or not finite")

    @property
    def _most_leaves(self) -> int:
        """Weights that there is or can be room for."""
        return self._tree.capacity

    def take_over(self, state: State) -> None:
        super().take_over(state)
        self._tree.load_leaves(np.asarray(state["leaves"]))

    def check_valid(self) -> None:
        """The tree is consistent."""
        self._tree.check_valid()
