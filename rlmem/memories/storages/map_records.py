"""The records of a GWR map and the invariants that hold between them."""

from typing import NamedTuple

import numpy as np

_I4, _F4, _U1 = np.int32, np.float32, np.uint8
NODE = np.dtype(
    [
        *(("habituation", _F4), ("firings", _I4), ("merges", _I4)),  # best match; took a sample in
        *(("link", _I4), ("out", _I4), ("into", _I4)),  # heads of its three lists
    ]
)
HALF = np.dtype([("node", _I4), ("next", _I4), ("prev", _I4), ("age", _I4)])
EDGE = np.dtype(
    [
        *(("source", _I4), ("target", _I4), ("action", _I4), ("reward", _F4), ("count", _I4)),
        *(("steps", _U1), ("terminated", _U1), ("truncated", _U1), ("dirty", _U1)),
        *(("out_next", _I4), ("out_prev", _I4), ("in_next", _I4), ("in_prev", _I4)),
    ]
)
# Places in `book`: live records, records ever used (high-water mark), head of the free list; the
# logs' lengths; presentations so far.
NODES, NODE_MARK, NODE_FREE = 0, 1, 2
LINKS, LINK_MARK, LINK_FREE = 3, 4, 5
EDGES, EDGE_MARK, EDGE_FREE, TOUCHED, CLOCK, REMOVED = 6, 7, 8, 9, 10, 11
GONE, LIVE, LIVE_CHANGED = 0, 1, 2  # `alive` of a node; the last only while a block is walked
PASSED, MADE = 1, 2  # `dirty` of an edge since the last drain
UNSEEN = -1  # `terminal` of a node that no observation has come to yet
HEAD = 32  # coordinates that the search reads of every node
CHUNK = 32  # observations embedded at once: 32 Atari stacks are 3.6 MB of float32
TILE = 64  # nodes whose first coordinates stay in the nearest cache while a block is measured
_BLOCK, _CANDIDATES, _CHANGED = 8, 1024, 1024
CHANGED, RESCANS = 0, 1  # places in `search.state`
FOUND = np.dtype([("distance", np.float64), ("node", np.int64)])


class MapArrays(NamedTuple):
    """The arrays of a map, rows flattened, as the kernels take them.

    The key of a node, its place in the space of distances, is the column of `heads` and then the
    row of `tails`: a search reads the first coordinates of all nodes and few of the others.
    """

    prototypes: np.ndarray  # uint8 or float32 [capacity, P]; [0, P] where none are held as such
    heads: np.ndarray  # float32 [min(d, HEAD), capacity]
    tails: np.ndarray  # float32 [capacity, the other coordinates]
    contexts: np.ndarray  # float32 [capacity * K, d]
    alive: np.ndarray  # uint8 [capacity]
    nodes: np.ndarray  # NODE [capacity]
    terminal: np.ndarray  # int8 [capacity], whether each visit was terminal; [0] if not kept
    stamps: np.ndarray  # int64 [capacity], when a node was last visited; [0] if not kept
    halves: np.ndarray  # HALF [2 * links]
    edges: np.ndarray  # EDGE [edges]
    actions: np.ndarray  # float32 [edges, A], continuous actions; A is 0 for discrete ones
    touched: np.ndarray  # int32 [edges], edges whose count changed since the last drain
    removed: np.ndarray  # int32 [nodes], removed since the exemplars were seen to; [0] if none
    book: np.ndarray  # int64 [12]
    limits: np.ndarray  # int64 [3], most live nodes, links and edges for now


class SearchArrays(NamedTuple):
    """Work space of the block search; nothing in it outlives a call of `walk` but `state`."""

    born: np.ndarray  # int64 [chunk], node that an observation made, -1: none
    found: np.ndarray  # FOUND [block, 2], best and second best
    candidates: np.ndarray  # int32 [block, ...], nodes that may be one of the two
    counts: np.ndarray  # int64 [block], how many
    bounds: np.ndarray  # float32 [block], squared distance up to which they are listed
    changed: np.ndarray  # int32 [...], nodes that moved or came since the block began
    gaps: np.ndarray  # float32 [tile]
    state: np.ndarray  # int64 [2]


def empty_search() -> SearchArrays:
    """Work space for chunks of CHUNK observations."""
    return SearchArrays(
        born=np.empty(CHUNK, np.int64),
        found=np.empty((_BLOCK, 2), FOUND),
        candidates=np.empty((_BLOCK, _CANDIDATES), np.int32),
        counts=np.empty(_BLOCK, np.int64),
        bounds=np.empty(_BLOCK, np.float32),
        changed=np.empty(_CHANGED, np.int32),
        gaps=np.empty(TILE, np.float32),
        state=np.array([-1, 0]),
    )


def columns(name: str, records: np.ndarray) -> dict[str, np.ndarray]:
    """Views of the fields of records, for a flat state: "name.field" -> [n]."""
    return {f"{name}.{field}": records[field] for field in records.dtype.names or ()}


def check_map(m: MapArrays) -> None:
    """Assert that lists, counts, ages and free lists agree: O(nodes + links + edges)."""
    nodes, halves = m.nodes[: m.book[NODE_MARK]], m.halves[: 2 * m.book[LINK_MARK]]
    edges = m.edges[: m.book[EDGE_MARK]]
    alive = m.alive[: len(nodes)].astype(bool)
    _check_free(m, "node", nodes["link"], ~alive, NODES, NODE_FREE)
    taken = halves["node"] >= 0
    assert np.array_equal(taken[::2], taken[1::2]), "half a link is free"
    _check_free(m, "link", halves["next"][::2] // 2, ~taken[::2], LINKS, LINK_FREE)
    _check_free(m, "edge", edges["out_next"], edges["count"] == 0, EDGES, EDGE_FREE)
    assert (edges["count"] >= 0).all(), "an edge has a negative count"

    assert m.book[NODES] <= len(m.alive), "more nodes than the capacity"
    assert (m.alive <= LIVE).all(), "a block was not closed"
    assert np.isfinite(m.heads[:, : len(nodes)][:, alive]).all(), "a key is not finite"
    assert np.isfinite(m.tails[: len(nodes)][alive]).all(), "a key is not finite"
    habituation = nodes["habituation"][alive]
    assert ((habituation > 0) & (habituation <= 1)).all(), "a habituation is outside (0, 1]"
    assert (nodes["merges"][alive] <= nodes["firings"][alive]).all(), "more merges than firings"
    _check_links(nodes, halves, alive)
    _check_edges(nodes, edges, alive, by_target=len(m.terminal) > 0)

    touched = m.touched[: m.book[TOUCHED]]
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


def _check_edges(nodes: np.ndarray, edges: np.ndarray, alive: np.ndarray, by_target: bool) -> None:
    live = edges["count"] > 0
    for end in ("source", "target"):
        assert alive[edges[end][live]].all(), f"an edge's {end} is a removed node"
    assert (edges["steps"][live] >= 1).all(), "an edge spans no step"
    key = ["source", "target"]
    key += [] if by_target else ["action", "terminated", "truncated", "steps"]
    keys = np.stack([edges[name][live].astype(np.int64) for name in key])
    assert np.unique(keys, axis=1).shape == keys.shape, "two edges have one key"
    _check_list(nodes, alive, "out", edges["out_next"], edges["out_prev"], edges["source"], live)
    _check_list(nodes, alive, "into", edges["in_next"], edges["in_prev"], edges["target"], live)
