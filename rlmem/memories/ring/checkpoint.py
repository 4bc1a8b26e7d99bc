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
from rlmem.memories.ring import kernels

if TYPE_CHECKING:
    from rlmem.memories.ring.ring import RingStorage

FORMAT = 2  # of a saved ring
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
SAVED_CHAIN = np.dtype(
    [("first", np.int32), *((name, kernels.CHAIN[name]) for name in CHAIN_FIELDS)]
)


def pieces(state: State, kind: str) -> list[tuple[int, int]]:
    """Ranges of the pieces of a kind, oldest first."""
    ranges = (name.split("-")[1:] for name in state if name.startswith(f"{kind}-"))
    return sorted((int(first), int(end)) for first, end in ranges)


def _ranges(first: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """[first, end) in parts of about PIECE bytes, if one item has `size`."""
    step = max(1, PIECE // max(1, size))
    for start in range(first, end, step):
        yield start, min(start + step, end)


def slots_of(storage: "RingStorage", first: int, end: int) -> np.ndarray:
    """Slots of the transitions numbered [first, end), int64."""
    r = storage._ring[0]
    return (int(r["cursor"] - r["written"]) + np.arange(first, end)) % max(1, int(r["size"]))


def places_of(chains: np.ndarray) -> int:
    """Chunks that saved chains (SAVED_CHAIN [E]) hold, full or open."""
    return int((chains["chunks"] - chains["first"]).sum())


def has_open(chains: np.ndarray, length: int) -> np.ndarray:
    """Whether the newest chunk of each saved chain has room, bool [E]; chunks are of `length`."""
    return (chains["chunks"] > 0) & (chains["position"] < length - 1)


class RingLog:
    """What a ring storage saves.

    Args:
        storage: of which the states are.
    """

    def __init__(self, storage: "RingStorage") -> None:
        self.storage = storage

    def held(self) -> np.ndarray:
        """Places of the chunks that are held, int64 [n]."""
        storage = self.storage
        r = storage._ring[0]
        held = np.ones(r["chunks"], np.bool_)
        held[storage._free[: r["free"]]] = False
        return np.flatnonzero(held)

    def full(self) -> np.ndarray:
        """Places of the full chunks that are held, in the order of filling."""
        held, closed = self.held(), self.storage._chunks["closed"]
        held = held[closed[held] >= 0]
        return held[np.argsort(closed[held])]

    def state(self, since: SavedState | None) -> dict[str, Any]:
        """The state; arrays of its pieces are functions. Without what `since` has already."""
        storage = self.storage
        r = storage._ring[0]
        chunks = self.full()
        numbers = storage._chunks["closed"][chunks]
        oldest_row = int(r["written"] - r["window"])
        first_row = oldest_row if since is None else max(oldest_row, since["written"])
        first_chunk = 0 if since is None else int(np.searchsorted(numbers, since["closed"]))
        state: dict[str, Any] = {name: int(r[name]) for name in RING_FIELDS}
        state |= {
            "format": FORMAT,
            "closed": int(r["closed"]),
            "touched_chunks": int(r["chunks"]),
            "oldest_chunk": int(numbers[0]) if len(numbers) else int(r["closed"]),
            "chunk": storage.chunk,
            "kind": storage.kind,
            "frame": [*storage.frame_shape, str(storage.dtype)],
            "stack": storage.stack,
            "chains": self._chains(),
            "recent": self._frame_numbers(storage._recent),
            **storage._export_open(),
        }
        size = SAVED_ROW.itemsize + sum(
            column[:1].nbytes for column in storage._export_columns(np.zeros(1, np.int64)).values()
        )
        for start, end in _ranges(first_row, int(r["written"]), size):
            slots = slots_of(self.storage, start, end)
            state[f"rows-{start}-{end}"] = lambda slots=slots: self._rows(slots)
            for name in storage._export_columns(slots[:1]):
                state[f"{name}-{start}-{end}"] = lambda slots=slots, name=name: (
                    storage._export_columns(slots)[name]
                )
        sizes = storage._chunk_sizes(chunks)
        mean = int(sizes[first_chunk:].mean()) if len(chunks) > first_chunk else 0
        for start, end in _ranges(first_chunk, len(chunks), mean):
            part = chunks[start:end]
            number = (
                int(numbers[start]),
                int(numbers[end]) if end < len(chunks) else int(r["closed"]),
            )
            name = "{}-{}".format(*number)
            state[f"chunks-{name}"] = lambda part=part: self._saved_chunks(part)
            state[f"data-{name}"] = lambda part=part: storage._chunk_data(part)
        return state

    def reusable(self, since: SavedState) -> list[str]:
        """Arrays of an earlier state that still hold something."""
        storage = self.storage
        r = storage._ring[0]
        full = self.full()
        oldest_chunk = int(storage._chunks["closed"][full[0]]) if len(full) else int(r["closed"])
        oldest_row = int(r["written"] - r["window"])
        names = []
        for name in since.files:
            kind, *ends = name.split("-")
            if ends:
                oldest = oldest_chunk if kind in ("chunks", "data") else oldest_row
                if int(ends[1]) > oldest:
                    names.append(name)
        return names

    def _frame_numbers(self, places: np.ndarray) -> np.ndarray:
        length, chunks = self.storage.chunk, self.storage._chunks
        return chunks["ordinal"][places // length].astype(np.int64) * length + places % length

    def _rows(self, slots: np.ndarray) -> np.ndarray:
        storage = self.storage
        rows = storage._rows[slots]
        saved = np.empty(len(rows), SAVED_ROW)
        for name in ("reward", "depth", "terminated", "truncated"):
            saved[name] = rows[name]
        saved["env"] = storage._chunks["env"][rows["chunk"]]
        places = rows["chunk"].astype(np.int64) * storage.chunk + rows["position"]
        saved["frame"] = self._frame_numbers(places)
        return saved

    def _saved_chunks(self, chunks: np.ndarray) -> np.ndarray:
        saved = np.empty(len(chunks), SAVED_CHUNK)
        saved["env"] = self.storage._chunks["env"][chunks]
        saved["ordinal"] = self.storage._chunks["ordinal"][chunks]
        saved["size"] = self.storage._chunk_sizes(chunks)
        return saved

    def _chains(self) -> np.ndarray:
        chains = self.storage._chains
        saved = np.zeros(len(chains), SAVED_CHAIN)
        for name in CHAIN_FIELDS:
            saved[name] = chains[name]
        begun = chains["head"] >= 0
        saved["first"][begun] = self.storage._chunks["ordinal"][chains["head"][begun]]
        return saved

    def check_valid(self) -> None:
        """Assert the invariants of slots, chains and links."""
        storage = self.storage
        r = storage._ring[0]
        chunks, chains, length = storage._chunks, storage._chains, storage.chunk
        held = set(self.held().tolist())
        assert len(set(storage._free[: r["free"]].tolist())) == r["free"], "a chunk is free twice"
        found: list[int] = []
        for env, chain in enumerate(chains):
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
        slots = slots_of(self.storage, int(r["written"] - r["window"]), int(r["written"]))
        rows = storage._rows[slots]
        assert set(rows["chunk"].tolist()) <= held, "a transition's frames are gone"
        links = rows["link"].copy()
        kernels.relink(storage._ring, storage._rows, chunks, length, chains)
        assert np.array_equal(links, storage._rows["link"][slots]), "a link is wrong"
        done = rows["terminated"] | rows["truncated"]
        assert not (done & (links > 0)).any(), "a transition leads across the end of an episode"
