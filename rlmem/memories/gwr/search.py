"""The nearest nodes of a GWR map in numba, exactly (docs/gwr.md).

In the signatures `m` is a `MapArrays`, `streams` a `StreamArrays`, `search` a `SearchArrays`,
`shown` a `Shown`, `alphas` the rule's weights of the key and of the contexts.

Samples are measured in blocks: `sweep` looks through the nodes once for all of a block, `nearest`
answers for one of them when its turn comes, though nodes have moved and come since.
"""

import numpy as np
from numba import njit

from rlmem.memories.gwr.distance import (
    ROUNDING,
    consider,
    distance,
    head_gaps,
    key_gap,
    measure,
    reach,
)
from rlmem.memories.gwr.records import BOOK, CHANGED, GONE, LIVE, LIVE_CHANGED, RESCANS, TILE

# For numba's cache: tests/memories/test_compiled_with.py says why, and what to write here.
COMPILED_WITH = {"distance": "80abf8010043", "records": "9eeed3e75ef1"}

_GUESSES = 4  # links and edges of the node before that are tried first


@njit(cache=True)
def contexts_of(streams, shown, row, alphas):
    """The global contexts of a sample's environment, float32 [K, d], a view."""
    env, depth = shown.events[row].env, alphas.shape[0] - 1
    return streams.contexts[env * depth : (env + 1) * depth]


@njit(cache=True)
def mark_changed(m, search, node):
    """Note a node that moved or came since its block's bounds were measured."""
    if m.alive[node] == LIVE and search.state[CHANGED] >= 0:
        m.alive[node] = LIVE_CHANGED  # so that none is listed twice
        # Past the list's end only the count goes on: it says that the list is not whole.
        if search.state[CHANGED] < search.changed.shape[0]:
            search.changed[search.state[CHANGED]] = node
        search.state[CHANGED] += 1


@njit(cache=True)
def _guess(m, z, row, contexts, alphas, last, found):
    """The two nearest among the node before, its links and where it led: often the nearest of
    all, and always a bound that spares nearly every other node its full measure."""
    for k in range(2):
        found[k].distance, found[k].node = np.inf, -1
    if last < 0 or m.alive[last] == GONE:
        return
    consider(found, measure(m, z, row, contexts, alphas, last, np.inf), last)
    half, edge = m.nodes[last].link, m.nodes[last].out
    # Down both lists at once: links say what lies near, edges where the agent went from here.
    for _ in range(_GUESSES):
        if half >= 0:
            node = m.halves[half].node
            consider(found, measure(m, z, row, contexts, alphas, node, found[1].distance), node)
            half = m.halves[half].next
        if edge >= 0:
            node = m.edges[edge].target
            consider(found, measure(m, z, row, contexts, alphas, node, found[1].distance), node)
            edge = m.edges[edge].out_next


@njit(cache=True)
def _drop_far(search, slot):
    """Take from a sample's candidates those that the bound has left behind."""
    kept = 0  # before each turn: those to keep stand in front of i, in their order
    for i in range(search.counts[slot]):
        if search.near[slot, i] <= search.bounds[slot]:
            search.candidates[slot, kept] = search.candidates[slot, i]
            search.near[slot, kept] = search.near[slot, i]
            kept += 1
    search.counts[slot] = kept


