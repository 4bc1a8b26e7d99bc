"""Chunks of frames: the newest of each environment coded and open, full ones compressed.

A full chunk's stream goes through zstandard into an arena. A frame's place is its chunk's number
times the frames of a chunk, and its position there.

In the kernels' signatures `a` is an `OpenChunks`.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from rlmem.memories.base.lazy import lazy_zeros
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import array_of
from rlmem.memories.compression.arena import Arena
from rlmem.memories.compression.codec import PREFIX, apply, encode, parts
from rlmem.memories.compression.packing import Packer, no_frames
from rlmem.memories.compression.segments import BLOB

# For numba's cache: tests/memories/test_compiled_with.py says why, and what to write here.
COMPILED_WITH = {"codec": "268b0e1ebed8"}

REFERENCES = 8
OPEN = np.dtype([("head", np.int32), ("values", np.int32), ("reference", np.int32)])


class OpenChunks(NamedTuple):
    """What the coding of frames hangs on."""

    newest: np.ndarray  # uint64 [E, words], each environment's newest frame, zeros at its end
    references: np.ndarray  # uint64 [R, words], frames that chunks begin as differences to
    known: np.ndarray  # int64 [1], how many there are of these
    heads: np.ndarray  # uint8 [E, ...], the two parts of the open streams
    values: np.ndarray  # uint8 [E, ...]
    ends: np.ndarray  # OPEN [E], where they end, and the reference that they begin with


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
        # `left` frames fill the open chunk; the others go into chunks of their own.
        left = length - 1 - chains[e].position if chains[e].chunk >= 0 else 0
        opened += min(frames[e], length) * size
        if frames[e] >= left:
            chunks = (frames[e] - left) // length
            closed += chunks * (1 + PREFIX + length * size)
            if left > 0:
                closed += 1 + PREFIX + ends[e].head + ends[e].values + left * size
    return opened, closed


@njit(cache=True)
def _reference(words, references, known):
    """The reference frame nearest to a frame, which becomes one itself if none is near."""
    best, fewest = 0, len(words) + 1
    for r in range(known[0]):
        different = 0
        for w in range(len(words)):
            different += references[r, w] != words[w]
        if different < fewest:
            best, fewest = r, different
    # None shares three quarters of its words: this is another screen, kept while there is room.
    if 4 * fewest > len(words) and known[0] < len(references):
        best = known[0]
        references[best] = words
        known[0] += 1
    return best


@njit(cache=True)
def _encode_block(step, env, places, observation, following, length, a):
    """Code the frames of a block from `step` on, up to the end or to a chunk's last frame.

    Args:
        places: int64 [2 N], of the observation and the next observation of each row; -1 is there.
        observation, following: the frames, uint64 [N, words], padded with zeros.

    Returns:
        The step after the last one done: when it coded a chunk's last frame, that of step - 1.
    """
    # Before each turn: `newest` is the frame before in every open chunk, and `ends` say where the
    # streams stand. A row's observation comes before its next one.
    for at in range(step, len(places)):
        if places[at] < 0:
            continue
        e, position = env[at >> 1], places[at] % length
        end = a.ends[e]
        now = following[at >> 1] if at & 1 else observation[at >> 1]
        if position == 0:
            reference = _reference(now, a.references, a.known)
            end.reference, end.head, end.values = reference, 0, 0
            before = a.references[reference]
        else:
            before = a.newest[e]
        frame = now.view(np.uint8)
        end.head, end.values = encode(
            before, now, frame, a.heads[e], end.head, a.values[e], end.values
        )
        for w in range(len(now)):
            a.newest[e, w] = now[w]
        if position == length - 1:  # the caller takes the stream before the next one overwrites it
            return at + 1
    return len(places)


@njit(cache=True)
def _open_stream(env, heads, values, ends):
    """The stream of an environment's open chunk after one free byte, uint8."""
    h, v = ends[env].head, ends[env].values
    stream = np.empty(1 + PREFIX + h + v, np.uint8)
    stream[1], stream[2], stream[3] = h & 255, h >> 8 & 255, h >> 16
    stream[4] = ends[env].reference
    stream[1 + PREFIX : 1 + PREFIX + h] = heads[env, :h]
    stream[1 + PREFIX + h :] = values[env, :v]
    return stream


