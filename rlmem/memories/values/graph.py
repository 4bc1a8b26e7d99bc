"""A graph of states that answers Q(s, a) from its edges: GQ, GCMR and GBMR (Kang et al., IEEE TAI
2024, doi 10.1109/TAI.2023.3268612).

A node is a state's key, an edge an action and the node that it led to, with a weight (the action's
value), a mean reward and visits. That is GQ. At times the shortest paths between key nodes are
walked and their edges updated (`graph_paths`): GCMR, where key nodes are centres of clusters of
keys; GBMR, where each key is first averaged over its neighbourhood.

A node takes 4 d + 33 bytes and an edge 32; there is room for one edge for each action of each node.

What differs from the released code, in the sound form, and why:
- An edge is of (node, action, next node), not of a pair of nodes: there, bumping into a pit and
  into a wall of one cell overwrite each other.
- An edge's first weight is its one-step target, not its reward alone.
- Paths are walked backwards.
- A state that ends an episode is a node apart.
`form="released"` has the first three as the released code has them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rlmem.errors import UserError
from rlmem.memories.base.lazy import lazy_zeros
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import array_of
from rlmem.memories.values.base import Near, Neighbours, ValueMemory, Visits
from rlmem.memories.values.checks import checked_keys
from rlmem.memories.values.graph_checks import fault
from rlmem.memories.values.graph_kernels import find, mean_values, unit_of, values_of, visit
from rlmem.memories.values.graph_reconstruction import Reconstruction, Reconstructor
from rlmem.memories.values.graph_records import (
    CLOCK,
    EDGE,
    FREE,
    MARK,
    NODE,
    NODES,
    RETURN,
    REWARD,
    TARGET,
    ZERO,
    GraphArrays,
    Rows,
    Rule,
)
from rlmem.memories.values.graph_search import NodeSearch

FIRST = {"target": TARGET, "reward": REWARD, "zero": ZERO, "return": RETURN}


@dataclass(frozen=True, kw_only=True)
class Learning:
    """How edges are learned.

    Attributes:
        gamma: discount a step.
        eta: share of the way that a weight goes to its target at each visit.
        dist_th: a key this near to a node's is that node, which moves towards it.
        unit: "key", of distances between keys, or "step": they are given in typical steps, by
            which keys of consecutive observations differ. A network's keys have no scale of their
            own, and the one that they have changes while it learns.
        edges: "action", an edge a (node, action, next node), or "pair", one a pair of nodes.
        first_weight: "target", "reward", "zero" (and one step of eta from there), or "return",
            over several steps (`Visits.target`).
        returns: whether that return is what weights go to; False: the one-step rule, reward + gamma
            * the best weight that leaves the next node.
    """

    gamma: float
    eta: float = 0.01
    dist_th: float = 0.0
    edges: str = "action"
    first_weight: str = "target"
    unit: str = "key"
    returns: bool = False


class GraphMemory(ValueMemory):
    """The graph.

    Args:
        capacity: nodes; the least recently used goes for one more.
        key_size: d.
        num_actions: A.
        learning, reconstruction: see there.
        generator: of the draws.
        neighbours: p, nearest nodes that a value is read from. 1: the node that the key is, if any.
        delta: keeps the weight of a neighbour at no distance finite.
        trains: whether an agent's network makes the keys; False: they are the observations.
        num_envs: environments that are played at once.

    Raises:
        ValueError: fewer than two nodes.
    """

    name = "graph"

    def __init__(
        self,
        capacity: int,
        key_size: int,
        num_actions: int,
        learning: Learning,
        reconstruction: Reconstruction,
        generator: torch.Generator,
        neighbours: int = 1,
        delta: float = 1e-3,
        trains: bool = False,
        num_envs: int = 1,
    ) -> None:
        if capacity < 2:
            raise ValueError(f"capacity={capacity}: a graph has two nodes at least")
        self.key_size, self.num_actions = key_size, num_actions
        self.learning, self.neighbours, self.delta = learning, neighbours, delta
        self.trains = trains
        first = FIRST[learning.first_weight]
        pairs = learning.edges == "pair"
        self.rule = Rule(
            float(learning.eta),
            float(learning.gamma),
            float(learning.dist_th),
            pairs,
            first,
            learning.unit == "step",
            learning.returns,
        )
        self.arrays = GraphArrays(
            lazy_zeros((capacity, key_size), np.float32),
            lazy_zeros((capacity,), NODE),
            lazy_zeros((capacity * num_actions,), EDGE),
            np.zeros(5, np.int64),
            np.zeros((2, num_actions)),
            np.zeros(2),
            lazy_zeros((max(1, capacity // 16), 2), np.int64),
            np.zeros(2, np.int64),
        )
        self.arrays.book[FREE] = -1
        self._search = NodeSearch(self.arrays, neighbours) if trains else None
        self.walker = Reconstructor(reconstruction, generator, capacity, num_envs)

    # What is asked.

    def read(self, keys: np.ndarray, *, touch: bool = True) -> tuple[np.ndarray, Neighbours]:
        """See `ValueMemory.read`; an action that was not tried is worth 0."""
        slot, distance = self._near(keys)
        if touch:
            self._touch(slot)
        values, tried = mean_values(self.arrays, self.rule, slot, distance, self.delta)
        slot, distance = (a[:, None].repeat(self.num_actions, 1) for a in (slot, distance))
        return values, Neighbours(slot, distance, tried)

    def near(self, keys: np.ndarray, actions: np.ndarray) -> Near:
        """See `ValueMemory.near`; `held` where the action was tried."""
        slot, _ = self._near(keys)
        found = values_of(self.arrays, self.rule, slot.reshape(-1))
        values, tried = (a.reshape(*slot.shape, -1) for a in found)
        self._touch(slot)
        chosen = actions[:, None, None]
        return Near(
            self.arrays.keys[slot],
            np.take_along_axis(values, chosen, 2)[..., 0].astype(np.float32),
            np.take_along_axis(tried, chosen, 2)[..., 0],
        )

    def _near(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Slots int64 [N, p] of the nodes near keys, nearest first, -1: none, and their squared
        distances."""
        g, p = self.arrays, self.neighbours
        if self._search is not None:
            slot, distance = self._search.nearest(checked_keys(keys, self.key_size))
            if p == 1:
                slot[distance > (self.rule.dist_th * unit_of(g, self.rule)) ** 2] = -1
            return slot, distance
        slot, distance = np.full((len(keys), p), -1), np.full((len(keys), p), np.inf)
        if p == 1:
            find(g, self.rule, keys, slot, distance)
            return slot, distance
        alive = np.flatnonzero(~g.nodes["terminal"][: self.entries])
        for i, key in enumerate(keys):
            squared = np.square(g.keys[alive] - key, dtype=np.float64).sum(1)
            if p < len(alive):  # of nodes that are equally near the lowest slots, as elsewhere
                first = np.flatnonzero(squared <= np.partition(squared, p - 1)[p - 1])
            else:
                first = np.arange(len(alive))
            first = first[np.argsort(squared[first], kind="stable")][:p]
            slot[i, : len(first)], distance[i, : len(first)] = alive[first], squared[first]
        return slot, distance

    def _touch(self, slot: np.ndarray) -> None:
        self.arrays.nodes["used"][slot[slot >= 0]] = self.arrays.book[CLOCK]
        self.arrays.book[CLOCK] += 1

    # What it is told.

    def visited(self, visits: Visits) -> None:
        """Learn from transitions, and walk paths when that is due."""
        begin = 0
        for stop in self.walker.stops(visits):
            self._learn(visits, slice(begin, stop))
            self.walker.walk(self.arrays, self.rule)
            begin = stop
        self._learn(visits, slice(begin, len(visits)))

    def _learn(self, visits: Visits, rows: slice) -> None:
        count = rows.stop - rows.start
        if count == 0:
            return
        nodes, made = np.empty(count, np.int32), np.empty(count, np.int64)
        columns = Rows(
            visits.key[rows],
            visits.action[rows],
            visits.target[rows],
            visits.reward[rows],
            visits.next_key[rows],
            visits.terminated[rows],
        )
        if self._search is None:
            visit(self.arrays, self.rule, columns, nodes, made, None)
        else:
            for keys in (columns.key, columns.next_key):
                checked_keys(keys, self.key_size)
            visit(self.arrays, self.rule, columns, nodes, made, self._search.by)
            self._search.placed(2 * count)
        self.walker.follow(visits, rows, nodes, made)

    # What it holds.

    @property
    def entries(self) -> int:
        """Nodes."""
        return int(self.arrays.book[NODES])

    @property
    def capacity(self) -> int:
        """Nodes at most."""
        return len(self.arrays.nodes)

    def node_keys(self) -> np.ndarray:
        """The key of each node, float32 [nodes, d], a copy: in a maze, where it is."""
        return self.arrays.keys[: self.entries].copy()

    def edge_table(self) -> np.ndarray:
        """The edges, `EDGE` [m], a copy; slots that are free are left out."""
        edges = self.arrays.edges[: self.arrays.book[MARK]]
        return edges[edges["source"] >= 0]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_search": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if self.trains:  # it looks into the graph's own arrays; copied, it would keep others
            self._search = NodeSearch(self.arrays, self.neighbours)
            self._search.fit()

    def node_values(self) -> np.ndarray:
        """The best value of each node's tried actions, float64 [nodes]; 0 where none was."""
        values, tried = values_of(self.arrays, self.rule, np.arange(self.entries))
        highest = np.where(tried, values, -np.inf).max(1, initial=-np.inf)
        return np.where(tried.any(1), highest, 0.0)

    def footprint(self) -> dict[str, int]:
        used = self._bytes(self.entries, int(self.arrays.book[MARK]))
        return used | self.walker.footprint()

    def projected_footprint(self) -> dict[str, int]:
        full = self._bytes(self.capacity, len(self.arrays.edges))
        return (
            self.footprint() | full | self.walker.when_full(self.capacity, len(self.arrays.edges))
        )

    def _bytes(self, nodes: int, edges: int) -> dict[str, int]:
        g = self.arrays
        few = sum(array.nbytes for array in (g.book, g.scratch, g.step, g.turn))
        return {
            "keys": nodes * g.keys[:1].nbytes,
            # A full graph has a list of its oldest nodes, which is made again after a load.
            "nodes": nodes * g.nodes.itemsize + g.oldest.nbytes * (nodes == self.capacity) + few,
            "edges": edges * g.edges.itemsize,
            **(self._search.footprint(nodes) if self._search else {}),
        }

    def state_views(self) -> State:
        g, count, mark = self.arrays, self.entries, int(self.arrays.book[MARK])
        return {
            "keys": g.keys[:count],
            "nodes": g.nodes[:count],
            "edges": g.edges[:mark],
            "book": g.book,
            "step": g.step,
            **self.walker.state_views(),
        }

    def check_state(self, state: State) -> None:
        """See `Stateful`; the arrays must be a graph."""
        g = self.arrays
        book = array_of(state, "book", np.int64, g.book.shape)
        step = array_of(state, "step", np.float64, g.step.shape)
        nodes = array_of(state, "nodes", NODE, (-1,))
        edges = array_of(state, "edges", EDGE, (-1,))
        keys = array_of(state, "keys", np.float32, (len(nodes), self.key_size))
        if len(nodes) > self.capacity or len(edges) > len(g.edges):
            raise UserError(f"the saved graph has {len(nodes)} nodes, this one {self.capacity}")
        saved = g._replace(keys=keys, nodes=np.array(nodes), edges=np.array(edges), book=book)
        whole = (len(nodes), len(edges)) == (book[NODES], book[MARK])
        wrong = fault(saved) if whole else "it has other nodes and edges than it counts"
        if not np.isfinite(step).all():
            wrong = "its steps have no length"
        if wrong is not None:
            raise UserError(f"the saved graph is damaged: {wrong}")
        self.walker.check_state(state)

    def take_over(self, state: State) -> None:
        g = self.arrays
        for name in ("keys", "nodes", "edges"):
            getattr(g, name)[: len(state[name])] = state[name]
        g.book[:], g.step[:], g.turn[:] = state["book"], state["step"], 0
        if self._search is not None:
            self._search.fit()
        self.walker.take_over(state)

    def check_valid(self) -> None:
        wrong = fault(self.arrays)
        assert wrong is None, wrong
