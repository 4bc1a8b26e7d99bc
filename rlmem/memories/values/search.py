"""The p nearest keys of an action in numba, exactly (`rlmem.memories.values.dnd`).

Keys lie in slabs, one an action. Beside them lies a screen: each key turned to the principal axes
of the stored keys and rounded, to two bytes a coordinate of the first and one of the others. What
is looked at of a key:

1. the first `HEAD` coordinates of the screen, and how long the others are together. The distance
   to the rounded key is at least what these say: two vectors differ by no less than their lengths;
2. all its coordinates on the screen, for keys that the first look leaves: the distance to the
   rounded key. The true one differs by no more than what rounding changed, which is stored;
3. the key itself, for keys that the second look leaves: the distance as a float64 sum.

Of 100,000 keys of RoadRunner's screens, 50 of each of 18 actions, some 9,000 of an untrained
network come to the second look and 1,000 to the third; of a trained one 1,300 and 950. A bound that
is loose costs time and nothing else.

In the signatures `s` is a `Slabs`, `w` a `Work`.
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from rlmem.memories.values.screen import HEAD, TILE, project

# For numba's cache: tests/memories/test_compiled_with.py says why, and what to write here.
COMPILED_WITH = {"screen": "bb27795c426a"}

_AHEAD = 4  # keys that are fetched while one is measured
# What float32 sums and products may add to a distance on the screen, as a share of the lengths of
# the two keys: 2^-24 for each of the roundings that a term goes through, with room.
_SHIFT = 32 * 2.0**-24
_SUMS = {"reassoc", "contract", "nsz", "nnan"}
_NOWHERE = np.iinfo(np.int64).max
_FAR = 1e30  # more than any two keys are apart, and less than what is hidden is


class Work(NamedTuple):
    """What a search overwrites: of the key that is asked with, of an action's C keys, of p."""

    row: np.ndarray  # float64 [HEAD + tail], the key's coordinates
    query: np.ndarray  # float32 [HEAD + tail], the same
    step: np.ndarray  # float32 [HEAD + tail], `Slabs.step`
    squared: np.ndarray  # float32 [whole tiles], distances over the head, squared
    bound: np.ndarray  # float32 [whole tiles], what a distance is at least
    least: np.ndarray  # float32 [C / TILE], the least of a tile
    low: np.ndarray  # float32 [16]
    left: np.ndarray  # int64 [C], slots that the first look left; of them:
    near: np.ndarray  # float32 [C], what the distance is at least
    most: np.ndarray  # float32 [C], and at most
    picked: np.ndarray  # int64 [C], slots whose keys are measured
    gap: np.ndarray  # float64 [C], their squared distances
    guess: np.ndarray  # float32 [p]
    hint: np.ndarray  # float32 [A]


@intrinsic
def _fetch_line(typingctx, rows, i, j):
    """Ask the processor for the cache line of `rows[i, j]`, and wait for nothing."""

    def generate(context, builder, signature, arguments):
        kind = signature.args[0]
        array = context.make_array(kind)(context, builder, arguments[0])
        place = cgutils.get_item_pointer(context, builder, kind, array, list(arguments[1:]))
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        call = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        )
        read, keep, data = word(0), word(3), word(1)
        builder.call(call, [builder.bitcast(place, byte), read, keep, data])
        return context.get_dummy_value()

    return types.void(rows, types.intp, types.intp), generate


_fetch: Any = _fetch_line  # the compiler passes the first argument


@njit(cache=True)
def _ask(s, key, w):
    """Fill what the screen is asked with; the length of the tail, and what rounding may add."""
    reach = project(s, key, w.row)
    length = 0.0
    for j in range(w.row.shape[0]):
        w.query[j] = w.row[j]
        w.step[j] = s.step[j]
        if j >= HEAD:
            length += w.row[j] ** 2
    # float32: a float64 would make the sweep one of float64 numbers.
    return np.float32(np.sqrt(length)), _SHIFT * (reach + s.reach[0])


