"""The observations that the nodes of a map stand for, each compressed by itself without loss.

A stack of frames is coded as the difference of its first frame to a reference frame and of each
frame to the one before (`rlmem.memories.compression.codec`), then by zstandard: an Atari stack
takes some hundred bytes in place of 28,224. Nodes go in another order than they came, which leaves
holes between the strings: when these are a fifth of the bytes, all strings are put together anew.
"""

import math

import numpy as np

from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import array_of
from rlmem.memories.compression import codec
from rlmem.memories.compression.checks import check_strings
from rlmem.memories.compression.chunks import CodedChunks, as_words
from rlmem.memories.compression.packing import decoders_of
from rlmem.memories.compression.segments import BLOB, SEGMENT

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
        size = math.prod(observation_shape) // stack
        self.longest = stack * codec.longest_frame(-(-size // 8) * 8) + codec.PREFIX + 1
        limit = capacity * self.longest * 5 // 4 + 2 * _HOLES
        limit = limit if budget is None else min(limit, budget + 2 * _HOLES)
        # An observation is a chunk, which is written at once: one is open at a time.
        self._coded = CodedChunks(capacity, stack, size, num_envs=1, limit=limit, level=level)
        self._arena, self._blobs = self._coded.arena, self._coded.blobs
        self.size_held, self._mark = 0, 0  # bytes of strings; nodes that ever had one
        self._places = np.full((stack, 2), -1, np.int64)

    def put(self, node: int, observation: np.ndarray) -> None:
        """Keep the observation (flat, uint8) of a new node in place of what was there."""
        self.release(np.array([node]))
        stack, places = len(self._places), self._places
        # As each row's next frame: the last step is then the chunk's last frame.
        places[:, 1] = node * stack + np.arange(stack)
        words = as_words(observation.reshape(stack, -1))
        self._coded.write(np.zeros(stack, np.int64), places.reshape(-1), words, words)
        self.size_held += int(self._blobs["size"][node])
        self._mark = max(self._mark, node + 1)

    def release(self, nodes: np.ndarray) -> None:
        """Let go of the observations of nodes (int [n]); those without one are passed over."""
        held = nodes[self._blobs["size"][nodes] > 0]
        if not len(held):
            return
        self.size_held -= int(self._blobs["size"][held].sum())
        self._coded.release(held)
        self.repack(self.size_held // 4 + _HOLES)

    def repack(self, holes: int) -> None:
        """Put the strings together if there are more than so many bytes between them."""
        if self._arena.occupied - self.size_held > holes:
            held = np.flatnonzero(self._blobs["size"][: self._mark])
            self._blobs[held] = self._arena.repack(self._blobs[held])

    def get(self, nodes: np.ndarray) -> np.ndarray:
        """Observations of nodes (int [n]), uint8 [n, P]; each node is decoded once."""
        stack = len(self._places)
        places = nodes.astype(np.int64)[:, None] * stack + np.arange(stack)
        out = np.empty((places.size, self._coded.size), np.uint8)
        self._coded.read(places.reshape(-1), None, out)
        return out.reshape(len(nodes), stack * self._coded.size)

    @property
    def nbytes(self) -> int:
        """Bytes held, without the 12 a node that say where its string lies."""
        return self._arena.nbytes + self._own_bytes(self._coded.references.nbytes)

    def _own_bytes(self, references: int) -> int:
        a = self._coded.open
        work = a.newest, a.heads, a.values, a.ends, self._places
        return references + sum(array.nbytes for array in work)

    def growth(self, count: int) -> int:
        """Bytes that so many observations more may take at the worst."""
        if not count:
            return 0
        return int(self._arena.missing(count * self.longest) + self._coded.new_references)

    def projected(self, nodes: int) -> int:
        """Bytes held with so many strings as those so far, at least as many as now; the longest
        before the first."""
        held = int(np.count_nonzero(self._blobs["size"][: self._mark]))
        size = nodes * (self.size_held // held if held else self.longest)
        strings = max(self._arena.nbytes, self._arena.bytes_of(-(-size // SEGMENT)))
        return strings + self._own_bytes(self._coded.open.references.nbytes)

    def clear(self) -> None:
        """Let go of everything; the references stay."""
        self._coded.clear(self._mark)
        self.size_held = self._mark = 0

    def state_views(self, nodes: int) -> State:
        """Strings of the first `nodes` nodes, how they lie, and the references; see `Stateful`."""
        blobs = self._blobs[:nodes]
        return {
            "exemplars.blobs": blobs,
            "exemplars.data": lambda: self._arena.gather(blobs),
            "exemplars.references": self._coded.references,
            **self._arena.state_views(),
        }

    def check_state(self, state: State, nodes: int) -> None:
        """Refuse a state that is not of `nodes` observations of this shape.

        Raises:
            ValueError: it does not fit.
        """
        blobs = array_of(state, "exemplars.blobs", BLOB, (nodes,), "map")
        self._coded.check_references(state, "exemplars.references", "map")
        size = int(blobs["size"].sum(dtype=np.int64))
        array_of(state, "exemplars.data", np.uint8, (size,), "map")
        self._arena.check_state(state)
        held = blobs[blobs["size"] != 0]
        self._arena.check_strings(state, held, size)
        check_strings(self._coded, state["exemplars.data"], held["size"], decoders_of({}))

    def loaded_bytes(self, state: State) -> int:
        """Bytes held with a checked state."""
        return self._arena.loaded_bytes(state) + self._own_bytes(
            state["exemplars.references"].nbytes
        )

    def take_over(self, state: State) -> None:
        """Take over the strings and the references of a checked state."""
        self._arena.make_room(state)
        self.clear()
        self._coded.take_references(state["exemplars.references"])
        blobs = np.array(state["exemplars.blobs"])
        self._mark, self.size_held = len(blobs), int(blobs["size"].sum())
        self._arena.take_over(state)
        held = np.flatnonzero(blobs["size"])
        self._coded.restore(held, blobs[held], state["exemplars.data"])

    def check_valid(self, live: np.ndarray) -> None:
        """Exactly the live nodes (int [n]) have an observation; the arena holds nothing else."""
        held = np.flatnonzero(self._blobs["size"][: self._mark])
        assert np.array_equal(held, live), "lost exemplars"
        assert self._blobs["size"][live].sum() == self.size_held, "miscounted bytes"
        holes = self._arena.occupied - self.size_held
        assert holes <= self.size_held // 4 + _HOLES + SEGMENT, "holes between the exemplars"
        self._arena.check_valid(self._blobs[live])
