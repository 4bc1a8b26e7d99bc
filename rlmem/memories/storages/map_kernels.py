"""Loops of the GWR map in numba: its linked lists, the nearest nodes, and the steps of GWR-R.

Records link each other by int32 positions, -1 is "none". A link is a pair of half-edges at
positions 2k and 2k + 1 (h ^ 1 is h's twin), one in the list of each of its nodes. A temporal edge
stands in its source's out-list and in its target's in-list, so that removing a node costs
O(degree). A freed record waits in a free list that runs through its first list pointer.

In the signatures `m` is a `MapArrays`, `streams` a `StreamArrays`, `rule` a `Rule`, `search` a
`SearchArrays`. The loops stand in one file because numba's cache sees a change only in the file of
the function Python calls.
"""

import numpy as np
from numba import njit, types
from numba.extending import overload

from rlmem.memories.storages.map_records import (
    CHANGED,
    CLOCK,
    EDGE_FREE,
    EDGE_MARK,
    EDGES,
    GONE,
    LINK_FREE,
    LINK_MARK,
    LINKS,
    LIVE,
    LIVE_CHANGED,
    MADE,
    NODE_FREE,
    NODE_MARK,
    NODES,
    PASSED,
    REMOVED,
    RESCANS,
    TILE,
    TOUCHED,
    UNSEEN,
)

# Reassociation lets the compiler sum in vector lanes; infinities keep their meaning.
_SUMS = {"reassoc", "contract", "nsz"}
_PART = 32  # further coordinates that are looked at before all
_GUESSES = 4  # links and edges of the node before that are tried first
# Factors on squared distances that serve as bounds.
_ROUNDING = 1.0 + 1e-5  # float32 sums in another order differ by less
_SLACK = 1.2  # nodes that move in a block seldom leave the bound; more would list more candidates


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
        m.edges[edge].dirty = PASSED
        m.touched[m.book[TOUCHED]] = edge
        m.book[TOUCHED] += 1


@njit(cache=True)
def visit_edge(m, source, target, entry, action, terminated, truncated, rule):
    """Count one passage of a temporal edge, made if it is not there; returns its position, -1
    where there is no room for one more."""
    edge = m.nodes[source].out
    while edge >= 0:
        e = m.edges[edge]
        if e.target == target and (
            rule.node_terminals
            or (
                e.action == entry.action
                and e.steps == entry.steps
                and e.terminated == terminated
                and e.truncated == truncated
            )
        ):
            e.count += 1
            e.reward = rule.phi * entry.partial + (1.0 - rule.phi) * e.reward
            e.action = entry.action
            for k in range(action.shape[0]):
                old = m.actions[edge, k]
                m.actions[edge, k] = rule.phi * action[k] + (1.0 - rule.phi) * old
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
    m.actions[edge] = action
    _touch(m, edge)
    m.edges[edge].dirty = MADE
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
    m.alive[node] = GONE
    if m.book[REMOVED] < m.removed.shape[0]:
        m.removed[m.book[REMOVED]] = node
        m.book[REMOVED] += 1
    m.nodes[node].link = m.book[NODE_FREE]
    m.book[NODE_FREE] = node
    m.book[NODES] -= 1


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
    _mark_changed(m, search, node)
    return node


@njit(cache=True)
def _mark_changed(m, search, node):
    """Note a node that moved or came since its block's bounds were measured."""
    if m.alive[node] == LIVE and search.state[CHANGED] >= 0:
        m.alive[node] = LIVE_CHANGED
        if search.state[CHANGED] < search.changed.shape[0]:
            search.changed[search.state[CHANGED]] = node
        search.state[CHANGED] += 1


@njit(cache=True, fastmath=_SUMS)
def _squared_gap(a, i, b, j, first, start, stop):
    # Giving up at any coordinate costs more than it saves: only this plain form runs in lanes.
    total = np.float32(0.0)
    for k in range(start, stop):
        gap = a[i, k] - b[j, first + k]
        total += gap * gap
    return total


@njit(cache=True)
def _key_gap(tails, z, row, width, node, near, bound):
    """The squared gap of keys, of which `near` is that of the first `width` coordinates; infinite
    once it is known to be above the bound."""
    total, rest = near, tails.shape[1]
    first = min(rest, _PART)
    if first > 0:
        total += _squared_gap(tails, node, z, row, width, 0, first)
    if total > bound:
        return np.float32(np.inf)
    if rest > first:
        total += _squared_gap(tails, node, z, row, width, first, rest)
    return total


@njit(cache=True)
def _distance(places, contexts, alphas, node, gap, limit):
    """The distance of a sample to a node from the squared gap of their keys; infinite once it is
    known to be above the limit."""
    d = alphas[0] * np.sqrt(np.float64(gap))
    depth = contexts.shape[0]
    for k in range(depth):
        if d > limit:
            return np.inf
        part = _squared_gap(places, node * depth + k, contexts, k, 0, 0, contexts.shape[1])
        d += alphas[k + 1] * np.sqrt(np.float64(part))
    return d


