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
REFERENCES = 8
PREFIX = 4  # bytes of a stream before its heads: length of the heads (3 bytes), reference (1)
ONE, EIGHT, LOWEST, STRIDE = np.uint64(1), np.uint64(8), np.uint64(255), np.uint64(8)
OPEN = np.dtype([("head", np.int32), ("values", np.int32), ("reference", np.int32)])


def longest_frame(size: int) -> int:
    """Most bytes of a stream that a frame of `size` bytes takes."""
    return size + size // 255 + 4


def longest_chunk(size: int) -> int:
    """Most frames of `size` bytes in a chunk, so that the stream's own numbers can name it."""
    runs = min(65535, size // (GAP + 2) + 1)
    heads = 2 + 2 * runs + size // 255 + 1
    return min((2**24 - 1) // heads, (2**31 - 2**16) // longest_frame(size))


@njit(cache=True)
def mean_frame(chains: Any, ends: Any, longest: int) -> int:
    """Bytes of a frame in the newest streams, rounded up; `longest` where there is none."""
    size, count = 0, 0
    for e in range(len(chains)):
        if chains[e].chunk >= 0:
            size += ends[e].head + ends[e].values
            count += chains[e].position + 1
    return min(longest, size // count + 1) if count else longest


@njit(cache=True)
def room_needed(
    frames: np.ndarray, chains: Any, ends: Any, length: int, size: int
) -> tuple[int, int]:
    """Bytes by which so many frames more (int64 [E]) let the open streams grow, and bytes of the
    streams that they close, if each frame takes `size` bytes."""
    opened, closed = 0, 0
    for e in range(len(frames)):
        left = length - 1 - chains[e].position if chains[e].chunk >= 0 else 0
        opened += min(frames[e], length) * size
        if frames[e] >= left:
            chunks = (frames[e] - left) // length
            closed += chunks * (1 + PREFIX + length * size)
            if left > 0:
                closed += 1 + PREFIX + ends[e].head + ends[e].values + left * size
    return opened, closed


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
    h = _write_number(head, h, skip)
    h = _write_number(head, h, end - start)
    for k in range(np.uint64(start), np.uint64(end)):
        values[v] = frame[k]
        v += 1
    return h, v


@njit(cache=True)
def _encode(
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
    h += 2
    runs, position = 0, 0  # position: where the last run ended
    start, end = -1, -1
    w, count = np.uint64(0), np.uint64(len(words))
    while w < count:
        if w + STRIDE <= count:  # most of a frame is as it was
            any_changed = np.uint64(0)
            for k in range(STRIDE):
                any_changed |= before[w + k] ^ words[w + k]
            if any_changed == 0:
                w += STRIDE
                continue
        for _ in range(min(STRIDE, count - w)):
            changed = before[w] ^ words[w]
            at = np.int64(8 * w)
            w += ONE
            while changed != 0:
                if changed & LOWEST != 0:
                    if start >= 0 and at - end > GAP:
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
    if (h - h_first) + (v - v_first) > len(frame) or runs > 65535:
        h, v, runs = h_first + 2, v_first, 1
        h = _write_number(head, h, 0)
        h = _write_number(head, h, len(frame))
        for k in range(len(frame)):
            values[v] = frame[k]
            v += 1
    head[h_first] = runs & 255
    head[h_first + 1] = runs >> 8
    return h, v


@njit(cache=True)
def _read_number(head: np.ndarray, h: np.uint64) -> tuple[np.uint64, np.uint64]:
    part = head[h]
    number, h = np.uint64(part), h + ONE
    while part == 255:
        part = head[h]
        number, h = number + np.uint64(part), h + ONE
    return number, h


@njit(cache=True)
def _apply(
    frame: np.ndarray, head: np.ndarray, h: np.uint64, values: np.ndarray, v: np.uint64
) -> tuple[np.uint64, np.uint64]:
    """Turn the frame before into the next one in place; where its heads and values end.

    Indices are unsigned: numba then does without the test for negative ones.
    """
    runs = np.int64(head[h]) | np.int64(head[h + ONE]) << 8
    h += ONE + ONE
    at = np.uint64(0)
    for _ in range(runs):
        skip, h = _read_number(head, h)
        count, h = _read_number(head, h)
        at += skip
        end = at + count
        while at < end:
            frame[at] = values[v]
            at += ONE
            v += ONE
    return h, v


@njit(cache=True)
def _reference(words: np.ndarray, references: np.ndarray, known: np.ndarray) -> int:
    """The reference frame nearest to a frame, which becomes one itself if none is near."""
    best, fewest = 0, len(words) + 1
    for r in range(known[0]):
        different = 0
        for w in range(len(words)):
            different += references[r, w] != words[w]
        if different < fewest:
            best, fewest = r, different
    if 4 * fewest > len(words) and known[0] < len(references):
        best = known[0]
        references[best] = words
        known[0] += 1
    return best


@njit(cache=True)
def encode_block(
    step: int,
    env: np.ndarray,
    places: np.ndarray,
    observation: np.ndarray,
    following: np.ndarray,
    length: int,
    newest: np.ndarray,
    references: np.ndarray,
    known: np.ndarray,
    heads: np.ndarray,
    values: np.ndarray,
    ends: Any,
) -> int:
    """Code the frames of a block from `step` on, up to the end or to a chunk's last frame.

    Args:
        places: int64 [2 N], of the observation and the next observation of each row; -1 is there.
        observation, following: the frames, uint64 [N, words], padded with zeros.
        newest: each environment's newest frame, uint64 [E, words]; kept up to date.
        references, known: reference frames and their number.
        heads, values: open streams, uint8 [E, ...]; ends: OPEN [E].

    Returns:
        The step after the last one done: when it coded a chunk's last frame, that of step - 1.
    """
    for at in range(step, len(places)):
        if places[at] < 0:
            continue
        e, position = env[at >> 1], places[at] % length
        now = following[at >> 1] if at & 1 else observation[at >> 1]
        if position == 0:
            reference = _reference(now, references, known)
            ends[e].reference = reference
            ends[e].head = 0
            ends[e].values = 0
            before = references[reference]
        else:
            before = newest[e]
        h, v = _encode(
            before, now, now.view(np.uint8), heads[e], ends[e].head, values[e], ends[e].values
        )
        ends[e].head = h
        ends[e].values = v
        for w in range(len(now)):
            newest[e, w] = now[w]
        if position == length - 1:
            return at + 1
    return len(places)


@njit(cache=True)
def open_stream(env: int, heads: np.ndarray, values: np.ndarray, ends: Any) -> np.ndarray:
    """The stream of an environment's open chunk after one free byte, uint8."""
    h, v = ends[env].head, ends[env].values
    stream = np.empty(1 + PREFIX + h + v, np.uint8)
    stream[1], stream[2], stream[3] = h & 255, h >> 8 & 255, h >> 16
    stream[4] = ends[env].reference
    stream[1 + PREFIX : 1 + PREFIX + h] = heads[env, :h]
    stream[1 + PREFIX + h :] = values[env, :v]
    return stream


@njit(cache=True)
def unique_chunks(places: np.ndarray, order: np.ndarray, length: int) -> np.ndarray:
    """The chunks of the places, each once, in the order of `order`."""
    found = np.empty(len(order), np.int64)
    count = 0
    for k in range(len(order)):
        place = places[order[k]]
        if place >= 0 and (count == 0 or found[count - 1] != place // length):
            found[count] = place // length
            count += 1
    return found[:count]


@njit(cache=True)
def decode(
    places: np.ndarray,
    order: np.ndarray,
    length: int,
    envs: np.ndarray,
    data: np.ndarray,
    starts: np.ndarray,
    references: np.ndarray,
    heads: np.ndarray,
    values: np.ndarray,
    ends: Any,
    out: np.ndarray,
) -> None:
    """Write the frames at `places` (int64 [n]; -1: zeros) into out, uint64 [n, words].

    Args:
        order: argsort of the places.
        envs: environment of each of the chunks (`unique_chunks`).
        data, starts: streams of the full chunks, and where each begins; -1: an open chunk.
        references: uint64 [R, words].
    """
    words = np.empty(references.shape[1], np.uint64)
    frame = words.view(np.uint8)
    chunk, number, position = np.int64(-1), -1, -1
    head, value = data, data
    h, v = np.uint64(0), np.uint64(0)
    for k in range(len(order)):
        place = places[order[k]]
        if place < 0:
            for w in range(len(words)):
                out[order[k], w] = 0
            continue
        if place // length != chunk:
            chunk, number, position = place // length, number + 1, -1
            if starts[number] < 0:
                e = envs[number]
                head, value, h, v = heads[e], values[e], np.uint64(0), np.uint64(0)
                reference = ends[e].reference
            else:
                s = starts[number]
                size = data[s] + np.int64(data[s + 1]) * 256 + np.int64(data[s + 2]) * 65536
                head, value, h = data, data, np.uint64(s + PREFIX)
                v = h + np.uint64(size)
                reference = np.int32(data[s + 3])
            for w in range(len(words)):
                words[w] = references[reference, w]
        while position < place % length:
            h, v = _apply(frame, head, h, value, v)
            position += 1
        for w in range(len(words)):
            out[order[k], w] = words[w]
