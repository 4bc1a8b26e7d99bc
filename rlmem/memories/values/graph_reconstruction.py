"""When and between which nodes a graph memory walks paths, and what the last walk did."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from rlmem.errors import UserError
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import Stateful, array_of, count_of, generator_of
from rlmem.memories.values.base import Visits
from rlmem.memories.values.graph_kernels import unit_of
from rlmem.memories.values.graph_paths import aggregate, by_degree, canopy, clusters_of, walk_paths
from rlmem.memories.values.graph_records import NODES, GraphArrays, Rule
from rlmem.memories.values.trajectories import Trajectories, trajectory


@dataclass(frozen=True, kw_only=True)
class Reconstruction:
    """Which paths are walked, and when.

    Attributes:
        key_nodes: "none", "centre", "degree" or "cross".
        most: key nodes at most: the paths are their ordered pairs.
        every: "episode", or steps.
        order: "backwards" or "forwards".
        inner, outer: T2 and T1 of the canopies, in units of keys: within T2 of a centre there is no
            other, and its cluster is what lies within T1 and nearest to it. Paths lead between
            centres, so T1 changes nothing that is learned: it says what pictures show as a cluster.
        walks, hops: of the neighbourhood over which a key is averaged before; 0 walks: none.
        kept, score: how many trajectories are kept to find crosses on, and by what.

    Raises:
        ValueError: radii the wrong way round.
    """

    key_nodes: str = "none"
    most: int = 100
    every: str | int = "episode"
    order: str = "backwards"
    inner: float = 1.0
    outer: float = 2.0
    walks: int = 0
    hops: int = 2
    kept: int = 10
    score: str = "return"

    def __post_init__(self) -> None:
        if self.inner >= self.outer:
            raise ValueError(f"T1={self.outer}, T2={self.inner}: T1 must be the larger")


class LastWalk(NamedTuple):
    """What the last reconstruction did, for pictures; slots as they were then."""

    key_nodes: np.ndarray  # int32 [k]
    clusters: np.ndarray  # int32 [nodes], which key node each is nearest to, -1: none within T1
    edges: np.ndarray  # int32 [m], those on its paths
    before: np.ndarray  # float32 [m], their weights
    after: np.ndarray  # float32 [m]


_DTYPES = (np.int32, np.int32, np.int32, np.float32, np.float32)  # of its columns


class Reconstructor(Stateful):
    """Chooses key nodes and walks between them.

    Args:
        how: see there.
        generator: of the draws.
        capacity: nodes of the graph; the kept episodes have as many steps together.
        envs: environments that are played at once.
    """

    def __init__(
        self, how: Reconstruction, generator: torch.Generator, capacity: int, envs: int
    ) -> None:
        self.how, self.generator, self.envs = how, generator, envs
        kept = min(how.kept, capacity)  # each has a step at least
        self.trajectories = Trajectories(kept, how.score, capacity // kept)
        self.last = LastWalk(*(np.empty(0, dtype) for dtype in _DTYPES))
        self._steps = 0  # since the last reconstruction

    def stops(self, visits: Visits) -> list[int]:
        """After how many of the visits a reconstruction is due, each time."""
        if self.how.key_nodes == "none":
            return []
        if self.how.every == "episode":
            return (np.flatnonzero(visits.terminated | visits.truncated) + 1).tolist()
        every = int(self.how.every)
        return list(range(max(1, every - self._steps), len(visits) + 1, every))

    def follow(self, visits: Visits, rows: slice, nodes: np.ndarray, made: np.ndarray) -> None:
        """Told of steps, int32 [n] the nodes that they led to and int64 [n] who stood there then:
        count them, and add them to the trajectories, each environment's apart."""
        self._steps += len(nodes)
        if self.how.key_nodes != "cross":
            return
        envs = visits.env_id[rows]
        ends = (visits.terminated | visits.truncated)[rows]
        for env in np.unique(envs).tolist():
            own = np.flatnonzero(envs == env)
            for part in np.split(own, np.flatnonzero(ends[own][:-1]) + 1):
                steps = trajectory(nodes[part], made[part], visits.reward[rows][part])
                self.trajectories.extend(env, steps, bool(ends[part[-1]]))

    def walk(self, g: GraphArrays, rule: Rule) -> None:
        """Walk the paths between the key nodes."""
        self._steps = 0
        key_nodes, clusters = self.choose(g, unit_of(g, rule))
        if len(key_nodes) < 2:
            return
        before = walk_paths(g, rule, key_nodes, self.how.order == "backwards")
        edges = np.flatnonzero(~np.isnan(before)).astype(np.int32)
        after = g.edges["weight"][edges].copy()
        self.last = LastWalk(key_nodes, clusters, edges, before[edges], after)

    def choose(self, g: GraphArrays, unit: float) -> tuple[np.ndarray, np.ndarray]:
        """Slots int32 [k] of the key nodes, and of centres the clusters (`LastWalk`).

        Args:
            unit: of the radii.
        """
        count, most = int(g.book[NODES]), self.how.most
        none = np.empty(0, np.int32)
        if self.how.key_nodes == "none" or not count:
            return none, none
        if self.how.key_nodes == "degree":
            return by_degree(g, most), none
        if self.how.key_nodes == "cross":
            return self.trajectories.crossings(g.nodes["made"][:count], most), none
        order = torch.randperm(count, generator=self.generator).numpy()
        points = self._points(g, count)
        centres = canopy(points, order, self.how.inner * unit, most)
        return centres, clusters_of(points, centres, self.how.outer * unit)

    def _points(self, g: GraphArrays, count: int) -> np.ndarray:
        """What is clustered: keys, or their means over neighbourhoods, float32 [nodes, d]."""
        if self.how.walks == 0:
            return g.keys[:count]
        seed = int(torch.randint(2**62, (), generator=self.generator))
        return aggregate(g, self.how.walks, self.how.hops, seed)

    def footprint(self) -> dict[str, int]:
        """Component -> bytes held."""
        return {
            "trajectories": self.trajectories.nbytes,
            "last_walk": sum(column.nbytes for column in self.last),
        }

    def when_full(self, nodes: int, edges: int) -> dict[str, int]:
        """Component -> bytes after a walk over all of so many nodes and edges, with as many
        episodes kept as may be."""
        if self.how.key_nodes == "none":
            return {}
        sizes = (min(self.how.most, nodes), nodes, edges, edges, edges)
        sizes = zip(sizes, _DTYPES, strict=True)
        crosses = self.how.key_nodes == "cross"
        return {
            "trajectories": self.trajectories.bytes_when_full(self.envs) if crosses else 0,
            "last_walk": sum(n * np.dtype(dtype).itemsize for n, dtype in sizes),
        }

    def state_views(self) -> State:
        columns = {f"walk_{name}": column for name, column in self.last._asdict().items()}
        own = {"steps": self._steps, "draws": self.generator.get_state().numpy()}
        return {**own, **columns, **self.trajectories.state_views()}

    def check_state(self, state: State) -> None:
        """See `Stateful`; nodes must be among the state's."""
        count_of(state, "steps")
        generator_of(state, "draws", self.generator)
        walk = LastWalk(
            *(
                array_of(state, f"walk_{name}", dtype, (-1,))
                for name, dtype in zip(LastWalk._fields, _DTYPES, strict=True)
            )
        )
        if not len(walk.edges) == len(walk.before) == len(walk.after):
            raise UserError(
                "the saved graph is damaged: its last walk has columns of other lengths"
            )
        self.trajectories.check_state(state)
        slots = state["trajectory_nodes"]
        if len(slots) and not (slots.min() >= 0 and slots.max() < state["book"][NODES]):
            raise UserError("the saved graph is damaged: a trajectory leads to no node")

    def take_over(self, state: State) -> None:
        self._steps = int(state["steps"])
        self.generator.set_state(torch.from_numpy(np.array(state["draws"])))
        self.last = LastWalk(*(np.array(state[f"walk_{name}"]) for name in LastWalk._fields))
        self.trajectories.take_over(state)
