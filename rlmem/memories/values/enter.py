"""Writing entries of a dictionary in numba: same states, new states, the least recently used.

A table with open addressing finds the entry of a state: of a place it holds the entry's number
(action * C + slot), or -1. In the signatures `s` is a `Slabs`, `t` a `Lookup`.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from rlmem.memories.values.screen import set_screen

# For numba's cache: tests/memories/test_compiled_with.py says why, and what to write here.
COMPILED_WITH = {"screen": "bb27795c426a"}

_FREE = -1


class Lookup(NamedTuple):
    """How entries are found by state and by age.

    Attributes:
        table: int32 [T], T a power of two and more than the entries.
        oldest: int64 [A, K, 2], slots of an action's oldest entries, oldest first, and when each
            had been used: who was used since is no candidate any more.
        turn: int64 [A, 2], how far `oldest` was gone through, and its length.
        clock: int64 [1], of `Slabs.used`.
    """

    table: np.ndarray
    oldest: np.ndarray
    turn: np.ndarray
    clock: np.ndarray


class Rows(NamedTuple):
    """n values to enter, and where they came to stand."""

    key: np.ndarray  # float32 [n, d]
    action: np.ndarray  # int64 [n]
    value: np.ndarray  # float32 [n]
    hash: np.ndarray  # int64 [n]
    slot: np.ndarray  # int64 [n], filled


class Rule(NamedTuple):
    """What becomes of the value of a state that is known.

    Attributes:
        step: v += step (R - v).
        best: v = max(v, R) instead.
        by_key: states are the same where keys are; hashes are then those of keys.
    """

    step: float
    best: bool
    by_key: bool


@njit(cache=True)
def _place(t, action, state):
    """Where the search for a state begins (the finalizer of splitmix64)."""
    x = np.uint64(state) ^ (np.uint64(action + 1) * np.uint64(0x9E3779B97F4A7C15))
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64((x ^ (x >> np.uint64(31))) & np.uint64(t.table.shape[0] - 1))


@njit(cache=True)
def _same(a, b):
    for k in range(a.shape[0]):  # noqa: SIM110 (compiled)
        if a[k] != b[k]:
            return False
    return True


@njit(cache=True)
def _find(s, t, rows, n, by_key):
    """The slot of a row's state among the entries of its action, or -1.

    Invariant of the table: from the place where a state's search begins to its entry no place is
    free. So a free one ends the search.
    """
    action, size = rows.action[n], s.hash.shape[1]
    at = _place(t, action, rows.hash[n])
    while t.table[at] != _FREE:
        number = t.table[at]
        slot = number % size
        own = number // size == action and s.hash[action, slot] == rows.hash[n]
        # Hashes of states stand for the states; those of keys only say where to compare.
        if own and (not by_key or _same(s.key[action, slot], rows.key[n])):
            return slot
        at = (at + 1) & (t.table.shape[0] - 1)
    return -1


@njit(cache=True)
def index(s, t, action, slot):
    """Enter an entry into the table; `Slabs.hash` has its state already."""
    at = _place(t, action, s.hash[action, slot])
    while t.table[at] != _FREE:
        at = (at + 1) & (t.table.shape[0] - 1)
    t.table[at] = action * s.hash.shape[1] + slot


@njit(cache=True)
def _forget(s, t, action, slot):
    """Take an entry out of the table, and keep the invariant."""
    size, last = s.hash.shape[1], t.table.shape[0] - 1
    at = _place(t, action, s.hash[action, slot])
    while t.table[at] != action * size + slot:
        at = (at + 1) & last
    gap, at = at, (at + 1) & last
    while t.table[at] != _FREE:
        number = t.table[at]
        began = _place(t, number // size, s.hash[number // size, number % size])
        # An entry may fill the gap unless its search begins behind the gap (in a circle).
        if (at - began) & last >= (at - gap) & last:
            t.table[gap] = number
            gap = at
        at = (at + 1) & last
    t.table[gap] = _FREE


@njit(cache=True)
def _least_used(s, t, action):
    """The slot of an action that was used longest ago; -1: `oldest` must be made anew."""
    while t.turn[action, 0] < t.turn[action, 1]:
        slot, used = t.oldest[action, t.turn[action, 0]]
        t.turn[action, 0] += 1
        if s.used[action, slot] == used:
            return slot
    return -1


@njit(cache=True)
def enter(s, t, rows, rule, first, row):
    """Enter rows from `first` on; the first that is not entered: for it the table is to be made
    larger or, if its action is full, the entries used longest ago are to be found
    (`Lookup.oldest`)."""
    for n in range(first, rows.action.shape[0]):
        action = rows.action[n]
        slot = _find(s, t, rows, n, rule.by_key)
        if slot >= 0:
            known = s.value[action, slot]
            if rule.best:
                s.value[action, slot] = max(known, rows.value[n])
            else:
                s.value[action, slot] = known + rule.step * (np.float64(rows.value[n]) - known)
        else:
            if s.count[action] < s.hash.shape[1]:
                if 2 * (s.count.sum() + 1) > t.table.shape[0]:
                    return n
                slot = s.count[action]
                s.count[action] += 1
            else:
                slot = _least_used(s, t, action)
                if slot < 0:
                    return n
                _forget(s, t, action, slot)
            s.hash[action, slot] = rows.hash[n]
            s.value[action, slot] = rows.value[n]
            index(s, t, action, slot)
        s.key[action, slot] = rows.key[n]
        set_screen(s, action, slot, row)
        t.clock[0] += 1
        s.used[action, slot] = t.clock[0]
        rows.slot[n] = slot
    return rows.action.shape[0]


@njit(cache=True)
def hash_rows(bits, out):
    """Hashes int64 [n] of rows int32 [n, d], equal where the rows are (FNV-1a by words)."""
    for n in range(bits.shape[0]):
        x = np.uint64(0xCBF29CE484222325)
        for k in range(bits.shape[1]):
            x = (x ^ np.uint64(np.uint32(bits[n, k]))) * np.uint64(0x100000001B3)
            x ^= x >> np.uint64(29)
        out[n] = np.int64(x)


@njit(cache=True)
def touch(s, t, actions, slot):
    """Entries `slot` int64 [N, A', p] of `actions` int64 [N, A'] were found: each key's at one
    time, the keys' one after the other."""
    for n in range(slot.shape[0]):
        t.clock[0] += 1
        for a in range(slot.shape[1]):
            for i in range(slot.shape[2]):
                if slot[n, a, i] < 0:
                    break
                s.used[actions[n, a], slot[n, a, i]] = t.clock[0]