@njit(cache=True)
def sweep(m, streams, shown, alphas, search, start, stop, base):
    """Find the two nearest nodes of the samples [start, stop) of the block that begins at `base`,
    and list for each the nodes that may become one of the two when others move.

    The squared gap over the first coordinates is at most the whole distance: nobody is missed whose
    gap is within the distance of the second nearest so far, which is measured as the nodes go by.
    A tile of nodes is read once for all samples. A list that is full is marked by a count past its
    end.
    """
    z, room = shown.z, search.candidates.shape[1]
    # Good guesses first: the tighter a bound from the start, the fewer nodes are measured in full.
    for row in range(start, stop):
        slot, found = row - base, search.found[row - base]
        contexts = contexts_of(streams, shown, row, alphas)
        _guess(m, z, row, contexts, alphas, streams.last[shown.events[row].env], found)
        search.counts[slot] = 0
        if alphas.shape[0] > 1:
            _probe(m, z, row, contexts, alphas, search, found)
        search.bounds[slot] = reach(found, alphas)
    # Arrays by themselves: each that is taken from a tuple in the loops is counted as used anew.
    tails, places, alive, gaps, bounds = m.tails, m.contexts, m.alive, search.gaps, search.bounds
    candidates, near, counts = search.candidates, search.near, search.counts
    all_found, width = search.found, m.heads.shape[1]
    # Before each turn, for every sample: `found` are the two nearest of the guesses and of all
    # nodes of the tiles before, its bound is the reach of the second, and each of these nodes
    # within the bound is a candidate. Bounds only shrink.
    for first in range(0, m.book[BOOK.node_mark], TILE):
        size, tile = min(TILE, m.book[BOOK.node_mark] - first), m.heads[first // TILE]
        for row in range(start, stop):
            slot = row - base
            if head_gaps(tile, size, z, row, gaps) > bounds[slot]:
                continue  # nobody of this tile is near
            found, contexts = all_found[slot], contexts_of(streams, shown, row, alphas)
            for j in range(size):
                node = first + j
                # Three looks, each dearer than the one before: first coordinates, key, contexts.
                if gaps[j] > bounds[slot] or alive[node] == GONE:
                    continue
                gap = key_gap(tails, z, row, width, node, gaps[j], bounds[slot])
                if gap > bounds[slot]:
                    continue
                # A full list may hold nodes that a later bound has left behind; only if it has
                # none is it given up, by a count past its end.
                if counts[slot] == room:
                    _drop_far(search, slot)
                if counts[slot] < room:
                    candidates[slot, counts[slot]], near[slot, counts[slot]] = node, gap
                counts[slot] += 1
                limit = found[1].distance
                d = distance(places, contexts, alphas, node, gap, limit)
                if d <= limit:  # of equals the first counts, which may be this one
                    consider(found, d, node)
                    bounds[slot] = reach(found, alphas)
    # `nearest` reads the lists to their ends: only what the last bounds leave in is worth it.
    for row in range(start, stop):
        if search.counts[row - base] <= room:
            _drop_far(search, row - base)


@njit(cache=True)
def _probe(m, z, row, contexts, alphas, search, found):
    """Measure the node of each tile that is nearest by its first coordinates: with contexts many
    nodes lie within a bound by keys alone, so that the bound should be tight from the start."""
    for first in range(0, m.book[BOOK.node_mark], TILE):
        size = min(TILE, m.book[BOOK.node_mark] - first)
        least = head_gaps(m.heads[first // TILE], size, z, row, search.gaps)
        if least <= reach(found, alphas):
            node = first + np.argmin(search.gaps[:size])
            if m.alive[node] != GONE:
                d = measure(m, z, row, contexts, alphas, node, found[1].distance)
                consider(found, d, node)


@njit(cache=True)
def close_block(m, search):
    """Forget which nodes have changed: the next block's bounds are measured from where they are."""
    for i in range(min(search.state[CHANGED], search.changed.shape[0])):
        if m.alive[search.changed[i]] == LIVE_CHANGED:
            m.alive[search.changed[i]] = LIVE
    if search.state[CHANGED] > search.changed.shape[0]:  # some are not in the list
        for node in range(m.book[BOOK.node_mark]):
            if m.alive[node] == LIVE_CHANGED:
                m.alive[node] = LIVE
    search.state[CHANGED] = -1


@njit(cache=True)
def nearest(m, streams, shown, alphas, search, row, base):
    """Best and second-best node of a sample and the best one's distance; of equals, the first.

    What the block's sweep found holds while no node has changed. Else the candidates that it listed
    stand for all nodes that have not changed since, as long as the second best lies within the
    bound that they were listed by; failing that, or where a list overflowed, the sample is swept
    for again.
    """
    slot, z = row - base, shown.z
    found, changed, count = search.found[slot], search.state[CHANGED], search.counts[slot]
    # A removed node is not marked as changed: the two that were found may be gone all the same.
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
        # Those that stayed where they were: their gaps are known. Blocks of more than one sample
        # have no contexts, so that the gap of the keys is the distance.
        for i in range(count):
            node = search.candidates[slot, i]
            if m.alive[node] == LIVE:
                consider(found, alphas[0] * np.sqrt(np.float64(search.near[slot, i])), node)
        contexts = contexts_of(streams, shown, row, alphas)
        for i in range(changed):  # those that moved or came are measured where they are
            node = search.changed[i]
            if m.alive[node] != GONE:
                d = measure(m, z, row, contexts, alphas, node, found[1].distance)
                consider(found, d, node)
        # Whoever is in neither list has not moved and lies beyond the bound: it is not nearer
        # than a second best within it.
        least = found[1].distance / alphas[0]
        whole = least * least * ROUNDING <= search.bounds[slot]
    if not whole:
        search.state[RESCANS] += 1
        sweep(m, streams, shown, alphas, search, row, row + 1, base)
    return found[0].node, found[1].node, found[0].distance
