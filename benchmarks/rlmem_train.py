"""rlmem as its users run it: `python train.py ...` in a process of its own, speed from its files.

python benchmarks/rlmem_train.py --task atari --memory uniform --num-envs 4 [--bf16]
python benchmarks/rlmem_train.py --task cartpole --group 8
python benchmarks/rlmem_train.py --task cartpole --compile
python benchmarks/rlmem_train.py --checkout ../another   # the rlmem of another checkout
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from common import ROOT, arguments, report


def options(args: argparse.Namespace) -> dict[str, Any]:
    """The overrides of a run with the benchmark's settings."""
    task = args.settings
    # The clock starts with the first row of metrics.csv after the warm-up.
    first_row = -(-task.clock_starts // task.log_every) * task.log_every
    given = {
        "agent": "dqn",
        "memory": args.memory,
        "env": "road_runner" if args.task == "atari" else "cartpole",
        "seed": args.seed,
        "trainer.max_env_steps": first_row + args.steps,
        "trainer.accelerator": "cpu",
        "trainer.compile": str(args.compile).lower(),
        "trainer.precision": "bf16-mixed" if args.bf16 else "32-true",
        "env.num_envs": args.num_envs,
        "memory.capacity": task.capacity,
        "agent.network.hidden": json.dumps(list(task.hidden), separators=(",", ":")),
        "agent.lr": task.lr,
        "agent.adam_eps": task.adam_eps,
        "agent.loss": "mse",
        "agent.gamma": task.gamma,
        "agent.batch_size": task.batch_size,
        "agent.learning_starts": task.learning_starts,
        "agent.train_every": task.train_every,
        "agent.updates_per_step": args.group,
        "agent.target_update_every": task.target_update_every,
        "agent.max_grad_norm": "null",
        "agent.epsilon.end": task.epsilon_end,
        "agent.epsilon.decay_steps": task.epsilon_decay_steps,
        "log.every": task.log_every,
        "log.progress": "false",
        "evaluation.episodes": 1,  # after the timed part
        "checkpoint.every": 1_000_000_000,
        "logger": "csv",
    }
    if args.storage:
        given["memory/storage"] = args.storage
    if args.task == "atari":
        given["env/protocol"] = "machado"
    if args.threads:
        given["trainer.threads"] = args.threads
    return given


def start(args: argparse.Namespace, given: dict[str, Any], folder: str, *flags: str) -> Any:
    """Start `train.py` with these overrides; what it says goes to `folder`/log.txt."""
    command = [sys.executable, str(Path(args.checkout).resolve() / "train.py"), *flags]
    command += [f"{key}={value}" for key, value in given.items()]
    own = {**os.environ, "PYTHONPATH": str(Path(args.checkout).resolve())}
    with Path(folder, "log.txt").open("a") as log:
        return subprocess.Popen(command, cwd=folder, env=own, stdout=log, stderr=log)


def check(process: Any, folder: str) -> None:
    """Wait for a run.

    Raises:
        SystemExit: it failed; the end of its log is the message.
    """
    if process.wait():
        sys.exit(Path(folder, "log.txt").read_text()[-2000:])


def measured(given: dict[str, Any], clock_starts: int) -> float:
    """Env steps a second, after the warm-up, of a run of one thread with these overrides.

    Raises:
        SystemExit: it failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        options = {
            "trainer.accelerator": "cpu",
            "trainer.threads": 1,
            "log.progress": "false",
            "evaluation.episodes": 1,  # after the timed part
            "checkpoint.every": 1_000_000_000,
            "hydra.run.dir": f"{folder}/run",
            **given,
        }
        here = argparse.Namespace(checkout=str(ROOT))
        check(start(here, options, folder), folder)
        return rate(Path(folder, "run", "metrics.csv"), clock_starts)


def rate(metrics: Path, clock_starts: int) -> float:
    """Env steps a second over the rows after the warm-up: total steps / total time.

    A row's speed is that since the row before, so the time of a row is its steps / its speed.
    """
    with metrics.open(newline="") as file:
        rows = [
            (int(row["env_steps"]), row["env_steps_per_second"]) for row in csv.DictReader(file)
        ]
    steps = seconds = 0.0
    for (before, _), (after, speed) in pairwise(rows):
        if before >= clock_starts and speed:
            steps += after - before
            seconds += (after - before) / float(speed)
    if not seconds:
        raise ValueError(f"{metrics} has no rows after {clock_starts} env steps: give more --steps")
    return steps / seconds


def main() -> None:
    args = arguments(["atari", "cartpole"], memory=True)
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        check(start(args, {**options(args), "hydra.run.dir": run_dir}, folder), folder)
        speed = rate(run_dir / "metrics.csv", args.settings.clock_starts)
    report(f"rlmem {args.memory}", args, speed, ["rlmem", "torchrl", "tensordict", "lightning"])


if __name__ == "__main__":
    main()