@njit(cache=True, fastmath=_SUMS)
def _sweep(head, rest, length, w, first):
    """The first look at a tile, of which the first key stands at slot `first`; the least bound.

    All of the tile, held or not: of a number that is known the compiler makes a loop twice as fast.
    """
    squared, bound = w.squared[first : first + TILE], w.bound[first : first + TILE]
    squared[:] = 0.0
    q, c = w.query, w.step
    for j in range(0, HEAD, 4):  # four at a time: sums are loaded and stored less often
        q0, q1, q2, q3 = q[j], q[j + 1], q[j + 2], q[j + 3]
        c0, c1, c2, c3 = c[j], c[j + 1], c[j + 2], c[j + 3]
        for i in range(TILE):
            g0, g1 = q0 - c0 * np.float32(head[j, i]), q1 - c1 * np.float32(head[j + 1, i])
            g2, g3 = q2 - c2 * np.float32(head[j + 2, i]), q3 - c3 * np.float32(head[j + 3, i])
            squared[i] += (g0 * g0 + g1 * g1) + (g2 * g2 + g3 * g3)
    for i in range(TILE):
        gap = length - rest[0, i]
        bound[i] = np.sqrt(squared[i] + gap * gap) - rest[1, i]
    # Sixteen minima side by side, as the compiler makes no lanes of one.
    low = w.low
    low[:] = np.inf
    for i in range(0, TILE, 16):
        for lane in range(16):
            low[lane] = min(low[lane], bound[i + lane])
    return low.min()


@njit(cache=True, fastmath=_SUMS)
def _rounded_gap(tail, i, query, step, squared):
    """The distance to a rounded key, given the squared one over its head."""
    total = squared
    for j in range(tail.shape[1]):
        gap = query[j] - step[j] * np.float32(tail[i, j])
        total += gap * gap
    return np.sqrt(total)


@njit(cache=True, fastmath=_SUMS)
def _squared_gap(key, keys, i):
    total = 0.0
    for k in range(key.shape[0]):
        gap = np.float64(key[k]) - np.float64(keys[i, k])
        total += gap * gap
    return total


@njit(cache=True)
def _sift(distance, slot, size, d, i):
    """Put (d, i) in the place of the first of a heap of `size`, which is the worst: the farthest,
    of equals that of the highest slot."""
    at = 0
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        right = below + 1
        if right < size and (
            distance[right] > distance[below]
            or (distance[right] == distance[below] and slot[right] > slot[below])
        ):
            below = right
        if distance[below] < d or (distance[below] == d and slot[below] < i):
            break
        distance[at], slot[at] = distance[below], slot[below]
        at = below
    distance[at], slot[at] = d, i


@njit(cache=True)
def _sift_number(heap, size, d):
    """Put d in the place of the first of a heap of `size` numbers, the greatest."""
    at, below = 0, 1
    while below < size:
        # Without branches but one: they could not be predicted.
        below += below + 1 < size and heap[below + 1] > heap[below]
        if heap[below] <= d:
            break
        heap[at] = heap[below]
        at, below = below, 2 * below + 1
    heap[at] = d


@njit(cache=True)
def _ascending(distance, slot, size):
    """Sort a heap: nearest first, of equals the lowest slot."""
    for last in range(size - 1, 0, -1):
        d, i = distance[last], slot[last]
        distance[last], slot[last] = distance[0], slot[0]
        _sift(distance, slot, last, d, i)


