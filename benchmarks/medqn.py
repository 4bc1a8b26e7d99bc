"""What consolidation costs: a minibatch drawn and learned from, DQN and MeDQN, one torch thread.

python benchmarks/medqn.py [--repeats 30]

One process, the contenders in turn in stretches of 100 updates, medians over the stretches. MLP
32-32 on MountainCar-shaped vectors and the MinAtar network on Breakout-shaped planes, batch 32.
Prints a table of microseconds and of ratios to DQN.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from common import machine

from rlmem.config import check, compose
from rlmem.envs import EnvSpec
from rlmem.runs import build

UPDATES = 100
SPECS = {
    "MountainCar": EnvSpec("MountainCar-v0", "gym", 1, (2,), np.dtype(np.float32), 1, 3, 1),
    "MinAtar Breakout": EnvSpec(
        "MinAtar/Breakout", "minatar", 1, (4, 10, 10), np.dtype(np.uint8), 1, 3, 1
    ),
}
EXPERIMENTS = {"MountainCar": "medqn_mountain_car", "MinAtar Breakout": "medqn_minatar"}
CONTENDERS = {
    "DQN, 32 transitions": ["memory=uniform", "memory.capacity=32"],
    "DQN, 10,000 transitions": ["memory=uniform", "memory.capacity=10000"],
    "MeDQN(U)": ["memory=medqn_u"],
    "MeDQN(R)": ["memory=medqn_r"],
    "MeDQN(U), 2 inner steps": ["memory=medqn_u", "memory.consolidation.inner_steps=2"],
    "MeDQN(U), 4 inner steps": ["memory=medqn_u", "memory.consolidation.inner_steps=4"],
}


def make(task: str, overrides: list[str]) -> Callable[[], None]:
    """UPDATES draws and learning steps."""
    run = check(compose("train", [f"experiment={EXPERIMENTS[task]}", *overrides]))
    spec = SPECS[task]
    agent, memory = build.build_agent(run, spec), build.build_memory(run, spec)
    rng = np.random.default_rng(0)
    for _ in range(400):
        frames = (rng.random((33, *spec.frame_shape)) * 2).astype(spec.dtype)
        ends = rng.random((32, 1)) < 0.01
        memory.extend(
            {
                "observation": frames[:-1],
                "action": rng.integers(spec.num_actions, size=32),
                "next": {
                    "observation": frames[1:],
                    "reward": rng.random((32, 1), np.float32),
                    "terminated": ends,
                    "truncated": np.zeros_like(ends),
                },
            }
        )

    def learn() -> None:
        for _ in range(UPDATES):
            agent.update(memory.draw(32, 1))

    return learn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=30)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    about = machine()
    print(f"# medqn\n\n`python benchmarks/medqn.py --repeats {repeats}`: microseconds of one drawn")
    print(f"minibatch and its learning step. {about['cpu']}, {about['cores']} cores.\n")
    print("| | " + " | ".join(f"{task} | ratio" for task in SPECS) + " |")
    print("|---|" + "---:|---:|" * len(SPECS))
    found: dict[str, dict[str, float]] = {name: {} for name in CONTENDERS}
    for task in SPECS:
        learners = {name: make(task, overrides) for name, overrides in CONTENDERS.items()}
        spent: dict[str, list[float]] = {name: [] for name in CONTENDERS}
        for turn in range(repeats + 1):
            for name, learn in learners.items():
                started = time.perf_counter()
                learn()
                if turn:
                    spent[name].append(1e6 * (time.perf_counter() - started) / UPDATES)
        for name, values in spent.items():
            found[name][task] = statistics.median(values)
    base = next(iter(found.values()))
    for name, values in found.items():
        cells = [f"{v:,.0f} | {v / base[task]:.2f}" for task, v in values.items()]
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
