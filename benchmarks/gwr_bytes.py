"""Bytes of GWR maps beside a compressed FIFO: the same RoadRunner transitions into each.

python benchmarks/gwr_bytes.py [--steps 60000] [--game road_runner]

Random play, 4 envs. Writes results/gwr_bytes.md: nodes, edges and counted bytes (sampler included)
of maps from coarse to fine, and what exemplars, fewer key dimensions and no links save.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import machine
from gwr import SHAPE, STEPS
from record_frames import ensure
from recording import Recording, blocks, load

ENVS, BLOCK = 4, 64
VARIANTS: dict[str, dict[str, Any]] = {
    "moving, 128 dims": {},
    "exemplar, 128 dims": {"prototype": "exemplar"},
    "exemplar, 32 dims": {"prototype": "exemplar", "dims": 32},
    "exemplar, 32 dims, no links": {"prototype": "exemplar", "dims": 32, "links": False},
}


def make_map(activation: float, habituation: float, variant: dict[str, Any]) -> Any:
    from rlmem.memories import (
        GWRWriter,
        MapOptions,
        MapStorage,
        RandomProjection,
        ReplayMemory,
        RuleSettings,
        VisitSampler,
    )

    dims, prototype = variant.get("dims", 128), variant.get("prototype", "moving")
    storage = MapStorage(
        STEPS,
        SHAPE,
        np.uint8,
        dims,
        num_actions=18,
        stack=SHAPE[0],
        options=MapOptions(prototype=prototype),
    )
    embedding = RandomProjection(SHAPE, dims, scale_input=1 / 255, stack=SHAPE[0])
    rule = RuleSettings(links=variant.get("links", True))
    writer = GWRWriter(activation, habituation, num_envs=ENVS, embedding=embedding, rule=rule)
    return ReplayMemory(storage, VisitSampler(), writer, seed=0)


def make_fifo() -> Any:
    from rlmem.memories import CompressedFrameStorage, ReplayMemory, RingWriter, UniformSampler

    storage = CompressedFrameStorage(
        STEPS, (1, *SHAPE[1:]), stack=SHAPE[0], num_envs=ENVS, action_dtype=np.uint8
    )
    return ReplayMemory(storage, UniformSampler(), RingWriter(), seed=0)


def fill(memory: Any, recording: Recording, steps: int) -> Any:
    """Write the transitions and draw once, so that the sampler's bytes count."""
    for block in blocks(recording, BLOCK, steps):
        memory.extend(block)
    memory.sample(32)
    return memory


def row(name: str, activation: str, memory: Any, steps: int, fifo: int | None) -> str:
    size = sum(memory.footprint().values())
    storage = memory.storage
    nodes = f"{storage.num_nodes:,}" if hasattr(storage, "num_nodes") else ""
    edges = f"{storage.num_edges:,}" if nodes else ""
    ratio = f"{size / fifo:.2f}" if fifo else "1"
    cells = [name, activation, nodes, edges, f"{size / 1e6:.2f}", f"{size / steps:.0f}", ratio]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--game", default="road_runner")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    torch.set_num_threads(1)
    recording = load(ensure(args.game, STEPS))
    about = machine()
    lines = [
        "# GWR maps beside a compressed FIFO",
        "",
        f"`python benchmarks/gwr_bytes.py --steps {args.steps} --game {args.game}`: random play, "
        f"{ENVS} envs, h_T .85, seed 0. {about['cpu']}, {about['cores']} cores.",
        "",
        "| memory | a_T | nodes | edges | MB | bytes a transition | of the FIFO's |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    memory = fill(make_fifo(), recording, args.steps)
    fifo = sum(memory.footprint().values())
    lines.append(row("FIFO, compressed", "", memory, args.steps, None))
    print("\n".join(lines), flush=True)
    for activation in (0.3, 0.5, 0.6, 0.68, 0.83, 0.9):
        for name, variant in VARIANTS.items():
            memory = fill(make_map(activation, 0.85, variant), recording, args.steps)
            lines.append(row(name, f"{activation:g}", memory, args.steps, fifo))
            print(lines[-1], flush=True)
            del memory
    args.results.mkdir(parents=True, exist_ok=True)
    (args.results / "gwr_bytes.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
