"""Loops of the GWR map in numba: its linked lists, the nearest nodes, and the steps of GWR-R.

Records link each other by int32 positions, -1 is "none". A link is a pair of half-edges at
positions 2k and 2k + 1 (h ^ 1 is h's twin), one in the list of each of its nodes. A temporal edge
stands in its source's out-list and in its target's in-list, so that removing a node costs
O(degree). A freed record waits in a free list that runs through its first list pointer.

In the signatures `m` is a `MapArrays`, `streams` a `StreamArrays`, `rule` a `Rule`. The loops stand
in one file because numba's cache sees a change only in the file of the function Python calls.
"""

import numpy as np
from numba import njit, types
from numba.extending import overload

from rlmem.memories.storages.map_records import (
    EDGE_FREE,
    EDGE_MARK,
    EDGES,
    LINK_FREE,
    LINK_MARK,
    LINKS,
    NODE_FREE,
    NODE_MARK,
    NODES,
    TOUCHED,
)

# Reassociation lets the compiler sum in vector lanes; infinities keep their meaning.
_SUMS = {"reassoc", "contract", "nsz"}


@njit(cache=True)
def _add_half(m, half, owner, other):
    first = m.nodes[owner].link
    m.halves[half].node = other
    m.halves[half].next = first
    m.halves[half].prev = -1
    m.halves[half].age = 0
    if first >= 0:
        m.halves[first].prev = half
    m.nodes[owner].link = half


@njit(cache=True)
def add_link(m, a, b):
    """Link two nodes that have no link, at age 0."""
    half = m.book[LINK_FREE]
    if half >= 0:
        m.book[LINK_FREE] = m.halves[half].next
    else:
        half = 2 * m.book[LINK_MARK]
        m.book[LINK_MARK] += 1
    m.book[LINKS] += 1
    _add_half(m, half, a, b)
    _add_half(m, half + 1, b, a)


@njit(cache=True)
def find_link(m, a, b):
    """The half-edge from a to b, or -1."""
    half = m.nodes[a].link
    while half >= 0 and m.halves[half].node != b:
        half = m.halves[half].next
    return half


@njit(cache=True)
def _remove_half(m, half):
    following, previous = m.halves[half].next, m.halves[half].prev
    if following >= 0:
        m.halves[following].prev = previous
    if previous >= 0:
        m.halves[previous].next = following
    else:
        m.nodes[m.halves[half ^ 1].node].link = following


@njit(cache=True)
def remove_link(m, half):
    """Take a half-edge and its twin out."""
    _remove_half(m, half)
    _remove_half(m, half ^ 1)
    even = half - half % 2
    m.halves[even].node = -1
    m.halves[even + 1].node = -1
    m.halves[even].next = m.book[LINK_FREE]
    m.book[LINK_FREE] = even
    m.book[LINKS] -= 1


@njit(cache=True)
def _touch(m, edge):
    if not m.edges[edge].dirty:
        m.edges[edge].dirty = 1
        m.touched[m.book[TOUCHED]] = edge
        m.book[TOUCHED] += 1


@njit(cache=True)
def visit_edge(m, source, target, entry, terminated, truncated, phi):
    """Count one passage of a temporal edge, made if it is not there; returns its position, -1
    where there is no room for one more."""
    edge = m.nodes[source].out
    while edge >= 0:
        e = m.edges[edge]
        if (
            e.target == target
            and e.action == entry.action
            and e.steps == entry.steps
            and e.terminated == terminated
            and e.truncated == truncated
        ):
            e.count += 1
            e.reward = phi * entry.partial + (1.0 - phi) * e.reward
            _touch(m, edge)
            return edge
        edge = e.out_next
    if m.book[EDGES] >= m.limits[2]:
        return -1
    edge = m.book[EDGE_FREE]
    if edge >= 0:
        m.book[EDGE_FREE] = m.edges[edge].out_next
    else:
        edge = m.book[EDGE_MARK]
        m.book[EDGE_MARK] += 1
        m.edges[edge].dirty = 0
    m.book[EDGES] += 1
    e = m.edges[edge]
    e.source, e.target, e.action, e.reward = source, target, entry.action, entry.partial
    e.count, e.steps, e.terminated, e.truncated = 1, entry.steps, terminated, truncated
    e.out_prev, e.out_next = -1, m.nodes[source].out
    e.in_prev, e.in_next = -1, m.nodes[target].into
    if e.out_next >= 0:
        m.edges[e.out_next].out_prev = edge
    if e.in_next >= 0:
        m.edges[e.in_next].in_prev = edge
    m.nodes[source].out = edge
    m.nodes[target].into = edge
    _touch(m, edge)
    return edge


