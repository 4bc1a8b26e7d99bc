"""What noise in the weights adds to an action of data-efficient Rainbow, one observation at a time.

python benchmarks/noisy.py --contender data_efficient      # one JSON line
python benchmarks/noisy.py --list

The same agent with `agent.noisy=true` and `false`, one torch thread, interleaved in one process.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import numpy as np
import torch
from common import command_line, versions

from rlmem.config import check, compose
from rlmem.envs import make_env
from rlmem.networks.noisy import draw_noise, noisy_layers
from rlmem.runs.build import build_agent

CONTENDERS = ("data_efficient", "nature")  # networks
CALLS, REPEATS = 100, 41


def agents(network: str) -> dict[str, Any]:
    made = {}
    for noisy in ("false", "true"):
        given = ["experiment=atari_100k_der", f"agent.network.kind={network}"]
        run = check(compose("train", [*given, f"agent.noisy={noisy}", "agent.epsilon.start=1"]))
        env = make_env(run.env, 1)
        torch.manual_seed(0)
        made[noisy] = build_agent(run, env.spec)
        draw_noise(noisy_layers(made[noisy].online))
        env.close()
    return made


def measure(network: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    pair, rng = agents(network), np.random.default_rng(0)
    image = rng.integers(0, 256, (1, 4, 84, 84), dtype=np.uint8)
    microseconds: dict[str, list[float]] = {noisy: [] for noisy in pair}
    for _ in range(1 + REPEATS):
        for noisy, agent in pair.items():
            started = time.perf_counter()
            for _ in range(CALLS):
                agent.explore(image, 0.0, rng)
            microseconds[noisy].append(1e6 * (time.perf_counter() - started) / CALLS)
    without, with_noise = (values[1:] for values in microseconds.values())  # the first warms up
    ratios = [b / a for a, b in zip(without, with_noise, strict=True)]
    return {
        "metrics": {
            "without_us": round(statistics.median(without), 1),
            "noisy_us": round(statistics.median(with_noise), 1),
            "noisy_ratio": round(statistics.median(ratios), 3),
        },
        "versions": versions(["rlmem", "torch"]),
    }


def main() -> None:
    args = command_line(CONTENDERS)
    print(json.dumps({"name": args.contender, **measure(args.contender)}))


if __name__ == "__main__":
    main()
