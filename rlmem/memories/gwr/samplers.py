"""Draws the temporal edges of a map: by how often each was passed, all alike, or by TD error.

A sum tree over the edges is brought up to date from the storage's log of touched edges before each
draw; it grows with the map, 16 bytes an edge, rounded up to a power of two.
"""

import numpy as np
import torch
from torchrl.data.replay_buffers.storages import Storage

from rlmem.memories.base.build import Needs
from rlmem.memories.base.serialize import State
from rlmem.memories.gwr.map import MapStorage
from rlmem.memories.gwr.records import MOST_RECORDS
from rlmem.memories.samplers.base import ReplaySampler, as_index, require_items
from rlmem.memories.samplers.prioritized import PrioritizedSampler, PrioritizedSettings
from rlmem.memories.samplers.sum_tree import SumTree
from rlmem.registry import part
from rlmem.settings import Settings

_FIRST_EDGES = 1024


def _follow(tree: SumTree, storage: MapStorage) -> tuple[np.ndarray, np.ndarray]:
    """The edges that changed since the last draw and which of them are new; the tree has room."""
    touched, made = storage.drain_touched()
    if len(touched):
        _make_room(tree, int(touched.max()) + 1)
    return touched, made


def as_map(sampler: ReplaySampler, storage: object) -> MapStorage:
    """The storage of a sampler of edges.

    Raises:
        ValueError: it has no edges.
    """
    if not isinstance(storage, MapStorage):
        raise ValueError(
            f"{type(sampler).__name__} draws from a MapStorage, not a {type(storage).__name__}; "
            "use UniformSampler() or PrioritizedSampler(capacity)"
        )
    return storage


def _make_room(tree: SumTree, edges: int) -> None:
    if edges > tree.capacity:
        tree.grow(1 << (edges - 1).bit_length())


@part("memory/map/sampler", "uniform")
class UniformEdgeSampler(ReplaySampler):
    """Every temporal edge of a `MapStorage` alike, with replacement.

    Weights are whole numbers, so the sums are exact, and a tree made again from the map draws as
    the one before.

    Args:
        expected_edges: edges that `projected_footprint` reckons with; None: as many as there are.
    """

    @classmethod
    def build(cls, settings: Settings, needs: Needs, capacity: int) -> "UniformEdgeSampler":
        """Make the sampler for a run: `capacity` edges are expected."""
        return cls(capacity)

    def __init__(self, expected_edges: int | None = None) -> None:
        super().__init__()
        self.expected_edges = expected_edges
        self._tree = SumTree(_FIRST_EDGES)
        # Whether the tree is of another map than the storage's, as at first, where that is filled.
        self._behind = True

    def check_storage(self, storage: object) -> None:
        """Only maps have edges.

        Raises:
            ValueError: it is another storage.
        """
        as_map(self, storage)

    def sample(self, storage: Storage, batch_size: int) -> tuple[torch.Tensor, dict]:
        """Indices int64 [batch_size] of edges; no further information.

        Raises:
            RuntimeError: the map has no edge yet.
        """
        held = as_map(self, storage)
        require_items(held)
        self.synchronise(held)
        index = self._tree.draw(self.uniform(batch_size).numpy())
        return torch.from_numpy(index), {}

    def synchronise(self, storage: MapStorage) -> None:
        """Bring the tree up to the storage's counts."""
        touched, _ = _follow(self._tree, storage)
        if self._behind:
            edges = np.arange(storage.edge_positions)
            _make_room(self._tree, len(edges))
            self._tree.load_leaves(self._weights(storage.counts(edges)))
            self._behind = False
        elif len(touched):
            self._tree.update(touched, self._weights(storage.counts(touched)))

    def _weights(self, counts: np.ndarray) -> np.ndarray:
        return np.minimum(counts, 1.0)

    def _empty(self) -> None:
        self._tree = SumTree(_FIRST_EDGES)

    def bytes_a_slot(self) -> int:
        return 16

    def footprint(self) -> dict[str, int]:
        return {"sampler_tree": self._tree.footprint()}

    def projected_footprint(self) -> dict[str, int]:
        """Component -> bytes held with `expected_edges` edges."""
        return {"sampler_tree": 16 * max(self.expected_edges or 1, self._tree.used)}

    def take_over(self, state: State) -> None:
        """Read all edges of the map before the next draw: a state has no more than they have."""
        self._behind = True

    def check_valid(self) -> None:
        """The tree is consistent and its weights are whole numbers."""
        self._tree.check_valid()
        leaves = self._tree.leaves()
        assert np.array_equal(leaves, np.floor(leaves)), "a weight is not a whole number"


