"""The steps of GWR-R in numba: what an observation does to a map.

In the signatures `m` is a `MapArrays`, `streams` a `StreamArrays`, `rule` a `Rule`, `search` a
`SearchArrays`.
"""

import numpy as np
from numba import njit, types
from numba.extending import overload

from rlmem.memories.gwr.lists import (
    add_link,
    find_link,
    remove_link,
    remove_node,
    visit_edge,
)
from rlmem.memories.gwr.records import (
    CHANGED,
    CLOCK,
    GONE,
    LINKS,
    LIVE,
    NODE_FREE,
    NODE_MARK,
    NODES,
    TILE,
    UNSEEN,
)
from rlmem.memories.gwr.search import close_block, mark_changed, nearest, sweep

# For numba's cache: tests/memories/test_compiled_with.py says why, and what to write here.
COMPILED_WITH = {"lists": "5e2b3613e303", "records": "387346d53947", "search": "74f4278ea0d2"}


@njit(cache=True)
def _insert(m, search, x, z, contexts, row):
    node = m.book[NODE_FREE]
    if node >= 0:
        m.book[NODE_FREE] = m.nodes[node].link
    else:
        node = m.book[NODE_MARK]
        m.book[NODE_MARK] += 1
    m.book[NODES] += 1
    m.limits[3] -= 1
    m.alive[node] = LIVE
    n = m.nodes[node]
    n.habituation, n.firings, n.merges = 1.0, 0, 0
    n.link, n.out, n.into = -1, -1, -1
    width = m.heads.shape[1]
    for k in range(width):
        m.heads[node // TILE, k, node % TILE] = z[row, k]
    for k in range(m.tails.shape[1]):
        m.tails[node, k] = z[row, width + k]
    if m.prototypes.shape[0] > 0:
        m.prototypes[node] = x[row]
    if m.terminal.shape[0] > 0:
        m.terminal[node] = UNSEEN
    depth = contexts.shape[0]
    m.contexts[node * depth : (node + 1) * depth] = contexts
    search.born[row] = node
    mark_changed(m, search, node)
    return node


@njit(cache=True)
def _hash(h):
    h = np.uint32((h ^ (h >> np.uint32(16))) * np.uint32(0x7FEB352D))
    h = np.uint32((h ^ (h >> np.uint32(15))) * np.uint32(0x846CA68B))
    return np.uint32(h ^ (h >> np.uint32(16)))


@njit(cache=True)
def _move_bytes(w, node, x, row, eta, seed, move):
    """w += eta (x - w) in 22-bit fixed point, rounded up with the probability of the remainder.

    eta is rounded in the same way, so that the expectation is exact for small steps as well.
    """
    key = _hash(np.uint32(_hash(np.uint32(move)) ^ np.uint32(seed)))
    step = np.int32(eta * 4194304.0 + _hash(np.uint32(key + 1)) / 4294967296.0)
    for j in range(w.shape[1]):
        bits = _hash(np.uint32(np.uint32(j) * np.uint32(0x9E3779B9)) ^ key)
        change = np.int32(np.int32(x[row, j]) - np.int32(w[node, j])) * step
        w[node, j] += np.uint8(np.int32(change + np.int32(bits >> np.uint32(10))) >> 22)


@njit(cache=True)
def _move_floats(w, node, x, row, eta):
    for j in range(w.shape[1]):
        w[node, j] += eta * (x[row, j] - w[node, j])


def _move_prototype(w, node, x, row, eta, seed, move):
    raise NotImplementedError("compiled code only: see the overload")


@overload(_move_prototype)
def _choose_move(w, node, x, row, eta, seed, move):
    if w.dtype == types.uint8:
        return lambda w, node, x, row, eta, seed, move: _move_bytes(
            w, node, x, row, eta, seed, move
        )
    return lambda w, node, x, row, eta, seed, move: _move_floats(w, node, x, row, eta)


@njit(cache=True)
def _adapt(m, search, node, x, z, contexts, row, eps, tau, rule, moves):
    """Move a node towards the sample by eps * h, then let it habituate."""
    h = m.nodes[node].habituation
    if rule.moving:
        eta = np.float32(eps * h)
        if m.prototypes.shape[0] > 0:
            _move_prototype(m.prototypes, node, x, row, eta, rule.seed, moves[0])
            moves[0] += 1
        tile, place, width = node // TILE, node % TILE, m.heads.shape[1]
        for k in range(width):
            m.heads[tile, k, place] += eta * (z[row, k] - m.heads[tile, k, place])
        for k in range(m.tails.shape[1]):
            m.tails[node, k] += eta * (z[row, width + k] - m.tails[node, k])
        for k in range(contexts.shape[0]):
            _move_floats(m.contexts, node * contexts.shape[0] + k, contexts, k, eta)
        mark_changed(m, search, node)
    m.nodes[node].habituation = h + tau * rule.kappa * (1.0 - h) - tau


@njit(cache=True)
def _forget(streams, node):
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
    while half >= 0:
        following = m.halves[half].next
        age = m.halves[half].age + 1
        if age > max_age:
            neighbour = m.halves[half].node
            remove_link(m, half)
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
    oldest = -1
    for node in range(m.book[NODE_MARK]):
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
    full = m.book[NODES] >= m.limits[0] or m.limits[3] <= 0
    if rule.evict and full and m.book[NODES] > 2:
        _evict(m, streams, b, s)
    return m.book[NODES] < m.limits[0] and m.limits[3] > 0 and m.book[LINKS] + links <= m.limits[1]


@njit(cache=True)
def _present(m, streams, rule, search, events, x, z, contexts, row, base):
    """Insert a sample or merge it; returns its node."""
    if m.book[NODES] < 2:
        return _insert(m, search, x, z, contexts, row)
    b, s, distance = nearest(m, streams, events, z, row, base, contexts, rule.alphas, search)
    node = b
    m.nodes[b].firings += 1
    half = find_link(m, b, s) if rule.links else -1
    if (
        np.exp(-distance / rule.scale) < rule.activation_threshold
        and m.nodes[b].habituation <= rule.habituation_threshold
        and _room(m, streams, rule, b, s)
    ):
        node = _insert(m, search, x, z, contexts, row)
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
        elif rule.links and m.book[LINKS] < m.limits[1]:
            add_link(m, b, s)
        _adapt(m, search, b, x, z, contexts, row, rule.eps_b, rule.tau_b, rule, streams.moves)
        half = m.nodes[b].link
        while half >= 0:
            _adapt(
                m, search, m.halves[half].node, x, z, contexts, row,
                rule.eps_n, rule.tau_n, rule, streams.moves,
            )  # fmt: skip
            half = m.halves[half].next
    if rule.links:
        _age_links(m, streams, b, rule.max_age)
    return node


@njit(cache=True)
def _follow(m, contexts, node, beta):
    """Global contexts after a step: C_k = beta c_k + (1 - beta) c_{k-1}, with c_0 = w."""
    depth, width = contexts.shape[0], m.heads.shape[1]
    for k in range(depth):
        for j in range(contexts.shape[1]):
            if k > 0:
                below = m.contexts[node * depth + k - 1, j]
            elif j < width:
                below = m.heads[node // TILE, j, node % TILE]
            else:
                below = m.tails[node, j - width]
            contexts[k, j] = beta * m.contexts[node * depth + k, j] + (1.0 - beta) * below


@njit(cache=True)
def _advance(m, streams, rule, event, action, node, index):
    """Enter a reward into the pending edges of an env and finish those that are due at `node`."""
    env = event.env
    pending = streams.pending[env]
    last = streams.waiting[env]
    pending[last].node, pending[last].action = streams.last[env], event.action
    pending[last].partial, pending[last].steps, pending[last].row = 0.0, 0, event.slot
    streams.actions[env, last] = action
    for k in range(last + 1):
        pending[k].partial += rule.gamma ** pending[k].steps * event.reward
        pending[k].steps += 1
    done = event.terminated or event.truncated
    due = last + 1 if done else (1 if pending[0].steps == rule.n_step else 0)
    for k in range(due):
        if pending[k].node >= 0:
            edge = visit_edge(
                m, pending[k].node, node, pending[k], streams.actions[env, k],
                event.terminated, event.truncated, rule,
            )  # fmt: skip
            if edge >= 0 and m.edges[edge].count == 1:  # perhaps a removed one's position
                for row in range(index.shape[0]):
                    if index[row] == edge:
                        index[row] = -1
            if pending[k].row >= 0:
                index[pending[k].row] = edge
    for k in range(due, last + 1):
        pending[k - due] = pending[k]
        streams.actions[env, k - due] = streams.actions[env, k]
    streams.waiting[env] = last + 1 - due


@njit(cache=True)
def walk(m, streams, rule, search, events, actions, x, z, index):
    """Present observations to the map in order and join them by temporal edges.

    Args:
        m, streams, rule, search: the map, the writer's state, constants and work space, changed
            in place; `search.born` tells which node each observation made, -1 if none.
        events: EVENT [M], one an observation.
        actions: float32 [M, A], of the edge that leads here; A is 0 for discrete ones.
        x: observations [M, P] in the prototypes' dtype.
        z: their embeddings, float32 [M, d].
        index: int64, position `events.slot` is set to the edge that the row made.
    """
    depth = rule.alphas.shape[0] - 1
    search.born[: events.shape[0]] = -1
    # The contexts of a sample are known when the one before has its node: blocks of one then.
    size = search.bounds.shape[0] if depth == 0 else 1
    for i in range(events.shape[0]):
        if i % size == 0:
            close_block(m, search)
            stop = min(i + size, events.shape[0])
            sweep(m, streams, events, z, i, stop, i, rule.alphas, search)
            search.state[CHANGED] = 0
        event = events[i]
        env = event.env
        contexts = streams.contexts[env * depth : (env + 1) * depth]
        node = _present(m, streams, rule, search, events, x, z, contexts, i, i - i % size)
        _follow(m, contexts, node, rule.context_beta)
        if rule.evict:
            m.book[CLOCK] += 1
            m.stamps[node] = m.book[CLOCK]
        if rule.node_terminals and m.terminal[node] != 0:
            m.terminal[node] = event.terminated
        if event.edge:
            _advance(m, streams, rule, event, actions[i], node, index)
        streams.last[env] = node
        if event.terminated or (event.truncated and not rule.joined):
            streams.last[env] = -1
        if (event.terminated or event.truncated) and not rule.joined:
            contexts[:] = 0.0
    close_block(m, search)
