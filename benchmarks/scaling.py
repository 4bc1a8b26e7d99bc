"""One process with one core beside two processes with a core each: the same run, shared.

python benchmarks/scaling.py --contender cartpole     # one JSON line
python benchmarks/scaling.py --list

Both are `train.py` with the settings of the benchmarks `cartpole` (8 updates a round) and `atari`,
on the CPU, with one torch thread a process; the two processes average their gradients by gloo. Env
steps and updates are those of the whole run, a second of wall time, once it learns.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from common import arguments, command_line, versions
from rlmem_train import check, options, start

CONTENDERS = {"cartpole": ["--num-envs", "2", "--group", "8"], "atari": ["--num-envs", "4"]}
COLUMNS = {"steps": "env_steps", "updates": "grad_steps"}


def rates(metrics: Path, clock_starts: int) -> dict[str, float]:
    """Env steps and updates a second over the rows after the warm-up."""
    with metrics.open(newline="") as file:
        rows = list(csv.DictReader(file))
    done, seconds = dict.fromkeys(COLUMNS, 0), 0.0
    for before, after in pairwise(rows):
        if int(before["env_steps"]) >= clock_starts:
            for name, column in COLUMNS.items():
                done[name] += int(after[column]) - int(before[column])
            seconds += float(after["seconds"]) - float(before["seconds"])
    if not seconds:
        sys.exit(f"no rows after {clock_starts} env steps: give more --steps")
    return {name: count / seconds for name, count in done.items()}


def measured(args: argparse.Namespace, processes: int, cores: list[int]) -> dict[str, float]:
    """The rates of a run of so many processes on as many of the cores."""
    os.sched_setaffinity(0, cores[:processes])
    given = {**options(args), "trainer.devices": processes, "trainer.threads": 1}
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder, "run")
        check(start(args, {**given, "hydra.run.dir": run_dir}, folder), folder)
        return rates(run_dir / "metrics.csv", args.settings.clock_starts)


def main() -> None:
    own = command_line(CONTENDERS, others=True)
    sys.argv[1:1] = ["--task", own.contender, *CONTENDERS[own.contender]]
    args = arguments(["cartpole", "atari"], memory=True)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("two cores are needed")
    one, two = (measured(args, processes, cores) for processes in (1, 2))
    metrics = {}
    for name in COLUMNS:
        found = {"one": one[name], "two": two[name], "ratio": two[name] / one[name]}
        metrics |= {f"{name}_{kind}": round(value, 3) for kind, value in found.items()}
    named = versions(["rlmem", "torch", "lightning", "ale-py"])
    print(json.dumps({"name": own.contender, "metrics": metrics, "versions": named}))


if __name__ == "__main__":
    main()