@part("memory/map/sampler", "visits")
class VisitSampler(UniformEdgeSampler):
    """Temporal edges of a `MapStorage`, with replacement, in proportion to their counts.

    Hafez et al. 2023 (arXiv 2305.02054).
    """

    def _weights(self, counts: np.ndarray) -> np.ndarray:
        return counts


@part("memory/map/sampler", "prioritized", settings=PrioritizedSettings)
class PrioritizedEdgeSampler(PrioritizedSampler):
    """Temporal edges of a `MapStorage` in proportion to their priorities (Schaul et al. 2016).

    A new edge has the largest priority so far; one that is passed again keeps its own.

    Args:
        expected_edges: edges that `projected_footprint` reckons with; None: as many as there are.
        options: alpha, beta_start, beta_end, beta_steps, eps of `PrioritizedSampler`.

    Raises:
        ValueError: eps is 0.
    """

    def __init__(self, expected_edges: int | None = None, **options: float | int | None) -> None:
        super().__init__(_FIRST_EDGES, **options)  # type: ignore[arg-type]
        if not self.eps > 0.0:
            raise ValueError(f"eps={self.eps}: use more than 0; weight 0 marks an edge as removed")
        self.expected_edges = expected_edges
        self._tree: SumTree

    def check_storage(self, storage: object) -> None:
        """Only maps have edges; the tree grows with them.

        Raises:
            ValueError: it is another storage.
        """
        as_map(self, storage)

    def extend(self, index: object) -> None:
        """Nothing: the map's log tells of its edges."""

    add = extend

    def _take_in(self, storage: object) -> None:
        """Nothing: see `synchronise`."""

    def sample(self, storage: Storage, batch_size: int) -> tuple[torch.Tensor, dict]:
        """Indices int64 [batch_size] of edges and `priority_weight` float32 [batch_size].

        Raises:
            RuntimeError: the map has no edge yet.
        """
        held = as_map(self, storage)
        require_items(held)
        self.synchronise(held)
        return super().sample(storage, batch_size)

    def update_priority(
        self, index: object, priority: object, *, storage: Storage | None = None
    ) -> None:
        """Set priorities from TD errors; edges that were removed since they were drawn stay out.

        Args:
            index: int64 [n]; -1 is skipped: the mark of a row without an edge.
            priority: |TD error| [n] (its sign is dropped), or one for all.

        Raises:
            IndexError: no edge was ever that far; nothing was changed.
            ValueError: a priority is not finite; nothing was changed.
        """
        if isinstance(storage, MapStorage):
            self.synchronise(storage)  # TorchRL makes a buffer around a filled one
        edges = as_index(index)
        known = edges != -1
        known[known] = self._tree.leaf(edges[known]) > 0.0
        given = torch.as_tensor(priority).reshape(-1).expand(len(edges))
        super().update_priority(edges[known], given[torch.from_numpy(known)])

    def synchronise(self, storage: MapStorage) -> None:
        """Take in new edges and let go of removed ones."""
        touched, made = _follow(self._tree, storage)
        if not self._told:  # of a map that was filled before
            touched = np.arange(storage.edge_positions)
            made = np.ones(len(touched), np.bool_)
            _make_room(self._tree, storage.edge_positions)
        if not len(touched):
            return
        self._told = True
        live = storage.counts(touched) > 0
        fresh = touched[live & (made | (self._tree.leaf(touched) == 0.0))]
        self._set(fresh, np.full(len(fresh), self._largest))
        self.remove(touched[~live])

    def _empty(self) -> None:
        self._tree = SumTree(_FIRST_EDGES)
        self._largest, self._told = 1.0, False

    def projected_footprint(self) -> dict[str, int]:
        return {"priorities": 16 * max(self.expected_edges or 1, self._tree.used)}

    @property
    def _most_leaves(self) -> int:
        return MOST_RECORDS  # the tree grows

    def take_over(self, state: State) -> None:
        _make_room(self._tree, len(state["leaves"]))
        super().take_over(state)
