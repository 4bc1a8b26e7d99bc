"""The nearest nodes of a GWR map in numba, exactly (docs/gwr.md).

In the signatures `m` is a `MapArrays`, `streams` a `StreamArrays`, `search` a `SearchArrays`.
"""

import numpy as np
from numba import njit

from rlmem.memories.gwr.records import (
    CHANGED,
    GONE,
    LIVE,
    LIVE_CHANGED,
    NODE_MARK,
    RESCANS,
    TILE,
)

# For numba's cache: tests/memories/test_compiled_with.py says why, and what to write here.
COMPILED_WITH = {"records": "387346d53947"}

# Reassociation lets the compiler sum in vector lanes; infinities keep their meaning.
_SUMS = {"reassoc", "contract", "nsz"}
_PART = 32  # further coordinates that are looked at before all
_GUESSES = 4  # links and edges of the node before that are tried first
# Factors on squared distances that serve as bounds.
_ROUNDING = 1.0 + 1e-5  # float32 sums in another order differ by less
_SLACK = 1.2  # nodes that move in a block seldom leave the bound; more would list more candidates


@njit(cache=True)
def mark_changed(m, search, node):
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
def sweep(m, streams, events, z, start, stop, base, alphas, search):
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
def close_block(m, search):
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
        sweep(m, streams, events, z, row, row + 1, base, alphas, search)
    return found[0].node, found[1].node, found[0].distance
