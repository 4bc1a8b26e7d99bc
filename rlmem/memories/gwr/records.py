"""The records of a GWR map, its arrays, and the work space of its search."""

from collections import namedtuple
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rlmem.memories.base.lazy import give_back_all, lazy_zeros

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
# Places in `book`: of each kind of record the live ones, those ever used (high-water mark) and the
# head of the free list; the logs' lengths; presentations so far.
BOOK = namedtuple(
    "BOOK",
    "nodes node_mark node_free links link_mark link_free edges edge_mark edge_free "
    "touched clock removed",
)(*range(12))
GONE, LIVE, LIVE_CHANGED = 0, 1, 2  # `alive` of a node; the last only while a block is walked
PASSED, MADE = 1, 2  # `dirty` of an edge since the last drain
UNSEEN = -1  # `terminal` of a node that no observation has come to yet
MOST_RECORDS = 2**30  # of a kind: positions are int32, those of half-links too
ENDLESS = 2**62  # insertions, where nothing limits them
HEAD = 32  # coordinates that the search reads of every node
CHUNK = 32  # observations embedded at once: 32 Atari stacks are 3.6 MB of float32
TILE = 256  # nodes whose first coordinates stay in the nearest cache while a block is measured
_FIRST_RECORDS = 1024
_BLOCK, _CANDIDATES, _CHANGED = 8, 1024, 1024
CHANGED, RESCANS = 0, 1  # places in `search.state`
FOUND = np.dtype([("distance", np.float64), ("node", np.int64)])


class MapArrays(NamedTuple):
    """The arrays of a map, rows flattened, as the kernels take them.

    The key of a node, its place in the space of distances, is a column of `heads` (of the tile
    node // TILE, column node % TILE) and then a row of `tails`: a search reads the first
    coordinates of all nodes and few of the others.
    """

    prototypes: np.ndarray  # uint8 or float32 [capacity, P]; [0, P] where none are held as such
    heads: np.ndarray  # float32 [tiles, min(d, HEAD), TILE]
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
    limits: np.ndarray  # int64 [4], most live nodes, links and edges for now; insertions left


@dataclass(frozen=True, kw_only=True)
class MapOptions:
    """What the nodes of a map hold, and what it does when it is full.

    Attributes:
        contexts: K, context vectors a node (0: none, the paper: 4).
        prototype: "moving": the average of what a node took in; "exemplar": its first observation,
            for uint8 compressed without loss.
        node_terminals: a node is terminal while each of its visits was, and an edge is known by
            its nodes alone, the newest action and reward dominating (the released code).
        evict: a full map lets go of the node that has gone longest without a visit; False: it
            takes no more nodes.
        budget: bytes that the memory may take, so that no address space is asked for beyond them.
    """

    contexts: int = 0
    prototype: str = "moving"
    node_terminals: bool = False
    evict: bool = False
    budget: int | None = None


