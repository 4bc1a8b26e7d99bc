"""NEC's dictionary: its exact search beside one matrix product, its writes, speed and bytes.

python benchmarks/episodic.py --contender "100,000 keys, trained"      # one JSON line
python benchmarks/episodic.py --list

`... keys, ...`: 128 float32 a key, 18 actions, 50 neighbours of each, one thread. `act` is
`DND.read` of one key; its product is one of all keys, float32, with torch.topk of each action's.
`learn` is `DND.near` of a batch of 32, each key one action; its product is one matrix product of
all 32, and a topk each. `write` enters one key over a known state, and is compared with the product
of one. Products and the dictionary take turns in one process; ratios are of medians, `fastest` of
the fastest of both: a product waits for memory, which other processes make slower.

`speed`: env steps/s of a run on RoadRunner, an update each 4 steps, batches of 32. `bytes`: what is
counted, over what the process grew by.
"""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from common import ROOT, command_line, versions
from episodic_keys import ACTIONS, KINDS, load

NEIGHBOURS, BATCH = 50, 32
SIZES = {f"{n:,} keys, {kind}": (n, kind) for n in (100_000, 500_000) for kind in KINDS}
SPEEDS = {"speed of nec": ("nec", "dnd"), "speed of dqn": ("dqn", "uniform")}
BYTES = ("bytes of dnd", "bytes of mfec", "bytes of dnd, memory.budget=64MiB")
CLOCK_STARTS, TIMED = 3_000, 3_000  # env steps; by then epsilon has fallen and both learn


class Products:
    """What is compared with: matrix products over all keys, and the nearest of each action."""

    def __init__(self, key: np.ndarray, action: np.ndarray) -> None:
        order = np.argsort(action, kind="stable")
        self.key = torch.from_numpy(key[order])
        self.square = self.key.square().sum(1)
        ends = np.cumsum(np.bincount(action, minlength=ACTIONS)).tolist()
        self.rows = [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]

    def act(self, query: np.ndarray) -> list[Any]:
        gap = torch.addmv(self.square, self.key, torch.from_numpy(query[0]), alpha=-2)
        return [torch.topk(gap[rows], NEIGHBOURS, largest=False) for rows in self.rows]

    def learn(self, queries: np.ndarray, actions: np.ndarray) -> list[Any]:
        turned = torch.from_numpy(queries).T
        gap = torch.addmm(self.square[:, None], self.key, turned, alpha=-2)
        return [
            torch.topk(gap[self.rows[a], n], NEIGHBOURS, largest=False)
            for n, a in enumerate(actions)
        ]


def search(entries: int, kind: str, repeats: int) -> dict[str, float]:
    """Ratios and milliseconds at so many keys."""
    from rlmem.memories.values.dnd import DND, DNDRule

    key, action, asked = load(kind, entries)
    dictionary = DND(ACTIONS, key.shape[1], np.bincount(action).max(), DNDRule(NEIGHBOURS))
    for begin in range(0, entries, 1000):
        rows = slice(begin, begin + 1000)
        dictionary.write(key[rows], action[rows], np.zeros(len(key[rows]), np.float32))
    products, rng = Products(key, action), np.random.default_rng(0)
    times: dict[str, list[float]] = {}

    def timed(name: str, call: Callable[..., Any], *given: Any) -> None:
        started = time.perf_counter()
        call(*given)
        times.setdefault(name, []).append(1e3 * (time.perf_counter() - started))

    for turn in range(repeats + 1):
        query = asked[turn % len(asked)][None]
        timed("product", products.act, query)
        timed("act", dictionary.read, query)
        row = rng.integers(entries, size=1)
        timed("write", dictionary.write, key[row], action[row], np.zeros(1, np.float32))
        if turn % 10 == 0:
            queries, actions = rng.choice(asked, BATCH), rng.integers(ACTIONS, size=BATCH)
            timed("product_32", products.learn, queries, actions)
            timed("learn_32", dictionary.near, queries, actions)
    ms = {name: statistics.median(found[1:]) for name, found in times.items()}  # the first compiles
    return {
        "act_ratio": round(ms["act"] / ms["product"], 4),
        "act_ratio_fastest": round(min(times["act"]) / min(times["product"]), 4),
        "learn_ratio": round(ms["learn_32"] / ms["product_32"], 4),
        "write_ratio": round(ms["write"] / ms["product"], 4),
        "act_ms": round(ms["act"], 4),
        "product_ms": round(ms["product"], 4),
    }


