"""Reconstruction of a graph memory: the shortest paths between its key nodes, walked again.

Between two nodes lie steps of several episodes, so a path can be one that was never played. Each of
its edges is updated by the one-step rule, from the goal to the start or the other way: backwards,
one walk carries a value along the whole path.
"""

from typing import Any

import numpy as np
from numba import njit
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order

from rlmem.memories.values.graph_kernels import best
from rlmem.memories.values.graph_records import MARK, NODES, GraphArrays, Rule

# For numba's cache: tests/memories/test_compiled_with.py says why, and what to write here.
COMPILED_WITH = {"graph_kernels": "abd8ffd69185", "graph_records": "1139d2018442"}

_AT_ONCE = 4096  # points that are compared with all centres


def steps_of(g: GraphArrays) -> csr_matrix:
    """Which node a step leads to from which, [nodes, nodes]; steps to the same node left out."""
    count = int(g.book[NODES])
    e = g.edges[: g.book[MARK]]
    e = e[(e["source"] >= 0) & (e["source"] != e["target"])]
    ones = np.ones(len(e), np.float32)
    return csr_matrix((ones, (e["source"], e["target"])), shape=(count, count))


@njit(cache=True)
def _update(g, rule, source, target, before):
    """Update the edges from a node to the next of a path; `before` float32 [E] keeps the weight of
    each that was not yet touched, where it is NaN until then."""
    edge = g.nodes[source].out
    while edge >= 0:
        e = g.edges[edge]
        if e.target == target:
            if np.isnan(before[edge]):
                before[edge] = e.weight
            worth = e.reward + rule.gamma * best(g, rule, target)
            e.weight += rule.eta * (worth - e.weight)
        edge = e.next_out


@njit(cache=True)
def _walk(g, rule, source, goals, previous, backwards, path, before):
    """Update the edges on the paths from a source to each goal that it leads to.

    Args:
        previous: int32 [nodes], the node before each on its shortest path; below 0: no path, and
            the source itself.
        path: int32 [nodes], overwritten.
    """
    for goal in goals:
        if goal == source or previous[goal] < 0:
            continue
        # From the goal back to the source: path[0] is the goal, path[length] the source.
        path[0], length = goal, 0
        while path[length] != source:
            path[length + 1] = previous[path[length]]
            length += 1
        if backwards:
            for i in range(length):
                _update(g, rule, path[i + 1], path[i], before)
        else:
            for i in range(length - 1, -1, -1):
                _update(g, rule, path[i + 1], path[i], before)


def walk_paths(g: GraphArrays, rule: Rule, key_nodes: np.ndarray, backwards: bool) -> np.ndarray:
    """Walk the shortest path (in steps) of each ordered pair of key nodes that has one; of several,
    the one whose nodes lie at lower slots, which are the older ones until a full graph takes some
    anew.

    Args:
        key_nodes: int32 [k].

    Returns:
        float32 [edges]: the weight that each edge had before, NaN of those on no path.
    """
    before = np.full(g.book[MARK], np.nan, np.float32)
    steps, path = steps_of(g), np.empty(g.book[NODES] + 1, np.int32)
    for source in key_nodes:
        previous = breadth_first_order(steps, source)[1]
        _walk(g, rule, source, key_nodes, previous, backwards, path, before)
    return before


@njit(cache=True)
def canopy(points: Any, order: Any, inner: float, most: int) -> Any:
    """Centres of canopies (McCallum, Nigam, Ungar 2000): the next point in the order becomes one,
    unless it lies within `inner` of a centre.

    Args:
        points: float32 or float64 [n, d].
        order: int64 [n], a random permutation.
        most: centres.

    Returns:
        The centres int32 [k], rows of `points`.
    """
    centres, count = np.empty(most, np.int32), 0
    for i in order:
        if count == most:
            break
        alone = True
        for c in range(count):
            total = 0.0
            for k in range(points.shape[1]):
                gap = np.float64(points[i, k]) - points[centres[c], k]
                total += gap * gap
                if total >= inner * inner:
                    break
            if total < inner * inner:
                alone = False
                break
        if alone:
            centres[count] = i
            count += 1
    return centres[:count]


def clusters_of(points: np.ndarray, centres: np.ndarray, outer: float) -> np.ndarray:
    """Which centre each point is nearest to, int32 [n]; -1: none lies within `outer`."""
    cluster, middle = np.empty(len(points), np.int32), points[centres]
    own = np.square(middle).sum(1)
    for begin in range(0, len(points), _AT_ONCE):
        part = points[begin : begin + _AT_ONCE]
        gaps = own - 2 * (part @ middle.T)
        nearest = gaps.argmin(1)
        squared = gaps[np.arange(len(part)), nearest] + np.square(part).sum(1)
        within = squared < outer * outer
        cluster[begin : begin + _AT_ONCE] = np.where(within, centres[nearest], -1)
    return cluster


@njit(cache=True)
def _uniform(seed, number):
    """A number in [0, 1) by place (splitmix64): drawn all at once, those of a large graph's walks
    would take more bytes than the graph."""
    z = np.uint64(seed) + np.uint64(number + 1) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.float64(z >> np.uint64(11)) * 2.0**-53


@njit(cache=True)
def aggregate(g: Any, walks: int, hops: int, seed: int) -> Any:
    """The mean key of each node's neighbourhood, from random walks along edges that leave nodes.

    Args:
        walks, hops: of each node, and steps of a walk.
        seed: of what is drawn, below 2^63.

    Returns:
        float32 [nodes, d], over all nodes that the walks come to; of a node that no edge leaves,
        its own key.
    """
    means = np.zeros((g.book[NODES], g.keys.shape[1]), np.float32)
    for node in range(means.shape[0]):
        for w in range(walks):
            here = node
            for s in range(hops):
                if g.nodes[here].outs > 0:
                    draw = _uniform(seed, (node * walks + w) * hops + s)
                    edge = g.nodes[here].out
                    for _ in range(int(draw * g.nodes[here].outs)):
                        edge = g.edges[edge].next_out
                    here = g.edges[edge].target
                for k in range(means.shape[1]):
                    means[node, k] += g.keys[here, k]
        means[node] /= walks * hops
    return means


def by_degree(g: GraphArrays, most: int) -> np.ndarray:
    """The nodes that the most edges enter and leave, int32 [k], k at most `most`."""
    n = g.nodes[: g.book[NODES]]
    return np.argsort(-(n["outs"] + n["ins"]), kind="stable")[:most].astype(np.int32)
