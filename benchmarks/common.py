"""What the contenders of the training benchmark share: settings, clock, and the line they print."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
NOT_INSTALLED = 3  # exit status of a contender whose package is missing


@dataclass(frozen=True)
class Task:
    """One training setting. Every contender of a task uses these numbers and no others."""

    env_id: str
    hidden: tuple[int, ...]  # units of the fully connected hidden layers
    capacity: int  # transitions
    batch_size: int
    learning_starts: int  # env steps
    train_every: int  # env steps per update
    target_update_every: int  # env steps
    lr: float
    adam_eps: float
    gamma: float
    epsilon_end: float
    epsilon_decay_steps: int  # env steps; over before the clock starts
    warmup_steps: int  # env steps with updates, before the clock starts
    log_every: int  # env steps between two rows of rlmem's metrics.csv
    threads: int | None = None  # torch's threads; None: torch's choice

    @property
    def clock_starts(self) -> int:
        """Env steps taken when the clock starts."""
        return self.learning_starts + self.warmup_steps


TASKS = {
    "atari": Task(
        env_id="RoadRunner",
        hidden=(512,),
        capacity=100_000,
        batch_size=32,
        learning_starts=1_000,
        train_every=4,
        target_update_every=8_000,
        lr=1e-4,
        adam_eps=1.5e-4,
        gamma=0.99,
        epsilon_end=0.05,
        epsilon_decay_steps=1_000,
        warmup_steps=300,
        log_every=500,
    ),
    "cartpole": Task(
        env_id="CartPole-v1",
        hidden=(120, 84),
        capacity=10_000,
        batch_size=64,
        learning_starts=1_000,
        train_every=1,
        target_update_every=500,
        lr=2.5e-4,
        adam_eps=1.5e-4,
        gamma=0.99,
        epsilon_end=0.05,
        epsilon_decay_steps=1_000,
        warmup_steps=1_000,
        log_every=1_000,
        threads=1,  # the network is too small to share out: with two, everybody is slower
    ),
}

# RoadRunner under the Machado protocol: sticky actions, full episodes, no no-ops at the start.
STICKY = 0.25
FRAME_SKIP = 4
SCREEN = 84
STACK = 4
MAX_FRAMES = 108_000


def command_line(
    contenders: Iterable[str], short: str = "", others: bool = False
) -> argparse.Namespace:
    """Which contender is asked for, the first unless it is named; `--list` prints all and ends.

    Args:
        short: what `--short` does, where there is one.
        others: whether `sys.argv` keeps what is not known here, for a parser that comes after.
    """
    names = list(contenders)
    about = (sys.modules["__main__"].__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(description=about, add_help=not others)
    parser.add_argument("--contender", choices=names, default=names[0])
    parser.add_argument("--list", action="store_true")
    if short:
        parser.add_argument("--short", action="store_true", help=short)
    own, rest = parser.parse_known_args()
    if own.list:
        print("\n".join(names))
        sys.exit()
    if rest and not others:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    sys.argv[1:] = rest
    return own


def epsilon(task: Task, env_steps: int) -> float:
    """Linear exploration schedule from 1 to `epsilon_end`."""
    left = max(0.0, 1.0 - env_steps / task.epsilon_decay_steps)
    return task.epsilon_end + (1.0 - task.epsilon_end) * left


class Window:
    """Times the env steps between `start` and `start + steps`.

    `tick` is called with the env steps taken so far; it answers whether the run is over. Contenders
    that move in blocks overshoot: the real counts are used, not the ones asked for.
    """

    def __init__(self, start: int, steps: int) -> None:
        self.start, self.end = start, start + steps
        self._first: tuple[int, float] | None = None
        self._last = (0, 0.0)

    def tick(self, env_steps: int) -> bool:
        if env_steps < self.start:
            return False
        if self._first is None:
            self._first = (env_steps, time.perf_counter())
        elif env_steps >= self.end:
            self._last = (env_steps, time.perf_counter())
            return True
        return False

    @property
    def env_steps_per_second(self) -> float:
        assert self._first is not None, "the run ended before the clock started"
        return (self._last[0] - self._first[0]) / (self._last[1] - self._first[1])


def arguments(tasks: Sequence[str], memory: bool = False) -> argparse.Namespace:
    """Command line of one contender; its `settings` are the task's, with what was asked for.

    Args:
        tasks: what it can run; the first is the default.
        memory: whether it is rlmem, which takes `--memory` and more.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", choices=tasks, default=tasks[0])
    parser.add_argument(
        "--steps", type=int, help="timed env steps (default: 4000 atari, 20000 cartpole)"
    )
    parser.add_argument("--short", action="store_true", help="a tenth of that: does it work?")
    parser.add_argument("--stored", type=int, help="transitions stored when learning starts")
    parser.add_argument("--num-envs", type=int, default=1)
    parser.add_argument(
        "--group", type=int, default=1, help="cartpole: env steps, then as many updates"
    )
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    parser.add_argument("--threads", type=int, help="torch threads (default: the task's)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--denormals", action="store_true", help="bare: do not flush them to zero")
    if memory:
        parser.add_argument("--memory", default="uniform")
        parser.add_argument("--storage", help="memory/storage of rlmem (default: the memory's)")
        parser.add_argument("--compile", action="store_true", help="trainer.compile of rlmem")
        parser.add_argument("--checkout", default=str(ROOT), help="whose train.py is run")
    args = parser.parse_args()
    shorter = 10 if args.short else 1
    args.steps = args.steps or {"atari": 4_000, "cartpole": 20_000}[args.task] // shorter
    task = TASKS[args.task]
    starts = args.stored // shorter if args.stored else task.learning_starts
    args.settings = replace(task, learning_starts=starts, log_every=task.log_every // shorter)
    args.threads = args.threads or task.threads
    if args.threads:
        import torch

        torch.set_num_threads(args.threads)
    return args


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Versions of Python and of the named distributions that are installed."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def report(name: str, args: argparse.Namespace, rate: float, packages: Sequence[str] = ()) -> None:
    """Print the one JSON line of a contender."""
    line = {
        "name": name,
        "task": args.task,
        "num_envs": args.num_envs,
        "group": args.group,
        "env_steps_per_second": round(rate, 2),
        "versions": versions(["torch", "numpy", "gymnasium", "ale-py", *packages]),
    }
    print(json.dumps(line), flush=True)


def answer(
    contenders: Mapping[str, Callable[[int], float]], amount: int, packages: Sequence[str]
) -> None:
    """The command line of a script that is all of its contenders: `--contender NAME` prints one
    JSON line with its env steps a second, `--list` their names.

    Args:
        contenders: name -> a function of how much to run.
        amount: how much; `--short` is a tenth of it.
        packages: whose versions are told.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--contender", choices=contenders, default="rlmem")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--short", action="store_true", help="a tenth: does it work?")
    args = parser.parse_args()
    if args.list:
        print("\n".join(contenders))
        return
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    speed = contenders[args.contender](amount // 10 if args.short else amount)
    line = {"name": args.contender, "env_steps_per_second": round(speed, 2)}
    print(json.dumps({**line, "versions": versions(packages)}), flush=True)


def exit_not_installed(error: ImportError) -> NoReturn:
    """End a contender whose package is missing so that the harness can tell it from a failure.

    Raises:
        ImportError: the same, if a package is there but not what is asked of it.
    """
    if not isinstance(error, ModuleNotFoundError):
        raise error
    print(json.dumps({"not_installed": error.name or str(error)}), flush=True)
    sys.exit(NOT_INSTALLED)


def machine() -> dict[str, str | int | float]:
    """Cores that this process may use, memory (GiB) and CPU model."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            model = next(
                line.split(":", 1)[1].strip() for line in file if line.startswith("model name")
            )
    except (OSError, StopIteration):
        pass
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1,
        "memory_gib": round(memory, 1),
        "system": f"{platform.system()} {platform.machine()}",
    }
