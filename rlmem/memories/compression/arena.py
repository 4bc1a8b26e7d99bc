"""Byte strings of any length in segments of one size, linked where one does not suffice.

A Python bytes object costs hundreds of bytes beside its content and its heap's fragments; here a
string costs its length and 12 bytes. Strings that are put in together should go together: a
segment is used again once nothing in it is held.
"""

from collections.abc import Iterator

import numpy as np

from rlmem.memories.base.lazy import can_give_back, give_back, give_back_all, lazy_zeros
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import Stateful, array_of
from rlmem.memories.compression import segments
from rlmem.memories.compression.segments import (
    BLOB,
    CURRENT,
    FREE,
    OFFSET,
    RECORD,
    RETURNED,
    SEGMENT,
    TOUCHED,
    Segments,
)


class Arena(Stateful):
    """Byte strings in segments.

    Args:
        limit: bytes of address space; memory is taken as it is written.
    """

    def __init__(self, limit: int) -> None:
        # One is begun; two more where strings that were put anew lie before the older ones.
        self._allocate(-(-limit // SEGMENT) + 3)

    def _allocate(self, count: int) -> None:
        data = lazy_zeros((count, SEGMENT), np.uint8, least=0)
        lists = [lazy_zeros((count,), np.int32) for _ in range(4)]
        self.segments = Segments(data, *lists, state=np.array([0, 0, -1, 0, 0]))

    def put(self, data: np.ndarray) -> np.ndarray:
        """Take in a string (uint8 [n], n > 0); where it lies, BLOB [1].

        Raises:
            MemoryError: there is no address space for it. Who makes an arena gives it as much as
                the strings can come to; written behind it, they would be over something else.
        """
        if not self.has_room(len(data), None):
            raise MemoryError(f"an arena of {self.limit} bytes is full")
        blob = np.empty(1, BLOB)
        blob["size"] = len(data)
        segments.put(data, blob, self.segments)
        return blob

    @property
    def limit(self) -> int:
        """Bytes of strings for which there is address space."""
        return (len(self.segments.held) - 3) * SEGMENT

    def missing(self, size: int) -> int:
        """Bytes by which strings of `size` bytes together would let the arena grow."""
        return self.bytes_of(max(0, self._segments_for(size) - int(self.segments.state[FREE])))

    def has_room(self, size: int, most: int | None) -> bool:
        """Whether a string of `size` bytes can be put, so that the arena takes at most `most`
        bytes; None: whatever it has address space for."""
        touched, free, _, _, returned = self.segments.state.tolist()
        there = free + returned + len(self.segments.held) - touched
        within = most is None or self.nbytes + self.missing(size) <= most
        return within and self._segments_for(size) <= there

    @staticmethod
    def bytes_of(segments: int) -> int:
        """Bytes of so many segments."""
        return segments * (SEGMENT + RECORD)

    def _segments_for(self, size: int) -> int:
        """Segments that would be begun."""
        current, offset = int(self.segments.state[CURRENT]), int(self.segments.state[OFFSET])
        room = SEGMENT - offset if current >= 0 else 0
        return max(0, -(-(size - room) // SEGMENT))

    def release(self, blobs: np.ndarray) -> None:
        """Let go of strings, BLOB [n]."""
        segments.release(blobs, self.segments)

    def gather(self, blobs: np.ndarray) -> np.ndarray:
        """The strings one after the other, uint8."""
        out = np.empty(int(blobs["size"].sum()), np.uint8)
        segments.gather(blobs, self.segments, out)
        return out

    def firsts(self, blobs: np.ndarray) -> np.ndarray:
        """First bytes of strings, uint8 [n]."""
        return self.segments.data[blobs["segment"], blobs["offset"]]

    @property
    def occupied(self) -> int:
        """Bytes of the segments that hold something."""
        touched, free, _, _, returned = self.segments.state.tolist()
        return (touched - free - returned) * SEGMENT

    def repack(self, blobs: np.ndarray) -> np.ndarray:
        """Put all strings held (BLOB [n]) together anew, and return the segments that this frees to
        the system; where the strings lie then, BLOB [n]. Takes a second copy while it works."""
        data, moved = self.gather(blobs), blobs.copy()
        self.release(blobs)
        segments.put(data, moved, self.segments)
        self.give_back(self.limit, 0)
        return moved

    def clear(self) -> None:
        """Let go of everything; its pages go back to the system."""
        for array in self.segments[:-1]:
            give_back_all(array)
        self.segments.state[:] = 0, 0, -1, 0, 0

    def state_views(self) -> State:
        """How the segments are used, without what they hold: `gather` gives that."""
        a = self.segments
        return {
            "arena.state": a.state,
            "arena.following": a.following[: a.state[TOUCHED]],
            "arena.free": a.free[: a.state[FREE]],
            "arena.returned": a.returned[: a.state[RETURNED]],
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
        if len(np.unique(unused)) < len(unused):
            raise ValueError("the saved memory is damaged: segments are free twice")

    def check_strings(self, state: State, blobs: np.ndarray, size: int) -> None:
        """Refuse strings that cannot have lain in the arena of a checked state.

        Args:
            blobs: where they lay, BLOB [n], all that there were.
            size: bytes of all of them.

        Raises:
            ValueError: there is no such place, two lay in one, they are of another size, or other
                segments are free than those that they leave.
        """
        touched, _, current, offset, _ = state["arena.state"].tolist()
        inside = (blobs["offset"] >= 0) & (blobs["offset"] < SEGMENT) & (blobs["size"] > 0)
        if not inside.all() or blobs["size"].sum(dtype=np.int64) != size:
            raise ValueError("the saved memory is damaged: no such strings")
        segment, start, end = _parts_of(blobs, state["arena.following"])
        if ((segment < 0) | (segment >= touched)).any():
            raise ValueError("the saved memory is damaged: no such strings")
        order = np.lexsort((start, segment))
        segment, start, end = segment[order], start[order], end[order]
        apart = (segment[1:] != segment[:-1]) | (start[1:] >= end[:-1])
        if not apart.all() or (end[segment == current] > offset).any():
            raise ValueError("the saved memory is damaged: strings over one another")
        unused = np.setdiff1d(np.arange(touched), np.append(segment, current))
        free = np.concatenate([state["arena.free"], state["arena.returned"]])
        if not np.array_equal(np.sort(free), unused):
            raise ValueError("the saved memory is damaged: segments lost, or free and in use")

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
        touched = int(state["arena.state"][TOUCHED])
        if touched > len(self.segments.held):  # it may pass a budget until it shrinks
            self._allocate(touched)

    def take_over(self, state: State) -> None:
        """Take over how segments were used; `restore` then brings the strings.

        So a loaded arena has the free room and the holes of the saved one: under a budget, what is
        evicted next hangs on both.
        """
        self.make_room(state)
        a = self.segments
        a.state[:] = state["arena.state"]
        touched, free, _, _, returned = a.state
        a.held[:touched] = 0
        # Of segments that nothing runs through, what stood there before is saved as well.
        a.following[:touched] = np.clip(state["arena.following"], 0, max(0, touched - 1))
        a.free[:free], a.returned[:returned] = state["arena.free"], state["arena.returned"]

    def restore(self, blobs: np.ndarray, data: np.ndarray) -> None:
        """Put strings (uint8, one after the other) that `check_strings` let pass where they lay,
        BLOB [n]."""
        segments.restore(data, blobs, self.segments)

    @property
    def nbytes(self) -> int:
        """Bytes held: all segments ever touched."""
        return self._bytes_of(self.segments.state)

    @classmethod
    def loaded_bytes(cls, state: State) -> int:
        """Bytes held with a checked state."""
        return cls._bytes_of(state["arena.state"])

    @staticmethod
    def _bytes_of(state: np.ndarray) -> int:
        touched, *_, returned = state.tolist()
        return (touched - returned) * SEGMENT + touched * RECORD

    def give_back(self, size: int, keep: int) -> int:
        """Return free segments of `size` bytes to the system, but none that strings of `keep`
        bytes would need; the bytes that it took."""
        a, state = self.segments, self.segments.state
        count = min(int(state[FREE]) - self._segments_for(keep), -(-size // SEGMENT))
        given = 0
        # From the top of one stack to the other: what is free stays free if the system refuses.
        while given < count and give_back(a.data, int(a.free[state[FREE] - 1]), 1):
            state[FREE] -= 1
            a.returned[state[RETURNED]] = a.free[state[FREE]]
            state[RETURNED] += 1
            given += 1
        return given * SEGMENT

    @property
    def gives_back(self) -> bool:
        """Whether the system takes single segments back."""
        return can_give_back(self.segments.data)

    def check_valid(self, blobs: np.ndarray) -> None:
        """Assert that the strings held are `blobs`, and that every segment is held or free."""
        a = self.segments
        touched, free, current, _, returned = a.state
        held = np.zeros(touched, np.int32)
        for segment in _segments_of(blobs, a.following):
            held[segment] += 1
        unused = np.flatnonzero(held == 0)
        unused = unused[unused != current]
        assert np.array_equal(held[held > 0], a.held[:touched][held > 0]), "a wrong count"
        free_ones = np.sort(np.concatenate([a.free[:free], a.returned[:returned]]))
        assert np.array_equal(free_ones, unused), "segments lost or free twice"


def _parts_of(
    blobs: np.ndarray, following: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The part of each segment that each string takes: segment, start, end, int64 [parts].

    Strings end where their links lead to no segment, and that part has its number.
    """
    found: list[np.ndarray] = [np.empty((3, 0), np.int64)]
    segment, start, left = (blobs[name].astype(np.int64) for name in ("segment", "offset", "size"))
    left += start
    # Before each turn: `left` bytes from the segment's beginning on belong to a string or stand
    # before it.
    while len(segment):
        found.append(np.stack([segment, start, np.minimum(left, SEGMENT)]))
        on = (left > SEGMENT) & (segment >= 0) & (segment < len(following))
        segment, left = following[segment[on]].astype(np.int64), left[on] - SEGMENT
        start = np.zeros_like(left)
    segment, start, end = np.concatenate(found, 1)
    return segment, start, end


def _segments_of(blobs: np.ndarray, following: np.ndarray) -> Iterator[int]:
    """The segments that each string runs through."""
    for segment, offset, size in blobs.tolist():
        left = offset + size
        while left > SEGMENT:
            yield segment
            segment, left = int(following[segment]), left - SEGMENT
        yield segment
