"""Index arithmetic of hindsight goals: walks along an episode's links in a ring storage."""

import numpy as np
from numba import njit

from rlmem.memories.ring.records import Records


@njit(cache=True)
def last_of_episode(index: np.ndarray, ring: Records, rows: Records) -> np.ndarray:
    """Slots of the newest transitions held of the episodes of `index`, int64 [n]."""
    size = ring[0].size
    found = np.empty(len(index), np.int64)
    for i in range(len(index)):
        slot = index[i]
        while rows[slot].link > 0:
            slot = (slot + rows[slot].link) % size
        found[i] = slot
    return found


@njit(cache=True)
def pick_of_episode(
    index: np.ndarray, draw: np.ndarray, ring: Records, rows: Records, back: np.ndarray
) -> np.ndarray:
    """Slots drawn from the episodes of the transitions `index`, each with the same probability.

    Args:
        index: slots, int64 [n].
        draw: numbers in [0, 1), float64 [n].
        back: transitions since the predecessor of each slot, int32 [capacity]; 0: none. Empty: only
            a transition itself and those behind it are drawn from.

    Returns:
        int64 [n].
    """
    r = ring[0]
    found = np.empty(len(index), np.int64)
    for i in range(len(index)):
        first = index[i]
        age = (r.cursor - 1 - first) % r.size
        count = 1
        while len(back) > 0 and back[first] > 0 and age + back[first] < r.window:
            age += back[first]
            first = (first - back[first]) % r.size
            count += 1
        slot = index[i]
        while rows[slot].link > 0:
            slot = (slot + rows[slot].link) % r.size
            count += 1
        slot = first
        for _ in range(int(draw[i] * count)):
            slot = (slot + rows[slot].link) % r.size
        found[i] = slot
    return found
