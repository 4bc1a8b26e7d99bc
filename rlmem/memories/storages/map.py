"""The GWR map as a storage: prototype nodes, links with ages, temporal edges with counts.

A sample is a temporal edge: the observation is its source's prototype, the next observation its
target's (Hafez, Immisch, Weber, Wermter 2023, arXiv 2305.02054). A node costs its prototype (28,224
bytes for an Atari stack as a moving average, some hundred as a compressed exemplar, nothing where
the key is the observation itself), 4 d bytes of key, 4 K d bytes of contexts and 25 bytes of state;
a link 32 bytes, an edge 44 and 4 a dimension of a continuous action. Nodes stand in arrays of full
capacity that the system hands out page by page as they are first written; links and edges grow by
half. Freed records are used again first.

Differs from the paper: discrete actions cannot be averaged, so that an edge is known by (source,
action, target, terminated, truncated, steps), and only its reward is averaged; two actions that
lead from one node to another are two edges. Continuous actions are averaged with the reward.
Terminations stay exact, unless `node_terminals` keeps them as the released code does.
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
from rlmem.memories.storages.exemplars import ExemplarStore
from rlmem.memories.storages.map_records import (
    CHUNK,
    EDGE,
    EDGE_FREE,
    EDGE_MARK,
    EDGES,
    HALF,
    HEAD,
    LINK_FREE,
    LINK_MARK,
    LINKS,
    MADE,
    NODE,
    NODE_FREE,
    NODE_MARK,
    NODES,
    PASSED,
    REMOVED,
    TOUCHED,
    MapArrays,
    check_map,
    columns,
)

_EDGE_BYTES = EDGE.itemsize + 4  # with its place in the log of touched edges
_FIRST_RECORDS = 1024
FORMAT = 2  # of a saved map
_BY_NODE = ("prototypes", "tails", "contexts", "alive", "terminal", "stamps")
MOST_RECORDS = 2**30  # of a kind: positions are int32, those of half-links too


class MapStorage(ReplayStorage):
    """Nodes, links and temporal edges of a GWR map; its items are the edges.

    `GWRWriter` fills it. The positions of the live edges have gaps where edges were removed, so
    draw with `VisitSampler` (or another sampler that follows `drain_touched`).

    Args:
        capacity: most nodes the map can hold, at least 3.
        observation_shape: shape of one observation (of a whole frame stack).
        dtype: of observations and prototypes: uint8 or float32.
        embedding_dims: dimensions d of the space in which distances are measured; None: float32
            observations are their own keys, and a node holds nothing beside its key.
        contexts: K, context vectors a node (0: none, the paper: 4).
        num_actions: actions are 0 .. num_actions - 1; 0: they are continuous.
        action_shape: of a continuous action, (A,).
        prototype: "moving": the average of what a node took in; "exemplar": its first observation,
            for uint8 compressed without loss.
        stack: frames along the first axis of a uint8 observation.
        node_terminals: a node is terminal while each of its visits was, and an edge is known by
            its nodes alone, the newest action and reward dominating (the released code).
        evict: what a full map does; False: it takes no more nodes.

    Raises:
        UserError: a size or the dtype cannot be used.
    """

    def __init__(
        self,
        capacity: int,
        observation_shape: Sequence[int],
        dtype: Any,
        embedding_dims: int | None,
        *,
        contexts: int = 0,
        num_actions: int = 0,
        action_shape: Sequence[int] = (),
        prototype: str = "moving",
        stack: int = 1,
        node_terminals: bool = False,
        evict: bool = False,
    ) -> None:
        if not 3 <= capacity <= MOST_RECORDS:
            raise UserError(
                f"memory.capacity={capacity}: a GWR map takes 3 to {MOST_RECORDS} nodes"
            )
        if contexts < 0:
            raise UserError(f"memory.contexts={contexts}: give 0 (none) or more, the paper has 4")
        if np.dtype(dtype) not in (np.dtype(np.uint8), np.dtype(np.float32)):
            raise UserError(f"observations of dtype {dtype}: a GWR map takes uint8 or float32")
        if (num_actions > 0) == (len(action_shape) > 0):
            raise UserError(
                f"num_actions={num_actions}, action_shape={tuple(action_shape)}: give one of them"
            )
        super().__init__(max_size=capacity)
        self.capacity = capacity
        self.observation_shape = tuple(observation_shape)
        self.dtype = np.dtype(dtype)
        size = math.prod(self.observation_shape)
        self.keys_are_observations = embedding_dims is None
        self.embedding_dims = size if embedding_dims is None else embedding_dims
        if self.keys_are_observations and self.dtype != np.float32:
            raise UserError("embedding_dims=None: only float32 observations are their own keys")
        self.contexts = contexts
        self.num_actions, self.action_shape = num_actions, tuple(action_shape)
        self.prototype = prototype
        compressed = prototype == "exemplar" and self.dtype == np.uint8
        self._exemplars = (
            ExemplarStore(capacity, self.observation_shape, stack) if compressed else None
        )
        held = 0 if compressed or self.keys_are_observations else capacity
        width = min(HEAD, self.embedding_dims)
        self.arrays = MapArrays(
            prototypes=lazy_zeros((held, size), self.dtype, huge=True),
            heads=lazy_zeros((width, capacity), np.float32),
            tails=lazy_zeros((capacity, self.embedding_dims - width), np.float32),
            contexts=lazy_zeros((capacity * contexts, self.embedding_dims), np.float32),
            alive=lazy_zeros((capacity,), np.uint8),
            nodes=lazy_zeros((capacity,), NODE),
            terminal=lazy_zeros((capacity if node_terminals else 0,), np.int8),
            stamps=lazy_zeros((capacity if evict else 0,), np.int64),
            halves=np.empty(2 * _FIRST_RECORDS, HALF),
            edges=np.empty(_FIRST_RECORDS, EDGE),
            actions=np.empty(
                (_FIRST_RECORDS, math.prod(action_shape) if action_shape else 0), "f4"
            ),
            touched=np.empty(_FIRST_RECORDS, np.int32),
            removed=lazy_zeros((capacity + CHUNK if compressed else 0,), np.int32),
            book=np.empty(12, np.int64),
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

    def node_observations(self, nodes: np.ndarray) -> np.ndarray:
        """Prototypes of live nodes (int [n]) as observations [n, *observation_shape]."""
        if self.keys_are_observations:
            rows = self.node_keys(nodes)
        elif self._exemplars is not None:
            rows = self._exemplars.get(nodes)
        else:
            rows = self.arrays.prototypes.take(nodes, axis=0)
        return rows.reshape(-1, *self.observation_shape)

    def node_keys(self, nodes: np.ndarray) -> np.ndarray:
        """Where live nodes (int [n]) lie in the space of distances, float32 [n, d]."""
        return np.concatenate([self.arrays.heads[:, nodes].T, self.arrays.tails[nodes]], axis=1)

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
        if self._exemplars is None:
            return
        a = self.arrays
        if a.book[REMOVED]:
            self._exemplars.release(np.unique(a.removed[: a.book[REMOVED]]))
            a.book[REMOVED] = 0
        for row in np.flatnonzero(born >= 0).tolist():
            if a.alive[born[row]]:
                self._exemplars.put(int(born[row]), observations[row])

    def link_pairs(self) -> np.ndarray:
        """The two nodes of each live link, int64 [num_links, 2]."""
        pairs = self.arrays.halves["node"][: 2 * self.arrays.book[LINK_MARK]].reshape(-1, 2)
        return pairs[pairs[:, 0] >= 0].astype(np.int64)

    def edge_table(self) -> np.ndarray:
        """A copy of the live edges' records (EDGE [num_edges]): source, target, count and so on."""
        return self._edges[self._edges["count"] > 0]

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
                actions=_grown(a.actions, size, a.book[EDGE_MARK]),
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
        if self._exemplars is not None:
            node += self._exemplars.longest
            left -= self._exemplars.growth(nodes) - nodes * self._exemplars.longest
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
        flat = position.reshape(-1)
        rows, a = self.arrays.edges[flat], self.arrays
        ends = self.node_observations(np.concatenate([rows["source"], rows["target"]]))
        ends = torch.from_numpy(ends).view(2, *position.shape, *self.observation_shape)
        if self.action_shape:
            action = torch.from_numpy(a.actions[flat].reshape(-1, *self.action_shape))
        else:
            action = torch.from_numpy(rows["action"].astype(np.int64))
        by_node = len(a.terminal) > 0
        return make_sample(
            position.shape,
            ends[0],
            action,
            ends[1],
            np.ascontiguousarray(rows["reward"]),
            a.terminal[rows["target"]] == 1 if by_node else rows["terminated"] != 0,
            np.zeros(len(flat), np.bool_) if by_node else rows["truncated"] != 0,
            rows["steps"].astype(np.int64),
        )

    def contains(self, item: Any) -> Any:
        """Whether positions hold a live edge: bool array in the shape of `item`."""
        position = np.asarray(item, dtype=np.int64)
        inside = (position >= 0) & (position < self.arrays.book[EDGE_MARK])
        return inside & (self.arrays.edges["count"][np.where(inside, position, 0)] > 0)

    def counts(self, index: np.ndarray) -> np.ndarray:
        """Visits of edges, float64 [n]; 0 for a removed one."""
        return self.arrays.edges["count"][index].astype(np.float64)

    def drain_touched(self) -> tuple[np.ndarray, np.ndarray]:
        """Edges whose count changed (to 0 when removed) since the last call, int64 [n], each once,
        and bool [n], which of them were made since.

        One sampler at a time can follow a map by this log.
        """
        a = self.arrays
        touched = a.touched[: a.book[TOUCHED]].astype(np.int64)
        made = a.edges["dirty"][touched] == MADE
        a.edges["dirty"][touched] = 0
        a.book[TOUCHED] = 0
        return touched, made

    def _empty(self) -> None:
        book = self.arrays.book
        if self._exemplars is not None:
            self._exemplars.clear(int(book[NODE_MARK]))
        book[:] = 0
        book[[NODE_FREE, LINK_FREE, EDGE_FREE]] = -1

    def _held(self, nodes: int, links: int, edges: int) -> dict[str, int]:
        a = self.arrays
        state = NODE.itemsize + 1 + (len(a.terminal) > 0) + 8 * (len(a.stamps) > 0)
        return {
            "prototypes": nodes * a.prototypes.strides[0] if len(a.prototypes) else 0,
            "embeddings": nodes * self.embedding_dims * 4,
            "contexts": nodes * self.contexts * self.embedding_dims * 4,
            "node_state": nodes * state,
            "links": links * 2 * HALF.itemsize,
            "edges": edges * (_EDGE_BYTES + 4 * a.actions.shape[1]),
        }

    def footprint(self) -> dict[str, int]:
        """Component -> bytes held: all records up to the high-water marks, free ones as well."""
        book = self.arrays.book
        nodes = int(book[NODE_MARK])
        held = self._held(nodes, int(book[LINK_MARK]), int(book[EDGE_MARK]))
        if self._exemplars is not None:
            held["prototypes"] += self._exemplars.nbytes(nodes)
        return held

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
        held = self._held(self.capacity, 2 * self.capacity, self.projected_edges)
        if self._exemplars is not None:
            a_node = self._exemplars.likely_node(int(self.arrays.book[NODE_MARK]))
            held["prototypes"] += self.capacity * a_node
        return held

    def state_dict(self) -> State:
        """Views of the used parts; records go field by field ("edges.reward")."""
        a = self.arrays
        nodes, halves = int(a.book[NODE_MARK]), 2 * int(a.book[LINK_MARK])
        state: State = {
            "format": FORMAT,
            "prototypes": a.prototypes[:nodes],
            "heads": a.heads[:, :nodes],
            "tails": a.tails[:nodes],
            "contexts": a.contexts[: nodes * self.contexts],
            "alive": a.alive[:nodes],
            "terminal": a.terminal[:nodes],
            "stamps": a.stamps[:nodes],
            "actions": a.actions[: int(a.book[EDGE_MARK])],
            "book": a.book,
        }
        state |= columns("nodes", a.nodes[:nodes])
        state |= columns("halves", a.halves[:halves])
        state |= columns("edges", self._edges)
        if self._exemplars is not None:
            state |= self._exemplars.state_dict(nodes)
        return state

    def load_state_dict(self, state_dict: State) -> None:
        """Take over a map; all its edges count as touched.

        Raises:
            UserError: the state is of a map of other shapes or with more nodes than the capacity,
                or of an earlier version.
        """
        if state_dict.get("format") != FORMAT:
            raise UserError("the saved map is of another version of rlmem; train it anew")
        book = np.array(state_dict["book"])
        nodes, halves, edges = int(book[NODE_MARK]), 2 * int(book[LINK_MARK]), int(book[EDGE_MARK])
        a = self.arrays
        for name in _BY_NODE:
            rows, own = state_dict[name], getattr(a, name)
            if rows.dtype != own.dtype or rows.shape[1:] != own.shape[1:] or len(rows) > len(own):
                raise UserError(
                    f"the saved map's {name} are {rows.dtype} {rows.shape}, this map's {own.dtype} "
                    f"{own.shape}: give the capacity, observation, embedding, contexts, prototype "
                    "and terminals it had"
                )
        if len(state_dict["contexts"]) != nodes * self.contexts:
            raise UserError(f"memory.contexts={self.contexts}: the saved map has another number")
        if (
            len(state_dict["heads"]) != len(a.heads)
            or state_dict["actions"].shape[1:] != (a.actions.shape[1:])
        ):
            raise UserError("the saved map has keys or actions of other dimensions")
        if ("exemplars.sizes" in state_dict) != (self._exemplars is not None):
            raise UserError(f"memory.prototype={self.prototype}: the saved map has the other kind")
        self._empty()
        self.reserve(halves // 2, edges)
        a = self.arrays
        for name in _BY_NODE:
            getattr(a, name)[: len(state_dict[name])] = state_dict[name]
        a.heads[:, :nodes] = state_dict["heads"]
        a.actions[:edges] = state_dict["actions"]
        for name, size in (("nodes", nodes), ("halves", halves), ("edges", edges)):
            for field, column in columns(name, getattr(a, name)[:size]).items():
                column[:] = state_dict[field]
        if self._exemplars is not None:
            self._exemplars.load_state_dict(state_dict, nodes)
        a.book[:] = book
        a.edges["dirty"][:edges] = PASSED
        a.touched[:edges] = np.arange(edges)
        a.book[TOUCHED] = edges

    def check_valid(self) -> None:
        """Assert that lists, counts, ages and free lists agree: O(nodes + links + edges)."""
        check_map(self.arrays)
        if self._exemplars is not None:
            self._exemplars.check_valid(self.live_nodes(), int(self.arrays.book[NODE_MARK]))


def _grown(array: np.ndarray, size: int, used: int) -> np.ndarray:
    grown = np.empty((size, *array.shape[1:]), array.dtype)
    grown[:used] = array[:used]
    return grown
