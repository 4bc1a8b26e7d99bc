"""Sum trees over 100,000 priorities: time to set 32 of them and to draw 32 items.

python benchmarks/sum_tree.py --contender rlmem        # one JSON line
python benchmarks/sum_tree.py --list
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from common import command_line, exit_not_installed, versions

CAPACITY = 100_000
BATCH = 32
# update(index int64 [n], priority float64 [n]), draw(u float64 [n] in [0, 1)), packages
Tree = tuple[Callable[[np.ndarray, np.ndarray], Any], Callable[[np.ndarray], Any], tuple[str, ...]]


def plain_numpy() -> Tree:
    """A level-by-level tree: each level of the 32 paths is one vectorised operation."""
    base = 1 << (CAPACITY - 1).bit_length()
    tree = np.zeros(2 * base)

    def update(index: np.ndarray, priority: np.ndarray) -> None:
        node = index + base
        tree[node] = priority
        while node[0] > 1:
            node = node >> 1
            tree[node] = tree[2 * node] + tree[2 * node + 1]

    def draw(u: np.ndarray) -> np.ndarray:
        mass, node = u * tree[1], np.ones(len(u), np.int64)
        while node[0] < base:
            left = tree[2 * node]
            right = mass >= left
            mass = mass - np.where(right, left, 0.0)
            node = 2 * node + right
        return node - base

    return update, draw, ()


def rlmem_tree() -> Tree:
    from rlmem.memories.samplers.sum_tree import SumTree

    tree = SumTree(CAPACITY)
    return tree.update, tree.draw, ("rlmem", "numba")


def tianshou() -> Tree:
    from tianshou.data import SegmentTree

    tree = SegmentTree(CAPACITY)

    def draw(u: np.ndarray) -> np.ndarray:
        return tree.get_prefix_sum_idx(u * tree.reduce())

    return tree.__setitem__, draw, ("tianshou", "numba")


def cpprb() -> Tree:
    from cpprb import PrioritizedReplayBuffer

    buffer = PrioritizedReplayBuffer(CAPACITY, {"x": {}}, alpha=1.0, check_for_update=False)
    for _ in range(10):
        buffer.add(x=np.zeros(CAPACITY // 10))

    # its tree is not reachable alone: a draw also gathers one float an item and the weights
    return buffer.update_priorities, lambda u: buffer.sample(len(u), beta=1.0), ("cpprb",)


CONTENDERS: dict[str, Callable[[], Tree]] = {
    "plain numpy": plain_numpy,
    "rlmem": rlmem_tree,
    "tianshou": tianshou,
    "cpprb": cpprb,
}


def median_ms(calls: list[Callable[[], Any]]) -> float:
    seconds = []
    for call in calls:
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return round(1e3 * statistics.median(seconds), 5)


def measure(make: Callable[[], Tree]) -> dict[str, Any]:
    update, draw, packages = make()
    rng = np.random.default_rng(0)
    update(np.arange(CAPACITY), rng.random(CAPACITY) + 0.1)
    draws = rng.random((5_000, BATCH))
    draw(draws[0])
    updates = [(rng.integers(0, CAPACITY, BATCH), rng.random(BATCH) + 0.1) for _ in range(5_000)]
    return {
        "metrics": {
            "update_32_ms": median_ms([lambda i=i, p=p: update(i, p) for i, p in updates]),
            "draw_32_ms": median_ms([lambda u=u: draw(u) for u in draws]),
        },
        "versions": versions(["numpy", *packages]),
    }


def main() -> None:
    args = command_line(CONTENDERS)
    try:
        result = measure(CONTENDERS[args.contender])
    except ImportError as error:
        exit_not_installed(error)
    print(json.dumps({"name": args.contender, **result}))


if __name__ == "__main__":
    main()
