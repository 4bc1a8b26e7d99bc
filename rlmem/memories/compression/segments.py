"""Where the strings of an arena lie, in numba: segments of one size, linked where a string needs
more than one.

In the signatures `a` is a `Segments`, `blobs` are BLOB [n].
"""

from typing import NamedTuple

import numpy as np
from numba import njit

SEGMENT = 16 * 1024  # bytes
RECORD = 16  # bytes of a segment's numbers in the lists beside
BLOB = np.dtype([("segment", np.int32), ("offset", np.int32), ("size", np.int32)])
# Places in `state`: segments ever touched, free ones, the one that is being filled (-1: none) and
# up to where, those given back to the system.
TOUCHED, FREE, CURRENT, OFFSET, RETURNED = range(5)


class Segments(NamedTuple):
    """The arrays of an arena."""

    data: np.ndarray  # uint8 [S, SEGMENT]
    following: np.ndarray  # int32 [S], where a string goes on that runs over the segment's end
    held: np.ndarray  # int32 [S], strings that touch it
    free: np.ndarray  # int32 [S], a stack of those that nothing touches
    returned: np.ndarray  # int32 [S], a stack of those whose pages the system has
    state: np.ndarray  # int64 [5]


@njit(cache=True)
def _next_segment(a):
    """A segment that nothing touches: a free one costs no new bytes, so that these go first."""
    if a.state[FREE] > 0:
        a.state[FREE] -= 1
        return np.int64(a.free[a.state[FREE]])
    if a.state[RETURNED] > 0:
        a.state[RETURNED] -= 1
        return np.int64(a.returned[a.state[RETURNED]])
    a.state[TOUCHED] += 1
    return a.state[TOUCHED] - 1


@njit(cache=True)
def _copy(source, target):
    """Six times as quick as a slice of a slice, which numba looks at for overlaps first."""
    for k in range(len(source)):
        target[k] = source[k]


@njit(cache=True)
def put(data, blobs, a):
    """Take in strings of blobs[i].size bytes, one after the other in `data`; enter where they
    lie."""
    size, at = a.data.shape[1], 0
    current, offset = a.state[CURRENT], a.state[OFFSET]
    # Before each string: `current` is filled up to `offset`, and counts the strings that touch it.
    for i in range(len(blobs)):
        if current < 0 or offset == size:
            current, offset = _next_segment(a), 0
            a.held[current] = 0
        blobs[i].segment, blobs[i].offset = current, offset
        a.held[current] += 1
        end = at + blobs[i].size
        while True:
            count = min(end - at, size - offset)
            _copy(data[at : at + count], a.data[current, offset : offset + count])
            at += count
            offset += count
            if at == end:  # also where both end at once: no string begins a segment for nothing
                break
            fresh = _next_segment(a)
            a.following[current] = fresh
            current, offset = fresh, 0
            a.held[current] = 1
    a.state[CURRENT], a.state[OFFSET] = current, offset


@njit(cache=True)
def release(blobs, a):
    """Let go of strings; a segment is free once the last one that touched it has gone."""
    size = a.data.shape[1]
    for i in range(len(blobs)):
        segment, left = blobs[i].segment, blobs[i].offset + blobs[i].size
        # Before each turn: `left` bytes from the segment's beginning on belong to the string or
        # stand before it.
        while True:
            after = a.following[segment]
            a.held[segment] -= 1
            if a.held[segment] == 0:
                if segment == a.state[CURRENT]:
                    a.state[OFFSET] = 0  # it stays the current one, from its beginning again
                else:
                    a.free[a.state[FREE]] = segment
                    a.state[FREE] += 1
            if left <= size:
                break
            left -= size
            segment = after


@njit(cache=True)
def gather(blobs, a, out):
    """Copy strings out, one after the other."""
    size, at = a.data.shape[1], 0
    for i in range(len(blobs)):
        segment, offset, left = blobs[i].segment, blobs[i].offset, blobs[i].size
        while left > 0:  # only the first part begins within a segment
            count = min(left, size - offset)
            _copy(a.data[segment, offset : offset + count], out[at : at + count])
            at += count
            left -= count
            segment, offset = a.following[segment], 0


@njit(cache=True)
def restore(data, blobs, a):
    """Put strings where they lay, along the links that are there."""
    size, at = a.data.shape[1], 0
    for i in range(len(blobs)):
        segment, offset, left = blobs[i].segment, blobs[i].offset, blobs[i].size
        while True:
            count = min(left, size - offset)
            _copy(data[at : at + count], a.data[segment, offset : offset + count])
            a.held[segment] += 1
            at += count
            left -= count
            if left == 0:
                break
            segment, offset = a.following[segment], 0