@njit(cache=True)
def remove_edge(m, edge):
    """Take a temporal edge out; a count of 0 marks the free record."""
    e = m.edges[edge]
    if e.out_next >= 0:
        m.edges[e.out_next].out_prev = e.out_prev
    if e.out_prev >= 0:
        m.edges[e.out_prev].out_next = e.out_next
    else:
        m.nodes[e.source].out = e.out_next
    if e.in_next >= 0:
        m.edges[e.in_next].in_prev = e.in_prev
    if e.in_prev >= 0:
        m.edges[e.in_prev].in_next = e.in_next
    else:
        m.nodes[e.target].into = e.in_next
    e.count = 0
    e.out_next = m.book[EDGE_FREE]
    m.book[EDGE_FREE] = edge
    m.book[EDGES] -= 1
    _touch(m, edge)


@njit(cache=True)
def remove_node(m, node):
    """Take a node out with its links and its temporal edges."""
    while m.nodes[node].link >= 0:
        remove_link(m, m.nodes[node].link)
    while m.nodes[node].out >= 0:
        remove_edge(m, m.nodes[node].out)
    while m.nodes[node].into >= 0:
        remove_edge(m, m.nodes[node].into)
    m.alive[node] = 0
    m.nodes[node].link = m.book[NODE_FREE]
    m.book[NODE_FREE] = node
    m.book[NODES] -= 1


@njit(cache=True)
def _insert(m, x, z, contexts, row):
    node = m.book[NODE_FREE]
    if node >= 0:
        m.book[NODE_FREE] = m.nodes[node].link
    else:
        node = m.book[NODE_MARK]
        m.book[NODE_MARK] += 1
    m.book[NODES] += 1
    m.alive[node] = 1
    n = m.nodes[node]
    n.habituation, n.firings, n.merges = 1.0, 0, 0
    n.link, n.out, n.into = -1, -1, -1
    m.prototypes[node] = x[row]
    m.embeddings[node] = z[row]
    depth = contexts.shape[0]
    m.contexts[node * depth : (node + 1) * depth] = contexts
    return node


@njit(cache=True, fastmath=_SUMS)
def _squared_gap(a, i, b, j):
    # Giving up halfway costs more than it saves: only this plain form runs in vector lanes.
    total = np.float32(0.0)
    for k in range(a.shape[1]):
        gap = a[i, k] - b[j, k]
        total += gap * gap
    return total


