"""The observations that the nodes of a map stand for, each compressed by itself without loss.

A stack of frames is coded as the difference of its first frame to a reference frame and of each
frame to the one before (`rlmem.memories.compression.codec`), then by zstandard: an Atari stack
takes some hundred bytes in place of 28,224. Nodes go in another order than they came, which leaves
holes between the strings: when these are a fifth of the bytes, all strings are put together anew.
"""

import math

import numpy as np

from rlmem.memories.base.lazy import lazy_zeros
from rlmem.memories.base.serialize import State
from rlmem.memories.compression import codec
from rlmem.memories.compression.arena import BLOB, RECORD, SEGMENT, Arena
from rlmem.memories.compression.packing import Packer

_HOLES = 4 * SEGMENT  # bytes of holes that are never worth the work


class ExemplarStore:
    """Observations by node.

    Args:
        capacity: most nodes.
        observation_shape: uint8, `stack` frames along the first axis.
        budget: bytes that are never passed, as far as address space goes; None: no bound.
        level: of zstandard.
    """

    def __init__(
        self,
        capacity: int,
        observation_shape: tuple[int, ...],
        stack: int,
        *,
        budget: int | None = None,
        level: int = -1,
    ) -> None:
        self.stack, self._size = stack, math.prod(observation_shape) // stack
        words = -(-self._size // 8)
        self.longest = stack * codec.longest_frame(8 * words) + codec.PREFIX + 1
        self._blobs = lazy_zeros((capacity,), BLOB)  # size 0: no such node
        worst = capacity * self.longest * 5 // 4 + 2 * _HOLES
        self._arena = Arena(worst if budget is None else min(worst, budget + 2 * _HOLES))
        self.size_held, self._mark = 0, 0  # bytes of strings; nodes that ever had one
        self._packer = Packer(level)
        self._references = np.zeros((codec.REFERENCES, words), np.uint64)
        self._known = np.zeros(1, np.int64)
        self._newest = np.zeros((1, words), np.uint64)
        self._heads = np.zeros((1, (stack + 1) * (4 * words + 16)), np.uint8)
        self._values = np.zeros((1, (stack + 1) * 8 * words), np.uint8)
        self._ends = np.zeros(1, codec.OPEN)
        self._places = np.full((stack, 2), -1, np.int64)
        self._places[:, 0] = np.arange(stack)

    def put(self, node: int, observation: np.ndarray) -> None:
        """Keep the observation (flat, uint8) of a new node in place of what was there."""
        self.release(np.array([node]))
        frames = np.zeros((self.stack, 8 * self._newest.shape[1]), np.uint8)
        frames[:, : self._size] = observation.reshape(self.stack, self._size)
        words = frames.view(np.uint64)
        codec.encode_block(
            0,
            np.zeros(self.stack, np.int64),
            self._places.reshape(-1),
            words,
            words,
            self.stack,
            self._newest,
            self._references,
            self._known,
            self._heads,
            self._values,
            self._ends,
        )
        stream = codec.open_stream(0, self._heads, self._values, self._ends)
        string = self._packer.pack(stream)
        self._blobs[node : node + 1] = self._arena.put(string)
        self.size_held += len(string)
        self._mark = max(self._mark, node + 1)

    def release(self, nodes: np.ndarray) -> None:
        """Let go of the observations of nodes (int [n]); those without one are passed over."""
        held = nodes[self._blobs["size"][nodes] > 0]
        if not len(held):
            return
        self._arena.release(self._blobs[held])
        self.size_held -= int(self._blobs["size"][held].sum())
        self._blobs["size"][held] = 0
        self.repack(self.size_held // 4 + _HOLES)

    def repack(self, holes: int) -> None:
        """Put the strings together if there are more than so many bytes between them."""
        if self._arena.occupied - self.size_held > holes:
            held = np.flatnonzero(self._blobs["size"][: self._mark])
            self._blobs[held] = self._arena.repack(self._blobs[held])

    def get(self, nodes: np.ndarray) -> np.ndarray:
        """Observations of nodes (int [n]), uint8 [n, P]; each node is decoded once."""
        unique, place = np.unique(nodes, return_inverse=True)
        blobs = self._blobs[unique]
        data, starts = self._packer.unpack(self._arena, blobs)
        flat = np.arange(len(unique) * self.stack)
        out = np.empty((len(flat), self._newest.shape[1]), np.uint64)
        codec.decode(
            flat,
            flat,
            self.stack,
            np.zeros(len(unique), np.int64),
            data,
            starts,
            self._references,
            self._heads,
            self._values,
            self._ends,
            out,
        )
        frames = out.view(np.uint8)[:, : self._size]
        return frames.reshape(len(unique), -1)[place.reshape(-1)]

    @property
    def nbytes(self) -> int:
        """Bytes held, without the 12 a node that say where its string lies."""
        return self._arena.nbytes + self._own_bytes(int(self._known[0]))

    def _own_bytes(self, references: int) -> int:
        work = self._newest, self._heads, self._values, self._ends, self._places
        return references * self._references[0].nbytes + sum(a.nbytes for a in work)

    def growth(self, count: int) -> int:
        """Bytes that so many observations more may take at the worst."""
        if not count:
            return 0
        references = (codec.REFERENCES - int(self._known[0])) * self._references[0].nbytes
        return int(self._arena.missing(count * self.longest) + references)

    def projected(self, nodes: int) -> int:
        """Bytes held with so many strings as those so far; the longest before the first."""
        held = int(np.count_nonzero(self._blobs["size"][: self._mark]))
        size = nodes * (self.size_held // held if held else self.longest)
        segments = -(-size // SEGMENT)
        return segments * (SEGMENT + RECORD) + self._own_bytes(codec.REFERENCES)

    def clear(self) -> None:
        """Let go of everything; the references stay."""
        self._arena.clear()
        self._blobs["size"][: self._mark] = 0
        self.size_held = self._mark = 0

    def state_dict(self, nodes: int) -> State:
        """Strings of the first `nodes` nodes, how they lie, and the references."""
        blobs = self._blobs[:nodes]
        return {
            "exemplars.blobs": blobs.copy(),
            "exemplars.data": self._arena.gather(blobs),
            "exemplars.references": self._references[: self._known[0]],
            **self._arena.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Take over the strings and the references of a state."""
        self.clear()
        references = state["exemplars.references"]
        self._known[0] = len(references)
        self._references[: len(references)] = references
        blobs = np.array(state["exemplars.blobs"])
        self._blobs[: len(blobs)], self._mark = blobs, len(blobs)
        self.size_held = int(blobs["size"].sum())
        self._arena.load_state_dict(state)
        held = blobs[blobs["size"] > 0]
        self._arena.restore(held, np.ascontiguousarray(state["exemplars.data"]))

    def check_valid(self, live: np.ndarray) -> None:
        """Exactly the live nodes (int [n]) have an observation; the arena holds nothing else."""
        held = np.flatnonzero(self._blobs["size"][: self._mark])
        assert np.array_equal(held, live), "lost exemplars"
        assert self._blobs["size"][live].sum() == self.size_held, "miscounted bytes"
        holes = self._arena.occupied - self.size_held
        assert holes <= self.size_held // 4 + _HOLES + SEGMENT, "holes between the exemplars"
        self._arena.check_valid(self._blobs[live])
