"""The best episodes that a graph memory has seen, as paths through its nodes.

A node "crosses" where two or more of them come by with a reward other than 0 (Kang et al. 2024).
"""

from typing import NamedTuple

import numpy as np

from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import Stateful, array_of

SCORES = ("return", "length", "diversity")


class Trajectory(NamedTuple):
    """One episode: the nodes that its steps led to, and who stood there (`NODE.made`)."""

    nodes: np.ndarray  # int32 [n]
    made: np.ndarray  # int64 [n]
    reward: np.ndarray  # float32 [n]

    def score(self, by: str) -> float:
        """What it is kept for: its return, its steps, or the share of its nodes that differ."""
        if by == "return":
            return float(self.reward.sum(dtype=np.float64))
        return len(self.nodes) if by == "length" else len(np.unique(self.made)) / len(self.nodes)


class Trajectories(Stateful):
    """Keeps the episodes with the highest score; of equal ones, those seen first.

    Args:
        count: episodes kept at most.
        by: return, length (the longest) or diversity.
    """

    def __init__(self, count: int, by: str) -> None:
        self.count, self.by = count, by
        self.kept: list[Trajectory] = []
        self._running: dict[int, list[Trajectory]] = {}  # by environment, in pieces

    def extend(self, env: int, piece: Trajectory, ended: bool) -> None:
        """Take in an environment's next steps."""
        pieces = self._running.setdefault(env, [])
        pieces.append(piece)
        if len(pieces) == 256:  # a few large arrays rather than thousands of small ones
            pieces[:] = [_joined(pieces)]
        if ended:
            self.kept.append(_joined(self._running.pop(env)))
            self.kept.sort(key=lambda t: -t.score(self.by))
            del self.kept[self.count :]

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
        pieces = [*self.kept, *(p for run in self._running.values() for p in run)]
        return sum(a.nbytes for piece in pieces for a in piece)

    def state_views(self) -> State:
        running = {env: _joined(pieces) for env, pieces in self._running.items() if pieces}
        every = [*self.kept, *running.values()]
        owner = [-1] * len(self.kept) + list(running)
        columns = _joined(every)._asdict()
        return {
            **{f"trajectory_{name}": column for name, column in columns.items()},
            "trajectory_sizes": np.array([len(t.nodes) for t in every], np.int64),
            "trajectory_envs": np.array(owner, np.int64),
        }

    def check_state(self, state: State) -> None:
        sizes = array_of(state, "trajectory_sizes", np.int64, (-1,))
        array_of(state, "trajectory_envs", np.int64, (len(sizes),))
        for name, dtype in (("nodes", np.int32), ("made", np.int64), ("reward", np.float32)):
            array_of(state, f"trajectory_{name}", dtype, (int(sizes.sum()),))

    def take_over(self, state: State) -> None:
        ends = np.cumsum(state["trajectory_sizes"])
        parts = [np.split(state[f"trajectory_{name}"], ends[:-1]) for name in Trajectory._fields]
        every = [Trajectory(*(np.array(a) for a in row)) for row in zip(*parts, strict=True)]
        owners = np.array(state["trajectory_envs"]).tolist()
        pairs = list(zip(owners, every, strict=False))
        self.kept = [t for env, t in pairs if env < 0]
        self._running = {env: [t] for env, t in pairs if env >= 0}


def _joined(pieces: list[Trajectory]) -> Trajectory:
    none = (np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.float32))
    columns = zip(*pieces, strict=True) if pieces else ([a] for a in none)
    return Trajectory(*(np.concatenate(list(column)) for column in columns))