@njit(cache=True)
def _measure(m, z, row, contexts, alphas, node, limit):
    """The same from nothing."""
    tile, place, width = node // TILE, node % TILE, m.heads.shape[1]
    near = np.float32(0.0)
    for k in range(width):
        part = m.heads[tile, k, place] - z[row, k]
        near += part * part
    gap = _key_gap(m.tails, z, row, width, node, near, np.float32(np.inf))
    return _distance(m.contexts, contexts, alphas, node, gap, limit)


@njit(cache=True)
def _consider(found, d, node):
    """Take a node into the two nearest so far; of equals, the first in the map."""
    if node == found[0].node or node == found[1].node:
        return
    if d < found[0].distance or (d == found[0].distance and node < found[0].node):
        found[1] = found[0]
        found[0].distance, found[0].node = d, node
    elif d < found[1].distance or (d == found[1].distance and node < found[1].node):
        found[1].distance, found[1].node = d, node


@njit(cache=True)
def _guess(m, z, row, contexts, alphas, last, found):
    """The two nearest among the node before, its links and where it led: often the nearest of
    all, and always a bound that spares nearly every other node its full measure."""
    for k in range(2):
        found[k].distance, found[k].node = np.inf, -1
    if last < 0 or m.alive[last] == GONE:
        return
    _consider(found, _measure(m, z, row, contexts, alphas, last, np.inf), last)
    half, edge = m.nodes[last].link, m.nodes[last].out
    for _ in range(_GUESSES):
        if half >= 0:
            node = m.halves[half].node
            _consider(found, _measure(m, z, row, contexts, alphas, node, found[1].distance), node)
            half = m.halves[half].next
        if edge >= 0:
            node = m.edges[edge].target
            _consider(found, _measure(m, z, row, contexts, alphas, node, found[1].distance), node)
            edge = m.edges[edge].out_next


# Neither reassociated nor contracted: the sums are those of `_measure` to the bit.
@njit(cache=True, fastmath={"nnan", "nsz"})
def _head_gaps(tile, size, z, row, gaps):
    """Squared gaps over the first coordinates between a sample and a tile's first `size` nodes; the
    least of them."""
    gaps[:size] = 0.0
    width = tile.shape[0]
    for k in range(0, width - 3, 4):  # four at a time: the sums are loaded and stored less often
        q0, q1, q2, q3 = z[row, k], z[row, k + 1], z[row, k + 2], z[row, k + 3]
        for j in range(size):
            g0, g1 = tile[k, j] - q0, tile[k + 1, j] - q1
            g2, g3 = tile[k + 2, j] - q2, tile[k + 3, j] - q3
            gaps[j] = gaps[j] + g0 * g0 + g1 * g1 + g2 * g2 + g3 * g3
    for k in range(width - width % 4, width):
        q = z[row, k]
        for j in range(size):
            gap = tile[k, j] - q
            gaps[j] += gap * gap
    least = np.float32(np.inf)
    for j in range(size):
        least = min(least, gaps[j])
    return least


@njit(cache=True)
def _drop_far(search, slot):
    """Take from a sample's candidates those that the bound has left behind."""
    kept = 0
    for i in range(search.counts[slot]):
        if search.near[slot, i] <= search.bounds[slot]:
            search.candidates[slot, kept] = search.candidates[slot, i]
            search.near[slot, kept] = search.near[slot, i]
            kept += 1
    search.counts[slot] = kept