@njit(cache=True)
def rescreen(s, row):
    """Give all entries their places on the screen anew."""
    s.reach[0] = 0.0
    for action in range(s.count.shape[0]):
        for slot in range(s.count[action]):
            set_screen(s, action, slot, row)


@njit(cache=True)
def reindex(s, t):
    """Enter all entries into the table, which is made free first."""
    t.table[:] = _FREE
    for action in range(s.count.shape[0]):
        for slot in range(s.count[action]):
            index(s, t, action, slot)


@njit(cache=True)
def answer(s, actions, slot, distance, delta, out):
    """Values float32 [N, A'] of what was found.

    By inverse distance, weights 1 / (distance^2 + delta); with `delta` < 0 the mean, or the value
    of the state itself where it is there, at distance 0 (MFEC).
    """
    for n in range(slot.shape[0]):
        for a in range(slot.shape[1]):
            total = weights = 0.0
            for i in range(slot.shape[2]):
                if slot[n, a, i] < 0 or (delta < 0 and i > 0 and distance[n, a, 0] == 0.0):
                    break
                weight = 1.0 if delta < 0 else 1.0 / (distance[n, a, i] + delta)
                total += weight * s.value[actions[n, a], slot[n, a, i]]
                weights += weight
            out[n, a] = total / weights if weights > 0 else 0.0
