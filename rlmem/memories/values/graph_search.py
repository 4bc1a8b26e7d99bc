"""Where a graph's nodes lie among learned keys: the dictionary's exact search over all of them.

The nodes are one slab of it, in the order of their slots. A node's key moves; whoever moves one
gives it its place on the screen anew (`set_screen`), which `graph_kernels.place` does. Nodes that
ended an episode are hidden: no state is looked up among them.

A node costs d + 40 bytes of screen (72 at least), and 40 that a search works on.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from rlmem.memories.values.graph_records import NODES, GraphArrays
from rlmem.memories.values.screen import Slabs, hide, set_screen
from rlmem.memories.values.search import Work, search
from rlmem.memories.values.slabs import bytes_of, make_slabs, make_work, turn

# For numba's cache: tests/memories/test_compiled_with.py says why, and what to write here.
COMPILED_WITH = {"graph_records": "1139d2018442", "screen": "bb27795c426a"}

_SAMPLE = 4096  # keys that the principal axes are those of
_FIRST_FIT = 1024  # nodes placed before the axes are first found


class By(NamedTuple):
    """What the nearest node is found by, in compiled functions; None in its place: by a scan."""

    slabs: Slabs
    one: Work  # of searches for one node


@njit(cache=True)
def _place_all(g, slabs, row):
    """Give all nodes their places on the screen."""
    slabs.reach[0] = 0.0
    slabs.count[0], slabs.hidden[0] = g.book[NODES], 0
    for node in range(g.book[NODES]):
        set_screen(slabs, 0, node, row)
        if g.nodes[node].terminal:
            hide(slabs, 0, node)
            slabs.hidden[0] += 1


class NodeSearch:
    """Finds nodes by key.

    Args:
        g: the graph, whose keys are searched where they lie.
        neighbours: p, nodes that are found of each key.
    """

    def __init__(self, g: GraphArrays, neighbours: int) -> None:
        self._g = g
        capacity, size = g.keys.shape
        # Values, states and ages are the graph's own: those of the slab stay pages never touched.
        self._slabs = make_slabs(1, size, capacity)._replace(key=g.keys[None])
        self._work = make_work(self._slabs, neighbours)
        one = self._work._replace(
            guess=np.zeros(1, np.float32), hint=np.full(1, np.inf, np.float32)
        )
        self.by = By(self._slabs, one)
        self._fit_at, self._placed = _FIRST_FIT, 0

    @property
    def alive(self) -> int:
        """Nodes that can be found."""
        return int(self._slabs.count[0] - self._slabs.hidden[0])

    def nearest(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Slots int64 [N, p], nearest first, -1: there are fewer; squared distances [N, p]."""
        shape = (len(keys), 1, len(self._work.guess))
        slot, distance = np.empty(shape, np.int64), np.empty(shape)
        none = np.zeros((len(keys), 1), np.int64)
        search(self._slabs, keys, none, self._work, slot, distance)
        return slot[:, 0], distance[:, 0]

    def placed(self, count: int) -> None:
        """Told that so many nodes were made or moved: at times the screen is turned to the keys'
        principal axes, which makes searches faster and changes no result."""
        self._placed += count
        if self._placed >= self._fit_at:
            self.fit()

    def fit(self) -> None:
        """Look at the graph anew."""
        nodes = int(self._g.book[NODES])
        self._placed, self._fit_at = 0, max(_FIRST_FIT, nodes // 2)
        if nodes >= _FIRST_FIT // 2:
            rows = np.linspace(0, nodes - 1, min(nodes, _SAMPLE)).astype(np.int64)
            turn(self._slabs, self._g.keys[rows].astype(np.float64))
        for work in (self._work, self.by.one):
            work.hint[:] = np.inf
        _place_all(self._g, self._slabs, self._work.row)

    def footprint(self, nodes: int) -> dict[str, int]:
        """Component -> bytes of so many nodes."""
        d, p = self._g.keys.shape[1], len(self._work.guess)
        return {"screen": bytes_of(np.array([nodes]), d, p, 0, 0)["screen"]}
