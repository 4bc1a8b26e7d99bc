"""The invariants that hold between the records of a GWR map."""

import numpy as np

from rlmem.memories.gwr.records import BOOK, GONE, LIVE, MapArrays, first_coordinates


def check_map(m: MapArrays) -> None:
    """Assert that lists, counts, ages and free lists agree: O(nodes + links + edges)."""
    nodes, halves = m.nodes[: m.book[BOOK.node_mark]], m.halves[: 2 * m.book[BOOK.link_mark]]
    edges = m.edges[: m.book[BOOK.edge_mark]]
    alive = m.alive[: len(nodes)]
    _check_free(m, "node", nodes["link"], alive == GONE, BOOK.nodes, BOOK.node_free)
    taken = halves["node"] >= 0
    assert np.array_equal(taken[::2], taken[1::2]), "half a link is free"
    _check_free(m, "link", halves["next"][::2] // 2, ~taken[::2], BOOK.links, BOOK.link_free)
    _check_free(m, "edge", edges["out_next"], edges["count"] == 0, BOOK.edges, BOOK.edge_free)
    assert (edges["count"] >= 0).all(), "an edge has a negative count"

    marks = m.book[[BOOK.node_mark, BOOK.link_mark, BOOK.edge_mark]]
    assert (marks <= [len(m.alive), len(m.halves) // 2, len(m.edges)]).all(), "no such records"
    assert m.limits[0] <= len(m.alive), "more nodes than the capacity"
    assert (alive <= LIVE).all(), "a block was not closed"
    live = alive == LIVE
    depth, dims = len(m.contexts) // len(m.alive), m.contexts.shape[1]
    contexts = m.contexts[: len(nodes) * depth].reshape(len(nodes), depth * dims)
    for place in (first_coordinates(m, np.arange(len(nodes))), m.tails[: len(nodes)], contexts):
        assert np.isfinite(place[live]).all(), "a key or context is not finite"
    habituation = nodes["habituation"][live]
    assert ((habituation > 0) & (habituation <= 1)).all(), "a habituation is outside (0, 1]"
    counts = nodes["merges"][live], nodes["firings"][live]
    assert (counts[0] >= 0).all(), "merges are negative"
    assert (counts[0] <= counts[1]).all(), "more merges than firings"
    if len(m.terminal):
        assert np.isin(m.terminal[: len(nodes)][live], (0, 1)).all(), "a node was never visited"
    if len(m.stamps):
        stamps = m.stamps[: len(nodes)][live]
        assert ((stamps > 0) & (stamps <= m.book[BOOK.clock])).all(), "a visit is not of the past"
        assert len(np.unique(stamps)) == len(stamps), "two nodes were visited at once"
    assert m.book[BOOK.removed] == 0 or not len(m.removed), "exemplars of removed nodes are held"
    _check_links(nodes, halves, live)
    _check_edges(nodes, edges, live, by_nodes=len(m.terminal) > 0)
    held = edges["count"] > 0
    assert np.isfinite(edges["reward"][held]).all(), "a reward is not finite"
    assert np.isfinite(m.actions[: len(edges)][held]).all(), "an action is not finite"

    touched = m.touched[: m.book[BOOK.touched]]
    assert len(np.unique(touched)) == len(touched), "the log names an edge twice"
    assert np.array_equal(np.sort(touched), np.flatnonzero(edges["dirty"])), "log and marks differ"


def _check_free(
    m: MapArrays, name: str, pointers: np.ndarray, free: np.ndarray, live: int, head: int
) -> None:
    # A free link is named by its even half-edge.
    first = int(m.book[head]) // (2 if name == "link" else 1)
    seen = _chain(pointers, first, f"the free list of {name}s")
    assert sorted(seen) == np.flatnonzero(free).tolist(), f"{name}: free list and marks differ"
    assert len(free) - len(seen) == m.book[live], f"{name}: the count is wrong"


def _chain(pointers: np.ndarray, head: int, name: str) -> list[int]:
    following, seen = pointers.tolist(), []
    while head >= 0:
        assert len(seen) < len(following), f"{name} runs in a circle"
        seen.append(head)
        head = following[head]
    return seen


def _check_list(
    nodes: np.ndarray,
    alive: np.ndarray,
    head: str,
    following: np.ndarray,
    previous: np.ndarray,
    owner: np.ndarray,
    live: np.ndarray,
) -> None:
    """Each live record stands once in the list of its owner, linked both ways."""
    following, previous = following.tolist(), previous.tolist()
    owners, count = owner.tolist(), 0
    for node in np.flatnonzero(alive).tolist():
        before, at = -1, int(nodes[head][node])
        while at >= 0:
            assert live[at], f"list {head} of node {node} holds a free record"
            assert owners[at] == node, f"list {head} of node {node} holds another's record"
            assert previous[at] == before, f"list {head} of node {node} is not linked back"
            before, at, count = at, following[at], count + 1
            assert count <= len(live), f"list {head} of node {node} runs in a circle"
    assert count == np.count_nonzero(live), f"a record is missing in the lists {head}"


def _check_links(nodes: np.ndarray, halves: np.ndarray, alive: np.ndarray) -> None:
    live = halves["node"] >= 0
    twins = halves.reshape(-1, 2)[:, ::-1].reshape(-1)
    assert alive[halves["node"][live]].all(), "a link leads to a removed node"
    assert (halves["node"] != twins["node"])[live].all(), "a node is linked to itself"
    assert (halves["age"] == twins["age"])[live].all(), "a link's halves differ in age"
    assert (halves["age"][live] >= 0).all(), "an age is negative"
    pairs = np.stack([twins["node"][live], halves["node"][live]])
    assert np.unique(pairs, axis=1).shape == pairs.shape, "two nodes are linked twice"
    _check_list(nodes, alive, "link", halves["next"], halves["prev"], twins["node"], live)


def _check_edges(nodes: np.ndarray, edges: np.ndarray, alive: np.ndarray, by_nodes: bool) -> None:
    live = edges["count"] > 0
    for end in ("source", "target"):
        assert alive[edges[end][live]].all(), f"an edge's {end} is a removed node"
    assert (edges["steps"][live] >= 1).all(), "an edge spans no step"
    key = ["source", "target"]
    key += [] if by_nodes else ["action", "terminated", "truncated", "steps"]
    keys = np.stack([edges[name][live].astype(np.int64) for name in key])
    assert np.unique(keys, axis=1).shape == keys.shape, "two edges have one key"
    _check_list(nodes, alive, "out", edges["out_next"], edges["out_prev"], edges["source"], live)
    _check_list(nodes, alive, "into", edges["in_next"], edges["in_prev"], edges["target"], live)