@njit(cache=True)
def _unique_chunks(places, order, length):
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
def _decode(places, order, length, envs, data, starts, a, out):
    """Write the frames at `places` (int64 [n]; -1: zeros) into out, uint64 [n, words].

    Args:
        order: argsort of the places.
        envs: environment of each of the chunks (`_unique_chunks`).
        data, starts: streams of the full chunks, and where each begins; -1: an open chunk.

    Returns:
        Whether the streams hold these frames; they may be of any bytes.
    """
    words = np.empty(a.references.shape[1], np.uint64)
    frame = words.view(np.uint8)
    chunk, number, position = np.int64(-1), -1, -1
    head, value = data, data
    h, v = np.uint64(0), np.uint64(0)
    # Before each turn: `words` is the frame at `position` of `chunk`, the newest decoded, and h, v
    # say where the next one's head and values begin. In the order of the places each chunk is
    # decoded once, and only up to its last frame that is asked for.
    for k in range(len(order)):
        # A view, as `out[order[k], w]` would read the order anew at each word.
        place, row = places[order[k]], out[order[k]]
        if place < 0:
            for w in range(len(words)):
                row[w] = 0
            continue
        if place // length != chunk:
            chunk, number, position = place // length, number + 1, -1
            if starts[number] < 0:  # an open chunk's two parts are arrays of their own
                e = envs[number]
                end = a.ends[e]
                head, value = a.heads[e, : end.head], a.values[e, : end.values]
                reference = np.int64(end.reference)
            else:
                reference, head, value = parts(data[starts[number] :])
            if not 0 <= reference < a.known[0]:
                return False
            h, v = np.uint64(0), np.uint64(0)
            begun = a.references[reference]
            for w in range(len(words)):
                words[w] = begun[w]
        while position < place % length:
            fits, h, v = apply(frame, head, h, value, v)
            if not fits:
                return False
            position += 1
        for w in range(len(words)):
            row[w] = words[w]
    return True


