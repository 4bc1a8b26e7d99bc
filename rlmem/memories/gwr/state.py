"""A GWR map as a flat state and back."""

from typing import Any

import numpy as np

from rlmem.errors import UserError
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import array_of
from rlmem.memories.gwr.checks import check_map
from rlmem.memories.gwr.exemplars import ExemplarStore
from rlmem.memories.gwr.records import BOOK, MADE, MOST_RECORDS, PASSED, TILE, MapArrays, columns

FORMAT = 4  # of a saved map
_BY_NODE = ("prototypes", "tails", "contexts", "alive", "terminal", "stamps")
_HINT = (
    ": give the observation, actions, memory.embedding, memory.contexts, memory.prototype, "
    "memory.terminals and memory.eviction it had"
)


def read_map(m: MapArrays, exemplars: ExemplarStore | None) -> State:
    """Views of the used parts; records go field by field ("edges.reward")."""
    nodes, edges = int(m.book[BOOK.node_mark]), int(m.book[BOOK.edge_mark])
    depth = len(m.contexts) // len(m.alive)
    state: dict[str, Any] = {
        "format": FORMAT,
        "prototypes": m.prototypes[:nodes],
        "heads": m.heads[: -(-nodes // TILE)],
        "tails": m.tails[:nodes],
        "contexts": m.contexts[: nodes * depth],
        "alive": m.alive[:nodes],
        "terminal": m.terminal[:nodes],
        "stamps": m.stamps[:nodes],
        "actions": m.actions[:edges],
        "book": m.book,
    }
    state |= columns("nodes", m.nodes[:nodes])
    state |= columns("halves", m.halves[: 2 * int(m.book[BOOK.link_mark])])
    state |= columns("edges", m.edges[:edges])
    if exemplars is not None:
        state |= exemplars.state_views(nodes)
    return state


def check_state(state: State, m: MapArrays, exemplars: ExemplarStore | None) -> None:
    """Refuse a state that does not fit.

    Raises:
        UserError: it is of a map of other shapes, with more nodes, or of an earlier version.
        ValueError: it is damaged.
    """
    if state.get("format") != FORMAT:
        raise UserError("the saved map is of another version of rlmem; train it anew")
    book, capacity = array_of(state, "book", m.book.dtype, m.book.shape, "map"), len(m.alive)
    nodes, links, edges = (
        int(book[mark]) for mark in (BOOK.node_mark, BOOK.link_mark, BOOK.edge_mark)
    )
    if min(nodes, links, edges) < 0 or max(links, edges) > MOST_RECORDS:
        raise ValueError("the saved map is damaged: its book is not one of a map")
    if nodes > capacity:
        raise UserError(
            f"memory.capacity={capacity}: the saved map has {nodes} nodes; use {nodes} or more"
        )
    for name in _BY_NODE:
        own = getattr(m, name)
        shape = (nodes * (len(own) // capacity), *own.shape[1:])
        array_of(state, name, own.dtype, shape, "map", _HINT)
    for name, rows in (("heads", -(-nodes // TILE)), ("actions", edges)):
        own = getattr(m, name)
        array_of(state, name, own.dtype, (rows, *own.shape[1:]), "map", _HINT)
    for name, rows in (("nodes", nodes), ("halves", 2 * links), ("edges", edges)):
        for field, own in columns(name, getattr(m, name)[:0]).items():
            array_of(state, field, own.dtype, (rows,), "map")
    if ("exemplars.blobs" in state) != (exemplars is not None):
        raise UserError("memory.prototype: the saved map has the other kind")
    if nodes:
        _check_whole(state, m, nodes, 2 * links, edges)
    if exemplars is not None:
        exemplars.check_state(state, nodes)
        if not np.array_equal(state["exemplars.blobs"]["size"] != 0, state["alive"] != 0):
            raise ValueError("the saved map is damaged: nodes without exemplars, or the reverse")


def _check_whole(state: State, m: MapArrays, nodes: int, halves: int, edges: int) -> None:
    """Refuse records that do not hang together: compiled loops follow their indices unchecked.

    Raises:
        ValueError: says what is wrong.
    """
    records = {"nodes": nodes, "halves": halves, "edges": edges}
    made: dict[str, Any] = {}
    for name, size in records.items():
        made[name] = np.zeros(size, getattr(m, name).dtype)
    for name, array in made.items():
        for field, column in columns(name, array).items():
            column[:] = state[field]
    book, limits = np.array(state["book"]), np.array(m.limits)
    book[BOOK.touched], book[BOOK.removed] = edges, 0
    limits[0] = min(limits[0], nodes)
    made["edges"]["dirty"] = PASSED
    plain = {name: np.asarray(state[name]) for name in (*_BY_NODE, "heads", "actions")}
    saved = m._replace(**plain, **made, book=book, limits=limits, touched=np.arange(edges))
    try:
        check_map(saved)
    except (AssertionError, IndexError) as error:
        raise ValueError(f"the saved map is damaged: {error or 'no such record'}") from None


def fill_map(state: State, m: MapArrays, exemplars: ExemplarStore | None) -> None:
    """Enter a state into an empty map that has room; all its edges count as touched, and those that
    were made since the last drain as made."""
    book = np.array(state["book"])
    nodes, halves, edges = (
        int(book[BOOK.node_mark]),
        2 * int(book[BOOK.link_mark]),
        int(book[BOOK.edge_mark]),
    )
    for name in _BY_NODE:
        getattr(m, name)[: len(state[name])] = state[name]
    m.heads[: len(state["heads"])] = state["heads"]
    m.actions[:edges] = state["actions"]
    for name, size in (("nodes", nodes), ("halves", halves), ("edges", edges)):
        for field, column in columns(name, getattr(m, name)[:size]).items():
            column[:] = state[field]
    if exemplars is not None:
        exemplars.take_over(state)
    m.book[:] = book
    dirty = m.edges["dirty"][:edges]
    dirty[dirty != MADE] = PASSED
    m.touched[:edges] = np.arange(edges)
    m.book[BOOK.touched] = edges
