"""The records of a ring, and the one block of memory in which they lie.

Frames lie in chains, one an environment: the observations of an episode and its last next
observation, one after the other, cut into chunks of `length` frames. A frame's place is
`chunk * length + position`; a transition points to the oldest frame of its stack, and all that it
needs lies ahead of it in the chain.

Slots form a ring that may grow: a new slot is added only when the cursor stands at the ring's end
and every slot is in use, so the order of the slots remains the order of time.

Compiled functions take the block whole and cut it themselves, which costs them nothing: a call
from Python costs 50 to 150 ns for each array that it is given.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from rlmem.memories.base.lazy import lazy_zeros

Records = Any  # array of one of the dtypes below

ROW = np.dtype(  # one transition
    [
        ("chunk", np.int32),  # of the oldest frame of its stack
        ("reward", np.float32),
        ("position", np.uint8),  # of that frame in the chunk
        ("depth", np.uint8),  # frames from there to the observation
        ("after", np.uint8),  # transitions until its successor, 0: none yet; see FAR
    ]
)
# `after` of a successor that is so many transitions away or more: look for it from there on.
# FAR + 1, + 2, + 3: there is none, as the episode terminated, was truncated, or both (`ends_of`).
FAR = 252
CHUNK = np.dtype(
    [
        ("next", np.int32),  # chunk that follows in the environment's chain; -1: none yet
        ("env", np.int32),
        ("ordinal", np.int32),  # number of the chunk in its environment's chain
        ("closed", np.int32),  # number among all chunks in the order of filling; -1: open
        ("free", np.int32),  # not of this chunk: the stack of free chunk places lies here
    ]
)
CHAIN = np.dtype(  # one environment
    [
        ("head", np.int32),  # oldest chunk held; -1: none
        ("chunk", np.int32),  # newest chunk
        ("position", np.int32),  # of the newest frame in it
        ("chunks", np.int32),  # chunks ever begun
        ("depth", np.int32),  # frames of the episode before the newest one, at most stack - 1
        ("running", np.bool_),  # whether the newest frame waits for its transition
        ("slot", np.int64),  # of the newest transition
        ("seq", np.int64),  # of the newest transition
    ]
)
MADE_OF = ("capacity", "num_envs", "stack", "length", "most_chunks")  # lengths, which stay
COUNTED = (
    "size",  # slots in use or waiting to be
    "cursor",  # slot after the newest
    "window",  # transitions held
    "written",  # transitions ever written
    "chunks",  # chunk places touched
    "free",  # of these, free ones
    "closed",  # chunks ever filled
)
COUNTS = np.dtype([(name, np.int64) for name in (*MADE_OF, *COUNTED)])
_COUNTS, _ROW, _CHUNK, _CHAIN = (r.itemsize for r in (COUNTS, ROW, CHUNK, CHAIN))


class RingArrays(NamedTuple):
    """Views of a ring's memory, for Python and inside compiled functions."""

    memory: np.ndarray  # uint8, all that follows
    counts: Records  # COUNTS [1]
    recent: np.ndarray  # places of each chain's newest frames, the newest last, int64 [E, stack]
    rows: Records  # ROW [capacity]
    chunks: Records  # CHUNK [most_chunks]
    chains: Records  # CHAIN [E]

    @property
    def head(self) -> Any:
        """The one record of the counts."""
        return self.counts[0]

    def cursors(self) -> tuple[int, int, int]:
        """Slots in use, the slot after the newest, transitions held."""
        head = self.head
        return int(head["size"]), int(head["cursor"]), int(head["window"])

    def slots_of(self, first: int, end: int) -> np.ndarray:
        """Slots of the transitions numbered [first, end), int64."""
        head = self.head
        behind = int(head["cursor"] - head["written"])
        return (behind + np.arange(first, end)) % max(1, int(head["size"]))

    def links(self, slots: np.ndarray) -> np.ndarray:
        """Transitions until the successor of each, int64 [n]; 0: none."""
        return links_of(self.memory, slots)

    def held_chunks(self) -> np.ndarray:
        """Places of the chunks that are held, int64 [n]."""
        held = np.ones(self.head["chunks"], np.bool_)
        held[self.chunks["free"][: self.head["free"]]] = False
        return np.flatnonzero(held)

    def full_chunks(self) -> np.ndarray:
        """Places of the full chunks that are held, in the order of filling, int64 [n]."""
        held, closed = self.held_chunks(), self.chunks["closed"]
        held = held[closed[held] >= 0]
        return held[np.argsort(closed[held])]

    def clear(self) -> None:
        """Hold nothing."""
        for name in COUNTED:
            self.counts[name] = 0
        self.chains[:] = np.zeros(1, CHAIN)
        self.chains["head"] = self.chains["chunk"] = -1