@njit(cache=True)
def _sweep(m, streams, events, z, start, stop, base, alphas, search):
    """Find the two nearest nodes of the samples [start, stop) of the block that begins at `base`,
    and list for each the nodes that may become one of the two when others move.

    The squared gap over the first coordinates is at most the whole distance: nobody is missed whose
    gap is within the distance of the second nearest so far, which is measured as the nodes go by.
    A tile of nodes is read once for all samples. A list that is full is marked by a count past its
    end.
    """
    depth, room = alphas.shape[0] - 1, search.candidates.shape[1]
    for row in range(start, stop):
        env, slot = events[row].env, row - base
        contexts = streams.contexts[env * depth : (env + 1) * depth]
        _guess(m, z, row, contexts, alphas, streams.last[env], search.found[slot])
        search.counts[slot] = 0
        if depth > 0:
            _probe(m, z, row, contexts, alphas, search, search.found[slot])
        search.bounds[slot] = _bound(search.found[slot], alphas)
    # Arrays by themselves: each that is taken from a tuple in the loops is counted as used anew.
    tails, places, alive, gaps, bounds = m.tails, m.contexts, m.alive, search.gaps, search.bounds
    candidates, near, counts = search.candidates, search.near, search.counts
    all_found, width = search.found, m.heads.shape[1]
    for first in range(0, m.book[NODE_MARK], TILE):
        size, tile = min(TILE, m.book[NODE_MARK] - first), m.heads[first // TILE]
        for row in range(start, stop):
            slot = row - base
            if _head_gaps(tile, size, z, row, gaps) > bounds[slot]:
                continue
            env, found = events[row].env, all_found[slot]
            contexts = streams.contexts[env * depth : (env + 1) * depth]
            for j in range(size):
                node = first + j
                if gaps[j] > bounds[slot] or alive[node] == GONE:
                    continue
                gap = _key_gap(tails, z, row, width, node, gaps[j], bounds[slot])
                if gap > bounds[slot]:
                    continue
                if counts[slot] == room:
                    _drop_far(search, slot)
                if counts[slot] < room:
                    candidates[slot, counts[slot]], near[slot, counts[slot]] = node, gap
                counts[slot] += 1
                limit = found[1].distance
                d = _distance(places, contexts, alphas, node, gap, limit)
                if d <= limit:
                    _consider(found, d, node)
                    bounds[slot] = _bound(found, alphas)
    for row in range(start, stop):
        if search.counts[row - base] <= room:
            _drop_far(search, row - base)


@njit(cache=True)
def _probe(m, z, row, contexts, alphas, search, found):
    """Measure the node of each tile that is nearest by its first coordinates: with contexts many
    nodes lie within a bound by keys alone, so that the bound should be tight from the start."""
    for first in range(0, m.book[NODE_MARK], TILE):
        size = min(TILE, m.book[NODE_MARK] - first)
        least = _head_gaps(m.heads[first // TILE], size, z, row, search.gaps)
        if least <= _bound(found, alphas):
            node = first + np.argmin(search.gaps[:size])
            if m.alive[node] != GONE:
                d = _measure(m, z, row, contexts, alphas, node, found[1].distance)
                _consider(found, d, node)


@njit(cache=True)
def _bound(found, alphas):
    """The squared distance of keys within which a second nearest can lie, with room for float32
    sums in another order and, in a block of more than one, for nodes that move a little before the
    sample's turn."""
    distance = found[1].distance / alphas[0]
    slack = _SLACK if alphas.shape[0] == 1 else _ROUNDING
    return np.float32(min(distance * distance * slack, np.finfo(np.float32).max))


@njit(cache=True)
def _close_block(m, search):
    for i in range(min(search.state[CHANGED], search.changed.shape[0])):
        if m.alive[search.changed[i]] == LIVE_CHANGED:
            m.alive[search.changed[i]] = LIVE
    if search.state[CHANGED] > search.changed.shape[0]:
        for node in range(m.book[NODE_MARK]):
            if m.alive[node] == LIVE_CHANGED:
                m.alive[node] = LIVE
    search.state[CHANGED] = -1


@njit(cache=True)
def nearest(m, streams, events, z, row, base, contexts, alphas, search):
    """Best and second-best node of a sample and the best one's distance; of equals, the first.

    What the block's sweep found holds while no node has changed. Else the candidates that it listed
    stand for all nodes that have not changed since, as long as the second best lies within the
    bound that they were listed by; failing that, or where a list overflowed, the sample is swept
    for again.
    """
    slot = row - base
    found, changed, count = search.found[slot], search.state[CHANGED], search.counts[slot]
    if (
        changed == 0
        and found[1].node >= 0
        and m.alive[found[0].node] != GONE
        and m.alive[found[1].node] != GONE
    ):
        return found[0].node, found[1].node, found[0].distance
    for k in range(2):
        found[k].distance, found[k].node = np.inf, -1
    whole = count <= search.candidates.shape[1] and changed <= search.changed.shape[0]
    if whole:
        for i in range(count):  # without contexts, of which there are blocks of one only
            node = search.candidates[slot, i]
            if m.alive[node] == LIVE:
                _consider(found, alphas[0] * np.sqrt(np.float64(search.near[slot, i])), node)
        for i in range(changed):
            node = search.changed[i]
            if m.alive[node] != GONE:
                d = _measure(m, z, row, contexts, alphas, node, found[1].distance)
                _consider(found, d, node)
        least = found[1].distance / alphas[0]
        whole = least * least * _ROUNDING <= search.bounds[slot]
    if not whole:
        search.state[RESCANS] += 1
        _sweep(m, streams, events, z, row, row + 1, base, alphas, search)
    return found[0].node, found[1].node, found[0].distance


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
        _mark_changed(m, search, node)
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
            _close_block(m, search)
            stop = min(i + size, events.shape[0])
            _sweep(m, streams, events, z, i, stop, i, rule.alphas, search)
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
    _close_block(m, search)
