"""The steps of GWR-R in numba: what an observation does to a map.

In the signatures `m` is a `MapArrays`, `streams` a `StreamArrays`, `rule` a `Rule`, `search` a
`SearchArrays`, `shown` a `Shown`.
"""

import numpy as np
from numba import njit

from rlmem.memories.gwr.adapt import adapt
from rlmem.memories.gwr.lists import add_link, find_link, remove_link, remove_node, visit_edge
from rlmem.memories.gwr.records import BOOK, CHANGED, GONE, LIVE, TILE, UNSEEN, Shown
from rlmem.memories.gwr.search import close_block, contexts_of, mark_changed, nearest, sweep

# For numba's cache: tests/memories/test_compiled_with.py says why, and what to write here.
COMPILED_WITH = {
    "adapt": "89f2c5f8824d",
    "lists": "7aabc888734b",
    "records": "9eeed3e75ef1",
    "search": "51d78e284685",
}


@njit(cache=True)
def _insert(m, search, shown, contexts, row):
    """Make a node of a sample; there is room. Returns its position."""
    node = m.book[BOOK.node_free]
    if node >= 0:  # free nodes are listed through their link pointers
        m.book[BOOK.node_free] = m.nodes[node].link
    else:
        node = m.book[BOOK.node_mark]
        m.book[BOOK.node_mark] += 1
    m.book[BOOK.nodes] += 1
    m.limits[3] -= 1
    m.alive[node] = LIVE
    n = m.nodes[node]
    n.habituation, n.firings, n.merges = 1.0, 0, 0
    n.link, n.out, n.into = -1, -1, -1
    width = m.heads.shape[1]
    for k in range(width):
        m.heads[node // TILE, k, node % TILE] = shown.z[row, k]
    for k in range(m.tails.shape[1]):
        m.tails[node, k] = shown.z[row, width + k]
    if m.prototypes.shape[0] > 0:  # else the key is the prototype, or it is kept compressed
        m.prototypes[node] = shown.x[row]
    if m.terminal.shape[0] > 0:
        m.terminal[node] = UNSEEN
    depth = contexts.shape[0]
    m.contexts[node * depth : (node + 1) * depth] = contexts
    search.born[row] = node
    # What the block's sweep found knows nothing of it: it counts as changed.
    mark_changed(m, search, node)
    return node


@njit(cache=True)
def _forget(streams, node):
    """No stream points at a removed node: edges from it are not made, and a chain breaks off."""
    for env in range(streams.last.shape[0]):
        if streams.last[env] == node:
            streams.last[env] = -1
        for k in range(streams.waiting[env]):
            if streams.pending[env, k].node == node:
                streams.pending[env, k].node = -1


@njit(cache=True)
def _age_links(m, streams, b, max_age):
    """Age the links of b; those past max_age go, and neighbours that are left without any."""
    half = m.nodes[b].link
    # Before each turn: all links of b before `half` have aged, `half` and those after have not.
    while half >= 0:
        following = m.halves[half].next  # read first: a removed half's pointer is the free list's
        age = m.halves[half].age + 1
        if age > max_age:
            neighbour = m.halves[half].node
            remove_link(m, half)
            # A neighbour without links stands in no list of b's: `following` stays what it is.
            if m.nodes[neighbour].link < 0:
                remove_node(m, neighbour)
                _forget(streams, neighbour)
        else:
            m.halves[half].age = age
            m.halves[half ^ 1].age = age
        half = following


@njit(cache=True)
def _evict(m, streams, b, s):
    """Make room: the node that has gone longest without a visit goes, but neither b nor s."""
    oldest = -1  # always there: the map has more than two nodes
    for node in range(m.book[BOOK.node_mark]):
        if m.alive[node] == GONE or node in (b, s):
            continue
        if oldest < 0 or m.stamps[node] < m.stamps[oldest]:
            oldest = node
    remove_node(m, oldest)
    _forget(streams, oldest)


@njit(cache=True)
def _room(m, streams, rule, b, s):
    """Whether a node can be inserted, after an eviction where the map evicts."""
    links = 2 if rule.links else 0
    full = m.book[BOOK.nodes] >= m.limits[0] or m.limits[3] <= 0
    if rule.evict and full and m.book[BOOK.nodes] > 2:
        _evict(m, streams, b, s)
    return (
        m.book[BOOK.nodes] < m.limits[0]
        and m.limits[3] > 0
        and m.book[BOOK.links] + links <= m.limits[1]
    )


@njit(cache=True)
def _present(m, streams, rule, search, shown, contexts, row, base):
    """Insert a sample or merge it; returns its node."""
    if m.book[BOOK.nodes] < 2:  # a best and a second-best node are needed first
        return _insert(m, search, shown, contexts, row)
    b, s, distance = nearest(m, streams, shown, rule.alphas, search, row, base)
    node = b
    m.nodes[b].firings += 1
    # An eviction in `_room` spares b and s, so that this half-edge holds until it is used.
    half = find_link(m, b, s) if rule.links else -1
    if (
        np.exp(-distance / rule.scale) < rule.activation_threshold
        and m.nodes[b].habituation <= rule.habituation_threshold
        and _room(m, streams, rule, b, s)
    ):
        # b is far although it is trained: a node comes between b and s.
        node = _insert(m, search, shown, contexts, row)
        if half >= 0:
            remove_link(m, half)
        if rule.links:
            add_link(m, b, node)
            add_link(m, s, node)
    else:
        m.nodes[b].merges += 1
        if half >= 0:
            m.halves[half].age = 0
            m.halves[half ^ 1].age = 0
        elif rule.links and m.book[BOOK.links] < m.limits[1]:
            add_link(m, b, s)
        adapt(m, streams, rule, search, shown, row, b, True)
        half = m.nodes[b].link
        while half >= 0:  # no list changes while its nodes move
            adapt(m, streams, rule, search, shown, row, m.halves[half].node, False)
            half = m.halves[half].next
    if rule.links:
        _age_links(m, streams, b, rule.max_age)
    return node


@njit(cache=True)
def _follow(m, contexts, node, beta):
    """Global contexts after a step: C_k = beta c_k + (1 - beta) c_{k-1}, with c_0 = w."""
    depth, width = contexts.shape[0], m.heads.shape[1]
    # The node's own vectors are read, the stream's written: no order of k would matter.
    for k in range(depth):
        for j in range(contexts.shape[1]):
            if k > 0:  # c_0 is the key, which stands in two arrays
                below = m.contexts[node * depth + k - 1, j]
            elif j < width:
                below = m.heads[node // TILE, j, node % TILE]
            else:
                below = m.tails[node, j - width]
            contexts[k, j] = beta * m.contexts[node * depth + k, j] + (1.0 - beta) * below


@njit(cache=True)
def _finish(m, streams, rule, env, due, node, terminated, truncated, index):
    """Make edges of the `due` oldest that wait in an env; they lead to `node`."""
    pending, waiting = streams.pending[env], streams.waiting[env]
    for k in range(due):
        if pending[k].node >= 0:  # its source was not removed meanwhile
            edge = visit_edge(
                m, pending[k].node, node, pending[k], streams.actions[env, k],
                terminated, truncated, rule,
            )  # fmt: skip
            if edge >= 0 and m.edges[edge].count == 1:
                # Perhaps at a removed edge's position: rows of this block that name it mean that.
                for row in range(index.shape[0]):
                    if index[row] == edge:
                        index[row] = -1
            if pending[k].row >= 0:  # else its row was of an earlier block
                index[pending[k].row] = edge
    for k in range(due, waiting):  # the others move to the front
        pending[k - due] = pending[k]
        streams.actions[env, k - due] = streams.actions[env, k]
    streams.waiting[env] = waiting - due


@njit(cache=True)
def _advance(m, streams, rule, event, action, node, index):
    """Enter a reward into the pending edges of an env and finish those that are due at `node`.

    Edges wait in the order of their sources, oldest first: at most n_step - 1 between two calls,
    each with the discounted sum of the rewards since its source.
    """
    env = event.env
    pending = streams.pending[env]
    last = streams.waiting[env]
    pending[last].node, pending[last].action = streams.last[env], event.action
    pending[last].partial, pending[last].steps, pending[last].row = 0.0, 0, event.slot
    streams.actions[env, last] = action
    # This step's reward counts for all that wait, discounted by the steps each has waited.
    for k in range(last + 1):
        pending[k].partial += rule.gamma ** pending[k].steps * event.reward
        pending[k].steps += 1
    streams.waiting[env] = last + 1
    done = event.terminated or event.truncated
    # An end finishes all of them here; else the oldest is due once it spans n_step steps.
    due = last + 1 if done else (1 if pending[0].steps == rule.n_step else 0)
    _finish(m, streams, rule, env, due, node, event.terminated, event.truncated, index)


@njit(cache=True)
def walk(m, streams, rule, search, events, actions, seen, index):
    """Present observations to the map in order and join them by temporal edges.

    Args:
        m, streams, rule, search: the map, the writer's state, constants and work space, changed
            in place; `search.born` tells which node each observation made, -1 if none.
        events: EVENT [M], one an observation.
        actions: float32 [M, A], of the edge that leads here; A is 0 for discrete ones.
        seen: the observations [M, P] in the prototypes' dtype, their embeddings float32 [M, d].
        index: int64, position `events.slot` is set to the edge that the row made.
    """
    shown = Shown(events, actions, seen[0], seen[1])
    depth, count = rule.alphas.shape[0] - 1, events.shape[0]
    search.born[:count] = -1
    # The contexts of a sample are known when the one before has its node: blocks of one then.
    size = search.bounds.shape[0] if depth == 0 else 1
    # Before each turn: `last` of every env is the node of its newest observation, and what the
    # block's sweep found is true of all nodes but those that are marked as changed since.
    for i in range(count):
        begins = events[i]
        if begins.start and not begins.edge:  # nothing leads here, whether or not an end was told
            env, last = begins.env, streams.last[begins.env]
            if last >= 0:  # no end was told: edges of fewer steps lead to its last observation
                _finish(m, streams, rule, env, streams.waiting[env], last, False, False, index)
            streams.last[env], streams.waiting[env] = -1, 0
            streams.contexts[begins.env * depth : (begins.env + 1) * depth] = 0.0
        if i % size == 0:
            # No node is marked while a block is swept for: bounds hold from here on.
            close_block(m, search)
            sweep(m, streams, shown, rule.alphas, search, i, min(i + size, count), i)
            search.state[CHANGED] = 0
        event = events[i]
        env = event.env
        contexts = contexts_of(streams, shown, i, rule.alphas)
        node = _present(m, streams, rule, search, shown, contexts, i, i - i % size)
        _follow(m, contexts, node, rule.context_beta)
        if rule.evict:
            m.book[BOOK.clock] += 1
            m.stamps[node] = m.book[BOOK.clock]
        # Terminal while every visit was: UNSEEN or 1 takes this visit's mark, 0 stays.
        if rule.node_terminals and m.terminal[node] != 0:
            m.terminal[node] = event.terminated
        if event.edge:
            _advance(m, streams, rule, event, actions[i], node, index)
        # The next episode begins without a node before it, unless a time limit joins the two.
        streams.last[env] = node
        if event.terminated or (event.truncated and not rule.joined):
            streams.last[env] = -1
        if (event.terminated or event.truncated) and not rule.joined:
            contexts[:] = 0.0
    close_block(m, search)
