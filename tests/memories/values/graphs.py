"""Small graphs, what they are told, and a plain one to compare them with."""

from collections import deque
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from rlmem.memories.values.base import Visits
from rlmem.memories.values.graph import GraphMemory, Learning
from rlmem.memories.values.graph_reconstruction import Reconstruction

ACTIONS, GAMMA, ETA = 3, 0.9, 0.25
SOUND = {"edges": "action", "first_weight": "target"}
RELEASED = {"edges": "pair", "first_weight": "reward"}
Step = tuple[int, int, float, int, bool]  # place, action, reward, next place, terminated


def make(
    capacity: int = 50, neighbours: int = 1, how: Reconstruction | None = None, **learning: Any
) -> GraphMemory:
    """A graph of places on a line, or of keys float32 [n, 1]."""
    rule = Learning(gamma=GAMMA, **{"eta": ETA, **learning})
    generator = torch.Generator().manual_seed(0)
    how = how or Reconstruction()
    return GraphMemory(capacity, 1, ACTIONS, rule, how, generator, neighbours)


def visits(steps: list[Step], truncated: bool = False, env: int = 0) -> Visits:
    """Steps of one environment; `truncated`: the last one ends an episode."""
    place, action, reward, following, terminated = (np.array(c) for c in zip(*steps, strict=True))
    cut = np.zeros(len(steps), np.bool_)
    cut[-1] = truncated and not terminated[-1]
    return Visits(
        key=place.astype(np.float32)[:, None],
        hash=np.zeros(len(steps), np.int64),
        action=action.astype(np.int64),
        target=np.zeros(len(steps), np.float32),
        reward=reward.astype(np.float32),
        next_key=following.astype(np.float32)[:, None],
        terminated=terminated.astype(np.bool_),
        truncated=cut,
        env_id=np.full(len(steps), env),
    )


def walk(rng: np.random.Generator, count: int, places: int = 8, ways: int = 2) -> list[Step]:
    """Random steps among places: each action leads so many ways; the last place ends an episode."""
    steps, here = [], 0
    for _ in range(count):
        action = int(rng.integers(ACTIONS))
        following = int((here * 3 + action * 5 + rng.integers(ways)) % places)
        ends = following == places - 1
        steps.append((here, action, float((here * 7 + action) % 4 - 1), following, ends))
        here = 0 if ends else following
    return steps


def known(graph: GraphMemory, place: int) -> int:
    """The node of a place."""
    return int(graph.read(np.array([[place]], np.float32), touch=False)[1].slot[0, 0, 0])


def edges_of(graph: GraphMemory) -> dict[tuple[float, bool, int, float, bool], tuple[float, ...]]:
    """(place, whether terminal, action, next place, whether terminal) -> weight, reward, visits."""
    keys, ends = graph.arrays.keys[:, 0], graph.arrays.nodes["terminal"]
    return {
        (
            float(keys[e["source"]]),
            bool(ends[e["source"]]),
            int(e["action"]),
            float(keys[e["target"]]),
            bool(ends[e["target"]]),
        ): (float(e["weight"]), float(e["reward"]), int(e["visits"]))
        for e in graph.edge_table()
    }


class PlainGraph:
    """The same, with dicts: node -> [edge], nodes in the order of their last use."""

    def __init__(self, capacity: int, edges: str, first_weight: str) -> None:
        self.capacity, self.pairs, self.first = capacity, edges == "pair", first_weight
        self.out: dict[tuple[float, bool], list[dict[str, Any]]] = {}
        self.made: dict[tuple[float, bool], int] = {}

    def place(self, key: float, terminal: bool, spared: Any = None) -> tuple[float, bool]:
        node = (float(key), terminal)
        if node not in self.out and len(self.out) == self.capacity:
            oldest = next(other for other in self.out if other != spared)
            del self.out[oldest]
            for edges in self.out.values():
                edges[:] = [e for e in edges if e["target"] != oldest]
        self.out[node] = self.out.pop(node, [])
        self.made.setdefault(node, len(self.made))
        return node

    def values(self, node: Any) -> dict[int, float]:
        found: dict[int, float] = {}
        for action in {e["action"] for e in self.out.get(node, [])}:
            own = [e for e in self.out[node] if e["action"] == action]
            total = sum(e["visits"] for e in own)
            mean = sum(e["visits"] * e["weight"] for e in own) / total
            found[action] = max(e["weight"] for e in own) if self.pairs else mean
        return found

    def target(self, reward: float, node: Any) -> float:
        return reward + GAMMA * max(self.values(node).values(), default=0.0)

    def step(self, key: int, action: int, reward: float, following: int, ends: bool) -> None:
        source = self.place(key, False)
        node = self.place(following, ends, spared=source)
        worth = self.target(reward, node)
        for e in self.out[source]:
            if e["target"] == node and (self.pairs or e["action"] == action):
                e["weight"] += ETA * (worth - e["weight"])
                mean = e["reward"] + (reward - e["reward"]) / (e["visits"] + 1)
                e["reward"] = reward if self.pairs else mean
                e["action"], e["visits"] = action, e["visits"] + 1
                return
        first = {"target": worth, "reward": reward, "zero": ETA * worth}[self.first]
        edge = {"target": node, "action": action, "weight": first, "reward": reward, "visits": 1}
        self.out[source].append(edge)

    def path(self, source: Any, goal: Any) -> list[Any]:
        """The shortest path, of several the one over older nodes; empty: there is none."""
        before, queue = {source: source}, deque([source])
        while queue:
            node = queue.popleft()
            for there in sorted((e["target"] for e in self.out[node]), key=self.made.__getitem__):
                if there not in before:
                    before[there] = node
                    queue.append(there)
        if goal not in before or goal == source:
            return []
        path = [goal]
        while path[-1] != source:
            path.append(before[path[-1]])
        return path[::-1]

    def reconstruct(self, key_nodes: list[Any], backwards: bool) -> None:
        for source in key_nodes:
            # All paths from a source are found before any is walked: walking changes no path.
            for goal in key_nodes:
                path = self.path(source, goal)
                pairs = list(pairwise(path))
                for here, there in reversed(pairs) if backwards else pairs:
                    for e in self.out[here]:
                        if e["target"] == there:
                            worth = self.target(e["reward"], there)
                            e["weight"] += ETA * (worth - e["weight"])

    def edges(self) -> dict[Any, tuple[float, ...]]:
        return {
            (*node, e["action"], *e["target"]): (e["weight"], e["reward"], e["visits"])
            for node, edges in self.out.items()
            for e in edges
        }
