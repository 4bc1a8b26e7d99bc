"""Distances of a sample to the nodes of a GWR map in numba: parts of them first, as a bound.

In the signatures `m` is a `MapArrays`.
"""

import numpy as np
from numba import njit

from rlmem.memories.gwr.records import TILE

# For numba's cache: tests/memories/test_compiled_with.py says why, and what to write here.
COMPILED_WITH = {"records": "9eeed3e75ef1"}

# Reassociation lets the compiler sum in vector lanes; infinities keep their meaning.
_SUMS = {"reassoc", "contract", "nsz"}
_PART = 32  # further coordinates that are looked at before all
# Factors on squared distances that serve as bounds.
ROUNDING = 1.0 + 1e-5  # float32 sums in another order differ by less
_SLACK = 1.2  # nodes that move in a block seldom leave the bound; more would list more candidates


@njit(cache=True, fastmath=_SUMS)
def _squared_gap(a, i, b, j, first, start, stop):
    # Giving up at any coordinate costs more than it saves: only this plain form runs in lanes.
    total = np.float32(0.0)
    for k in range(start, stop):
        gap = a[i, k] - b[j, first + k]
        total += gap * gap
    return total


@njit(cache=True)
def key_gap(tails, z, row, width, node, near, bound):
    """The squared gap of keys, of which `near` is that of the first `width` coordinates; infinite
    once it is known to be above the bound."""
    total, rest = near, tails.shape[1]
    # Two looks in place of one: after the first few coordinates most nodes are out.
    first = min(rest, _PART)
    if first > 0:
        total += _squared_gap(tails, node, z, row, width, 0, first)
    if total > bound:
        return np.float32(np.inf)
    if rest > first:
        total += _squared_gap(tails, node, z, row, width, first, rest)
    return total


@njit(cache=True)
def distance(places, contexts, alphas, node, gap, limit):
    """The distance of a sample to a node from the squared gap of their keys; infinite once it is
    known to be above the limit."""
    d = alphas[0] * np.sqrt(np.float64(gap))
    depth = contexts.shape[0]
    for k in range(depth):  # terms are not negative: a part above the limit settles it
        if d > limit:
            return np.inf
        part = _squared_gap(places, node * depth + k, contexts, k, 0, 0, contexts.shape[1])
        d += alphas[k + 1] * np.sqrt(np.float64(part))
    return d


@njit(cache=True)
def measure(m, z, row, contexts, alphas, node, limit):
    """The same from nothing."""
    tile, place, width = node // TILE, node % TILE, m.heads.shape[1]
    near = np.float32(0.0)
    for k in range(width):
        part = m.heads[tile, k, place] - z[row, k]
        near += part * part
    gap = key_gap(m.tails, z, row, width, node, near, np.float32(np.inf))
    return distance(m.contexts, contexts, alphas, node, gap, limit)


@njit(cache=True)
def reach(found, alphas):
    """The squared distance of keys within which a second nearest can lie, with room for float32
    sums in another order and, in a block of more than one, for nodes that move a little before the
    sample's turn."""
    least = found[1].distance / alphas[0]
    slack = _SLACK if alphas.shape[0] == 1 else ROUNDING
    return np.float32(min(least * least * slack, np.finfo(np.float32).max))


# Neither reassociated nor contracted: the sums are those of `measure` to the bit.
@njit(cache=True, fastmath={"nnan", "nsz"})
def head_gaps(tile, size, z, row, gaps):
    """Squared gaps over the first coordinates between a sample and a tile's first `size` nodes; the
    least of them."""
    gaps[:size] = 0.0
    width = tile.shape[0]
    # Before each turn: gaps[j] is node j's sum over the coordinates before k.
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
def consider(found, d, node):
    """Take a node into the two nearest so far; of equals, the first in the map."""
    if node == found[0].node or node == found[1].node:
        return
    if d < found[0].distance or (d == found[0].distance and node < found[0].node):
        found[1] = found[0]
        found[0].distance, found[0].node = d, node
    elif d < found[1].distance or (d == found[1].distance and node < found[1].node):
        found[1].distance, found[1].node = d, node
