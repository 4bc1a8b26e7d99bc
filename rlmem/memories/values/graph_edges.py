"""The lists of a graph memory's edges in numba, and who makes room where it is full.

In the signatures `g` is a `GraphArrays`, `rule` a `Rule`; `graph_records` says how they hang
together.
"""

from typing import Any

import numpy as np
from numba import njit

from rlmem.memories.values.graph_records import FREE, MARK, NODES

# For numba's cache: tests/memories/test_compiled_with.py says why, and what to write here.
COMPILED_WITH = {"graph_records": "1139d2018442"}


@njit(cache=True)
def _leave_list(g, edge):
    """Take an edge out of the list of the node that it enters."""
    e = g.edges[edge]
    node = g.nodes[e.target]
    if node.into == edge:
        node.into = e.next_in
    else:
        before = node.into
        while g.edges[before].next_in != edge:
            before = g.edges[before].next_in
        g.edges[before].next_in = e.next_in
    node.ins -= 1


@njit(cache=True)
def drop_out_edges(g: Any, node: int) -> None:
    """Forget the edges that leave a node."""
    edge = g.nodes[node].out
    while edge >= 0:
        following = g.edges[edge].next_out
        _leave_list(g, edge)
        g.edges[edge].source = -1
        g.edges[edge].next_out = g.book[FREE]
        g.book[FREE] = edge
        edge = following
    g.nodes[node].out, g.nodes[node].outs = -1, 0


@njit(cache=True)
def drop_in_edges(g: Any, node: int) -> None:
    """Forget the edges that enter a node."""
    while g.nodes[node].into >= 0:
        edge = g.nodes[node].into
        source = g.nodes[g.edges[edge].source]
        if source.out == edge:
            source.out = g.edges[edge].next_out
        else:
            before = source.out
            while g.edges[before].next_out != edge:
                before = g.edges[before].next_out
            g.edges[before].next_out = g.edges[edge].next_out
        source.outs -= 1
        _leave_list(g, edge)
        g.edges[edge].source = -1
        g.edges[edge].next_out = g.book[FREE]
        g.book[FREE] = edge


@njit(cache=True)
def _oldest_with_edges(g, spared):
    """The least recently used node but one, among those that edges leave."""
    oldest = -1
    for i in range(g.book[NODES]):
        fits = i != spared and g.nodes[i].out >= 0
        if fits and (oldest < 0 or g.nodes[i].used < g.nodes[oldest].used):
            oldest = i
    return oldest


@njit(cache=True)
def oldest_node(g: Any, spared: int) -> int:
    """The least recently used node but one.

    All nodes are sorted once for many that go: until one of them is used, those that were the
    oldest then stay so, in this order, as what is used gets a later time than all.
    """
    while True:
        while g.turn[0] < g.turn[1]:
            slot, used = g.oldest[g.turn[0]]
            g.turn[0] += 1
            if g.nodes[slot].used == used and slot != spared:
                return slot
        used = np.empty(g.book[NODES], np.int64)
        for i in range(used.shape[0]):
            used[i] = g.nodes[i].used
        order = np.argsort(used, kind="mergesort")  # of equals the lowest slot
        g.turn[0], g.turn[1] = 0, g.oldest.shape[0]
        for n in range(g.oldest.shape[0]):
            g.oldest[n, 0], g.oldest[n, 1] = order[n], used[order[n]]


@njit(cache=True)
def find_edge(g: Any, rule: Any, source: int, action: int, target: int) -> int:
    """The edge of a step; -1: there is none."""
    edge = g.nodes[source].out
    while edge >= 0:
        e = g.edges[edge]
        if e.target == target and (rule.pairs or e.action == action):
            return edge
        edge = e.next_out
    return -1


@njit(cache=True)
def make_edge(g: Any, source: int, target: int) -> int:
    """An edge without visits, at the end of its node's list; where none is free, the least recently
    used other node loses those that leave it."""
    if g.book[FREE] < 0 and g.book[MARK] == g.edges.shape[0]:
        drop_out_edges(g, _oldest_with_edges(g, source))
    edge = g.book[FREE]
    if edge >= 0:
        g.book[FREE] = g.edges[edge].next_out
    else:
        edge = g.book[MARK]
        g.book[MARK] += 1
    e = g.edges[edge]
    e.source, e.target, e.next_out, e.visits = source, target, -1, 0
    if g.nodes[source].out < 0:
        g.nodes[source].out = edge
    else:
        last = g.nodes[source].out
        while g.edges[last].next_out >= 0:
            last = g.edges[last].next_out
        g.edges[last].next_out = edge
    e.next_in = g.nodes[target].into
    g.nodes[target].into = edge
    g.nodes[source].outs += 1
    g.nodes[target].ins += 1
    return edge