def new_arrays(capacity: int, num_envs: int, stack: int, length: int) -> RingArrays:
    """The arrays of an empty ring.

    Args:
        capacity: transitions.
        stack: frames in an observation.
        length: frames of a chunk.

    Raises:
        UserError: the system has no address space for them.
    """
    # A transition begins two frames at most; each chain has an open and a half-used chunk.
    chunks = -(-2 * capacity // length) + num_envs * (3 + -(-stack // length))
    size = _COUNTS + num_envs * (8 * stack + _CHAIN) + capacity * _ROW + chunks * _CHUNK
    memory = lazy_zeros((size,), np.uint8)
    head = memory[:_COUNTS].view(COUNTS)
    for name, value in zip(MADE_OF, (capacity, num_envs, stack, length, chunks), strict=True):
        head[name] = value
    arrays = arrays_of.py_func(memory)
    arrays.clear()
    return arrays


@njit(cache=True)
def arrays_of(memory: np.ndarray) -> RingArrays:
    """The arrays that lie in a ring's memory."""
    counts = memory[:_COUNTS].view(COUNTS)
    head = counts[0]
    # Whole words come first, so that each array is aligned without gaps.
    recent = _COUNTS + 8 * head["num_envs"] * head["stack"]
    rows = recent + _ROW * head["capacity"]
    chunks = rows + _CHUNK * head["most_chunks"]
    return RingArrays(
        memory,
        counts,
        memory[_COUNTS:recent].view(np.int64).reshape(head["num_envs"], head["stack"]),
        memory[recent:rows].view(ROW),
        memory[rows:chunks].view(CHUNK),
        memory[chunks:].view(CHAIN),
    )


@njit(cache=True)
def link_of(ring: RingArrays, slot: int) -> Any:
    """Transitions until the successor of the one at a slot; 0: none."""
    rows, head = ring.rows, ring.counts[0]
    link = np.int64(rows[slot].after)
    if link == FAR:  # the next one of its environment, from there on
        env = ring.chunks[rows[slot].chunk].env
        while ring.chunks[rows[(slot + link) % head.size].chunk].env != env:
            link += 1
    return link if link < FAR or rows[slot].after == FAR else 0


@njit(cache=True)
def links_of(memory: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """`link_of` of each slot, int64 [n]."""
    ring = arrays_of(memory)
    links = np.empty(len(slots), np.int64)
    for i in range(len(slots)):
        links[i] = link_of(ring, slots[i])
    return links


def ends_of(rows: Records) -> tuple[np.ndarray, np.ndarray]:
    """Whether transitions (ROW [...]) are terminated, and whether truncated, bool [...]."""
    ends = np.maximum(rows["after"], FAR) - FAR
    return ends & 1 > 0, ends & 2 > 0


def after_ends(terminated: np.ndarray, truncated: np.ndarray) -> np.ndarray:
    """What `after` is of such transitions that have no successor, uint8 [n]."""
    ends = terminated + 2 * truncated.astype(np.uint8)
    return np.where(ends > 0, FAR + ends, 0).astype(np.uint8)


@njit(cache=True)
def same_bytes(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two rows of bytes are equal."""
    different = np.uint8(0)  # without a way out of the loop, many bytes are compared at once
    for i in range(a.shape[0]):
        different |= a[i] ^ b[i]
    return different == 0


@njit(cache=True)
def copy_bytes(source: np.ndarray, target: np.ndarray) -> None:
    """Copy a row of bytes; compiled, it is quicker than a slice for short ones."""
    for i in range(source.shape[0]):
        target[i] = source[i]