@njit(cache=True)
def nearest(m, z, row, contexts, alphas):
    """Best and second-best node of a sample and the best one's distance; of equals, the first.

    alphas[0] times the distance of the embeddings is a lower bound of the whole distance, so only
    nodes under the second best so far have their contexts measured.
    """
    best, second = -1, -1
    d_best, d_second, limit = (
        np.inf,
        np.inf,
        np.inf,
    )  # squared while there are no contexts: no root a node
    depth = contexts.shape[0]
    for i in range(m.book[NODE_MARK]):
        if not m.alive[i]:
            continue
        d = np.float64(_squared_gap(m.embeddings, i, z, row))
        if d >= limit:
            continue
        if depth > 0:
            d = alphas[0] * np.sqrt(d)
            for k in range(depth):
                c = _squared_gap(m.contexts, i * depth + k, contexts, k)
                d += alphas[k + 1] * np.sqrt(c)
                if d >= d_second:
                    break
        if d < d_best:
            second, d_second = best, d_best
            best, d_best = i, d
        elif d < d_second:
            second, d_second = i, d
        limit = d_second if depth == 0 else (d_second / alphas[0]) ** 2
    return best, second, np.sqrt(d_best) if depth == 0 else d_best


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
def _adapt(m, node, x, z, contexts, row, eps, tau, rule, moves):
    """Move a node towards the sample by eps * h, then let it habituate."""
    h = m.nodes[node].habituation
    eta = np.float32(eps * h)
    _move_prototype(m.prototypes, node, x, row, eta, rule.seed, moves[0])
    moves[0] += 1
    _move_floats(m.embeddings, node, z, row, eta)
    for k in range(contexts.shape[0]):
        _move_floats(m.contexts, node * contexts.shape[0] + k, contexts, k, eta)
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
def _present(m, streams, rule, x, z, contexts, row):
    """Insert a sample or merge it; returns its node."""
    if m.book[NODES] < 2:
        return _insert(m, x, z, contexts, row)
    b, s, distance = nearest(m, z, row, contexts, rule.alphas)
    node = b
    m.nodes[b].firings += 1
    half = find_link(m, b, s)
    if (
        np.exp(-distance) < rule.activation_threshold
        and m.nodes[b].habituation <= rule.habituation_threshold
        and m.book[NODES] < m.limits[0]
        and m.book[LINKS] + 2 <= m.limits[1]
    ):
        node = _insert(m, x, z, contexts, row)
        if half >= 0:
            remove_link(m, half)
        add_link(m, b, node)
        add_link(m, s, node)
    else:
        if half < 0:
            if m.book[LINKS] < m.limits[1]:
                add_link(m, b, s)
        else:
            m.halves[half].age = 0
            m.halves[half ^ 1].age = 0
        m.nodes[b].merges += 1
        _adapt(m, b, x, z, contexts, row, rule.eps_b, rule.tau_b, rule, streams.moves)
        half = m.nodes[b].link
        while half >= 0:
            neighbour = m.halves[half].node
            _adapt(m, neighbour, x, z, contexts, row, rule.eps_n, rule.tau_n, rule, streams.moves)
            half = m.halves[half].next
    _age_links(m, streams, b, rule.max_age)
    return node


@njit(cache=True)
def _follow(m, contexts, node, beta):
    """Global contexts after a step: C_k = beta c_k + (1 - beta) c_{k-1}, with c_0 = w."""
    depth = contexts.shape[0]
    for k in range(depth):
        for j in range(contexts.shape[1]):
            below = m.embeddings[node, j] if k == 0 else m.contexts[node * depth + k - 1, j]
            contexts[k, j] = beta * m.contexts[node * depth + k, j] + (1.0 - beta) * below


@njit(cache=True)
def _advance(m, streams, rule, event, node, index):
    """Enter a reward into the pending edges of an env and finish those that are due at `node`."""
    env = event.env
    pending = streams.pending[env]
    last = streams.waiting[env]
    pending[last].node, pending[last].action = streams.last[env], event.action
    pending[last].partial, pending[last].steps, pending[last].row = 0.0, 0, event.row
    for k in range(last + 1):
        pending[k].partial += rule.gamma ** pending[k].steps * event.reward
        pending[k].steps += 1
    done = event.terminated or event.truncated
    due = last + 1 if done else (1 if pending[0].steps == rule.n_step else 0)
    for k in range(due):
        if pending[k].node >= 0:
            edge = visit_edge(
                m, pending[k].node, node, pending[k], event.terminated, event.truncated, rule.phi
            )
            if pending[k].row >= 0:
                index[pending[k].row] = edge
    for k in range(due, last + 1):
        pending[k - due] = pending[k]
    streams.waiting[env] = last + 1 - due


@njit(cache=True)
def walk(m, streams, rule, events, x, z, index):
    """Present observations to the map in order and join them by temporal edges.

    Args:
        m, streams, rule: the map, the writer's state and constants, changed in place.
        events: EVENT [M], one an observation.
        x: observations [M, P] in the prototypes' dtype.
        z: their embeddings, float32 [M, d].
        index: int64, position `events.row` is set to the edge that the row made.
    """
    depth = rule.alphas.shape[0] - 1
    for i in range(events.shape[0]):
        event = events[i]
        env = event.env
        contexts = streams.contexts[env * depth : (env + 1) * depth]
        node = _present(m, streams, rule, x, z, contexts, i)
        _follow(m, contexts, node, rule.context_beta)
        if not event.start:
            _advance(m, streams, rule, event, node, index)
        streams.last[env] = node
        if event.terminated or event.truncated:
            streams.last[env] = -1
            contexts[:] = 0.0
