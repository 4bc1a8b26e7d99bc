"""Byte strings of any length in segments of one size, linked where one does not suffice.

A Python bytes object costs hundreds of bytes beside its content and its heap's fragments; here a
string costs its length and 12 bytes. Strings that are put in together should go together: a
segment is used again once nothing in it is held.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit

from rlmem.memories.base.lazy import can_give_back, give_back, lazy_zeros
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import Stateful, array_of

SEGMENT = 16 * 1024  # bytes
RECORD = 16  # bytes of a segment's numbers in the lists beside
BLOB = np.dtype([("segment", np.int32), ("offset", np.int32), ("size", np.int32)])


@njit(cache=True)
def _next_segment(state: np.ndarray, free: np.ndarray, returned: np.ndarray) -> Any:
    if state[1] > 0:
        state[1] -= 1
        return free[state[1]]
    if state[4] > 0:
        state[4] -= 1
        return returned[state[4]]
    state[0] += 1
    return state[0] - 1


@njit(cache=True)
def _put(
    data: np.ndarray,
    blob: Any,
    segments: np.ndarray,
    following: np.ndarray,
    held: np.ndarray,
    free: np.ndarray,
    returned: np.ndarray,
    state: np.ndarray,
) -> None:
    size = segments.shape[1]
    current, offset = state[2], state[3]
    if current < 0 or offset == size:
        current, offset = _next_segment(state, free, returned), 0
        held[current] = 0
    blob[0].segment = current
    blob[0].offset = offset
    blob[0].size = len(data)
    held[current] += 1
    done = 0
    while True:
        count = min(len(data) - done, size - offset)
        segments[current, offset : offset + count] = data[done : done + count]
        done += count
        offset += count
        if done == len(data):
            break
        fresh = _next_segment(state, free, returned)
        following[current] = fresh
        current, offset = fresh, 0
        held[current] = 1
    state[2], state[3] = current, offset


@njit(cache=True)
def _put_all(
    data: np.ndarray,
    blobs: Any,
    segments: np.ndarray,
    following: np.ndarray,
    held: np.ndarray,
    free: np.ndarray,
    returned: np.ndarray,
    state: np.ndarray,
) -> None:
    at = 0
    for i in range(len(blobs)):
        size = blobs[i].size
        part, blob = data[at : at + size], blobs[i : i + 1]
        _put(part, blob, segments, following, held, free, returned, state)
        at += size


@njit(cache=True)
def _release(
    blobs: np.ndarray,
    size: int,
    following: np.ndarray,
    held: np.ndarray,
    free: np.ndarray,
    state: np.ndarray,
) -> None:
    for i in range(len(blobs)):
        segment, left = blobs[i].segment, blobs[i].offset + blobs[i].size
        while True:
            after = following[segment]
            held[segment] -= 1
            if held[segment] == 0:
                if segment == state[2]:
                    state[3] = 0  # from its beginning again
                else:
                    free[state[1]] = segment
                    state[1] += 1
            if left <= size:
                break
            left -= size
            segment = after


@njit(cache=True)
def _gather(blobs: Any, segments: np.ndarray, following: np.ndarray, out: np.ndarray) -> None:
    size, at = segments.shape[1], 0
    for i in range(len(blobs)):
        segment, offset, left = blobs[i].segment, blobs[i].offset, blobs[i].size
        while left > 0:
            count = min(left, size - offset)
            out[at : at + count] = segments[segment, offset : offset + count]
            at += count
            left -= count
            segment, offset = following[segment], 0


@njit(cache=True)
def _restore(
    data: np.ndarray, blobs: Any, segments: np.ndarray, following: np.ndarray, held: np.ndarray
) -> None:
    size, at = segments.shape[1], 0
    for i in range(len(blobs)):
        segment, offset, left = blobs[i].segment, blobs[i].offset, blobs[i].size
        while True:
            count = min(left, size - offset)
            segments[segment, offset : offset + count] = data[at : at + count]
            held[segment] += 1
            at += count
            left -= count
            if left == 0:
                break
            segment, offset = following[segment], 0


class Arena(Stateful):
    """Byte strings in segments.

    Args:
        limit: bytes of address space; memory is taken as it is written.
    """

    def __init__(self, limit: int) -> None:
        self._allocate(-(-limit // SEGMENT) + 1)

    def _allocate(self, count: int) -> None:
        segments = lazy_zeros((count, SEGMENT), np.uint8, least=0)
        lists = [lazy_zeros((count,), np.int32) for _ in range(4)]
        self._segments = segments
        self._following, self._held = lists[:2]  # next of a string's; strings that touch it
        self._free, self._returned = lists[2:]  # stacks: of free ones, of those given back
        # Touched, free, current segment, offset in it, given back.
        self._state = np.array([0, 0, -1, 0, 0])

    def put(self, data: np.ndarray) -> np.ndarray:
        """Take in a string (uint8 [n], n > 0); where it lies, BLOB [1]."""
        blob = np.empty(1, BLOB)
        _put(
            data,
            blob,
            self._segments,
            self._following,
            self._held,
            self._free,
            self._returned,
            self._state,
        )
        return blob

    @property
    def limit(self) -> int:
        """Bytes of strings for which there is address space."""
        return (len(self._held) - 1) * SEGMENT

    def missing(self, size: int) -> int:
        """Bytes by which strings of `size` bytes together would let the arena grow."""
        return self.bytes_of(max(0, self._segments_for(size) - int(self._state[1])))

    @staticmethod
    def bytes_of(segments: int) -> int:
        """Bytes of so many segments."""
        return segments * (SEGMENT + RECORD)

    def _segments_for(self, size: int) -> int:
        """Segments that would be begun."""
        current, offset = int(self._state[2]), int(self._state[3])
        room = SEGMENT - offset if current >= 0 else 0
        return max(0, -(-(size - room) // SEGMENT))

    def release(self, blobs: np.ndarray) -> None:
        """Let go of strings, BLOB [n]."""
        _release(blobs, SEGMENT, self._following, self._held, self._free, self._state)

    def gather(self, blobs: np.ndarray) -> np.ndarray:
        """The strings one after the other, uint8."""
        out = np.empty(int(blobs["size"].sum()), np.uint8)
        _gather(blobs, self._segments, self._following, out)
        return out

    @property
    def occupied(self) -> int:
        """Bytes of the segments that hold something."""
        return int(self._state[0] - self._state[1] - self._state[4]) * SEGMENT

    def repack(self, blobs: np.ndarray) -> np.ndarray:
        """Put all strings held (BLOB [n]) together anew, and return the segments that this frees to
        the system; where the strings lie then, BLOB [n]. Takes a second copy while it works."""
        data, moved = self.gather(blobs), blobs.copy()
        self.release(blobs)
        _put_all(
            data,
            moved,
            self._segments,
            self._following,
            self._held,
            self._free,
            self._returned,
            self._state,
        )
        self.give_back(self.limit, 0)
        return moved

    def clear(self) -> None:
        """Let go of everything."""
        self._state[:] = 0, 0, -1, 0, 0

    def state_views(self) -> State:
        """How the segments are used, without what they hold: `gather` gives that."""
        touched, free, _, _, returned = self._state
        return {
            "arena.state": self._state,
            "arena.following": self._following[:touched],
            "arena.free": self._free[:free],
            "arena.returned": self._returned[:returned],
        }

    def check_state(self, state: State) -> None:
        touched, free, current, offset, returned = array_of(state, "arena.state", np.int64, (5,))
        following, *unused = (
            array_of(state, f"arena.{name}", np.int32, (-1,))
            for name in ("following", "free", "returned")
        )
        fits = (len(following), *map(len, unused)) == (touched, free, returned)
        unused = np.concatenate(unused)
        fits = fits and 0 <= offset <= SEGMENT and -1 <= current < touched
        if not fits or ((unused < 0) | (unused >= touched)).any():
            raise ValueError("the saved memory is damaged: no such segments")

    def check_strings(self, state: State, blobs: np.ndarray, size: int) -> None:
        """Refuse strings that cannot have lain in the arena of a checked state.

        Args:
            blobs: where they lay, BLOB [n].
            size: bytes of all of them.

        Raises:
            ValueError: there is no such place, or they are of another size.
        """
        inside = (blobs["segment"] >= 0) & (blobs["segment"] < state["arena.state"][0])
        inside &= (blobs["offset"] >= 0) & (blobs["offset"] <= SEGMENT) & (blobs["size"] > 0)
        if not inside.all() or blobs["size"].sum(dtype=np.int64) != size:
            raise ValueError("the saved memory is damaged: no such strings")

    def least_bytes(self, state: State, blobs: np.ndarray) -> int:
        """Bytes held with a checked state, once all strings but `blobs` (BLOB [n]) are released
        and what then is free is given back, if it can be."""
        touched, _, current, _, returned = state["arena.state"]
        segments = touched - returned
        if self.gives_back:
            following = np.clip(state["arena.following"], 0, max(0, touched - 1))
            kept = set(_segments_of(blobs, following))
            segments = len(kept | {current} if current >= 0 else kept)
        return int(segments) * SEGMENT + int(touched) * RECORD

    def make_room(self, state: State) -> None:
        """Have address space for a checked state; what is held is lost where there was less.

        Raises:
            UserError: the system has none; nothing was changed.
        """
        touched = int(state["arena.state"][0])
        if touched > len(self._held):  # it may pass a budget until it shrinks
            self._allocate(touched)

    def take_over(self, state: State) -> None:
        """Take over how segments were used; `restore` then brings the strings.

        So a loaded arena has the free room and the holes of the saved one: under a budget, what is
        evicted next hangs on both.
        """
        self.make_room(state)
        self._state[:] = saved = state["arena.state"]
        touched, free, _, _, returned = saved
        self._held[:touched] = 0
        # Of segments that nothing runs through, what stood there before is saved as well.
        self._following[:touched] = np.clip(state["arena.following"], 0, max(0, touched - 1))
        self._free[:free] = state["arena.free"]
        self._returned[:returned] = state["arena.returned"]

    def restore(self, blobs: np.ndarray, data: np.ndarray) -> None:
        """Put strings (uint8, one after the other) that `check_strings` let pass where they lay,
        BLOB [n]."""
        _restore(data, blobs, self._segments, self._following, self._held)

    @property
    def nbytes(self) -> int:
        """Bytes held: all segments ever touched."""
        return int(self._state[0] - self._state[4]) * SEGMENT + int(self._state[0]) * RECORD

    def give_back(self, size: int, keep: int) -> int:
        """Return free segments of `size` bytes to the system, but none that strings of `keep`
        bytes would need; the bytes that it took."""
        count = min(int(self._state[1]) - self._segments_for(keep), -(-size // SEGMENT))
        given = 0
        while given < count and give_back(self._segments, int(self._free[self._state[1] - 1]), 1):
            self._state[1] -= 1
            self._returned[self._state[4]] = self._free[self._state[1]]
            self._state[4] += 1
            given += 1
        return given * SEGMENT

    @property
    def gives_back(self) -> bool:
        """Whether the system takes single segments back."""
        return can_give_back(self._segments)

    def check_valid(self, blobs: np.ndarray) -> None:
        """Assert that the strings held are `blobs`, and that every segment is held or free."""
        touched, free, current, _, returned = self._state
        held = np.zeros(touched, np.int32)
        for segment in _segments_of(blobs, self._following):
            held[segment] += 1
        unused = np.flatnonzero(held == 0)
        unused = unused[unused != current]
        assert np.array_equal(held[held > 0], self._held[:touched][held > 0]), "a wrong count"
        assert np.array_equal(
            np.sort(np.concatenate([self._free[:free], self._returned[:returned]])), unused
        ), "segments lost or free twice"


def _segments_of(blobs: np.ndarray, following: np.ndarray) -> Iterator[int]:
    """The segments that each string runs through."""
    for segment, offset, size in blobs.tolist():
        left = offset + size
        while left > SEGMENT:
            yield segment
            segment, left = int(following[segment]), left - SEGMENT
        yield segment
