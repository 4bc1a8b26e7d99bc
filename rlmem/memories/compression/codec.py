"""Frames as differences: what changed since the frame before, as runs of bytes.

A chunk of frames is coded as a stream of two parts: heads say where the runs lie, values are the
bytes of the runs. The first frame of a chunk is the difference to one of a few reference frames
that the memory keeps (screens of a game share their background). A frame whose runs would be longer
than the frame is one run. General compression then works on some 4 KB a chunk in place of 113.

Head of a frame: number of runs (uint16), then for each run the bytes to skip and the bytes to take,
each as bytes of 255 and a last one below.
"""

from typing import Any

import numpy as np
from numba import njit

GAP = 4  # unchanged bytes that do not end a run: two heads cost as much
PREFIX = 4  # bytes of a stream before its heads: length of the heads (3 bytes), reference (1)
ONE, EIGHT, LOWEST, STRIDE = np.uint64(1), np.uint64(8), np.uint64(255), np.uint64(8)


def longest_frame(size: int) -> int:
    """Most bytes of a stream that a frame of `size` bytes takes."""
    return size + size // 255 + 4


def longest_chunk(size: int) -> int:
    """Most frames of `size` bytes in a chunk, so that the stream's own numbers can name it."""
    runs = min(65535, size // (GAP + 2) + 1)
    heads = 2 + 2 * runs + size // 255 + 1
    return min((2**24 - 1) // heads, (2**31 - 2**16) // longest_frame(size))


@njit(cache=True)
def _write_number(out: np.ndarray, at: int, number: int) -> int:
    while number >= 255:
        out[at] = 255
        number -= 255
        at += 1
    out[at] = number
    return at + 1


@njit(cache=True)
def _write_run(
    head: np.ndarray,
    h: int,
    values: np.ndarray,
    v: int,
    frame: np.ndarray,
    skip: Any,
    start: Any,
    end: Any,
) -> tuple[int, int]:
    """Append the bytes [start, end) of a frame as a run that begins `skip` after the last one."""
    h = _write_number(head, h, skip)
    h = _write_number(head, h, end - start)
    for k in range(np.uint64(start), np.uint64(end)):
        values[v] = frame[k]
        v += 1
    return h, v


@njit(cache=True)
def encode(
    before: np.ndarray,
    words: np.ndarray,
    frame: np.ndarray,
    head: np.ndarray,
    h: int,
    values: np.ndarray,
    v: int,
) -> tuple[int, int]:
    """Append a frame to a stream: heads from h, values from v on; both ends."""
    h_first, v_first = h, v
    h += 2  # room for the number of runs
    runs, position = 0, 0  # position: where the last run that was written ended
    start, end = -1, -1  # of the open run, which later changes may still lengthen
    w, count = np.uint64(0), np.uint64(len(words))
    # Before each turn: what changed in the words before `w` is written or in the open run.
    while w < count:
        if w + STRIDE <= count:  # most of a frame is as it was
            any_changed = np.uint64(0)
            for k in range(STRIDE):
                any_changed |= before[w + k] ^ words[w + k]
            if any_changed == 0:
                w += STRIDE
                continue
        # Something did, here or at the frame's end: byte by byte, the lowest first.
        for _ in range(min(STRIDE, count - w)):
            changed = before[w] ^ words[w]
            at = np.int64(8 * w)
            w += ONE
            while changed != 0:
                if changed & LOWEST != 0:
                    if start >= 0 and at - end > GAP:  # too far off to join the open run
                        h, v = _write_run(head, h, values, v, frame, start - position, start, end)
                        runs, position, start = runs + 1, end, at
                    elif start < 0:
                        start = at
                    end = at + 1
                changed >>= EIGHT
                at += 1
    if start >= 0:
        h, v = _write_run(head, h, values, v, frame, start - position, start, end)
        runs += 1
    # Longer than the frame, or more runs than their number has room for: the frame is one run.
    if (h - h_first) + (v - v_first) > len(frame) or runs > 65535:
        runs = 1
        h, v = _write_run(head, h_first + 2, values, v_first, frame, 0, 0, len(frame))
    head[h_first] = runs & 255
    head[h_first + 1] = runs >> 8
    return h, v


@njit(cache=True)
def parts(stream: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
    """The reference, the heads and the values of a stream of any bytes; reference -1: it has none.

    Slices end with the stream, whatever length it says that its heads have.
    """
    if len(stream) < PREFIX:
        return -1, stream, stream
    middle = PREFIX + (stream[0] + np.int64(stream[1]) * 256 + np.int64(stream[2]) * 65536)
    return np.int64(stream[3]), stream[PREFIX:middle], stream[middle:]


@njit(cache=True)
def _read_number(head: np.ndarray, h: np.uint64) -> tuple[np.uint64, np.uint64]:
    """A number and where it ends, behind the heads' end if that comes first."""
    number, stop = np.uint64(0), np.uint64(len(head))
    while h < stop:
        part = head[h]
        number, h = number + np.uint64(part), h + ONE
        if part < 255:
            return number, h
    return number, stop + ONE


@njit(cache=True)
def apply(
    frame: np.ndarray, head: np.ndarray, h: np.uint64, values: np.ndarray, v: np.uint64
) -> tuple[bool, np.uint64, np.uint64]:
    """Turn the frame before into the next one in place; whether there is one, and where its heads
    and values end.

    A saved stream may be of any bytes, so each run is looked at before it is followed. Indices are
    unsigned: numba then does without the test for negative ones.
    """
    stop, most, size = np.uint64(len(head)), np.uint64(len(values)), np.uint64(len(frame))
    if h + ONE + ONE > stop:
        return False, h, v
    runs = np.int64(head[h]) | np.int64(head[h + ONE]) << 8
    h += ONE + ONE
    at = np.uint64(0)  # before each run: where the one before ended, at most `size`
    for _ in range(runs):
        skip, h = _read_number(head, h)
        count, h = _read_number(head, h)
        at += skip
        end = at + count
        if h > stop or end > size or v + count > most:
            return False, h, v
        while at < end:
            frame[at] = values[v]
            at += ONE
            v += ONE
    return True, h, v


@njit(cache=True)
def is_whole(head: np.ndarray, values: np.ndarray, frames: int, frame: np.ndarray) -> bool:
    """Whether a stream is so many frames and nothing more; `frame` is written over."""
    h, v = np.uint64(0), np.uint64(0)
    for _ in range(frames):
        fits, h, v = apply(frame, head, h, values, v)
        if not fits:
            return False
    return h == np.uint64(len(head)) and v == np.uint64(len(values))
