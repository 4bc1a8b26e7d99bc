"""How long rlmem takes to answer: `train.py --help`, and from the start to the first env step.

python benchmarks/startup.py --contender "first env step"        # one JSON line
python benchmarks/startup.py --list
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import versions

ROOT = Path(__file__).resolve().parents[1]
TRAIN = str(ROOT / "train.py")

# Runs train.py and prints the time of the first step of whichever vector env it makes. The clock is
# the system's, so that the parent's start counts.
FIRST_STEP = """
import runpy, sys, time
import rlmem.envs as envs
make = envs.make_env
def timed(*args, **kwargs):
    stepper = make(*args, **kwargs)
    step = stepper.step
    def first(action):
        stepper.step = step
        out = step(action)
        print("FIRST_STEP", time.time(), flush=True)
        return out
    stepper.step = first
    return stepper
envs.make_env = timed
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(command: list[str]) -> tuple[float, str]:
    """Seconds since the epoch at the start, and what it printed."""
    started = time.time()
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return started, done.stdout


def help_seconds() -> float:
    """Seconds of `train.py --help`."""
    started, _ = run([sys.executable, TRAIN, "--help"])
    return time.time() - started


def first_step_seconds() -> float:
    """Seconds from the start of train.py to the end of the first env step."""
    with tempfile.TemporaryDirectory() as folder:
        options = [
            "memory=uniform",
            "env=road_runner",
            "trainer.max_env_steps=64",
            "agent.learning_starts=32",
            "evaluation.episodes=1",
            "log.progress=false",
            f"hydra.run.dir={folder}/run",
        ]
        started, out = run([sys.executable, "-c", FIRST_STEP, TRAIN, *options])
    return float(out.split("FIRST_STEP", 1)[1].split()[0]) - started


CONTENDERS = {"train.py --help": help_seconds, "first env step": first_step_seconds}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--contender", choices=CONTENDERS, default="train.py --help")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        print("\n".join(CONTENDERS))
        return
    line = {
        "name": args.contender,
        "metrics": {"seconds": round(CONTENDERS[args.contender](), 3)},
        "versions": versions(["rlmem", "torch", "torchrl", "lightning", "hydra-core"]),
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
