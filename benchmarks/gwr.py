"""What it costs to show an observation to a GWR map of 1,000, 10,000 and 50,000 pixel nodes.

python benchmarks/gwr.py --contender "blocks of 8"        # one JSON line
python benchmarks/gwr.py --list

RoadRunner, random play, 4 envs, one torch thread; a_T .9 and h_T 1, so that four of five
observations become nodes. `blocks of B` and `exemplars` write B transitions a call, as the trainer
does (one Trainer step's); embedding, search, insertion or move, links and edges are in it. `all
keys` is the nearest-node search alone as NumPy does it, over the same keys, one at a time; `all
pixels` the same over the stacks themselves. `Reacher` is the mean over 50,000 random steps of
MuJoCo's Reacher with the released code's map: 4 contexts, a_T .55, h_T 1, blocks of 10.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from common import command_line, versions
from record_frames import ensure
from recording import blocks, load

MARKS = (1_000, 10_000, 50_000)  # nodes
WINDOW = 400  # transitions that are timed once the map has so many
STEPS = 64_000  # transitions recorded
SHAPE, DIMS, ENVS = (4, 84, 84), 128, 4
CONTENDERS = (
    *("blocks of 8", "blocks of 1", "exemplars, blocks of 8", "all keys", "all pixels"),
    "Reacher, blocks of 10",
)


def make_map(prototype: str) -> tuple[Any, Any]:
    """A map as memory=gwr makes it for an Atari game."""
    from rlmem.memories import GWRWriter, MapOptions, MapStorage, RandomProjection

    storage = MapStorage(
        STEPS,
        SHAPE,
        np.uint8,
        DIMS,
        num_actions=18,
        stack=SHAPE[0],
        options=MapOptions(prototype=prototype),
    )
    embedding = RandomProjection(SHAPE, DIMS, scale_input=1 / 255, stack=SHAPE[0])
    writer = GWRWriter(0.9, 1.0, num_envs=ENVS, embedding=embedding)
    writer.register_storage(storage)
    return storage, writer


def insertion(size: int, prototype: str) -> Iterator[tuple[int, float]]:
    """Nodes and microseconds a transition, at each mark."""
    storage, writer = make_map(prototype)
    recording, marks = load(ensure("road_runner", STEPS)), list(MARKS)
    started, count = 0.0, 0
    for block in blocks(recording, size):
        if marks and storage.num_nodes >= marks[0]:
            started = started or time.perf_counter()
            count += size
        writer.extend(block)
        if count >= WINDOW:
            yield marks.pop(0), 1e6 * (time.perf_counter() - started) / count
            started, count = 0.0, 0
        if not marks:
            return
    raise SystemExit(f"only {storage.num_nodes} nodes in {STEPS} transitions")


def plain(pixels: bool) -> Iterator[tuple[int, float]]:
    """The same for a search through all nodes; over pixels, for as many as lie in memory."""
    rng = np.random.default_rng(0)
    dims = int(np.prod(SHAPE)) if pixels else DIMS
    for nodes in MARKS:
        if nodes * dims * 4 > 2 * 2**30:
            continue
        keys = rng.standard_normal((nodes, dims), dtype=np.float32)
        times = []
        for _ in range(20):
            query = rng.standard_normal(dims, dtype=np.float32)
            started = time.perf_counter()
            gaps = keys - query
            np.argpartition(np.einsum("nd,nd->n", gaps, gaps), 2)
            times.append(time.perf_counter() - started)
        yield nodes, 1e6 * float(np.median(times))


def reacher(size: int, steps: int = 50_000) -> dict[str, float]:
    """Mean microseconds a transition, and the nodes at the end."""
    from rlmem.config import check, compose
    from rlmem.envs import make_env
    from rlmem.runs.build import build_memory

    overrides = ["experiment=gwrr_paper", "memory=gwr_released", "paths.output_dir=/tmp"]
    overrides += ["threshold.activation=0.55", "threshold.habituation=1"]
    run = check(compose("train", overrides))
    env, rng, seconds = make_env(run.env, 1), np.random.default_rng(0), 0.0
    memory, frame = build_memory(run, env.spec), env.reset(0)
    low, high = env.spec.action_low, env.spec.action_high
    for _ in range(steps // size):
        rows = []
        for _ in range(size):
            action = rng.uniform(low, high, (1, len(low))).astype(np.float32)
            step = env.step(action)
            rows.append((frame, action, step))
            frame = step.observation
        block = {
            "observation": np.concatenate([row[0] for row in rows]),
            "action": np.concatenate([row[1] for row in rows]),
            "next": {
                "observation": np.concatenate([row[2].next_observation for row in rows]),
                "reward": np.stack([row[2].reward for row in rows]),
                "terminated": np.stack([row[2].terminated for row in rows]),
                "truncated": np.stack([row[2].truncated for row in rows]),
            },
        }
        started = time.perf_counter()
        memory.extend(block)
        seconds += time.perf_counter() - started
    return {"us_mean": 1e6 * seconds / steps, "nodes": memory.storage.entries}


def main() -> None:
    args = command_line(CONTENDERS)
    torch.set_num_threads(1)
    name = args.contender
    if name.startswith("Reacher"):
        metrics = reacher(int(name.split()[-1]))
    else:
        if name.startswith("all"):
            found = plain("pixels" in name)
        else:
            found = insertion(int(name.split()[-1]), "exemplar" if "exemplar" in name else "moving")
        metrics = {f"us_at_{nodes}": value for nodes, value in found}
    print(json.dumps({"metrics": metrics, "versions": versions(["rlmem", "numpy", "numba"])}))


if __name__ == "__main__":
    main()
