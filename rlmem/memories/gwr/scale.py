"""The scale of distances: the median between random pairs of the first observations.

Until it is known they are kept as they are; then they are shown to the map.
"""

from collections.abc import Callable

import numpy as np

from rlmem.errors import UserError
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import Stateful, array_of, number_of
from rlmem.memories.gwr.records import CHUNK, columns
from rlmem.memories.gwr.streams import EVENT, push_frames

_PAIRS = 10_000


class WarmUp(Stateful):
    """Observations that wait for the scale.

    Args:
        size: how many are wanted; 0: the scale is known.
        frame: values of a frame.
        dtype: of a frame.
        action_dims: of a continuous action.
    """

    def __init__(self, size: int, frame: int, dtype: np.dtype, action_dims: int) -> None:
        self._events = np.empty(size, EVENT)
        self._frames = np.empty((size, frame), dtype)
        self._vectors = np.empty((size, action_dims), np.float32)
        self.size, self.count = size, 0

    @property
    def events(self) -> np.ndarray:
        """EVENT [n], those kept so far; `row` says which frame is theirs."""
        return self._events[: self.count]

    @property
    def frames(self) -> np.ndarray:
        """Their frames [n, frame]."""
        return self._frames[: self.count]

    @property
    def vectors(self) -> np.ndarray:
        """The continuous actions before them, float32 [n, A]."""
        return self._vectors[: self.count]

    def take(
        self, events: np.ndarray, vectors: np.ndarray, first: np.ndarray, following: np.ndarray
    ) -> int:
        """Keep observations as long as any are wanted; how many were taken."""
        taken = events[: self.size - self.count]
        new = slice(self.count, self.count + len(taken))
        starts = taken["start"].astype(bool)[:, None]
        self._frames[new] = np.where(starts, first[taken["row"]], following[taken["row"]])
        self._vectors[new] = vectors[: len(taken)]
        self._events[new] = taken
        self._events["row"][new] = np.arange(new.start, new.stop)
        self._events["slot"][new] = -1
        self.count = new.stop
        return len(taken)

    def embed(self, stacks: np.ndarray, embed: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """What is kept, in the space of distances, float32 [n, d].

        Args:
            stacks: [E, P], as empty as at the run's start; changed in place.
        """
        rows = []
        for start in range(0, self.count, CHUNK):
            chunk = self.events[start : start + CHUNK]
            out = np.empty((len(chunk), stacks.shape[1]), stacks.dtype)
            push_frames(chunk, self._frames, self._frames, stacks, out)
            rows.append(embed(out))
        return np.concatenate(rows)

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept."""
        return self.events.nbytes + self.frames.nbytes + self.vectors.nbytes

    @property
    def longest(self) -> int:
        """Bytes of all that are wanted."""
        return self._events.nbytes + self._frames.nbytes + self._vectors.nbytes

    def state_views(self) -> State:
        """What is kept."""
        kept = {"warm": self.count, "warm_frames": self.frames, "warm_vectors": self.vectors}
        return kept | columns("warm_events", self.events)

    def check_state(self, state: State) -> None:
        count = int(number_of(state, "warm", "writer"))
        if not 0 <= count <= max(0, self.size - 1):
            raise UserError(
                f"memory.metric.scale_samples={self.size}: the saved writer waits with {count} "
                "observations for the scale; use more"
            )
        for name, own in (("warm_frames", self._frames), ("warm_vectors", self._vectors)):
            array_of(state, name, own.dtype, (count, own.shape[1]), "writer")
        for name, own in columns("warm_events", self._events).items():
            array_of(state, name, own.dtype, (count,), "writer")

    def take_over(self, state: State) -> None:
        self.count = int(state["warm"])
        self.frames[:] = state["warm_frames"]
        self.vectors[:] = state["warm_vectors"]
        for field, column in columns("warm_events", self.events).items():
            column[:] = state[field]


def median_distance(rows: np.ndarray, seed: int) -> float:
    """The median Euclidean distance of random pairs of different rows (float32 [n, d]).

    Raises:
        UserError: it is 0.
    """
    rng = np.random.default_rng(seed)
    i = rng.integers(len(rows), size=_PAIRS)
    j = (i + rng.integers(1, len(rows), size=_PAIRS)) % len(rows)
    scale = float(np.median(np.linalg.norm(rows[i] - rows[j], axis=1)))
    if not scale > 0.0:
        raise UserError(
            f"memory.metric.scale=auto: most of the first {len(rows)} observations are equal; "
            "give a number"
        )
    return scale
