"""Frames without loss in a few per cent of their bytes.

Consecutive frames of an environment differ in a few bytes. A chunk of them is held as what changed
from frame to frame (`rlmem.memories.compression.codec`), then by zstandard with a dictionary of
what the newest chunks share, where one pays (`rlmem.memories.compression.packing`), in an arena.
The newest chunk of each environment stays open, coded but not compressed. A chunk that zstandard
does not make smaller is held as it was coded, and frames that share nothing with the
frame before are held as they are: white noise costs 1 % more than without compression, small
vectors some bytes less.
"""

from typing import Any

import numpy as np

from rlmem.allocator import give_back_freed_memory
from rlmem.memories.base.blocks import Block
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import array_of
from rlmem.memories.compression import chunks as coding
from rlmem.memories.compression import codec
from rlmem.memories.compression.checks import check_open, check_strings
from rlmem.memories.compression.chunks import OPEN, CodedChunks, as_words
from rlmem.memories.compression.packing import PACKED, STORED, Decoders, bytes_of, decoders_of
from rlmem.memories.compression.segments import BLOB, SEGMENT
from rlmem.memories.ring.checkpoint import WITHOUT_DICTIONARIES, has_open, pieces, places_of
from rlmem.memories.ring.ring import MAX_ROWS, RingStorage
from rlmem.registry import part

MOVING = 3  # segments that a budget leaves free while strings are put anew
SHARE = 8  # under a budget a dictionary may take such a part of the strings' bytes


