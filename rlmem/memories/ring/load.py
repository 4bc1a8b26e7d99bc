"""Taking over the state of a ring storage: all of it is checked before anything is let go of."""

from typing import TYPE_CHECKING, Any

import numpy as np

from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import array_of, check_actions, count_of, entry
from rlmem.memories.ring.checkpoint import (
    CHAIN_FIELDS,
    FORMAT,
    RING_FIELDS,
    SAVED_CHAIN,
    SAVED_CHUNK,
    SAVED_ROW,
    WITHOUT_DICTIONARIES,
    has_open,
    pieces,
    places_of,
)
from rlmem.memories.ring.read_kernels import relink
from rlmem.memories.ring.records import ROW, after_ends

if TYPE_CHECKING:
    from rlmem.memories.ring.ring import RingStorage


class RingLoader:
    """Checks a state of a ring storage and lays it out in one.

    Args:
        storage: that takes it over.
        state: of `RingCheckpoint`.
    """

    def __init__(self, storage: "RingStorage", state: State) -> None:
        self.storage, self.state = storage, state

    # Checking.

    def check(self) -> None:
        """Refuse a state that does not fit.

        Raises:
            ValueError: it is of other frames, environments, another kind of storage, a larger
                memory or another version, passes the budget, or is damaged.
        """
        self._check_kind()
        self._check_counts()
        chains = self._checked_chains()
        chunks = self._checked_chunks(chains)
        self._check_rows(chains)
        self.storage.check_frames(self.state, chains, chunks)
        self._check_budget(chains, chunks)

    def _check_kind(self) -> None:
        storage, state = self.storage, self.state
        if entry(state, "format") not in (WITHOUT_DICTIONARIES, FORMAT):
            raise ValueError("the saved memory is of another version of rlmem; train it anew")
        if entry(state, "kind") != storage.kind:
            raise ValueError(
                f"the saved memory is a storage of kind {state['kind']}, this one {storage.kind}"
            )
        own = [*storage.frame_shape, str(storage.dtype)]
        if entry(state, "frame") != own or entry(state, "stack") != storage.stack:
            raise ValueError(
                f"the saved memory holds frames {state['frame']} in stacks of {state['stack']}, "
                f"this one {own} in stacks of {storage.stack}"
            )
        if entry(state, "chunk") != storage.chunk:
            raise ValueError(
                f"the saved memory has chunks of {state['chunk']} frames, this one of "
                f"{storage.chunk}"
            )

    def _check_counts(self) -> None:
        names = (*RING_FIELDS, "closed", "touched_chunks", "oldest_chunk")
        count = {name: count_of(self.state, name, low=-(2**62)) for name in names}
        if count["size"] > self.storage.max_size:
            raise ValueError(
                f"the saved memory holds {count['size']} transitions, this one "
                f"{self.storage.max_size} at most"
            )
        fits = count["window"] <= min(count["size"], count["written"])
        last = max((end for _, end in pieces(self.state, "chunks")), default=0)
        fits &= last <= count["closed"] < 2**31
        if not fits or count["cursor"] > count["size"] or min(count.values()) < 0:
            raise ValueError("the saved memory is damaged: its counts disagree")

    def _checked_chains(self) -> np.ndarray:
        storage, state = self.storage, self.state
        chains = array_of(state, "chains", SAVED_CHAIN, (-1,))
        if len(chains) != storage.num_envs:
            raise ValueError(
                f"the saved memory was written by {len(chains)} environments, this one "
                f"by {storage.num_envs}"
            )
        recent = array_of(state, "recent", np.int64, storage.arrays.recent.shape)
        inside = (chains["position"] >= 0) & (chains["position"] < storage.chunk)
        inside &= (chains["depth"] >= 0) & (chains["depth"] < storage.stack)
        inside &= (chains["slot"] >= 0) & (chains["slot"] < max(1, state["size"]))
        inside &= (chains["first"] >= 0) & (chains["chunks"] >= 0)
        inside &= chains["first"] <= np.maximum(chains["chunks"] - 1, 0)
        # The frames of the newest stack lie one behind the other, up to the newest: what is evicted
        # follows them through the chunks.
        back = np.arange(recent.shape[1])[::-1]
        newest = (chains["chunks"].astype(np.int64) - 1) * storage.chunk + chains["position"]
        right = recent == newest[:, None] - back
        right &= recent >= (chains["first"].astype(np.int64) * storage.chunk)[:, None]
        right |= (back > chains["depth"][:, None]) | (chains["chunks"] == 0)[:, None]
        if not inside.all() or not right.all():
            raise ValueError("the saved memory is damaged: no such frames")
        return chains

    def _checked_chunks(self, chains: np.ndarray) -> np.ndarray:
        """Full chunks that are held, in the order of filling: SAVED_CHUNK [n]."""
        state, parts = self.state, [np.empty(0, SAVED_CHUNK)]
        if places_of(chains) > len(self.storage.arrays.chunks):
            raise ValueError("the saved memory holds more frames than this one has room for")
        if state["touched_chunks"] < places_of(chains):
            raise ValueError("the saved memory is damaged: its counts disagree")
        for first, end in pieces(state, "chunks"):
            saved = array_of(state, f"chunks-{first}-{end}", SAVED_CHUNK, (-1,))
            inside = (saved["env"] >= 0) & (saved["env"] < len(chains)) & (saved["size"] >= 0)
            if not inside.all():
                raise ValueError("the saved memory is damaged: no such chunks of frames")
            size = int(saved["size"].sum(dtype=np.int64))
            array_of(state, f"data-{first}-{end}", np.uint8, (size,))
            parts.append(saved[saved["ordinal"] >= chains["first"][saved["env"]]])
        held = np.concatenate(parts)
        # Each chain goes from its first chunk to the last full one without a gap.
        count = chains["chunks"] - chains["first"] - has_open(chains, self.storage.chunk)
        env = np.repeat(np.arange(len(chains)), count)
        before = np.cumsum(count) - count
        ordinal = (chains["first"] - before)[env] + np.arange(len(env))
        order = np.lexsort((held["ordinal"], held["env"]))
        whole = np.array_equal(held["env"][order], env)
        if not whole or not np.array_equal(held["ordinal"][order], ordinal):
            raise ValueError("the saved memory is damaged: chunks of frames are missing")
        return held

    def _check_rows(self, chains: np.ndarray) -> None:
        storage, state, length = self.storage, self.state, self.storage.chunk
        oldest = chains["first"].astype(np.int64) * length
        newest = (chains["chunks"].astype(np.int64) - 1) * length + chains["position"]
        reached = state["written"] - state["window"]
        kinds = {name.split("-")[0] for name in state if "-" in name}
        if unknown := sorted(kinds - {"rows", "chunks", "data", *storage.row_columns}):
            raise ValueError(
                f"the saved memory has a column {unknown[0]}, which this one has not; give it as "
                "columns="
            )
        for first, end in pieces(state, "rows"):
            rows = array_of(state, f"rows-{first}-{end}", SAVED_ROW, (end - first,))
            for name, own in storage.row_columns.items():
                array_of(state, f"{name}-{first}-{end}", own.dtype, (end - first, *own.shape[1:]))
            check_actions(state[f"action-{first}-{end}"], storage.num_actions)
            if first > reached:
                break
            rows = rows[max(0, reached - first) :]
            env = np.clip(rows["env"], 0, len(chains) - 1)
            inside = (rows["env"] == env) & (rows["depth"] < storage.stack)
            inside &= rows["frame"] >= oldest[env]
            inside &= rows["frame"] + rows["depth"] + 1 <= newest[env]
            if not inside.all():
                raise ValueError("the saved memory is damaged: frames of transitions are missing")
            reached = max(reached, end)
        if reached != state["written"]:
            raise ValueError("the saved memory is damaged: transitions are missing")

    def _check_budget(self, chains: np.ndarray, chunks: np.ndarray) -> None:
        storage, size = self.storage, int(self.state["size"])
        if storage.limit is None:
            return
        places = places_of(chains)
        least = storage.least_loaded(self.state, chains, chunks)
        least += sum(storage.bytes_of(size, places).values()) + size * storage.slot_bytes
        if least > storage.limit.limit:
            raise ValueError(
                f"the saved memory takes {least} bytes at least and cannot shrink to "
                f"memory.budget={storage.budget}: give the budget it had"
            )

    # Loading.

    def load(self) -> None:
        """Lay the chunks and transitions of a checked state out in place of what was held.

        Raises:
            UserError: a disk has no room for them; the storage stays as it was.
        """
        storage, state, arrays = self.storage, self.state, self.storage.arrays
        chains = np.array(state["chains"])
        storage.make_room(state, places_of(chains))
        storage.clear()
        for name in (*RING_FIELDS, "closed"):
            arrays.head[name] = state[name]
        storage.import_layout(state)
        for first, end in pieces(state, "chunks"):
            self._load_chunks(first, end, chains["first"])
        self._open_chunks(chains)
        # Chunks lie in the order of filling. In that of `order`, each chain's stand together, its
        # oldest at `start_of`: from there, a number in the chain leads to a place.
        table = arrays.chunks[: int(arrays.head["chunks"])]
        order = np.lexsort((table["ordinal"], table["env"]))
        same = table["env"][order][1:] == table["env"][order][:-1]
        table["next"] = -1
        table["next"][order[:-1][same]] = order[1:][same]
        start_of = np.searchsorted(table["env"][order], np.arange(storage.num_envs))

        def places(env: np.ndarray, frame: np.ndarray) -> np.ndarray:
            number = frame // storage.chunk - chains["first"][env]
            at = np.clip(start_of[env] + number, 0, len(order) - 1)  # of frames that are gone: any
            return order[at].astype(np.int64) * storage.chunk + frame % storage.chunk

        own = arrays.chains
        for name in CHAIN_FIELDS:
            own[name] = chains[name]
        begun = np.flatnonzero(chains["chunks"])
        own["head"][begun] = order[start_of[begun]]
        last = start_of[begun] + chains["chunks"][begun] - 1 - chains["first"][begun]
        own["chunk"][begun] = order[last]
        recent = np.array(state["recent"])
        arrays.recent[begun] = places(begun[:, None], recent[begun])
        for first, end in pieces(state, "rows"):
            self._load_rows(first, end, places)
        relink(arrays.memory)
        storage.import_open(state)
        self._free_chunks(int(state["touched_chunks"]))

    def _load_chunks(self, first: int, end: int, oldest: np.ndarray) -> None:
        arrays = self.storage.arrays
        saved = np.array(self.state[f"chunks-{first}-{end}"])
        sizes = saved["size"].astype(np.int64)
        keep = saved["ordinal"] >= oldest[saved["env"]]
        data = self.state[f"data-{first}-{end}"]
        if not keep.all():
            data = data[np.repeat(keep, sizes)]
            saved, sizes = saved[keep], sizes[keep]
        chunks = int(arrays.head["chunks"]) + np.arange(len(saved))
        for name in ("env", "ordinal"):
            arrays.chunks[name][chunks] = saved[name]
        # Numbers of chunks that are gone are skipped: only their order matters.
        arrays.chunks["closed"][chunks] = end - len(saved) + np.arange(len(saved))
        arrays.head["chunks"] += len(saved)
        self.storage.load_chunk_data(chunks, sizes, data)

    def _open_chunks(self, chains: np.ndarray) -> None:
        arrays = self.storage.arrays
        for env in np.flatnonzero(has_open(chains, self.storage.chunk)):
            chunk = arrays.chunks[int(arrays.head["chunks"])]
            chunk["env"], chunk["ordinal"], chunk["closed"] = env, chains["chunks"][env] - 1, -1
            arrays.head["chunks"] += 1

    def _free_chunks(self, touched: int) -> None:
        """Chunk places that were free when the state was saved are free again: under a budget,
        what is evicted next hangs on them. One that is too small for them goes without."""
        storage, arrays, head = self.storage, self.storage.arrays, self.storage.arrays.head
        held = int(head["chunks"])
        spare = min(touched, len(arrays.chunks)) - held
        if storage.budget is not None:
            spare = min(spare, max(0, storage.budget - storage.nbytes) // storage.chunk_bytes)
        arrays.chunks["free"][:spare] = np.arange(held, held + spare)
        head["free"], head["chunks"] = spare, held + spare

    def _load_rows(self, start: int, end: int, places: Any) -> None:
        storage, state, arrays = self.storage, self.state, self.storage.arrays
        first = max(start, int(arrays.head["written"] - arrays.head["window"]))
        if first >= end:
            return
        slots = arrays.slots_of(first, end)
        saved = np.array(state[f"rows-{start}-{end}"][first - start :])
        at = places(saved["env"], saved["frame"])
        rows = np.empty(len(saved), ROW)
        rows["reward"], rows["depth"] = saved["reward"], saved["depth"]
        rows["after"] = after_ends(saved["terminated"], saved["truncated"])
        rows["chunk"], rows["position"] = at // storage.chunk, at % storage.chunk
        arrays.rows[slots] = rows
        for name, column in storage.row_columns.items():
            column[slots] = state[f"{name}-{start}-{end}"][first - start :]
