"""How long rlmem takes to answer, and from the start to the first env step.

python benchmarks/startup.py --contender "first env step"        # one JSON line
python benchmarks/startup.py --list

`seconds` are the clock's, `cpu_seconds` what the command and its children computed. The sweep that
is asked for its status has 16 finished jobs of a thousand rows each.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import ROOT, command_line, versions

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


def run(*command: str, code: int = 0) -> tuple[float, str]:
    """Seconds since the epoch at the start, and what it printed.

    Raises:
        SystemExit: its exit code is not `code`.
    """
    started = time.time()
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=ROOT)
    if done.returncode != code:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return started, done.stdout


def timed(*command: str, code: int = 0) -> dict[str, float]:
    """Seconds of a command, and its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started, _ = run(*command, code=code)
    seconds, after = time.time() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu_seconds": round(cpu, 3), "seconds": round(seconds, 3)}


def first_step() -> dict[str, float]:
    """Seconds from the start of train.py to the end of the first env step."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["memory=uniform", "env=road_runner", "trainer.max_env_steps=64"]
        options += ["agent.learning_starts=32", "evaluation.episodes=1", "log.progress=false"]
        started, out = run("-c", FIRST_STEP, TRAIN, *options, f"hydra.run.dir={folder}/run")
    return {"seconds": round(float(out.split("FIRST_STEP", 1)[1].split()[0]) - started, 3)}


def status() -> dict[str, float]:
    """Where a sweep of sixteen stands: one job is run, the others are copies of it."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["memory=uniform", "env=cartpole", "trainer.max_env_steps=1000", "log.every=1"]
        options += ["agent.learning_starts=500", "evaluation.episodes=1", "log.progress=false"]
        run(TRAIN, "-m", *options, "hydra.sweep.subdir=0", f"hydra.sweep.dir={folder}")
        sweep = Path(folder, "sweep.json")
        record = json.loads(sweep.read_text())
        (overrides,) = record["commands"][0]["jobs"].values()
        record["commands"][0]["jobs"] = {str(job): overrides for job in range(16)}
        sweep.write_text(json.dumps(record))
        for job in range(1, 16):
            shutil.copytree(Path(folder, "0"), Path(folder, str(job)))
        return timed(str(ROOT / "evaluate.py"), "mode=status", f"sweep={folder}")


CONTENDERS = {
    "train.py --help": lambda: timed(TRAIN, "--help"),
    "a misspelt key": lambda: timed(TRAIN, "agent.learning_rat=1e-4", code=2),
    "a misspelt option": lambda: timed(TRAIN, "memory=grw", code=2),
    "evaluate.py mode=status": status,
    "first env step": first_step,
}


def main() -> None:
    args = command_line(CONTENDERS)
    line = {
        "name": args.contender,
        "metrics": CONTENDERS[args.contender](),
        "versions": versions(["rlmem", "torch", "torchrl", "lightning", "hydra-core"]),
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
