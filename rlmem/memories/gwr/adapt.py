"""How a node follows what it takes in: its prototype, its key, its contexts, its habituation.

In the signatures `m` is a `MapArrays`, `streams` a `StreamArrays`, `rule` a `Rule`, `search` a
`SearchArrays`, `shown` a `Shown`.
"""

import numpy as np
from numba import njit, types
from numba.extending import overload

from rlmem.memories.gwr.records import TILE
from rlmem.memories.gwr.search import contexts_of, mark_changed

# For numba's cache: tests/memories/test_compiled_with.py says why, and what to write here.
COMPILED_WITH = {"records": "9eeed3e75ef1", "search": "51d78e284685"}


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
    # One key a move, from which each byte draws by its place: any order of bytes rounds alike.
    key = _hash(np.uint32(_hash(np.uint32(move)) ^ np.uint32(seed)))
    step = np.int32(eta * 4194304.0 + _hash(np.uint32(key + 1)) / 4294967296.0)
    for j in range(w.shape[1]):
        bits = _hash(np.uint32(np.uint32(j) * np.uint32(0x9E3779B9)) ^ key)
        # 22 bits of fraction, filled at random before they are cut off.
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
def adapt(m, streams, rule, search, shown, row, node, best):
    """Move a node towards a sample by eps * h, then let it habituate: at the rates of the
    best-matching unit (`best`) or of its neighbours."""
    eps, tau = (rule.eps_b, rule.tau_b) if best else (rule.eps_n, rule.tau_n)
    h = m.nodes[node].habituation
    if rule.moving:
        z, eta = shown.z, np.float32(eps * h)
        if m.prototypes.shape[0] > 0:
            # Each move has a number, so that a saved run rounds on as it would have done.
            _move_prototype(m.prototypes, node, shown.x, row, eta, rule.seed, streams.moves[0])
            streams.moves[0] += 1
        # The key moves with the prototype: embeddings are linear.
        tile, place, width = node // TILE, node % TILE, m.heads.shape[1]
        for k in range(width):
            m.heads[tile, k, place] += eta * (z[row, k] - m.heads[tile, k, place])
        for k in range(m.tails.shape[1]):
            m.tails[node, k] += eta * (z[row, width + k] - m.tails[node, k])
        contexts = contexts_of(streams, shown, row, rule.alphas)
        for k in range(contexts.shape[0]):
            _move_floats(m.contexts, node * contexts.shape[0] + k, contexts, k, eta)
        mark_changed(m, search, node)
    m.nodes[node].habituation = h + tau * rule.kappa * (1.0 - h) - tau
