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

from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from rlmem.memories.base.batch import Batch, as_tensordict
from rlmem.memories.base.indexing import slots_of
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import check_actions
from rlmem.memories.gwr.budget import MapBudget, record_bytes
from rlmem.memories.gwr.checks import check_map
from rlmem.memories.gwr.graph import MapGraph
from rlmem.memories.gwr.records import BOOK, MADE, cleared, reserve
from rlmem.memories.gwr.state import check_state, fill_map, read_map


class MapStorage(MapGraph):
    """Nodes, links and temporal edges of a GWR map; its items are the edges.

    `GWRWriter` fills it. The positions of the live edges have gaps where edges were removed, so
    draw with `VisitSampler` (or another sampler that follows `drain_touched`).

    Args:
        capacity: most nodes the map can hold, at least 3.
        observation_shape: shape of one observation (of a whole frame stack).
        dtype: of observations and prototypes: uint8 or float32.
        embedding_dims: dimensions d of the space in which distances are measured; None: float32
            observations are their own keys, and a node holds nothing beside its key.
        num_actions: actions are 0 .. num_actions - 1; 0: they are continuous.
        action_shape: of a continuous action, (A,).
        stack: frames along the first axis of an observation, of which a transition brings one.
        options: what nodes hold, and what a full map does.

    Raises:
        UserError: a size or the dtype cannot be used.
    """

    unit = "nodes with 2 edges each, which may become more"  # see `projected_footprint`
    _settings = (*MapGraph._settings, "_budget")
    _budget: MapBudget | None = None

    @property
    def entries(self) -> int:
        """Nodes: what the capacity counts."""
        return self.num_nodes

    @property
    def transitions_represented(self) -> int:
        """Sum of the counts of the live edges."""
        return int(self._edges["count"].sum(dtype=np.int64))

    def __len__(self) -> int:
        return self.num_edges

    def locate(self, index: torch.Tensor) -> torch.Tensor:
        """Positions of the live edges `index` (int64, any shape, in [0, len)); O(edges)."""
        return torch.from_numpy(self.live_edges())[index]

    def reserve(self, links: int, edges: int) -> None:
        """Make room for so many more links and edges: existing positions stay."""
        self.arrays = reserve(self.arrays, links, edges)

    def limit_bytes(self, budget: int, slot_bytes: int) -> None:
        self._budget = MapBudget(self, budget, slot_bytes)

    def limit_growth(self, nodes: int, links: int, edges: int) -> None:
        """Let the map take so many new nodes, links and edges, or as many as its budget has room
        for; of links and edges, those that were freed can always be used again."""
        if self._budget is not None:
            self._budget.limit_growth(nodes, links, edges)

    def set(self, cursor: Any, data: Any, *, set_cursor: bool = True) -> None:
        """A map has no slots to be set.

        Raises:
            TypeError: always.
        """
        raise TypeError("a MapStorage is written by a GWRWriter, not by position")

    def get(self, index: Any) -> TensorDict:
        """Transitions of temporal edges.

        Args:
            index: positions of live edges, int64 of any shape [...] (a number gives one
                transition), or what else indexes a tensor of `len(self)` rows
                (`rlmem.memories.base.indexing`).

        Returns:
            TensorDict [...]: observation and ("next", "observation") [..., *observation_shape],
            action int64 [...], ("next", "reward") float32 [..., 1], ("next", "terminated" |
            "truncated" | "done") bool [..., 1], steps_to_next int64 [..., 1].

        Raises:
            IndexError: a position holds no live edge.
        """
        position = slots_of(self, index)
        if position.ndim == 0:
            return self.get(position[None])[0]
        return as_tensordict(self.read(position), position.shape)

    def read(self, index: np.ndarray, buffers: Any = None) -> Batch:
        if not self.contains(index).all():
            raise IndexError("an index names no live edge of the map: draw with VisitSampler")
        shape, flat = index.shape, index.reshape(-1)
        rows, a = self.arrays.edges[flat], self.arrays
        ends = self.node_observations(np.concatenate([rows["source"], rows["target"]]))
        ends = torch.from_numpy(ends).view(2, *shape, *self.observation_shape)
        action = a.actions[flat] if self.action_shape else rows["action"].astype(np.int64)
        by_node = len(a.terminal) > 0

        def column(values: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(values).reshape(*shape, 1))

        return {
            "observation": ends[0],
            "action": torch.from_numpy(action.reshape(*shape, *self.action_shape)),
            "next_observation": ends[1],
            "reward": column(rows["reward"]),
            "terminated": column(
                a.terminal[rows["target"]] == 1 if by_node else rows["terminated"] != 0
            ),
            "truncated": column(
                np.zeros(len(flat), np.bool_) if by_node else rows["truncated"] != 0
            ),
            "steps_to_next": column(rows["steps"].astype(np.int64)),
        }

    def contains(self, item: Any) -> Any:
        """Whether positions hold a live edge: bool array in the shape of `item`."""
        position = np.asarray(item, dtype=np.int64)
        inside = (position >= 0) & (position < self.arrays.book[BOOK.edge_mark])
        return inside & (self.arrays.edges["count"][np.where(inside, position, 0)] > 0)

    @property
    def edge_positions(self) -> int:
        """Positions that ever held an edge: those from here on have none."""
        return int(self.arrays.book[BOOK.edge_mark])

    def counts(self, index: np.ndarray) -> np.ndarray:
        """Visits of edges, float64 [n]; 0 for a removed one."""
        return self.arrays.edges["count"][index].astype(np.float64)

    def drain_touched(self) -> tuple[np.ndarray, np.ndarray]:
        """Edges whose count changed (to 0 when removed) since the last call, int64 [n], each once,
        and bool [n], which of them were made since.

        One sampler at a time can follow a map by this log.
        """
        touched, made = self._touched()
        self.arrays.edges["dirty"][touched] = 0
        self.arrays.book[BOOK.touched] = 0
        return touched, made

    def _touched(self) -> tuple[np.ndarray, np.ndarray]:
        a = self.arrays
        touched = a.touched[: a.book[BOOK.touched]].astype(np.int64)
        return touched, a.edges["dirty"][touched] == MADE

    def changes(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        touched, made = self._touched()
        live = self.arrays.edges["count"][touched] > 0
        return touched[made | ~live], touched[live]

    def _empty(self) -> None:
        if self.exemplars is not None:
            self.exemplars.clear()
        self.arrays = cleared(self.arrays)

    def footprint(self) -> dict[str, int]:
        """Component -> bytes held: all records up to the high-water marks, free ones as well."""
        book = self.arrays.book
        marks = int(book[BOOK.node_mark]), int(book[BOOK.link_mark]), int(book[BOOK.edge_mark])
        held = record_bytes(self.arrays, *marks)
        if self.exemplars is not None:
            held["prototypes"] += self.exemplars.nbytes
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
        held = record_bytes(self.arrays, self.capacity, 2 * self.capacity, self.projected_edges)
        if self.exemplars is not None:
            held["prototypes"] += self.exemplars.projected(self.capacity)
        return held

    def state_views(self) -> State:
        """The used parts of all arrays; records go field by field ("edges.reward")."""
        return read_map(self.arrays, self.exemplars)

    def check_state(self, state: State) -> None:
        """Refuse a state that does not fit.

        Raises:
            UserError: it is of a map of other shapes, with more nodes than the capacity or more
                bytes than the budget, or of an earlier version.
            ValueError: it is damaged.
        """
        check_state(state, self.arrays, self.exemplars)
        check_actions(state["edges.action"], self.num_actions, "map")
        if self._budget is not None:
            self._budget.check_state(state)

    def take_over(self, state: State) -> None:
        """Take over a checked state; all its edges count as touched."""
        book = state["book"]
        self._empty()
        self.reserve(int(book[BOOK.link_mark]), int(book[BOOK.edge_mark]))
        fill_map(state, self.arrays, self.exemplars)

    def check_valid(self) -> None:
        """Assert that lists, counts, ages and free lists agree: O(nodes + links + edges)."""
        check_map(self.arrays)
        if self.exemplars is not None:
            self.exemplars.check_valid(self.live_nodes())
