"""Frames without loss in a few per cent of their bytes.

Consecutive frames of an environment differ in a few bytes. A chunk of them is held as what changed
from frame to frame (`rlmem.memories.compression.codec`), then zstandard (its fast levels), in an
arena. The newest chunk of each environment stays open, coded but not compressed. A chunk that
zstandard does not make smaller is held as it was coded, and frames that share nothing with the
frame before are held as they are: white noise costs 1 % more than without compression, small
vectors some bytes less.
"""

from typing import Any

import numpy as np

from rlmem.memories.base.lazy import lazy_zeros
from rlmem.memories.base.serialize import State
from rlmem.memories.base.storage import Block
from rlmem.memories.compression import codec
from rlmem.memories.compression.arena import BLOB, SEGMENT, Arena
from rlmem.memories.compression.packing import Packer
from rlmem.memories.ring.checkpoint import RingLog
from rlmem.memories.ring.ring import RingStorage, as_bytes
from rlmem.registry import part


@part("memory/storage", "compressed")
class CompressedFrameStorage(RingStorage):
    """A ring storage (see `RingStorage`) that holds each observation once, compressed.

    An Atari transition costs 60 to 200 bytes in place of 7,056 (docs/bytes.md); what is sampled is
    bit for bit what was written.

    Args:
        level: of zstandard.

    Example:
        >>> import numpy as np
        >>> from rlmem.memories import CompressedFrameStorage, ReplayMemory, RingWriter
        >>> from rlmem.memories import UniformSampler
        >>> storage = CompressedFrameStorage(10_000, frame_shape=(1, 84, 84), stack=4)
        >>> memory = ReplayMemory(storage, UniformSampler(), RingWriter(), seed=0)
        >>> frames = np.zeros((1001, 1, 84, 84), np.uint8)
        >>> frames[:, 0, 40, 40] = np.arange(1001) % 256
        >>> no = np.zeros((1000, 1), bool)
        >>> _ = memory.extend({"observation": frames[:-1], "action": np.zeros(1000, np.int64),
        ...     "next": {"observation": frames[1:], "reward": np.ones((1000, 1), np.float32),
        ...              "terminated": no, "truncated": no}})
        >>> memory.sample(32)["next", "observation"].shape
        torch.Size([32, 4, 84, 84])
        >>> sum(storage.footprint().values()) // 1000  # bytes a transition
        56
    """

    compresses = True

    def __init__(
        self,
        capacity: int,
        frame_shape: tuple[int, ...],
        dtype: Any = np.uint8,
        *,
        level: int = -1,
        **options: Any,
    ) -> None:
        super().__init__(capacity, frame_shape, dtype, **options)
        self._size = int(np.prod(frame_shape)) * self.dtype.itemsize
        words = -(-self._size // 8)
        longest = codec.longest_chunk(8 * words)
        if self.chunk > longest:
            raise ValueError(
                f"chunk={self.chunk}: too many frames of {self._size} bytes to be coded together; "
                f"use chunk={longest} or less, or FrameStorage"
            )
        self._newest = np.zeros((self.num_envs, words), np.uint64)
        self._references = np.zeros((codec.REFERENCES, words), np.uint64)
        self._known = np.zeros(1, np.int64)
        # The worst case, of which little is ever touched: each sixth byte changed.
        padded = 8 * words
        self._values = lazy_zeros((self.num_envs, (self.chunk + 1) * padded), np.uint8)
        self._heads = lazy_zeros((self.num_envs, (self.chunk + 1) * (padded // 2 + 16)), np.uint8)
        self._ends = np.zeros(self.num_envs, codec.OPEN)
        self._blobs = lazy_zeros((self._max_chunks,), BLOB)  # size 0: open or free
        self._longest = codec.longest_frame(padded)
        worst = self._max_chunks * (self.chunk * self._longest + 64)
        self._arena = Arena(worst if self.budget is None else min(worst, self.budget + SEGMENT))
        self._packer = Packer(level)
        self._layout = np.empty(0, BLOB)  # of full chunks that are being loaded, the oldest first

    kind = "compressed"

    def _tails(self) -> np.ndarray:
        return self._newest.view(np.uint8)[:, : self._size]

    def _put(self, block: Block, first: np.ndarray, ahead: np.ndarray, slot: int) -> None:
        observation, following = map(as_words, (block.observation, block.next_observation))
        places = np.stack([first, ahead], 1).reshape(-1)
        step = 0
        while step < len(places):
            step = codec.encode_block(
                step,
                block.env_id,
                places,
                observation,
                following,
                self.chunk,
                self._newest,
                self._references,
                self._known,
                self._heads,
                self._values,
                self._ends,
            )
            place, env = int(places[step - 1]), int(block.env_id[(step - 1) >> 1])
            if place >= 0 and place % self.chunk == self.chunk - 1:
                self._close(place // self.chunk, env)

    def _close(self, chunk: int, env: int) -> None:
        """Move a full chunk into the arena."""
        data = codec.open_stream(env, self._heads, self._values, self._ends)
        self._blobs[chunk : chunk + 1] = self._arena.put(self._packer.pack(data))

    def _release(self, chunks: np.ndarray) -> None:
        self._arena.release(self._blobs[chunks])
        self._blobs["size"][chunks] = 0

    def _take(
        self, index: np.ndarray, last: np.ndarray, places: np.ndarray, out: np.ndarray
    ) -> None:
        flat = places.reshape(-1)
        order = np.argsort(flat)
        chunks = codec.unique_chunks(flat, order, self.chunk)
        data, starts = self._packer.unpack(self._arena, self._blobs[chunks])
        content = out.reshape(len(flat), out.shape[2]).view(np.uint8)
        whole = self._size % 8 == 0  # else frames are padded to whole words
        words = (
            content.view(np.uint64)
            if whole
            else np.empty((len(flat), self._newest.shape[1]), np.uint64)
        )
        codec.decode(
            flat,
            order,
            self.chunk,
            self._chunks["env"][chunks],
            data,
            starts,
            self._references,
            self._heads,
            self._values,
            self._ends,
            words,
        )
        if not whole:
            content[:] = words.view(np.uint8)[:, : self._size]

    @property
    def gives_back(self) -> bool:
        return self._arena.gives_back

    @property
    def _likely_frame(self) -> int:
        if not self.gives_back:  # no guess may be too low
            return self._longest
        return codec.mean_frame(self._chains, self._ends, self._longest)

    def _likely_bytes(self, frames: np.ndarray) -> tuple[int, int]:
        size = self._likely_frame
        return codec.room_needed(frames, self._chains, self._ends, self.chunk, size)

    def _growth(self, stored: int) -> int:
        growth = self._arena.missing(stored)
        if growth and not self.gives_back:  # leave room for what it could not give later
            growth += self._opening(self._longest) + self._new_references
        return growth

    def _opening(self, frame: int) -> int:
        """Bytes by which the open chunks grow until they are full, of frames of so many bytes."""
        held = self._ends["head"].sum() + self._ends["values"].sum()
        return max(0, self.num_envs * self.chunk * frame - int(held))

    @property
    def _new_references(self) -> int:
        """Bytes of the references that are not yet known."""
        return (codec.REFERENCES - int(self._known[0])) * self._references[0].nbytes

    @property
    def _least(self) -> int:
        return self.nbytes + self._to_come

    @property
    def _spare(self) -> int:
        """For what it comes to, and for open chunks that are full, of frames twice as long as
        now."""
        return self._to_come + self._opening(min(self._longest, 2 * self._likely_frame))

    @property
    def _to_come(self) -> int:
        """All references, and a second segment, as the newest full chunks may lie across two."""
        return self._new_references + max(0, self._arena.bytes_of(2) - self._arena.nbytes)

    def _give_back(self, size: int, keep: int) -> int:
        return self._arena.give_back(size, keep)

    @property
    def _chunk_bytes(self) -> int:
        return super()._chunk_bytes + BLOB.itemsize

    def _frame_bytes(self) -> dict[str, int]:
        chunks = int(self._ring["chunks"][0])
        return {
            "frames": self._arena.nbytes + chunks * BLOB.itemsize,
            "open_chunks": int(
                (self._ends["head"] + self._ends["values"]).sum()
                + self._newest.nbytes
                + self._known[0] * self._references[0].nbytes
                + self._ends.nbytes
            ),
        }

    def _projected_frame_bytes(self, chunks: int) -> dict[str, int]:
        """At the size of the chunks so far; at most the frames as they are before the first."""
        held = self._frame_bytes()
        sizes = self._blobs["size"][: int(self._ring["chunks"][0])]
        closed = np.count_nonzero(sizes)
        mean = int(sizes.sum(dtype=np.int64)) / closed if closed else self.chunk * self._size
        held["frames"] = max(held["frames"], int(chunks * (mean + BLOB.itemsize)) + SEGMENT)
        return held

    def _chunk_sizes(self, chunks: np.ndarray) -> np.ndarray:
        return self._blobs["size"][chunks].astype(np.int64)

    def _chunk_data(self, chunks: np.ndarray) -> np.ndarray:
        return self._arena.gather(self._blobs[chunks])

    def _load_chunk_data(self, chunks: np.ndarray, sizes: np.ndarray, data: np.ndarray) -> None:
        blobs, self._layout = np.split(self._layout, [len(chunks)])
        self._arena.restore(blobs, np.ascontiguousarray(data))
        self._blobs[chunks] = blobs

    def _import_layout(self, state: State) -> None:
        self._arena.load_state_dict(state)
        self._layout = np.array(state["blobs"])

    def _export_open(self) -> dict[str, np.ndarray]:
        ends = self._ends
        streams = [
            part
            for env in range(self.num_envs)
            for part in (
                self._heads[env, : ends["head"][env]],
                self._values[env, : ends["values"][env]],
            )
        ]
        return {
            "newest": self._newest,
            "references": self._references[: self._known[0]],
            "open_ends": ends,
            "open_streams": np.concatenate(streams),
            "blobs": self._blobs[RingLog(self).full()],
            **self._arena.state_dict(),
        }

    def _import_open(self, state: State) -> None:
        self._newest[:] = state["newest"]
        references = state["references"]
        self._known[0] = len(references)
        self._references[: len(references)] = references
        self._ends[:] = state["open_ends"]
        streams, at = state["open_streams"], 0
        for env in range(self.num_envs):
            for array, size in ((self._heads, "head"), (self._values, "values")):
                count = int(self._ends[size][env])
                array[env, :count] = streams[at : at + count]
                at += count

    def _empty(self) -> None:
        used = int(self._ring["chunks"][0])
        super()._empty()
        if used:  # in the constructor of the base there is no more yet
            self._arena.clear()
            self._blobs["size"][:used] = 0
            self._known[:] = 0
            self._ends[:] = np.zeros(1, codec.OPEN)

    def check_valid(self) -> None:
        """The invariants of `RingStorage`, and that full chunks and the arena's strings agree."""
        super().check_valid()
        full = RingLog(self).full()
        assert (self._blobs["size"][full] > 0).all(), "a full chunk was not kept"
        sizes = self._blobs["size"][: int(self._ring["chunks"][0])]
        assert np.count_nonzero(sizes) == len(full), "a string of no chunk"
        self._arena.check_valid(self._blobs[full])


def as_words(frames: np.ndarray) -> np.ndarray:
    """The bytes of frames [N, ...] as uint64 [N, words], with zeros up to whole words."""
    content = as_bytes(frames)
    if content.shape[1] % 8:
        content = np.pad(content, ((0, 0), (0, -content.shape[1] % 8)))
    return content.view(np.uint64)
