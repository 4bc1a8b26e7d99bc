"""One million Atari transitions in one compressed memory: bytes, sampling, saving, loading.

python benchmarks/million.py [--game road_runner] [--transitions 1000000] [--level L] [--folder F]

Random play of four environments. Prints one JSON line at each 1, 10, 100 ... thousand, then those
of saving all, of saving again after 10,000 more, and of loading in a fresh process.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from rlmem.config import check, compose
from rlmem.envs import make_env
from rlmem.machine import peak_rss_bytes
from rlmem.memories import CompressedFrameStorage, ReplayMemory, RingWriter, UniformSampler

ENVS, BLOCK, DRAWS = 4, 64, 400


def make(capacity: int, level: int | None = None) -> ReplayMemory:
    options = {} if level is None else {"level": level}  # else the storage's own
    storage = CompressedFrameStorage(
        capacity, (1, 84, 84), stack=4, num_envs=ENVS, action_dtype=np.uint8, **options
    )
    return ReplayMemory(storage, UniformSampler(), RingWriter(), seed=0)


class Play:
    """Blocks of random play, and the seconds that a memory took to take them in."""

    def __init__(self, game: str) -> None:
        given = ["env=atari", f"env.game={game}", "env/protocol=machado"]
        self.env = make_env(check(compose("train", given)).env, ENVS)
        self.observation = self.env.reset(0).copy()
        self.rng = np.random.default_rng(0)
        self.seconds = 0.0

    def into(self, memory: ReplayMemory, transitions: int) -> None:
        steps = BLOCK // ENVS
        for _ in range(transitions // BLOCK):
            rows: list[dict[str, np.ndarray]] = []
            for _ in range(steps):
                action = self.rng.integers(self.env.spec.num_actions, size=ENVS)
                step = self.env.step(action)
                rows.append(
                    {
                        "observation": self.observation,
                        "action": action,
                        "next": step.next_observation.copy(),
                        "reward": step.reward[:, None],
                        "terminated": step.terminated[:, None],
                        "truncated": step.truncated[:, None],
                    }
                )
                self.observation = step.observation.copy()
            column = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
            flags = {name: column[name] for name in ("reward", "terminated", "truncated")}
            block = {
                "observation": column["observation"],
                "action": column["action"],
                "env_id": np.tile(np.arange(ENVS), steps),
                "next": {"observation": column["next"], **flags},
            }
            started = time.perf_counter()
            memory.extend(block)
            self.seconds += time.perf_counter() - started


def resident() -> int:
    return psutil.Process().memory_info().rss


def sample_ms(memory: ReplayMemory) -> float:
    times = []
    for _ in range(DRAWS):
        started = time.perf_counter()
        memory.sample(32)
        times.append(time.perf_counter() - started)
    return 1e3 * statistics.median(times)


def folder_bytes(folder: Path) -> tuple[int, int]:
    """Bytes of a folder's files, and of those that no other folder holds."""
    sizes = [(f.stat().st_size, f.stat().st_nlink) for f in folder.rglob("*") if f.is_file()]
    return sum(s for s, _ in sizes), sum(s for s, links in sizes if links == 1)


def load(folder: Path, capacity: int) -> dict[str, Any]:
    warm = make(1000)
    Play("pong").into(warm, 640)
    warm.sample(32)
    memory = make(capacity)
    before, started = resident(), time.perf_counter()
    memory.load(folder)
    seconds = time.perf_counter() - started
    peak = peak_rss_bytes()
    held = sum(memory.footprint().values())
    memory.sample(32)
    return {"load_seconds": seconds, "peak_growth": peak - before, "counted": held}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--game", default="road_runner")
    parser.add_argument("--transitions", type=int, default=1_000_000)
    parser.add_argument("--level", type=int, help="of zstandard, if not the storage's own")
    parser.add_argument("--folder", type=Path, help="where the memory is saved to")
    parser.add_argument("--load", type=Path, help="only load what lies there")
    args = parser.parse_args()
    ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: resident bytes in small pages
    capacity = args.transitions + 20_000
    if args.load:
        print(json.dumps(load(args.load, capacity)))
        return
    play = Play(args.game)
    warm = make(1000)
    play.into(warm, 2048)
    warm.sample(32)
    before, memory, done = resident(), make(capacity, args.level), 0
    play.seconds = 0.0
    for target in (10**k for k in range(4, 10)):
        target = min(target, args.transitions)
        play.into(memory, target - done)
        done = len(memory)
        counted = sum(memory.footprint().values())
        line = {
            "transitions": done,
            "bytes_per_transition": counted / done,
            "resident_per_transition": (resident() - before) / done,
            "resident_growth": resident() - before,
            "peak_growth": peak_rss_bytes() - before,
            "sample_32_ms": sample_ms(memory),
            "written_per_second": done / play.seconds,
        }
        print(json.dumps(line), flush=True)
        if target == args.transitions:
            break
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        first, second = Path(folder) / "first", Path(folder) / "second"
        started = time.perf_counter()
        memory.save(first)
        seconds = time.perf_counter() - started
        print(json.dumps({"save_seconds": seconds, "bytes": folder_bytes(first)[0]}), flush=True)
        held = sum(memory.footprint().values())
        play.into(memory, 10_000)
        started = time.perf_counter()
        memory.save(second, first)
        seconds = time.perf_counter() - started
        line = {
            "second_save_seconds": seconds,
            "second_save_bytes": folder_bytes(second)[1],
            "held_more": sum(memory.footprint().values()) - held,
        }
        print(json.dumps(line), flush=True)
        command = [sys.executable, __file__, "--load", str(second)]
        command += ["--transitions", str(args.transitions)]
        print(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())


if __name__ == "__main__":
    main()
