"""A GWR map as a graph: its nodes with what they stand for, its links, its temporal edges."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlmem.errors import UserError
from rlmem.memories.base.storage import ReplayStorage
from rlmem.memories.gwr.exemplars import ExemplarStore
from rlmem.memories.gwr.records import BOOK, MOST_RECORDS, MapOptions, empty_map, first_coordinates


class MapGraph(ReplayStorage):
    """What a `MapStorage`, which says what the arguments are, holds."""

    def __init__(
        self,
        capacity: int,
        observation_shape: Sequence[int],
        dtype: Any,
        embedding_dims: int | None,
        *,
        num_actions: int = 0,
        action_shape: Sequence[int] = (),
        stack: int = 1,
        options: MapOptions | None = None,
    ) -> None:
        options = options or MapOptions()
        self.observation_shape = tuple(observation_shape)
        if not 3 <= capacity <= MOST_RECORDS:
            raise UserError(
                f"memory.capacity={capacity}: a GWR map takes 3 to {MOST_RECORDS} nodes"
            )
        if options.contexts < 0:
            raise UserError(
                f"memory.contexts={options.contexts}: give 0 (none) or more, the paper has 4"
            )
        if np.dtype(dtype) not in (np.dtype(np.uint8), np.dtype(np.float32)):
            raise UserError(f"observations of dtype {dtype}: a GWR map takes uint8 or float32")
        if (num_actions > 0) == (len(action_shape) > 0):
            raise UserError(
                f"num_actions={num_actions}, action_shape={tuple(action_shape)}: give one of them"
            )
        if stack < 1 or self.observation_shape[0] % stack:
            raise UserError(f"env.stack={stack}: does not divide {self.observation_shape}")
        super().__init__(max_size=capacity)
        self.capacity, self.dtype = capacity, np.dtype(dtype)
        self.frame_shape = (self.observation_shape[0] // stack, *self.observation_shape[1:])
        size = math.prod(self.observation_shape)
        self.keys_are_observations = embedding_dims is None
        self.embedding_dims = size if embedding_dims is None else embedding_dims
        if self.keys_are_observations and self.dtype != np.float32:
            raise UserError("embedding_dims=None: only float32 observations are their own keys")
        self.contexts, self.prototype = options.contexts, options.prototype
        self.num_actions, self.action_shape = num_actions, tuple(action_shape)
        self.exemplars: ExemplarStore | None = None
        self.compresses = self.prototype == "exemplar" and self.dtype == np.uint8
        if self.compresses:
            shape, budget = self.observation_shape, options.budget
            self.exemplars = ExemplarStore(capacity, shape, stack, budget=budget)
        held = 0 if self.compresses or self.keys_are_observations else capacity
        self.arrays = empty_map(
            capacity,
            self.embedding_dims,
            (held, size),
            self.dtype,
            math.prod(self.action_shape) if self.action_shape else 0,
            options,
            removed=self.compresses,
        )

    @property
    def num_nodes(self) -> int:
        """Live nodes."""
        return int(self.arrays.book[BOOK.nodes])

    @property
    def num_links(self) -> int:
        """Live links."""
        return int(self.arrays.book[BOOK.links])

    @property
    def num_edges(self) -> int:
        """Live temporal edges."""
        return int(self.arrays.book[BOOK.edges])

    def live_nodes(self) -> np.ndarray:
        """Positions of the live nodes, int64 [num_nodes], ascending."""
        return np.flatnonzero(self.arrays.alive[: self.arrays.book[BOOK.node_mark]])

    def node_observations(self, nodes: np.ndarray) -> np.ndarray:
        """Prototypes of live nodes (int [n]) as observations [n, *observation_shape]."""
        if self.keys_are_observations:
            rows = self.node_keys(nodes)
        elif self.exemplars is not None:
            rows = self.exemplars.get(nodes)
        else:
            rows = self.arrays.prototypes.take(nodes, axis=0)
        return rows.reshape(-1, *self.observation_shape)

    def node_keys(self, nodes: np.ndarray) -> np.ndarray:
        """Where live nodes (int [n]) lie in the space of distances, float32 [n, d]."""
        nodes = np.asarray(nodes)
        return np.concatenate([first_coordinates(self.arrays, nodes), self.arrays.tails[nodes]], 1)

    def node_contexts(self, nodes: np.ndarray) -> np.ndarray:
        """Context vectors of live nodes (int [n]), float32 [n, K, d]."""
        rows = self.arrays.contexts.reshape(self.capacity, self.contexts, self.embedding_dims)
        return rows[nodes]

    def keep_exemplars(self, born: np.ndarray, observations: np.ndarray) -> None:
        """Take in what new nodes stand for and let go of what removed ones stood for.

        Args:
            born: int [n], the node that each observation made, -1 where it made none.
            observations: uint8 [n, P].
        """
        if self.exemplars is None:
            return
        a = self.arrays
        if a.book[BOOK.removed]:
            self.exemplars.release(np.unique(a.removed[: a.book[BOOK.removed]]))
            a.book[BOOK.removed] = 0
        for row in np.flatnonzero(born >= 0).tolist():
            if a.alive[born[row]]:
                self.exemplars.put(int(born[row]), observations[row])

    def live_edges(self) -> np.ndarray:
        """Positions of the live edges, int64 [num_edges], ascending."""
        return np.flatnonzero(self._edges["count"])

    def link_pairs(self) -> np.ndarray:
        """The two nodes of each live link, int64 [num_links, 2]."""
        pairs = self.arrays.halves["node"][: 2 * self.arrays.book[BOOK.link_mark]].reshape(-1, 2)
        return pairs[pairs[:, 0] >= 0].astype(np.int64)

    def edge_table(self) -> np.ndarray:
        """A copy of the live edges' records (EDGE [num_edges]): source, target, count and so on."""
        return self._edges[self._edges["count"] > 0]

    @property
    def _edges(self) -> np.ndarray:
        return self.arrays.edges[: self.arrays.book[BOOK.edge_mark]]
