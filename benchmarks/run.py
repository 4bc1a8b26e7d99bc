"""The harness: every contender in a process of its own, interleaved, medians with range and ratios.

python benchmarks/run.py [training|atari|cartpole|er_study|storage|bytes|gwr|sum_tree|startup|all]
    [--repeats 5]
    [--peers] [--peers-python PATH]

Writes benchmarks/results/<name>.json and .md. `training` is atari and cartpole.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import NOT_INSTALLED, machine
from record_frames import ensure

HERE = Path(__file__).resolve().parent


@dataclass
class Contender:
    """A command that prints one JSON line, and what came of it."""

    name: str
    command: list[str]
    peer: bool = False
    runs: list[dict[str, float]] = field(default_factory=list)  # metric -> value, a repeat each
    versions: dict[str, str] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class Benchmark:
    """Contenders and the one that the others are divided by."""

    contenders: list[Contender]
    baseline: str
    digits: dict[str, int]  # metric -> decimals in the table


def training(task: str, steps: int | None) -> Benchmark:
    """The loops of one task; the bare one first."""
    length = ["--steps", str(steps)] if steps else []

    def script(name: str, path: str, *options: str) -> Contender:
        command = [path, "--task", task, *length, *options]
        return Contender(name, command, peer=path.startswith("peers"))

    e4, bf16, group = ("--num-envs", "4"), "--bf16", ("--group", "8")
    if task == "atari":
        contenders = [
            script("bare, 4 envs", "bare_atari.py", *e4),
            script("bare, 1 env", "bare_atari.py"),
            script("bare, 4 envs, bf16", "bare_atari.py", *e4, bf16),
            script("bare, 1 env, bf16", "bare_atari.py", bf16),
            script("rlmem uniform, 4 envs", "rlmem_train.py", *e4),
            script("rlmem uniform, frames, 4 envs", "rlmem_train.py", "--storage", "frames", *e4),
            script("rlmem per, 4 envs", "rlmem_train.py", "--memory", "per", *e4),
            script("rlmem uniform, 4 envs, bf16", "rlmem_train.py", *e4, bf16),
            script("sb3, 1 env", "peers/sb3.py"),
            script("sb3, 4 envs", "peers/sb3.py", *e4),
            script("cleanrl style, 1 env", "peers/cleanrl.py"),
            script("torchrl, 1 env", "peers/torchrl.py"),
            script("tianshou, 1 env", "peers/tianshou.py"),
            script("tianshou, 4 envs", "peers/tianshou.py", *e4),
        ]
        return Benchmark(contenders, "bare, 4 envs", {"env_steps_per_second": 1})
    contenders = [
        script("bare", "bare_classic.py"),
        script("bare, groups of 8", "bare_classic.py", *group),
        script("rlmem, updates_per_step=1", "rlmem_train.py"),
        script("rlmem per, updates_per_step=1", "rlmem_train.py", "--memory", "per"),
        script("rlmem, updates_per_step=1, compiled", "rlmem_train.py", "--compile"),
        script("rlmem, updates_per_step=8", "rlmem_train.py", *group),
        script("cleanrl style", "peers/cleanrl.py"),
        script("sb3", "peers/sb3.py"),
        script("sb3, groups of 8", "peers/sb3.py", *group),
        script("torchrl", "peers/torchrl.py"),
        script("torchrl, groups of 8", "peers/torchrl.py", *group),
        script("tianshou", "peers/tianshou.py"),
        script("tianshou, groups of 8", "peers/tianshou.py", *group),
    ]
    return Benchmark(contenders, "bare", {"env_steps_per_second": 0})


def listed(path: str, baseline: str, digits: dict[str, int], own: set[str]) -> Benchmark:
    """The contenders that a script names itself with `--list`."""
    command = [sys.executable, str(HERE / path), "--list"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    contenders = [Contender(n, [path, "--contender", n], peer=n not in own) for n in names]
    return Benchmark(contenders, baseline, digits)


def make(name: str, steps: int | None) -> Benchmark:
    """The benchmark of this name."""
    if name in ("atari", "cartpole"):
        return training(name, steps)
    if name == "storage":
        digits = {"get_32_ms": 3, "written_per_second": 0, "bytes_per_transition": 0}
        return listed("storage.py", "bare ring", digits, {"bare ring", "rlmem"})
    if name == "bytes":
        ensure("road_runner")  # the other libraries' interpreter cannot record it
        digits = {"gb_a_million": 3, "counted_gb_a_million": 3}
        digits |= {"sample_32_ms": 3, "written_per_second": 0}
        own = {"rlmem dense", "rlmem frames", "rlmem compressed"}
        return listed("bytes.py", "rlmem frames", digits, own)
    if name == "gwr":
        digits = {"us_at_1000": 0, "us_at_10000": 0, "us_at_50000": 0, "us_mean": 0, "nodes": 0}
        own = {"blocks of 8", "blocks of 1", "exemplars, blocks of 8", "all keys", "all pixels"}
        own.add("Reacher, blocks of 10")
        return listed("gwr.py", "all keys", digits, own)
    if name == "er_study":
        noted = "plain PyTorch, a batch's figures each step"
        own = {noted, "plain PyTorch, no figures"}
        own |= {"rlmem, figures every 50 steps", "rlmem, figures each step"}
        return listed("er_study.py", noted, {"env_steps_per_second": 0}, own)
    if name == "sum_tree":
        digits = {"update_32_ms": 4, "draw_32_ms": 4}
        return listed("sum_tree.py", "plain numpy", digits, {"plain numpy", "rlmem"})
    return listed(
        "startup.py", "train.py --help", {"seconds": 2}, {"train.py --help", "first env step"}
    )


def run_once(contender: Contender, python: str, timeout: float) -> None:
    """Run a contender and keep its line, or why there is none."""
    command = [python, str(HERE / contender.command[0]), *contender.command[1:]]
    # A session of its own, so that a timeout also ends what the contender has started.
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        contender.problem = f"no result within {timeout:.0f} s"
        return
    if process.returncode == NOT_INSTALLED:
        contender.problem = "not installed"
        return
    if process.returncode:
        contender.problem = f"failed: {(err.strip() or 'no message').splitlines()[-1][:200]}"
        return
    line = json.loads(out.strip().splitlines()[-1])
    metrics = line.get("metrics") or {"env_steps_per_second": line["env_steps_per_second"]}
    contender.runs.append(metrics)
    contender.versions = line["versions"]


def summary(contender: Contender, metric: str) -> dict[str, float] | None:
    """Median and range of a metric over the repeats."""
    values = [run[metric] for run in contender.runs if metric in run]
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def table(name: str, benchmark: Benchmark, repeats: int) -> str:
    """The results as a markdown page."""
    about = machine()
    versions: dict[str, str] = {}
    for contender in benchmark.contenders:
        versions |= contender.versions
    lines = [
        f"# {name}",
        "",
        f"Medians of {repeats} interleaved runs (lowest to highest); ratio: median divided by that "
        f"of *{benchmark.baseline}*.",
        f"Machine: {about['cpu']}, {about['cores']} cores, {about['memory_gib']} GiB, "
        f"{about['system']}. Versions: {', '.join(f'{k} {v}' for k, v in versions.items())}.",
        "",
        "| contender | " + " | ".join(f"{m} | ratio" for m in benchmark.digits) + " |",
        "|---|" + "---:|---:|" * len(benchmark.digits),
    ]
    base = next(c for c in benchmark.contenders if c.name == benchmark.baseline)
    for contender in benchmark.contenders:
        cells = [contender.name]
        for metric, digits in benchmark.digits.items():
            found, reference = summary(contender, metric), summary(base, metric)
            if found is None:
                cells += [contender.problem or ("-" if contender.runs else "not run"), ""]
                continue
            low, high = f"{found['min']:,.{digits}f}", f"{found['max']:,.{digits}f}"
            cells.append(f"{found['median']:,.{digits}f} ({low} to {high})")
            cells.append(f"{found['median'] / reference['median']:.2f}" if reference else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def record(name: str, benchmark: Benchmark, repeats: int, folder: Path) -> None:
    """Write the results as JSON (every run) and as a markdown table."""
    folder.mkdir(parents=True, exist_ok=True)
    results = [
        {
            "name": c.name,
            "command": " ".join(["python", f"benchmarks/{c.command[0]}", *c.command[1:]]),
            "problem": c.problem or None,
            "runs": c.runs,
            "summary": {metric: summary(c, metric) for metric in benchmark.digits},
            "versions": c.versions,
        }
        for c in benchmark.contenders
    ]
    page: dict[str, Any] = {
        "benchmark": name,
        "baseline": benchmark.baseline,
        "repeats": repeats,
        "machine": machine(),
        "contenders": results,
    }
    (folder / f"{name}.json").write_text(json.dumps(page, indent=1) + "\n")
    (folder / f"{name}.md").write_text(table(name, benchmark, repeats))


def main() -> None:
    groups = {
        "training": ["atari", "cartpole"],
        "all": ["startup", "sum_tree", "storage", "bytes", "gwr", "er_study", "cartpole", "atari"],
    }
    names = ["atari", "cartpole", "er_study", "storage", "bytes", "gwr", "sum_tree", "startup"]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", default="all", choices=[*groups, *names])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, help="timed env steps of a training run")
    parser.add_argument("--peers", action="store_true", help="other libraries too")
    parser.add_argument(
        "--peers-python", default=sys.executable, help="interpreter that has the other libraries"
    )
    parser.add_argument(
        "--only", default="", help="contenders whose name contains one of these, a,b"
    )
    parser.add_argument("--timeout", type=float, default=600, help="seconds a run")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    args = parser.parse_args()
    for name in groups.get(args.what, [args.what]):
        benchmark = make(name, args.steps)
        benchmark.contenders[:] = [
            c
            for c in benchmark.contenders
            if (args.peers or not c.peer)
            and (any(t in c.name for t in args.only.split(",")) or c.name == benchmark.baseline)
        ]
        for repeat in range(args.repeats):
            for contender in benchmark.contenders:
                if contender.problem:
                    continue
                started = time.perf_counter()
                python = args.peers_python if contender.peer else sys.executable
                run_once(contender, python, args.timeout)
                result = contender.problem or contender.runs[-1]
                seconds = time.perf_counter() - started
                label = f"{name} {repeat + 1}/{args.repeats} {contender.name}"
                print(f"{label}: {result} ({seconds:.0f} s)", flush=True)
        record(name, benchmark, args.repeats, args.results)
        print("\n" + table(name, benchmark, args.repeats))


if __name__ == "__main__":
    main()