def as_words(frames: np.ndarray) -> np.ndarray:
    """The bytes of frames [N, ...] as uint64 [N, words], with zeros up to whole words."""
    content = np.ascontiguousarray(frames).reshape(len(frames), -1).view(np.uint8)
    if content.shape[1] % 8:
        padded = np.zeros((len(content), -(-content.shape[1] // 8) * 8), np.uint8)
        padded[:, : content.shape[1]] = content
        content = padded
    return content.view(np.uint64)


class CodedChunks:
    """Frames by their places.

    Args:
        count: chunks.
        length: frames of a chunk.
        size: bytes of a frame.
        num_envs: chunks that are open at once.
        limit: bytes of address space for full ones.
        level: of zstandard.
    """

    def __init__(
        self, count: int, length: int, size: int, *, num_envs: int, limit: int, level: int
    ) -> None:
        self.length, self.size, words = length, size, -(-size // 8)
        # The worst case, of which little is ever touched: each sixth byte changed.
        self.open = OpenChunks(
            newest=np.zeros((num_envs, words), np.uint64),
            references=np.zeros((REFERENCES, words), np.uint64),
            known=np.zeros(1, np.int64),
            heads=lazy_zeros((num_envs, (length + 1) * (4 * words + 16)), np.uint8),
            values=lazy_zeros((num_envs, (length + 1) * 8 * words), np.uint8),
            ends=np.zeros(num_envs, OPEN),
        )
        self.blobs = lazy_zeros((count,), BLOB)  # where full chunks lie; size 0: open or free
        self.arena, self.packer = Arena(limit), Packer(level)

    def write(
        self, env: np.ndarray, places: np.ndarray, observation: np.ndarray, following: np.ndarray
    ) -> None:
        """Code frames; chunks that are full go into the arena.

        Args:
            env: int [N], each row's environment.
            places: int64 [2 N], see `_encode_block`.
            observation, following: uint64 [N, words], from `as_words`.
        """
        a, step = self.open, 0
        while step < len(places):
            step = _encode_block(step, env, places, observation, following, self.length, a)
            chunk, position = divmod(int(places[step - 1]), self.length)
            if chunk >= 0 and position == self.length - 1:
                stream = _open_stream(int(env[(step - 1) >> 1]), a.heads, a.values, a.ends)
                self.blobs[chunk : chunk + 1] = self.arena.put(self.packer.pack(stream))

    def read(self, places: np.ndarray, envs: np.ndarray | None, out: np.ndarray) -> None:
        """Write the frames at `places` (int64 [n]; -1: zeros) into `out`, uint8 [n, size].

        Args:
            envs: environment of each chunk there is, to find open ones; None: all are full.

        Raises:
            UserError: a file that was damaged had other bytes in their place.
        """
        order = np.argsort(places)
        chunks = _unique_chunks(places, order, self.length)
        of = np.zeros(len(chunks), np.int32) if envs is None else envs[chunks]
        data, starts = self.packer.unpack(self.arena, self.blobs[chunks])
        whole = self.size % 8 == 0  # else frames are padded to whole words
        words = (
            out.view(np.uint64) if whole else np.empty((len(out), -(-self.size // 8)), np.uint64)
        )
        if not _decode(places, order, self.length, of, data, starts, self.open, words):
            raise no_frames()
        if not whole:
            out[:] = words.view(np.uint8)[:, : self.size]

    def renew(self, chunks: np.ndarray, most: int | None) -> None:
        """Pack full chunks again with the newest dictionary where that takes fewer bytes.

        All are put anew behind one another, also those that stay as they are: a segment of the
        arena is free once the last string in it has gone. That takes some segments more until it
        is done. If they are not there the rest stays where it was, which is as good but larger.

        Args:
            chunks: int [n], in the order in which they were put into the arena.
            most: bytes that the arena may take meanwhile, for which no string becomes longer; None:
                what it has address space for.
        """
        outdated = self.packer.outdated(self.arena, self.blobs[chunks], may_grow=most is None)
        if not outdated.any():
            return
        for chunk, again in zip(chunks.reshape(-1, 1), outdated.tolist(), strict=True):
            old = self.blobs[chunk]
            string = self.arena.gather(old)
            if again:
                content, _ = self.packer.unpack(self.arena, old)
                anew = self.packer.string(np.concatenate([string[:1], content]))
                string = anew if most is None or len(anew) < len(string) else string
            if not self.arena.has_room(len(string), most):
                break
            # First the new one, so that whatever interrupts this, each chunk is held.
            self.blobs[chunk] = self.arena.put(string)
            self.packer.hold(string[:1])
            self.packer.release(self.arena.firsts(old))
            self.arena.release(old)
        self.arena.give_back(self.arena.limit, 0)

    def release(self, chunks: np.ndarray) -> None:
        """Let go of full chunks, int [n]."""
        blobs = self.blobs[chunks]
        self.packer.release(self.arena.firsts(blobs))
        self.arena.release(blobs)
        self.blobs["size"][chunks] = 0

    def restore(self, chunks: np.ndarray, blobs: np.ndarray, data: np.ndarray) -> None:
        """Put strings that the arena let pass where they lay, as those of full chunks, int [n]."""
        self.arena.restore(blobs, np.ascontiguousarray(data))
        self.packer.hold(self.arena.firsts(blobs))
        self.blobs[chunks] = blobs

    def clear(self, chunks: int) -> None:
        """Let go of the first so many chunks, which are all; the references stay."""
        self.arena.clear()
        self.packer.clear()
        self.blobs["size"][:chunks] = 0

    @property
    def references(self) -> np.ndarray:
        """The reference frames so far, uint64 [n, words], a view."""
        return self.open.references[: self.open.known[0]]

    @property
    def new_references(self) -> int:
        """Bytes of the references that are not yet known."""
        return self.open.references.nbytes - self.references.nbytes

    def check_references(self, state: State, name: str, what: str = "memory") -> np.ndarray:
        """The references of a state.

        Raises:
            ValueError: they are too many, or of other frames.
        """
        shape = (-1, self.open.references.shape[1])
        references = array_of(state, name, np.uint64, shape, what)
        if len(references) > REFERENCES:
            raise ValueError(f"the saved {what} is damaged: too many reference frames")
        return references

    def take_references(self, references: np.ndarray) -> None:
        """Take over the references of a checked state."""
        self.open.known[0] = len(references)
        self.references[:] = references
