"""Whether arrays are a graph: what a loaded state must be, and what every change keeps.

The lists of `graph_kernels` are followed without looking at bounds there, so nothing gets in that
is not checked here.
"""

from typing import Any

import numpy as np
from numba import njit

from rlmem.memories.values.graph_records import FREE, MADE, MARK, NODES, GraphArrays


@njit(cache=True)
def _lists_hold(nodes, edges, free):
    """Whether each edge is once in the lists of both its nodes, or once among the free ones."""
    marks = np.zeros((2, edges.shape[0]), np.bool_)
    for node in range(nodes.shape[0]):
        for way in range(2):
            edge = nodes[node].out if way == 0 else nodes[node].into
            length = 0
            while edge >= 0:
                if edge >= edges.shape[0] or marks[way, edge]:
                    return False
                marks[way, edge] = True
                e = edges[edge]
                if e.source < 0 or (e.source if way == 0 else e.target) != node:
                    return False
                length += 1
                edge = e.next_out if way == 0 else e.next_in
            if length != (nodes[node].outs if way == 0 else nodes[node].ins):
                return False
    while free >= 0:
        if free >= edges.shape[0] or marks[0, free] or edges[free].source >= 0:
            return False
        marks[0, free] = marks[1, free] = True
        free = edges[free].next_out
    return marks.all()


def fault(g: GraphArrays) -> str | None:
    """What is wrong with a graph, or None.

    Args:
        g: of which the arrays may be cut to what is in use.
    """
    count, mark = int(g.book[NODES]), int(g.book[MARK])
    if not (0 <= count <= len(g.nodes) and 0 <= mark <= len(g.edges) and g.book[MADE] >= count):
        return "it counts other nodes and edges than it has"
    nodes, edges = g.nodes[:count], g.edges[:mark]
    live = edges[edges["source"] >= 0]
    inside = (live["source"] < count) & (live["target"] >= 0) & (live["target"] < count)
    inside &= (live["action"] >= 0) & (live["action"] < g.scratch.shape[1])
    if not inside.all():
        return "an edge leads to no node or has no action"
    if not (live["visits"] > 0).all():
        return "an edge was never passed"
    if not all(_finite(part) for part in (g.keys[:count], live["weight"], live["reward"])):
        return "a key, a weight or a reward is no finite number"
    if len(np.unique(nodes["made"])) != count:
        return "two nodes are one"
    if not _lists_hold(nodes, edges, int(g.book[FREE])):
        return "its lists of edges are broken"
    return None


def _finite(part: Any) -> bool:
    return bool(np.isfinite(part).all())
