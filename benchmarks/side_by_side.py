"""Two Atari runs at once on the machine's cores, beside one that has them alone.

python benchmarks/side_by_side.py --contender "two in a sweep"     # one JSON line
python benchmarks/side_by_side.py --list

Each run is `train.py` on RoadRunner with the settings of the `atari` benchmark and rlmem's own
choice of threads. The clock starts when both are past their warm-up and stops with the first one's
last row, so that none is timed while it is alone. `slowest` and `fastest` are their env steps/s.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import arguments, command_line, versions
from rlmem_train import check, options, start

POLL_SECONDS, APART_SECONDS = 0.2, 15
SHORT_LOG = 100  # env steps between rows: what is timed begins and ends with one
CONTENDERS = ("one alone", "two by hand", "two by hand, 15 s apart", "two in a sweep")


def by_hand(args: argparse.Namespace, runs: int, apart: float, folder: str) -> list[Any]:
    """Start the runs as a user would, one command each."""
    processes = []
    for seed in range(runs):
        if seed:
            time.sleep(apart)
        given = {**options(args), "log.every": SHORT_LOG, "seed": seed}
        given["hydra.run.dir"] = Path(folder, str(seed))
        processes.append(start(args, given, folder))
    return processes


def in_a_sweep(args: argparse.Namespace, folder: str) -> list[Any]:
    """Start one command that makes two runs at once."""
    given = {**options(args), "log.every": SHORT_LOG, "seed": "0,1"}
    given |= {"hydra/launcher": "joblib", "hydra.sweep.dir": folder}
    given["hydra.sweep.subdir"] = "'${hydra.job.num}'"
    return [start(args, given, folder, "-m")]


def env_steps(file: Path) -> int:
    """Of the newest row, 0 before there is one."""
    if not file.is_file():
        return 0
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    return int(rows[-1]["env_steps"] or 0) if rows else 0


def watch(processes: list[Any], files: list[Path]) -> list[np.ndarray]:
    """Look at the rows until all runs are over.

    Returns:
        For each run float64 [rows, 2]: when a row was seen (seconds), its env steps.
    """
    seen: list[list[tuple[float, int]]] = [[] for _ in files]
    while True:
        over = all(process.poll() is not None for process in processes)
        for rows, file in zip(seen, files, strict=True):
            steps = env_steps(file)
            if steps > (rows[-1][1] if rows else 0):
                rows.append((time.perf_counter(), steps))
        if over:
            return [np.array(rows, np.float64) for rows in seen]
        time.sleep(POLL_SECONDS)


def speeds(seen: list[np.ndarray], clock_starts: int) -> list[float]:
    """Env steps a second of each run in the time in which all of them learned."""
    timed = [rows[rows[:, 1] >= clock_starts] for rows in seen]
    first, last = max(rows[0, 0] for rows in timed), min(rows[-1, 0] for rows in timed)
    if last <= first:
        sys.exit("one run was over before the other learned: give more --steps")
    ends = (np.interp([first, last], rows[:, 0], rows[:, 1]) for rows in seen)
    return [float((after - before) / (last - first)) for before, after in ends]


def main() -> None:
    own = command_line(CONTENDERS, others=True)
    sys.argv[1:1] = ["--num-envs", "4"]
    args = arguments(["atari"], memory=True)
    runs = 1 if own.contender == CONTENDERS[0] else 2
    with tempfile.TemporaryDirectory() as folder:
        if "sweep" in own.contender:
            processes = in_a_sweep(args, folder)
        else:
            apart = APART_SECONDS if "apart" in own.contender else 0
            processes = by_hand(args, runs, apart, folder)
        seen = watch(processes, [Path(folder, str(n), "metrics.csv") for n in range(runs)])
        for process in processes:
            check(process, folder)
    found = speeds(seen, args.settings.clock_starts)
    metrics = {"slowest": round(min(found), 2), "fastest": round(max(found), 2)}
    named = versions(["rlmem", "torch", "numpy", "ale-py", "hydra-joblib-launcher"])
    print(json.dumps({"name": own.contender, "metrics": metrics, "versions": named}))


if __name__ == "__main__":
    main()