@part("memory/storage", "compressed")
class CompressedFrameStorage(RingStorage):
    """A ring storage (see `RingStorage`) that holds each observation once, compressed.

    An Atari transition costs 40 to 170 bytes in place of 7,056 (docs/bytes.md); what is sampled is
    bit for bit what was written.

    Args:
        level: of zstandard.

    Examples:
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
        51
    """

    compresses = True

    def __init__(self, *sizes: Any, level: int = 8, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self._size = int(np.prod(self.frame_shape)) * self.dtype.itemsize
        padded = -(-self._size // 8) * 8
        longest = codec.longest_chunk(padded)
        if self.chunk > longest:
            raise ValueError(
                f"chunk={self.chunk}: too many frames of {self._size} bytes to be coded together; "
                f"use chunk={longest} or less, or FrameStorage"
            )
        self._longest = codec.longest_frame(padded)
        limit = self._most_bytes(len(self.arrays.chunks))
        if self.budget is not None:
            # A run is reckoned from the frames so far; what more it takes goes behind it.
            in_a_run = 2 * min(MAX_ROWS, self.max_size) // self.chunk + 2 * self.num_envs
            limit = min(limit, self.budget + self._most_bytes(in_a_run))
        room = {"num_envs": self.num_envs, "limit": limit, "level": level}
        coded = CodedChunks(len(self.arrays.chunks), self.chunk, self._size, **room)
        self._coded = coded
        self._open, self._arena, self._blobs = coded.open, coded.arena, coded.blobs
        self._packer = coded.packer
        self._layout = np.empty(0, BLOB)  # of full chunks that are being loaded, the oldest first

    kind = "compressed"

    def _most_bytes(self, chunks: int) -> int:
        """Bytes of so many chunks that hardly compress, and of the segments of an arena that the
        strings of an environment's newest stack hold, each its own where it is long idle."""
        strings = 1 + -(-self.stack // self.chunk)
        return chunks * (self.chunk * self._longest + 64) + 3 * SEGMENT * self.num_envs * strings

    def _tails(self) -> np.ndarray:
        return self._open.newest.view(np.uint8)[:, : self._size]

    def _write(self, block: Block) -> tuple[int, int]:
        written = super()._write(block)
        if self._packer.due:
            self._learn()
        return written

    def _learn(self) -> None:
        """Take a dictionary of the newest frames if one pays, and pack what is held with it.

        Under a budget the oldest transitions go for it, so it may take but a share.
        """
        blobs = self._blobs[self.arrays.full_chunks()]
        most = int(blobs["size"].sum(dtype=np.int64)) // (1 if self.limit is None else SHARE)
        content = self._packer.learn(self._arena, blobs, most)
        if content is None:
            return
        if not content and self.limit is not None:
            self._packer.adopt(content)  # its strings go with their transitions
            return
        longest = int(blobs["size"].max())
        room = self._arena.bytes_of(MOVING + longest // SEGMENT)
        if self.limit is None or self.limit.shrink(bytes_of(len(content)) + room):
            self._packer.adopt(content)
            self._saved = None  # what was saved of chunks will not be how they are held
            most = None if self.limit is None else self._arena.nbytes + room
            self._coded.renew(self.arrays.full_chunks(), most)
            give_back_freed_memory()

    def _put(self, block: Block, first: np.ndarray, ahead: np.ndarray, slot: int) -> None:
        places = np.stack([first, ahead], 1).reshape(-1)
        frames = map(as_words, (block.observation, block.next_observation))
        self._coded.write(block.env_id, places, *frames)

    def _release(self, chunks: np.ndarray) -> None:
        self._coded.release(chunks)

    def _take(
        self, index: np.ndarray, last: np.ndarray, places: np.ndarray, out: np.ndarray
    ) -> None:
        content = out.reshape(places.size, out.shape[2]).view(np.uint8)
        self._coded.read(places.reshape(-1), self.arrays.chunks["env"], content)

    @property
    def gives_back(self) -> bool:
        return self._arena.gives_back

    @property
    def likely_frame(self) -> int:
        if not self.gives_back:  # no guess may be too low
            return self._longest
        return coding.mean_frame(self.arrays.chains, self._open.ends, self._longest)

    def likely_bytes(self, frames: np.ndarray) -> tuple[int, int]:
        size = self.likely_frame
        return coding.room_needed(frames, self.arrays.chains, self._open.ends, self.chunk, size)

    def growth(self, stored: int) -> int:
        growth = self._arena.missing(stored)
        if growth and not self.gives_back:  # leave room for what it could not give later
            growth += self._opening(self._longest) + self._coded.new_references
        return growth

    def _opening(self, frame: int) -> int:
        """Bytes by which the open chunks grow until they are full, of frames of so many bytes."""
        held = self._open.ends["head"].sum() + self._open.ends["values"].sum()
        return max(0, self.num_envs * self.chunk * frame - int(held))

    @property
    def least(self) -> int:
        return self.nbytes + self._to_come

    @property
    def spare(self) -> int:
        """For what it comes to, and for open chunks that are full, of frames twice as long as
        now."""
        return self._to_come + self._opening(min(self._longest, 2 * self.likely_frame))

    @property
    def _to_come(self) -> int:
        """All references, and a second segment, as the newest full chunks may lie across two."""
        return self._coded.new_references + max(0, self._arena.bytes_of(2) - self._arena.nbytes)

    def give_back(self, size: int, keep: int) -> int:
        given = self._arena.give_back(size, keep)
        # A dictionary that no chunk needs yet goes last, when nothing else is left.
        return given + (self._packer.drop_unused() if given < size and len(self) == 0 else 0)

    @property
    def chunk_bytes(self) -> int:
        return super().chunk_bytes + BLOB.itemsize

    def _frame_bytes(self) -> dict[str, int]:
        chunks = int(self.arrays.head["chunks"])
        return {
            "frames": self._arena.nbytes + chunks * BLOB.itemsize,
            "open_chunks": int(
                (self._open.ends["head"] + self._open.ends["values"]).sum()
                + self._open.newest.nbytes
                + self._coded.references.nbytes
                + self._open.ends.nbytes
            ),
            "dictionaries": self._packer.nbytes,
        }

    def _projected_frame_bytes(self, chunks: int) -> dict[str, int]:
        """At the size of the chunks so far; at most the frames as they are before the first."""
        held = self._frame_bytes()
        sizes = self._blobs["size"][: int(self.arrays.head["chunks"])]
        closed = np.count_nonzero(sizes)
        mean = int(sizes.sum(dtype=np.int64)) / closed if closed else self.chunk * self._size
        held["frames"] = max(held["frames"], int(chunks * (mean + BLOB.itemsize)) + SEGMENT)
        return held

    def chunk_sizes(self, chunks: np.ndarray) -> np.ndarray:
        return self._blobs["size"][chunks].astype(np.int64)

    def chunk_data(self, chunks: np.ndarray) -> np.ndarray:
        return self._arena.gather(self._blobs[chunks])

    def load_chunk_data(self, chunks: np.ndarray, sizes: np.ndarray, data: np.ndarray) -> None:
        blobs, self._layout = np.split(self._layout, [len(chunks)])
        self._coded.restore(chunks, blobs, data)

    def import_layout(self, state: State) -> None:
        self._arena.take_over(state)
        if state["format"] > WITHOUT_DICTIONARIES:
            self._packer.take_over(state)
        self._layout = np.array(state["blobs"])

    def export_open(self) -> dict[str, np.ndarray]:
        ends = self._open.ends
        streams = [
            part
            for env in range(self.num_envs)
            for part in (
                self._open.heads[env, : ends["head"][env]],
                self._open.values[env, : ends["values"][env]],
            )
        ]
        return {
            "newest": self._open.newest,
            "references": self._coded.references,
            "open_ends": ends,
            "open_streams": np.concatenate(streams),
            "blobs": self._blobs[self.arrays.full_chunks()],
            **self._arena.state_views(),
            **self._packer.state_views(),
        }

    def import_open(self, state: State) -> None:
        self._open.newest[:] = state["newest"]
        self._coded.take_references(state["references"])
        self._open.ends[:] = state["open_ends"]
        streams, at = state["open_streams"], 0
        for env in range(self.num_envs):
            for array, size in ((self._open.heads, "head"), (self._open.values, "values")):
                count = int(self._open.ends[size][env])
                array[env, :count] = streams[at : at + count]
                at += count
        self._layout = np.empty(0, BLOB)  # an empty part of the state's would keep all of it

    def check_frames(self, state: State, chains: np.ndarray, chunks: np.ndarray) -> None:
        array_of(state, "newest", np.uint64, self._open.newest.shape)
        references = self._coded.check_references(state, "references")
        ends = array_of(state, "open_ends", OPEN, (self.num_envs,))
        inside = (ends["head"] >= 0) & (ends["head"] <= self._open.heads.shape[1])
        inside &= (ends["values"] >= 0) & (ends["values"] <= self._open.values.shape[1])
        inside &= (ends["reference"] >= 0) & (ends["reference"] < max(1, len(references)))
        if not inside.all():
            raise ValueError("the saved memory is damaged: no such streams of frames")
        size = int((ends["head"] + ends["values"]).sum(dtype=np.int64))
        array_of(state, "open_streams", np.uint8, (size,))
        blobs = array_of(state, "blobs", BLOB, (len(chunks),))
        self._arena.check_state(state)
        self._arena.check_strings(state, blobs, int(chunks["size"].sum(dtype=np.int64)))
        if not np.array_equal(blobs["size"], chunks["size"]):
            raise ValueError("the saved memory is damaged: chunks of another size")
        known = self._dictionaries(state)
        if not set(self._firsts(state, chains).tolist()) <= {STORED, PACKED, *known}:
            raise ValueError("the saved memory is damaged: chunks of no dictionary")
        self._check_streams(state, chains, decoders_of(known))

    def _check_streams(self, state: State, chains: np.ndarray, decoders: Decoders) -> None:
        """Refuse streams that cannot be frames, and open ones that are not those of their chunks:
        compiled loops write on where they end."""
        for first, end in pieces(state, "chunks"):
            saved, data = (state[f"{kind}-{first}-{end}"] for kind in ("chunks", "data"))
            held = saved["ordinal"] >= chains["first"][saved["env"]]
            if not held.all():
                data = data[np.repeat(held, saved["size"])]
            check_strings(self._coded, data, saved["size"][held], decoders)
        streams, at = state["open_streams"], 0
        opened = has_open(chains, self.chunk)
        for env, end in enumerate(state["open_ends"]):
            middle, stop = at + int(end["head"]), at + int(end["head"]) + int(end["values"])
            if opened[env]:  # else the next frame begins anew
                frames = int(chains["position"][env]) + 1
                check_open(self._coded, streams[at:middle], streams[middle:stop], frames)
            at = stop

    def _dictionaries(self, state: State) -> dict[int, bytes]:
        """Those of a state by their numbers."""
        old = state["format"] <= WITHOUT_DICTIONARIES
        return {} if old else self._packer.check_state(state)

    def _firsts(self, state: State, chains: np.ndarray) -> np.ndarray:
        """First bytes of the strings of full chunks that are held, uint8 [n]."""
        found = [np.empty(0, np.uint8)]
        for first, end in pieces(state, "chunks"):
            saved, data = (state[f"{kind}-{first}-{end}"] for kind in ("chunks", "data"))
            starts = np.cumsum(saved["size"], dtype=np.int64) - saved["size"]
            found.append(data[starts[saved["ordinal"] >= chains["first"][saved["env"]]]])
        return np.concatenate(found)

    def make_room(self, state: State, chunks: int) -> None:
        self._arena.make_room(state)

    def least_loaded(self, state: State, chains: np.ndarray, chunks: np.ndarray) -> int:
        blobs, ends = state["blobs"], state["open_ends"]
        # All full chunks can go but those that the newest stacks need.
        oldest = state["recent"][np.arange(len(chains)), self.stack - 1 - chains["depth"]]
        needed = chunks["ordinal"] >= (oldest // self.chunk)[chunks["env"]]
        references = state["references"].nbytes
        opened = int((ends["head"] + ends["values"]).sum(dtype=np.int64)) + ends.nbytes
        held = self._arena.least_bytes(state, blobs[needed])
        used = set(self._firsts(state, chains)[needed].tolist())
        held += sum(bytes_of(len(c)) for n, c in self._dictionaries(state).items() if n in used)
        held += places_of(chains) * BLOB.itemsize
        return held + opened + references + self._open.newest.nbytes

    def clear(self) -> None:
        used = int(self.arrays.head["chunks"])
        super().clear()
        self._coded.clear(used)
        self._open.known[:] = 0
        self._open.ends[:] = np.zeros(1, OPEN)

    def check_valid(self) -> None:
        """The invariants of `RingStorage`, and that full chunks and the arena's strings agree."""
        super().check_valid()
        full = self.arrays.full_chunks()
        assert (self._blobs["size"][full] > 0).all(), "a full chunk was not kept"
        sizes = self._blobs["size"][: int(self.arrays.head["chunks"])]
        assert np.count_nonzero(sizes) == len(full), "a string of no chunk"
        self._arena.check_valid(self._blobs[full])
        self._packer.check_valid(self._arena, self._blobs[full])
