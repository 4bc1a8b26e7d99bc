"""rlmem as its users run it: `python train.py ...` in a process of its own, speed from its files.

python benchmarks/rlmem_train.py --task atari --memory uniform --num-envs 4 [--bf16]
python benchmarks/rlmem_train.py --task cartpole --group 8
python benchmarks/rlmem_train.py --task cartpole --compile
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from common import TASKS, arguments, report

ROOT = Path(__file__).resolve().parents[1]


def overrides(args, run_dir: str) -> list[str]:
    """The command line of a run with the benchmark's settings."""
    task = TASKS[args.task]
    # The clock starts with the first row of metrics.csv after the warm-up.
    first_row = -(-task.clock_starts // task.log_every) * task.log_every
    options = {
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
        "hydra.run.dir": run_dir,
    }
    if args.storage:
        options["memory/storage"] = args.storage
    if args.task == "atari":
        options["env/protocol"] = "machado"
    if args.threads:
        options["trainer.threads"] = args.threads
    return [f"{key}={value}" for key, value in options.items()]


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
        command = [sys.executable, str(ROOT / "train.py"), *overrides(args, str(run_dir))]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        speed = rate(run_dir / "metrics.csv", TASKS[args.task].clock_starts)
    report(f"rlmem {args.memory}", args, speed, ["rlmem", "torchrl", "tensordict", "lightning"])


if __name__ == "__main__":
    main()
