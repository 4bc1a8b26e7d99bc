"""The harness: every contender in a process of its own, interleaved, medians with range and ratios.

python benchmarks/run.py [all|training|startup|sum_tree|storage|bytes|gwr|diagnostics|er_study|
                          episodic|cartpole|atari|side_by_side|stored|scaling ...]
    [--repeats 5] [--only per,gwr] [--short]
    [--peers] [--peers-python PATH] [--against CHECKOUT]

Writes benchmarks/results/<name>.json and .md. `training` is cartpole and atari.
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
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import NOT_INSTALLED, ROOT, machine
from suites import BENCHMARKS, FASTEST_PEER, HERE, Benchmark, Contender, Target

GROUPS = {"all": list(BENCHMARKS), "training": ["cartpole", "atari"]}
SHORT = (
    "er_study.py",
    "episodic.py",
    "diagnostics.py",
    "side_by_side.py",
    "rlmem_train.py",
    "bare_",
    "peers/",
)
AS_FAST = 0.97  # of the checkout that is compared with


def run_once(contender: Contender, python: str, timeout: float, short: bool) -> None:
    """Run a contender and keep its line, or why there is none."""
    command = [python, str(HERE / contender.command[0]), *contender.command[1:]]
    if short and contender.command[0].startswith(SHORT):
        command.append("--short")
    # rlmem lets threads that wait sleep soon; so do the others, whom a busy moment of the machine
    # would cost most of their speed. And this checkout is imported, whatever is installed.
    own = {"GOMP_SPINCOUNT": "10000", **os.environ, "PYTHONPATH": str(ROOT)}
    # A session of its own, so that a timeout also ends what the contender has started.
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=own,
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


def ratio(contender: Contender, other: Contender, metric: str) -> float | None:
    """A contender's metric divided by another's: the median over the repeats, in each of which
    both met about the same machine."""
    pairs = zip(contender.runs, other.runs, strict=False)
    found = [a[metric] / b[metric] for a, b in pairs if metric in a and b.get(metric)]
    return statistics.median(found) if found else None


def reached(benchmark: Benchmark, target: Target) -> tuple[str, float | None]:
    """What a target is divided by, and what was measured of it."""
    by_name = {c.name: c for c in benchmark.contenders}
    contender, over = by_name.get(target.contender), target.over
    if contender is None:
        return over, None
    if not over:
        found = summary(contender, target.metric)
        return over, found and found["median"]
    if over == FASTEST_PEER:
        medians = {c.name: summary(c, target.metric) for c in benchmark.contenders if c.peer}
        found_peers = {name: found["median"] for name, found in medians.items() if found}
        over = max(found_peers, key=lambda name: found_peers[name], default=over)
    return over, ratio(contender, by_name[over], target.metric) if over in by_name else None


def target_rows(benchmark: Benchmark) -> list[dict[str, Any]]:
    """Every target with what was measured."""
    rows = []
    for target in benchmark.targets:
        over, found = reached(benchmark, target)
        met = None
        if found is not None:
            met = found <= target.bound if target.most else found >= target.bound
        row = {"contender": target.contender, "over": over or None, "metric": target.metric}
        row |= {"wanted": f"{'<=' if target.most else '>='} {target.bound:g}"}
        rows.append({**row, "measured": found and round(found, 3), "met": met})
    return rows


def table(name: str, benchmark: Benchmark, repeats: int) -> str:
    """The results as a markdown page."""
    about = machine()
    versions: dict[str, str] = {}
    for contender in benchmark.contenders:
        versions |= contender.versions
    base = next((c for c in benchmark.contenders if c.name == benchmark.baseline), None)
    against, compares = "", ""
    if base is not None:
        against = f"; ratio: to *{base.name}* in the same repeat, the median"
        compares = " | ratio"
    lines = [
        f"# {name}",
        "",
        f"Medians of {repeats} interleaved runs (lowest to highest){against}.",
        f"Machine: {about['cpu']}, {about['cores']} cores, {about['memory_gib']} GiB, "
        f"{about['system']}. Versions: {', '.join(f'{k} {v}' for k, v in versions.items())}.",
        "",
        "| contender | " + " | ".join(m + compares for m in benchmark.digits) + " |",
        "|---|" + ("---:|---:|" if base else "---:|") * len(benchmark.digits),
    ]
    for contender in benchmark.contenders:
        cells = [contender.name]
        for metric, digits in benchmark.digits.items():
            found = summary(contender, metric)
            if found is None:
                cells.append(contender.problem or ("-" if contender.runs else "not run"))
            else:
                low, high = f"{found['min']:,.{digits}f}", f"{found['max']:,.{digits}f}"
                cells.append(f"{found['median']:,.{digits}f} ({low} to {high})")
            if base is not None:
                compared = ratio(contender, base, metric) if found else None
                cells.append("" if compared is None else f"{compared:.2f}")
        lines.append("| " + " | ".join(cells) + " |")
    if benchmark.targets:
        lines += ["", "| target | measured | wanted | met |", "|---|---:|---:|---|"]
    for row in target_rows(benchmark):
        what = f"{row['contender']}, over {row['over']}" if row["over"] else row["contender"]
        if row["metric"] != "env_steps_per_second":
            what += f": {row['metric']}"
        measured = "not run" if row["measured"] is None else f"{row['measured']:.2f}"
        met = {True: "yes", False: "no", None: ""}[row["met"]]
        lines.append(f"| {what} | {measured} | {row['wanted']} | {met} |")
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
        "targets": target_rows(benchmark),
    }
    (folder / f"{name}.json").write_text(json.dumps(page, indent=1) + "\n")
    (folder / f"{name}.md").write_text(table(name, benchmark, repeats))


def with_before(benchmark: Benchmark, checkout: str) -> Benchmark:
    """Beside each training run of rlmem the same with the rlmem of another checkout."""
    contenders, targets = [], list(benchmark.targets)
    for contender in benchmark.contenders:
        contenders.append(contender)
        if contender.command[0] == "rlmem_train.py":
            before = f"{contender.name}, before"
            command = [*contender.command, "--checkout", checkout]
            contenders.append(Contender(before, command))
            targets.append(Target(contender.name, before, AS_FAST))
    return replace(benchmark, contenders=contenders, targets=tuple(targets))


def chosen(benchmark: Benchmark, args: argparse.Namespace) -> Benchmark:
    """The benchmark with the contenders that were asked for, and those that they are divided by."""
    if args.against:
        benchmark = with_before(benchmark, args.against)
    asked = {c.name for c in benchmark.contenders if any(t in c.name for t in args.only.split(","))}
    targets = tuple(t for t in benchmark.targets if t.contender in asked)
    others = {benchmark.baseline, *(t.over for t in targets)}
    contenders = [
        c
        for c in benchmark.contenders
        if (args.peers or not c.peer)
        and (c.name in asked | others or (c.peer and FASTEST_PEER in others))
    ]
    return replace(benchmark, contenders=contenders, targets=targets)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [*GROUPS, *BENCHMARKS]
    parser.add_argument("what", nargs="*", default=["all"], metavar="|".join(names))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--short", action="store_true", help="runs of a tenth: does it work?")
    parser.add_argument("--peers", action="store_true", help="other libraries too")
    parser.add_argument(
        "--peers-python", default=sys.executable, help="interpreter that has the other libraries"
    )
    parser.add_argument("--against", help="a checkout whose rlmem is run beside this one's")
    parser.add_argument(
        "--only", default="", help="contenders whose name contains one of these, a,b"
    )
    parser.add_argument("--timeout", type=float, default=600, help="seconds a run")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    args = parser.parse_args()
    if unknown := set(args.what) - set(names):
        parser.error(f"{min(unknown)}: no such benchmark; there are {', '.join(names)}")
    return args


def main() -> None:
    args = arguments()
    for name in [n for what in args.what for n in GROUPS.get(what, [what])]:
        benchmark = chosen(BENCHMARKS[name](), args)
        for repeat in range(args.repeats):
            for contender in benchmark.contenders:
                if contender.problem:
                    continue
                started = time.perf_counter()
                python = args.peers_python if contender.peer else sys.executable
                run_once(contender, python, args.timeout, args.short)
                result = contender.problem or contender.runs[-1]
                seconds = time.perf_counter() - started
                label = f"{name} {repeat + 1}/{args.repeats} {contender.name}"
                print(f"{label}: {result} ({seconds:.0f} s)", flush=True)
        record(name, benchmark, args.repeats, args.results)
        print("\n" + table(name, benchmark, args.repeats))


if __name__ == "__main__":
    main()
