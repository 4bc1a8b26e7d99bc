"""The GWR map as a storage: prototype nodes, links with ages, temporal edges with counts.

A sample is a temporal edge: the observation is its source's prototype, the next observation its
target's (Hafez, Immisch, Weber, Wermter 2023, arXiv 2305.02054). A node costs its prototype (28,224
bytes for an Atari stack), 4 d bytes of embedding, 4 K d bytes of contexts and 25 bytes of state; a
link 32 bytes, an edge 44. Nodes stand in arrays of full capacity that the system hands out page by
page as they are first written; links and edges grow by half. Freed records are used again first.

Differs from the paper: discrete actions cannot be averaged, so that an edge is known by (source,
action, target, terminated, truncated, steps), and only its reward is averaged; two actions that
lead from one node to another are two edges. Terminations stay exact for the same reason.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from rlmem.errors import UserError
from rlmem.memories.lazy import lazy_zeros
from rlmem.memories.serialize import State
from rlmem.memories.storages.base import ReplayStorage, make_sample
from rlmem.memories.storages.map_records import (
    EDGE,
    EDGE_FREE,
    EDGE_MARK,
    EDGES,
    HALF,
    LINK_FREE,
    LINK_MARK,
    LINKS,
    NODE,
    NODE_FREE,
    NODE_MARK,
    NODES,
    TOUCHED,
    MapArrays,
    check_map,
    columns,
)

_EDGE_BYTES = EDGE.itemsize + 4  # with its place in the log of touched edges
_FIRST_RECORDS = 1024
MOST_RECORDS = 2**30  # of a kind: positions are int32, those of half-links too


class MapStorage(ReplayStorage):
    """Nodes, links and temporal edges of a GWR map; its items are the edges.

    `GWRWriter` fills it. The positions of the live edges have gaps where edges were removed, so
    draw with `VisitSampler` (or another sampler that follows `drain_touched`).

    Args:
        capacity: most nodes the map can hold, at least 3.
        observation_shape: shape of one observation (of a whole frame stack).
        dtype: of observations and prototypes: uint8 or float32.
        embedding_dims: dimensions d of the space in which distances are measured.
        contexts: K, context vectors a node (0: none, the paper: 4).
        num_actions: actions are 0 .. num_actions - 1.

    Raises:
        UserError: a size or the dtype cannot be used.
    """

    def __init__(
        self,
        capacity: int,
        observation_shape: Sequence[int],
        dtype: Any,
        embedding_dims: int,
        *,
        contexts: int = 0,
        num_actions: int,
    ) -> None:
        if not 3 <= capacity <= MOST_RECORDS:
            raise UserError(
                f"memory.capacity={capacity}: a GWR map takes 3 to {MOST_RECORDS} nodes"
            )
        if contexts < 0:
            raise UserError(f"memory.contexts={contexts}: give 0 (none) or more, the paper has 4")
        if np.dtype(dtype) not in (np.dtype(np.uint8), np.dtype(np.float32)):
            raise UserError(f"observations of dtype {dtype}: a GWR map takes uint8 or float32")
        super().__init__(max_size=capacity)
        self.capacity = capacity
        self.observation_shape = tuple(observation_shape)
        self.dtype = np.dtype(dtype)
        self.embedding_dims = embedding_dims
        self.contexts = contexts
        self.num_actions = num_actions
        size = math.prod(self.observation_shape)
        self.arrays = MapArrays(
            prototypes=lazy_zeros((capacity, size), self.dtype, huge=True),
            embeddings=lazy_zeros((capacity, embedding_dims), np.float32),
            contexts=lazy_zeros((capacity * contexts, embedding_dims), np.float32),
            alive=lazy_zeros((capacity,), np.uint8),
            nodes=lazy_zeros((capacity,), NODE),
            halves=np.empty(2 * _FIRST_RECORDS, HALF),
            edges=np.empty(_FIRST_RECORDS, EDGE),
            touched=np.empty(_FIRST_RECORDS, np.int32),
            book=np.empty(10, np.int64),
            limits=np.array([capacity, MOST_RECORDS, MOST_RECORDS]),
        )
        self._budget: int | None = None
        self._slot_bytes = 0  # of an edge, elsewhere
        self._empty()

    unit = "nodes"

    @property
    def entries(self) -> int:
        """Nodes: what the capacity counts."""
        return self.num_nodes

    @property
    def transitions_represented(self) -> int:
        """Sum of the counts of the live edges."""
        return int(self._edges["count"].sum(dtype=np.int64))

    @property
    def num_nodes(self) -> int:
        """Live nodes."""
        return int(self.arrays.book[NODES])

    @property
    def num_links(self) -> int:
        """Live links."""
        return int(self.arrays.book[LINKS])

    @property
    def num_edges(self) -> int:
        """Live temporal edges."""
        return int(self.arrays.book[EDGES])

    def __len__(self) -> int:
        return self.num_edges

    def live_edges(self) -> np.ndarray:
        """Positions of the live edges, int64 [num_edges], ascending."""
        return np.flatnonzero(self._edges["count"])

    def live_nodes(self) -> np.ndarray:
        """Positions of the live nodes, int64 [num_nodes], ascending."""
        return np.flatnonzero(self.arrays.alive[: self.arrays.book[NODE_MARK]])

    @property
    def _edges(self) -> np.ndarray:
        return self.arrays.edges[: self.arrays.book[EDGE_MARK]]

    def reserve(self, links: int, edges: int) -> None:
        """Make room for so many more links and edges: existing positions stay."""
        a = self.arrays
        missing = links - (len(a.halves) // 2 - self.num_links)
        if missing > 0:
            size = 2 * (len(a.halves) // 2 + max(missing, len(a.halves) // 4))
            a = a._replace(halves=_grown(a.halves, size, 2 * a.book[LINK_MARK]))
        missing = edges - (len(a.edges) - self.num_edges)
        if missing > 0:
            size = len(a.edges) + max(missing, len(a.edges) // 2)
            a = a._replace(
                edges=_grown(a.edges, size, a.book[EDGE_MARK]),
                touched=_grown(a.touched, size, a.book[TOUCHED]),
            )
        self.arrays = a

    def limit_bytes(self, budget: int, slot_bytes: int) -> None:
        self._budget, self._slot_bytes = budget, slot_bytes

    def limit_growth(self, nodes: int, links: int, edges: int) -> None:
        """Let the map grow by as much of this as its budget has room for; records that were freed
        can always be used again. Links and edges go before nodes, which are of use only with them.
        """
        if self._budget is None:
            return
        book, held = self.arrays.book, sum(self.footprint().values())
        left = self._budget - held - self._slot_bytes * int(book[EDGE_MARK])
        node, link, edge = (sum(self._held(*one).values()) for one in np.eye(3, dtype=int).tolist())
        edge += self._slot_bytes
        edges = max(0, min(edges, left // (edge + 2 * link)))
        links = min(links, 2 * edges)
        nodes = max(0, min(nodes, (left - edges * edge - links * link) // node))
        most = book[[NODE_MARK, LINK_MARK, EDGE_MARK]] + [nodes, links, edges]
        self.arrays.limits[:] = np.minimum(most, [self.capacity, MOST_RECORDS, MOST_RECORDS])

    def set(self, cursor: Any, data: Any, *, set_cursor: bool = True) -> None:
        """A map has no slots to be set.

        Raises:
            TypeError: always.
        """
        raise TypeError("a MapStorage is written by a GWRWriter, not by position")

    def get(self, index: Any) -> TensorDict:
        """Transitions of temporal edges.

        Args:
            index: positions of live edges, int64 of any shape [...] (an int gives one transition).

        Returns:
            TensorDict [...]: observation and ("next", "observation") [..., *observation_shape],
            action int64 [...], ("next", "reward") float32 [..., 1], ("next", "terminated" |
            "truncated" | "done") bool [..., 1], steps_to_next int64 [..., 1].

        Raises:
            IndexError: a position holds no live edge.
        """
        position = np.asarray(index, dtype=np.int64)
        if position.ndim == 0:
            return self.get(position[None])[0]
        if not self.contains(position).all():
            raise IndexError("an index names no live edge of the map: draw with VisitSampler")
        rows = self.arrays.edges[position.reshape(-1)]
        return make_sample(
            position.shape,
            self._observations(rows["source"], position.shape),
            torch.from_numpy(rows["action"].astype(np.int64)),
            self._observations(rows["target"], position.shape),
            np.ascontiguousarray(rows["reward"]),
            rows["terminated"] != 0,
            rows["truncated"] != 0,
            rows["steps"].astype(np.int64),
        )

    def _observations(self, nodes: np.ndarray, shape: tuple[int, ...]) -> torch.Tensor:
        rows = self.arrays.prototypes.take(nodes, axis=0)
        return torch.from_numpy(rows.reshape(*shape, *self.observation_shape))

    def contains(self, item: Any) -> Any:
        """Whether positions hold a live edge: bool array in the shape of `item`."""
        position = np.asarray(item, dtype=np.int64)
        inside = (position >= 0) & (position < self.arrays.book[EDGE_MARK])
        return inside & (self.arrays.edges["count"][np.where(inside, position, 0)] > 0)

    def counts(self, index: np.ndarray) -> np.ndarray:
        """Visits of edges, float64 [n]; 0 for a removed one."""
        return self.arrays.edges["count"][index].astype(np.float64)

    def drain_touched(self) -> np.ndarray:
        """Edges whose count changed (to 0 when removed) since the last call, int64 [n], each once.

        One sampler at a time can follow a map by this log.
        """
        a = self.arrays
        touched = a.touched[: a.book[TOUCHED]].astype(np.int64)
        a.edges["dirty"][touched] = 0
        a.book[TOUCHED] = 0
        return touched

    def _empty(self) -> None:
        book = self.arrays.book
        book[:] = 0
        book[[NODE_FREE, LINK_FREE, EDGE_FREE]] = -1

    def _held(self, nodes: int, links: int, edges: int) -> dict[str, int]:
        a = self.arrays
        return {
            "prototypes": nodes * a.prototypes.strides[0],
            "embeddings": nodes * self.embedding_dims * 4,
            "contexts": nodes * self.contexts * self.embedding_dims * 4,
            "node_state": nodes * (NODE.itemsize + 1),
            "links": links * 2 * HALF.itemsize,
            "edges": edges * _EDGE_BYTES,
        }

    def footprint(self) -> dict[str, int]:
        """Component -> bytes held: all records up to the high-water marks, free ones as well."""
        book = self.arrays.book
        return self._held(int(book[NODE_MARK]), int(book[LINK_MARK]), int(book[EDGE_MARK]))

    @property
    def projected_edges(self) -> int:
        """Temporal edges that `projected_footprint` reckons with."""
        return 2 * self.capacity

    def projected_footprint(self) -> dict[str, int]:
        """Component -> bytes with all nodes taken, two links and two temporal edges a node.

        Nodes are the bound that the map keeps; links and edges have none but the run's length (an
        env step adds at most one edge and two links). Where most observations merge there are more
        edges a node, at 44 bytes each.
        """
        return self._held(self.capacity, 2 * self.capacity, self.projected_edges)

    def state_dict(self) -> State:
        """Views of the used parts; records go field by field ("edges.reward")."""
        a = self.arrays
        nodes, halves = int(a.book[NODE_MARK]), 2 * int(a.book[LINK_MARK])
        state: State = {
            "prototypes": a.prototypes[:nodes],
            "embeddings": a.embeddings[:nodes],
            "contexts": a.contexts[: nodes * self.contexts],
            "alive": a.alive[:nodes],
            "book": a.book,
        }
        state |= columns("nodes", a.nodes[:nodes])
        state |= columns("halves", a.halves[:halves])
        state |= columns("edges", self._edges)
        return state

    def load_state_dict(self, state_dict: State) -> None:
        """Take over a map; all its edges count as touched.

        Raises:
            UserError: the state is of a map of other shapes or with more nodes than the capacity.
        """
        book = np.array(state_dict["book"])
        nodes, halves, edges = int(book[NODE_MARK]), 2 * int(book[LINK_MARK]), int(book[EDGE_MARK])
        a = self.arrays
        for name in ("prototypes", "embeddings", "contexts"):
            rows, own = state_dict[name], getattr(a, name)
            if rows.dtype != own.dtype or rows.shape[1:] != own.shape[1:] or len(rows) > len(own):
                raise UserError(
                    f"the saved map's {name} are {rows.dtype} {rows.shape}, this map's {own.dtype} "
                    f"{own.shape}: give the capacity, observation, embedding and contexts it had"
                )
        if len(state_dict["contexts"]) != nodes * self.contexts:
            raise UserError(f"memory.contexts={self.contexts}: the saved map has another number")
        self._empty()
        self.reserve(halves // 2, edges)
        a = self.arrays
        for name in ("prototypes", "embeddings", "contexts", "alive"):
            getattr(a, name)[: len(state_dict[name])] = state_dict[name]
        for name, size in (("nodes", nodes), ("halves", halves), ("edges", edges)):
            for field, column in columns(name, getattr(a, name)[:size]).items():
                column[:] = state_dict[field]
        a.book[:] = book
        a.edges["dirty"][:edges] = 1
        a.touched[:edges] = np.arange(edges)
        a.book[TOUCHED] = edges

    def check_valid(self) -> None:
        """Assert that lists, counts, ages and free lists agree: O(nodes + links + edges)."""
        check_map(self.arrays)


def _grown(array: np.ndarray, size: int, used: int) -> np.ndarray:
    grown = np.empty(size, array.dtype)
    grown[:used] = array[:used]
    return grown
