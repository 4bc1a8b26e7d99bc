"""A ring storage as a log: what was saved once is not written again.

Transitions never change once they are written, nor does a chunk once it is full. So a saved state
holds them as pieces, numbered in the order of time: `rows-<from>-<to>` (and the columns beside
them) for transitions, `chunks-<from>-<to>` and `data-<from>-<to>` for full chunks. A later state
writes what came since and links the pieces that still hold something. What does change (the open
chunks and a record an environment) is small and written each time.

Chunks are named by environment and number in its chain, so that loading can lay them out anew.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from rlmem.memories.base.serialize import SavedState, State
from rlmem.memories.ring.read_kernels import relink
from rlmem.memories.ring.records import CHAIN, ends_of

if TYPE_CHECKING:
    from rlmem.memories.ring.ring import RingStorage

FORMAT = 3  # of a saved ring
WITHOUT_DICTIONARIES = 2  # the format before, which is loaded as well
PIECE = 2**25  # bytes of a piece, about
SAVED_ROW = np.dtype(
    [
        ("frame", np.int64),  # number in the environment's chain of the stack's oldest frame
        ("env", np.int32),
        ("reward", np.float32),
        ("depth", np.uint8),
        ("terminated", np.bool_),
        ("truncated", np.bool_),
    ]
)
SAVED_CHUNK = np.dtype([("env", np.int32), ("ordinal", np.int32), ("size", np.int32)])
RING_FIELDS = ("size", "cursor", "window", "written")
CHAIN_FIELDS = ("position", "chunks", "depth", "running", "slot", "seq")
SAVED_CHAIN = np.dtype([("first", np.int32), *((name, CHAIN[name]) for name in CHAIN_FIELDS)])


def pieces(state: State, kind: str) -> list[tuple[int, int]]:
    """Ranges of the pieces of a kind, oldest first."""
    ranges = (name.split("-")[1:] for name in state if name.startswith(f"{kind}-"))
    return sorted((int(first), int(end)) for first, end in ranges)


def _ranges(first: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """[first, end) in parts of about PIECE bytes, if one item has `size`."""
    step = max(1, PIECE // max(1, size))
    for start in range(first, end, step):
        yield start, min(start + step, end)


def places_of(chains: np.ndarray) -> int:
    """Chunks that saved chains (SAVED_CHAIN [E]) hold, full or open."""
    return int((chains["chunks"] - chains["first"]).sum())


def has_open(chains: np.ndarray, length: int) -> np.ndarray:
    """Whether the newest chunk of each saved chain has room, bool [E]; chunks are of `length`."""
    return (chains["chunks"] > 0) & (chains["position"] < length - 1)


class RingCheckpoint:
    """What a ring storage saves.

    Args:
        storage: of which the states are.
    """

    def __init__(self, storage: "RingStorage") -> None:
        self.storage, self.arrays = storage, storage.arrays

    def _oldest(self, full: np.ndarray) -> tuple[int, int]:
        """Numbers of the oldest transition and of the oldest full chunk that are held."""
        head = self.arrays.head
        closed = self.arrays.chunks["closed"][full[0]] if len(full) else head["closed"]
        return int(head["written"] - head["window"]), int(closed)

    def state(self, since: SavedState | None) -> dict[str, Any]:
        """The state; arrays of its pieces are functions. Without what `since` has already."""
        storage, arrays, head = self.storage, self.arrays, self.arrays.head
        full = arrays.full_chunks()
        state: dict[str, Any] = {name: int(head[name]) for name in RING_FIELDS}
        state |= {
            "format": FORMAT,
            "closed": int(head["closed"]),
            "touched_chunks": int(head["chunks"]),
            "oldest_chunk": self._oldest(full)[1],
            "chunk": storage.chunk,
            "kind": storage.kind,
            "frame": [*storage.frame_shape, str(storage.dtype)],
            "stack": storage.stack,
            "chains": self._chains(),
            "recent": self._frame_numbers(arrays.recent),
            **storage.export_open(),
        }
        return state | self._row_pieces(full, since) | self._chunk_pieces(full, since)

    def _row_pieces(self, full: np.ndarray, since: SavedState | None) -> dict[str, Any]:
        columns = self.storage.row_columns
        first, end = self._oldest(full)[0], int(self.arrays.head["written"])
        if since is not None:
            first = max(first, since["written"])
        size = SAVED_ROW.itemsize + sum(column[:1].nbytes for column in columns.values())
        found: dict[str, Any] = {}
        for start, stop in _ranges(first, end, size):
            slots = self.arrays.slots_of(start, stop)
            found[f"rows-{start}-{stop}"] = lambda slots=slots: self._rows(slots)
            for name, column in columns.items():
                found[f"{name}-{start}-{stop}"] = lambda slots=slots, c=column: c[slots]
        return found

    def _chunk_pieces(self, full: np.ndarray, since: SavedState | None) -> dict[str, Any]:
        storage = self.storage
        # Each full chunk's number, then the next to come; a piece's name ends with the next one.
        numbers = np.append(self.arrays.chunks["closed"][full], self.arrays.head["closed"])
        first = 0 if since is None else int(np.searchsorted(numbers[:-1], since["closed"]))
        sizes = storage.chunk_sizes(full)[first:]
        found: dict[str, Any] = {}
        for start, end in _ranges(first, len(full), int(sizes.mean()) if len(sizes) else 0):
            part, name = full[start:end], f"{numbers[start]}-{numbers[end]}"
            found[f"chunks-{name}"] = lambda part=part: self._saved_chunks(part)
            found[f"data-{name}"] = lambda part=part: storage.chunk_data(part)
        return found

    def reusable(self, since: SavedState) -> list[str]:
        """Arrays of an earlier state that still hold something."""
        row, chunk = self._oldest(self.arrays.full_chunks())
        names = []
        for name in since.files:
            kind, *ends = name.split("-")
            if ends and int(ends[1]) > (chunk if kind in ("chunks", "data") else row):
                names.append(name)
        return names

    def _frame_numbers(self, places: np.ndarray) -> np.ndarray:
        length, ordinal = self.storage.chunk, self.arrays.chunks["ordinal"]
        return ordinal[places // length].astype(np.int64) * length + places % length

    def _rows(self, slots: np.ndarray) -> np.ndarray:
        rows = self.arrays.rows[slots]
        saved = np.empty(len(rows), SAVED_ROW)
        for name in ("reward", "depth"):
            saved[name] = rows[name]
        saved["terminated"], saved["truncated"] = ends_of(rows)
        saved["env"] = self.arrays.chunks["env"][rows["chunk"]]
        places = rows["chunk"].astype(np.int64) * self.storage.chunk + rows["position"]
        saved["frame"] = self._frame_numbers(places)
        return saved

    def _saved_chunks(self, chunks: np.ndarray) -> np.ndarray:
        saved = np.empty(len(chunks), SAVED_CHUNK)
        for name in ("env", "ordinal"):
            saved[name] = self.arrays.chunks[name][chunks]
        saved["size"] = self.storage.chunk_sizes(chunks)
        return saved

    def _chains(self) -> np.ndarray:
        chains = self.arrays.chains
        saved = np.zeros(len(chains), SAVED_CHAIN)
        for name in CHAIN_FIELDS:
            saved[name] = chains[name]
        begun = chains["head"] >= 0
        saved["first"][begun] = self.arrays.chunks["ordinal"][chains["head"][begun]]
        return saved

    def check_valid(self) -> None:
        """Assert the invariants of slots, chains and links."""
        arrays, head, chunks = self.arrays, self.arrays.head, self.arrays.chunks
        held = set(arrays.held_chunks().tolist())
        free = chunks["free"][: head["free"]]
        assert len(set(free.tolist())) == head["free"], "a chunk is free twice"
        found: list[int] = []
        for env, chain in enumerate(arrays.chains):
            at = int(chain["head"])
            while at >= 0:
                assert chunks["env"][at] == env, "a chunk of another environment"
                found.append(at)
                after = int(chunks["next"][at])
                if at == chain["chunk"]:
                    break
                assert chunks["ordinal"][after] == chunks["ordinal"][at] + 1, "a chunk is missing"
                assert chunks["closed"][at] >= 0, "an open chunk is not the newest"
                at = after
        assert sorted(found) == sorted(held), "chunks lost or held twice"
        slots = arrays.slots_of(int(head["written"] - head["window"]), int(head["written"]))
        rows = arrays.rows[slots]
        assert set(rows["chunk"].tolist()) <= held, "a transition's frames are gone"
        relink(arrays.memory)
        assert np.array_equal(rows["after"], arrays.rows["after"][slots]), "a link is wrong"