@njit(cache=True)
def _first_look(s, action, length, w):
    """Bounds of all keys of an action; the order of its tiles, that of the least bound first."""
    tiles = -(-s.count[action] // TILE)
    for tile in range(tiles):
        head, rest = s.head[action, tile], s.rest[action, tile]
        w.least[tile] = _sweep(head, rest, length, w, tile * TILE)
    return np.argsort(w.least[:tiles])


@njit(cache=True)
def _pick(bound, first, last, limit, left, at):
    """Append the slots in [first, last) whose bound is within the limit; the new length."""
    for i in range(first, last):
        left[at] = i
        at += bound[i] <= limit  # no branch: it could not be predicted
    return at


@njit(cache=True)
def _second_look(s, action, tiles, shift, start, w):
    """Closer bounds of keys that may be among the nearest, whose slots stand in `w.left`; their
    number.

    Invariant: `w.guess` is a heap of the least distances that keys so far have at most, and of
    `start` where there are fewer that are less. So when none of it is `start` any more, as many
    keys as are wanted are no farther than the worst of it, and so no one of the nearest is.
    """
    count, left = s.count[action], 0
    kept = min(count - s.hidden[action], w.guess.shape[0])
    w.guess[:kept] = start
    tail, query, step = s.tail[action], w.query[HEAD:], w.step[HEAD:]
    for tile in tiles:
        if w.least[tile] > w.guess[0] + 2 * shift:
            break
        old, first = left, tile * TILE
        left = _pick(w.bound, first, min(first + TILE, count), w.guess[0] + 2 * shift, w.left, left)
        # In loops of their own, as each waits for what the one before gives: within one loop the
        # next key would wait too.
        for n in range(old, left):
            for j in range(0, tail.shape[1], 64):
                _fetch(tail, w.left[n], j)
        for n in range(old, left):
            i = w.left[n]
            w.most[n] = _rounded_gap(tail, i, query, step, w.squared[i])
        for n in range(old, left):
            lost = s.rest[action, tile, 1, w.left[n] - first]
            w.near[n], w.most[n] = w.most[n] - lost, w.most[n] + lost
        for n in range(old, left):
            if w.most[n] < w.guess[0]:
                _sift_number(w.guess, kept, w.most[n])
    return left


@njit(cache=True)
def _nearest(s, key, action, asked, w, slot, distance):
    """The nearest of an action, nearest first; `asked` is what `_ask` gave.

    Invariant from the third look on: `distance` is a heap of the nearest keys of those that were
    measured, and a key that was passed over is farther than the worst of it.
    """
    length, shift = asked
    distance[:], slot[:] = np.inf, -1
    kept = min(s.count[action] - s.hidden[action], slot.shape[0])
    if kept == 0:
        return
    tiles = _first_look(s, action, length, w)
    # An action's distances are much alike from search to search: the ones before say where this one
    # may begin. It is a guess, and begun anew where it was wrong.
    start = min(w.hint[action] * np.float32(1.1), np.float32(_FAR))
    left = _second_look(s, action, tiles, shift, start, w)
    if w.guess[0] >= start:
        left = _second_look(s, action, tiles, shift, np.float32(_FAR), w)
    slot[:kept], keys = _NOWHERE, s.key[action]
    # Those that are nearest at the worst are measured first: of the others hardly any that is not
    # among the nearest is then within the limit.
    picked = 0
    for n in range(left):
        w.picked[picked] = w.left[n]
        picked += w.most[n] <= w.guess[0]
    _third_look(key, keys, picked, w, kept, slot, distance)
    limit, picked = np.sqrt(distance[0]) + shift, 0
    for n in range(left):
        w.picked[picked] = w.left[n]
        picked += w.most[n] > w.guess[0] and w.near[n] <= limit
    _third_look(key, keys, picked, w, kept, slot, distance)
    _ascending(distance, slot, kept)
    w.hint[action] = np.sqrt(distance[kept - 1])


@njit(cache=True)
def _third_look(key, keys, picked, w, kept, slot, distance):
    """Measure the keys at the slots `w.picked`, and take them into the heap of the nearest."""
    for n in range(min(picked, _AHEAD)):
        for j in range(0, key.shape[0], 16):
            _fetch(keys, w.picked[n], j)
    for n in range(picked):
        if n + _AHEAD < picked:
            for j in range(0, key.shape[0], 16):
                _fetch(keys, w.picked[n + _AHEAD], j)
        w.gap[n] = _squared_gap(key, keys, w.picked[n])
    for n in range(picked):
        d, i = w.gap[n], w.picked[n]
        if d < distance[0] or (d == distance[0] and i < slot[0]):
            _sift(distance, slot, kept, d, i)


@njit(cache=True)
def search(s, keys, actions, w, slot, distance):
    """The p nearest of each key, of equally near ones those of the lowest slots.

    Args:
        keys: float32 [N, d].
        actions: int64 [N, A'], of which to look.
        slot, distance: int64 and float64 [N, A', p], filled, nearest first; -1 and infinite where
            there are fewer. Distances are squared.
    """
    for n in range(keys.shape[0]):
        asked = _ask(s, keys[n], w)
        for a in range(actions.shape[1]):
            _nearest(s, keys[n], actions[n, a], asked, w, slot[n, a], distance[n, a])
