"""Draws the edges of a map in proportion to how often each was passed."""

import numpy as np
import torch
from torchrl.data.replay_buffers.storages import Storage

from rlmem.memories.samplers.base import ReplaySampler, require_items
from rlmem.memories.samplers.sum_tree import SumTree
from rlmem.memories.serialize import State
from rlmem.memories.storages.map import MapStorage

_FIRST_EDGES = 1024


class VisitSampler(ReplaySampler):
    """Temporal edges of a `MapStorage`, with replacement, in proportion to their counts.

    Hafez et al. 2023 (arXiv 2305.02054). A sum tree over the counts is brought up to date from the
    storage's log of touched edges before each draw; it grows with the map, 16 bytes an edge,
    rounded up to a power of two. Counts are whole numbers, so the sums are exact, and a tree made
    again from the map draws as the one before.

    Args:
        expected_edges: edges that `projected_footprint` reckons with; None: as many as there are.
    """

    def __init__(self, expected_edges: int | None = None) -> None:
        super().__init__()
        self.expected_edges = expected_edges
        self._tree = SumTree(_FIRST_EDGES)

    def sample(self, storage: Storage, batch_size: int) -> tuple[torch.Tensor, dict]:
        """Indices int64 [batch_size] of edges; no further information.

        Raises:
            RuntimeError: the map has no edge yet.
        """
        assert isinstance(storage, MapStorage), "VisitSampler draws from a MapStorage"
        require_items(storage)
        self.synchronise(storage)
        index = self._tree.draw(self.uniform(batch_size).numpy())
        return torch.from_numpy(index), {}

    def synchronise(self, storage: MapStorage) -> None:
        """Bring the tree up to the storage's counts."""
        touched = storage.drain_touched()
        if len(touched) == 0:
            return
        highest = int(touched.max())
        if highest >= self._tree.capacity:
            self._tree.grow(1 << highest.bit_length())
        self._tree.update(touched, storage.counts(touched))

    def _empty(self) -> None:
        self._tree = SumTree(_FIRST_EDGES)

    def bytes_a_slot(self) -> int:
        return 16

    def footprint(self) -> dict[str, int]:
        """Component -> bytes held."""
        return {"sampler_tree": self._tree.footprint()}

    def projected_footprint(self) -> dict[str, int]:
        """Component -> bytes held with `expected_edges` edges."""
        return {"sampler_tree": 16 * max(self.expected_edges or 1, self._tree.used)}

    def load_state_dict(self, state_dict: State) -> None:
        """Forget the tree: a loaded map names all its edges as touched."""
        self._empty()

    def check_valid(self) -> None:
        """The tree is consistent and its weights are whole numbers."""
        self._tree.check_valid()
        leaves = self._tree.leaves()
        assert np.array_equal(leaves, np.floor(leaves)), "a count is not a whole number"