def empty_map(
    capacity: int,
    dims: int,
    prototypes: tuple[int, int],
    dtype: np.dtype,
    action_dims: int,
    options: MapOptions,
    *,
    removed: bool,
) -> MapArrays:
    """The arrays of a map without nodes.

    Args:
        capacity: most nodes.
        dims: of the keys and of each of the context vectors.
        prototypes: how many are held as such, and of how many values of `dtype`.
        removed: whether removed nodes are listed.
    """
    width = min(HEAD, dims)
    m = MapArrays(
        prototypes=lazy_zeros(prototypes, dtype, huge=True),
        heads=lazy_zeros((-(-capacity // TILE), width, TILE), _F4),
        tails=lazy_zeros((capacity, dims - width), _F4),
        contexts=lazy_zeros((capacity * options.contexts, dims), _F4),
        alive=lazy_zeros((capacity,), _U1),
        nodes=lazy_zeros((capacity,), NODE),
        terminal=lazy_zeros((capacity if options.node_terminals else 0,), np.int8),
        stamps=lazy_zeros((capacity if options.evict else 0,), np.int64),
        halves=np.empty(2 * _FIRST_RECORDS, HALF),
        edges=np.empty(_FIRST_RECORDS, EDGE),
        actions=np.empty((_FIRST_RECORDS, action_dims), _F4),
        touched=np.empty(_FIRST_RECORDS, _I4),
        removed=lazy_zeros((capacity + CHUNK if removed else 0,), _I4),
        book=np.empty(12, np.int64),
        limits=np.array([capacity, MOST_RECORDS, MOST_RECORDS, ENDLESS]),
    )
    clear(m)
    return m


def first_coordinates(m: MapArrays, nodes: np.ndarray) -> np.ndarray:
    """Those that a search reads of every node: of the nodes int [n], float32 [n, min(d, HEAD)]."""
    return m.heads[nodes // TILE, :, nodes % TILE]


def clear(m: MapArrays) -> None:
    """Set the book of a map without nodes, links and edges."""
    m.book[:] = 0
    m.book[[BOOK.node_free, BOOK.link_free, BOOK.edge_free]] = -1


def cleared(m: MapArrays) -> MapArrays:
    """The map without nodes, links and edges; what they took goes back to the system."""
    for array in m:
        give_back_all(array)
    grown = {name: np.empty(0, getattr(m, name).dtype) for name in ("halves", "edges", "touched")}
    m = m._replace(**grown, actions=np.empty((0, m.actions.shape[1]), m.actions.dtype))
    clear(m)
    return reserve(m, _FIRST_RECORDS, _FIRST_RECORDS)


def reserve(m: MapArrays, links: int, edges: int) -> MapArrays:
    """The map with room for so many more links and edges: existing positions stay."""
    missing = links - (len(m.halves) // 2 - int(m.book[BOOK.links]))
    if missing > 0:
        size = 2 * (len(m.halves) // 2 + max(missing, len(m.halves) // 4))
        m = m._replace(halves=_grown(m.halves, size, 2 * int(m.book[BOOK.link_mark])))
    missing = edges - (len(m.edges) - int(m.book[BOOK.edges]))
    if missing > 0:
        size = len(m.edges) + max(missing, len(m.edges) // 2)
        m = m._replace(
            edges=_grown(m.edges, size, int(m.book[BOOK.edge_mark])),
            actions=_grown(m.actions, size, int(m.book[BOOK.edge_mark])),
            touched=_grown(m.touched, size, int(m.book[BOOK.touched])),
        )
    return m


def _grown(array: np.ndarray, size: int, used: int) -> np.ndarray:
    grown = lazy_zeros((size, *array.shape[1:]), array.dtype)  # the room to grow takes no memory
    grown[:used] = array[:used]
    return grown


class Shown(NamedTuple):
    """Observations as the kernels present them to a map."""

    events: np.ndarray  # EVENT [M], one an observation
    actions: np.ndarray  # float32 [M, A]
    x: np.ndarray  # observations [M, P] in the prototypes' dtype
    z: np.ndarray  # their embeddings, float32 [M, d]


class SearchArrays(NamedTuple):
    """Work space of the block search; nothing in it outlives a call of `walk` but `state`."""

    born: np.ndarray  # int64 [chunk], node that an observation made, -1: none
    found: np.ndarray  # FOUND [block, 2], best and second best
    candidates: np.ndarray  # int32 [block, ...], nodes that may be one of the two
    near: np.ndarray  # float32, as candidates: squared gaps of their keys
    counts: np.ndarray  # int64 [block], how many
    bounds: np.ndarray  # float32 [block], squared distance up to which they are listed
    changed: np.ndarray  # int32 [...], nodes that moved or came since the block began
    gaps: np.ndarray  # float32 [tile]
    state: np.ndarray  # int64 [2]


def empty_search(
    block: int = _BLOCK, candidates: int = _CANDIDATES, changed: int = _CHANGED
) -> SearchArrays:
    """Work space for chunks of CHUNK observations, `block` of which are measured at once.

    Args:
        candidates: most nodes listed for an observation, changed: and for a block; with more, all
            nodes are looked through.
    """
    return SearchArrays(
        born=np.empty(CHUNK, np.int64),
        found=np.empty((block, 2), FOUND),
        candidates=np.empty((block, candidates), np.int32),
        near=np.empty((block, candidates), np.float32),
        counts=np.empty(block, np.int64),
        bounds=np.empty(block, np.float32),
        changed=np.empty(changed, np.int32),
        gaps=np.empty(TILE, np.float32),
        state=np.array([-1, 0]),
    )


def columns(name: str, records: np.ndarray) -> dict[str, np.ndarray]:
    """Views of the fields of records, for a flat state: "name.field" -> [n]."""
    return {f"{name}.{field}": records[field] for field in records.dtype.names or ()}
