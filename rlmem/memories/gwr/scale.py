"""The scale of distances: the median between random pairs of the first observations.

Until it is known they are kept as they are; then they are shown to the map.
"""

from collections.abc import Callable

import numpy as np

from rlmem.errors import UserError
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import Stateful, array_of, count_of
from rlmem.memories.gwr.records import CHUNK, columns
from rlmem.memories.gwr.streams import EVENT, Arrivals, push_frames

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
    def kept(self) -> Arrivals:
        """The observations kept so far, each with a frame of its own."""
        frames = self._frames[: self.count]
        return Arrivals(self._events[: self.count], self._vectors[: self.count], frames, frames)

    def newest(self, num_envs: int) -> np.ndarray:
        """Each environment's newest frame that is kept, [E, F]; zeros where there is none."""
        last = np.full(num_envs, -1)
        last[self._events["env"][: self.count]] = np.arange(self.count)
        newest = np.zeros((num_envs, self._frames.shape[1]), self._frames.dtype)
        newest[last >= 0] = self._frames[last[last >= 0]]
        return newest

    def take(self, shown: Arrivals) -> Arrivals:
        """Keep observations as long as any are wanted; those that were not taken."""
        taken = shown.events[: self.size - self.count]
        new = slice(self.count, self.count + len(taken))
        starts, row = taken["start"].astype(bool)[:, None], taken["row"]
        self._frames[new] = np.where(starts, shown.first[row], shown.following[row])
        self._vectors[new] = shown.actions[: len(taken)]
        self._events[new] = taken
        self._events["row"][new] = np.arange(new.start, new.stop)
        self._events["slot"][new] = -1
        self.count = new.stop
        return shown.part(slice(len(taken), None))

    def embed(self, stacks: np.ndarray, embed: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """What is kept, in the space of distances, float32 [n, d].

        Args:
            stacks: [E, P], as empty as at the run's start; changed in place.
        """
        rows = []
        for start in range(0, self.count, CHUNK):
            chunk = self.kept.events[start : start + CHUNK]
            out = np.empty((len(chunk), stacks.shape[1]), stacks.dtype)
            push_frames(chunk, self._frames, self._frames, stacks, out)
            rows.append(embed(out))
        return np.concatenate(rows)

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept."""
        return sum(array.nbytes for array in self.kept[:3])

    @property
    def longest(self) -> int:
        """Bytes of all that are wanted."""
        return self._events.nbytes + self._frames.nbytes + self._vectors.nbytes

    def state_views(self) -> State:
        """What is kept."""
        kept = self.kept
        state = {"warm": self.count, "warm_frames": kept.first, "warm_vectors": kept.actions}
        return state | columns("warm_events", kept.events)

    def check_state(self, state: State) -> None:
        count = count_of(state, "warm", "writer")
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
        kept = self.kept
        kept.first[:], kept.actions[:] = state["warm_frames"], state["warm_vectors"]
        for field, column in columns("warm_events", kept.events).items():
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
