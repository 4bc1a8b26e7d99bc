"""Index arithmetic of hindsight goals: walks along an episode's links in a ring storage."""

import numpy as np
from numba import njit

from rlmem.memories.ring.records import arrays_of, link_of

COMPILED_WITH = {"records": "109bac0e96e1"}


@njit(cache=True)
def last_of_episode(index: np.ndarray, memory: np.ndarray) -> np.ndarray:
    """Slots of the newest transitions held of the episodes of `index`, int64 [n].

    Args:
        memory: of the ring.
    """
    ring = arrays_of(memory)
    size = ring.counts[0].size
    found = np.empty(len(index), np.int64)
    for i in range(len(index)):
        slot = index[i]
        link = link_of(ring, slot)
        while link > 0:
            slot = (slot + link) % size
            link = link_of(ring, slot)
        found[i] = slot
    return found


@njit(cache=True)
def pick_of_episode(
    index: np.ndarray, draw: np.ndarray, memory: np.ndarray, back: np.ndarray
) -> np.ndarray:
    """Slots drawn from the episodes of the transitions `index`, each with the same probability.

    Args:
        index: slots, int64 [n].
        draw: numbers in [0, 1), float64 [n].
        memory: of the ring.
        back: transitions since the predecessor of each slot, int32 [capacity]; 0: none. Empty: only
            a transition itself and those behind it are drawn from.

    Returns:
        int64 [n].
    """
    ring = arrays_of(memory)
    r = ring.counts[0]
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
        link = link_of(ring, slot)
        while link > 0:
            slot = (slot + link) % r.size
            link = link_of(ring, slot)
            count += 1
        slot = first
        for _ in range(int(draw[i] * count)):
            slot = (slot + link_of(ring, slot)) % r.size
        found[i] = slot
    return found
