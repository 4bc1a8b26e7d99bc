"""The best episodes that a graph memory has seen, as paths through its nodes.

What they take is bounded: of a long episode the newest steps are kept, so many that all kept
episodes together have no more than the graph has nodes. A node "crosses" where two or more of them
come by with a reward other than 0 (Kang et al. 2024).
"""

import sys
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import Stateful, array_of

SCORES = ("return", "length", "diversity")
_NUMBERS = {"returns": np.float64, "lengths": np.int64, "envs": np.int64}  # saved of each
_COLUMNS = {"nodes": np.int32, "made": np.int64, "reward": np.float32}
STEP_BYTES = sum(np.dtype(dtype).itemsize for dtype in _COLUMNS.values())
# Of a trajectory without steps: its arrays' headers, its tuple and its two numbers.
OWN_BYTES = len(_COLUMNS) * sys.getsizeof(np.empty(0)) + sum(
    map(sys.getsizeof, ((None,) * 5, 0.0, 2**30))
)
_PIECES = 16  # of an episode that runs, before they are joined


class Trajectory(NamedTuple):
    """One episode: the nodes that its newest steps led to, and who stood there (`NODE.made`)."""

    nodes: np.ndarray  # int32 [n]
    made: np.ndarray  # int64 [n]
    reward: np.ndarray  # float32 [n]
    total: float  # its return
    length: int  # its steps, n or more

    def score(self, by: str) -> float:
        """What it is kept for: its return, its steps, or the share of its nodes that differ, among
        those of which it still has the steps."""
        if by == "return":
            return self.total
        return self.length if by == "length" else len(np.unique(self.made)) / len(self.made)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return len(self.nodes) * STEP_BYTES + OWN_BYTES


@dataclass
class _Running:
    """An episode that has not ended, in pieces."""

    pieces: list[Trajectory]
    steps: int = 0  # that they have together


class Trajectories(Stateful):
    """Keeps the episodes with the highest score; of equal ones, those seen first.

    Args:
        count: episodes kept at most.
        by: return, length (the longest) or diversity.
        longest: steps of each at most, its newest ones. One that runs may have as many more, so
            that not every step is a copy of all.
    """

    def __init__(self, count: int, by: str, longest: int) -> None:
        self.count, self.by, self.longest = count, by, longest
        self.kept: list[Trajectory] = []
        self._running: dict[int, _Running] = {}  # by environment

    def extend(self, env: int, piece: Trajectory, ended: bool) -> None:
        """Take in an environment's next steps."""
        run = self._running.setdefault(env, _Running([]))
        run.pieces.append(piece)
        run.steps += len(piece.nodes)
        # Steps go by their number alone, whatever pieces they came in: a state has them joined.
        if ended or run.steps > 2 * self.longest:
            run.pieces = [whole] = [_joined(run.pieces, self.longest)]
            run.steps = len(whole.nodes)
            if ended:
                del self._running[env]
                self.kept.append(whole)
                self.kept.sort(key=lambda t: -t.score(self.by))
                del self.kept[self.count :]
        elif len(run.pieces) == _PIECES:  # a piece of one step is most of all what is around it
            run.pieces = [_joined(run.pieces)]

    def crossings(self, made: np.ndarray, most: int) -> np.ndarray:
        """Nodes on two or more of the episodes at a step with a reward, int32 [k].

        Args:
            made: int64 [nodes], who stands at each slot: others than those that were met count not.
            most: k at most; those on the most episodes come first.
        """
        met = np.zeros(len(made), np.int32)
        for t in self.kept:
            there = (t.reward != 0) & (made[t.nodes] == t.made)
            met[np.unique(t.nodes[there])] += 1  # once an episode, however often it came by
        order = np.argsort(-met, kind="stable")[:most]
        return order[met[order] >= 2].astype(np.int32)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        kept = sum(t.nbytes for t in self.kept)
        # As of the most pieces: a state has them joined, and is to take as many bytes.
        running = STEP_BYTES * sum(run.steps for run in self._running.values())
        return kept + running + OWN_BYTES * _PIECES * len(self._running)

    def bytes_when_full(self, envs: int) -> int:
        """Bytes of as many episodes as are kept, and of one that runs in each environment."""
        steps = self.longest * (self.count + 2 * envs)
        return STEP_BYTES * steps + OWN_BYTES * (self.count + _PIECES * envs)

    def state_views(self) -> State:
        running = {env: _joined(run.pieces) for env, run in self._running.items()}
        every = [*self.kept, *running.values()]
        columns = _joined(every)
        return {
            **{f"trajectory_{name}": getattr(columns, name) for name in _COLUMNS},
            "trajectory_sizes": np.array([len(t.nodes) for t in every], np.int64),
            "trajectory_returns": np.array([t.total for t in every], np.float64),
            "trajectory_lengths": np.array([t.length for t in every], np.int64),
            "trajectory_envs": np.array([-1] * len(self.kept) + list(running), np.int64),
        }

    def check_state(self, state: State) -> None:
        sizes = array_of(state, "trajectory_sizes", np.int64, (-1,))
        for name, dtype in _NUMBERS.items():
            array_of(state, f"trajectory_{name}", dtype, (len(sizes),))
        for name, dtype in _COLUMNS.items():
            array_of(state, f"trajectory_{name}", dtype, (int(sizes.sum()),))

    def take_over(self, state: State) -> None:
        ends = np.cumsum(state["trajectory_sizes"])[:-1]
        parts = [np.split(np.array(state[f"trajectory_{name}"]), ends) for name in _COLUMNS]
        numbers = [np.array(state[f"trajectory_{name}"]).tolist() for name in _NUMBERS]
        self.kept, self._running = [], {}
        for nodes, made, reward, *mine in zip(*parts, *numbers, strict=False):
            total, length, env = mine
            found = Trajectory(nodes.copy(), made.copy(), reward.copy(), total, length)
            if env < 0:
                self.kept.append(found)
            else:
                self._running[env] = _Running([found], len(found.nodes))


def _joined(pieces: list[Trajectory], most: int | None = None) -> Trajectory:
    """Pieces one after the other; of the steps the newest, at most so many."""
    columns = []
    for name, dtype in _COLUMNS.items():
        column = np.concatenate([np.empty(0, dtype), *(getattr(p, name) for p in pieces)])
        columns.append(column if most is None or len(column) <= most else column[-most:].copy())
    nodes, made, reward = columns
    total, length = float(sum(p.total for p in pieces)), sum(p.length for p in pieces)
    return Trajectory(nodes, made, reward, total, length)


def trajectory(nodes: np.ndarray, made: np.ndarray, reward: np.ndarray) -> Trajectory:
    """Of steps of which none is missing."""
    return Trajectory(nodes, made, reward, float(reward.sum(dtype=np.float64)), len(nodes))