def speed(agent: str, memory: str, steps: int) -> dict[str, float]:
    """Env steps/s of a training run."""
    from rlmem_train import check, rate, start

    given = {"agent": agent, "memory": memory, "env": "road_runner", "trainer.threads": 1}
    given |= {"agent.train_every": 4, "agent.batch_size": BATCH, "agent.learning_starts": 1000}
    given |= {"agent.epsilon.decay_steps": 1000, "trainer.max_env_steps": CLOCK_STARTS + steps}
    given |= {"log.every": 300, "log.progress": "false", "logger": "csv", "evaluation.episodes": 1}
    given |= {"evaluation.epsilon": 1, "trainer.accelerator": "cpu", "env/protocol": "machado"}
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        options = {**given, "hydra.run.dir": run_dir}
        check(start(SimpleNamespace(checkout=ROOT), options, folder), folder)
        found = rate(run_dir / "metrics.csv", CLOCK_STARTS)
    return {"env_steps_per_second": round(found, 2)}


def rss() -> int:
    import psutil

    return psutil.Process().memory_info().rss


def dictionary_bytes(name: str, entries: int) -> dict[str, float]:
    """A dictionary of NEC or MFEC alone."""
    from rlmem.memories.gwr.embedding import RandomProjection
    from rlmem.memories.values.dnd import DND, DNDRule

    def fill(n: int) -> DND:
        mfec = name.endswith("mfec")
        projection = RandomProjection((4, 84, 84), 128, 0, 1 / 255, 4) if mfec else None
        rule = DNDRule(11, None, None) if mfec else DNDRule()
        dictionary, rng = DND(ACTIONS, 128, n, rule, projection), np.random.default_rng(0)
        for begin in range(0, n, 500):
            keys = rng.normal(size=(500, 128)).astype(np.float32)
            hashes = np.arange(begin, begin + 500)
            dictionary.write(keys, hashes % ACTIONS, np.zeros(500, np.float32), hashes)
            dictionary.read(keys[:1])
        return dictionary

    fill(2000)  # compiles, and lets the allocator grow
    before = rss()
    dictionary = fill(entries)
    grown, counted = rss() - before, sum(dictionary.footprint().values())
    return {"counted_over_rss": round(counted / grown, 4), "mb": round(counted / 1e6, 1)}


def budget_bytes(transitions: int) -> dict[str, float]:
    """A run's whole memory under a budget, filled with random play."""
    from record_frames import ensure
    from recording import blocks
    from recording import load as load_recording

    from rlmem.config import check, compose
    from rlmem.envs import make_env
    from rlmem.memories.base.blocks import as_block
    from rlmem.runs.build import build_agent, build_memory

    given = ["agent=nec", "memory=dnd", "env=road_runner", "env.num_envs=4"]
    recording = load_recording(ensure("road_runner"))
    first = check(compose("train", given))  # neither emulators nor network are the memory's
    spec = make_env(first.env, 4).spec
    agent = build_agent(first, spec)

    def fill(budget: str, n: int) -> Any:
        run = check(compose("train", [*given, f"memory.budget={budget}"]))
        rng = np.random.default_rng(0)
        memory: Any = build_memory(run, spec, agent.columns())
        agent.join(memory)
        for rows in range(0, n, len(recording)):
            for given_block in blocks(recording, 4, n - rows):
                block = as_block(
                    given_block, (1, 84, 84), np.dtype(np.uint8), 4, (), np.dtype(np.uint8)
                )
                block.columns = {
                    "key": rng.normal(size=(4, 128)).astype(np.float32),
                    "value": np.zeros(4, np.float32),
                    "hash": rng.integers(2**62, size=4),
                }
                memory.extend(block)
        return memory

    fill("32MiB", 4000)
    agent.values = None  # else those would go while the others come
    before = rss()
    memory = fill("64MiB", transitions)
    grown, counted = rss() - before, sum(memory.footprint().values())
    return {
        "counted_over_rss": round(counted / grown, 4),
        "budget_over_rss": round(64 * 2**20 / grown, 4),
        "mb": round(counted / 1e6, 1),
    }


def in_small_pages() -> None:
    """Start this process again so that resident bytes are those of live objects: small pages, and
    freed blocks go back at once (glibc reads that when a process starts)."""
    give_back = {"MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_MMAP_THRESHOLD_": "65536"}
    if not give_back.keys() <= os.environ.keys():
        own = {**os.environ, **give_back, "OMP_NUM_THREADS": "1"}
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=own, check=False).returncode)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE


def main() -> None:
    args = command_line([*SIZES, *SPEEDS, *BYTES], short="a tenth: does it work?")
    torch.set_num_threads(1)
    name, shorter = args.contender, 10 if args.short else 1
    if name in SIZES:
        metrics = search(*SIZES[name], 200 // shorter)
    elif name in SPEEDS:
        metrics = speed(*SPEEDS[name], TIMED // shorter)
    else:
        in_small_pages()
        budget = "budget" in name
        metrics = budget_bytes(40_000 // shorter) if budget else dictionary_bytes(name, 60_000)
    named = versions(["rlmem", "torch", "numpy", "numba"])
    print(json.dumps({"name": name, "metrics": metrics, "versions": named}))


if __name__ == "__main__":
    main()
