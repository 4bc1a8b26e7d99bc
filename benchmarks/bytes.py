"""What a million Atari transitions take: real frames in the memories of rlmem and other libraries.

python benchmarks/bytes.py --contender "rlmem frames"              # one JSON line
python benchmarks/bytes.py --list
python benchmarks/bytes.py [--peers-python PATH] [--only sb3,rlmem]   # all of them, as a table
python benchmarks/bytes.py --games --data FOLDER [FOLDER ...]      # one memory, many recordings

The transitions come from record_frames.py (`--data`; random play of `--game` by default). Each
buffer holds exactly as many transitions as are written. Its bytes are what the resident memory of
a process of its own grew by, with 4 KiB pages and an allocator that gives freed blocks back at
once; its speed is taken in a second process without these settings. 1 GB is 10^9 bytes.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
from bytes_contenders import BLOCK, CONTENDERS, Contender, Store
from common import NOT_INSTALLED, SCREEN, exit_not_installed, machine, versions
from record_frames import ensure
from recording import Recording, load

SAMPLES = 200
RAW = SCREEN * SCREEN  # bytes of a frame
DIGITS = {  # metric -> decimals in the table
    "gb_a_million": 3,
    "counted_gb_a_million": 3,
    "sample_32_ms": 3,
    "written_per_second": 0,
}
# glibc reads its settings when a process starts. They cost time, so the speed is taken without.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
GIVE_BACK = {"MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_MMAP_THRESHOLD_": "65536"}
ENVIRONMENT = {"bytes": {**ONE_THREAD, **GIVE_BACK}, "speed": ONE_THREAD}


def filled(contender: Contender, recording: Recording) -> tuple[Store, int]:
    """A buffer that holds the recording, and the resident bytes before it was made."""
    capacity, envs = len(recording), recording.num_envs
    small = contender.make(4 * BLOCK, envs)  # imports, compiles, and wakes the allocator
    for block in islice(contender.source(recording), 8):
        small.write(block)
    for _ in range(20):
        small.sample()
    del small, block
    before = rss()
    store = contender.make(capacity, envs)
    for block in contender.source(recording):
        store.write(block)
    return store, before


def rss() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss


def small_pages() -> None:
    """No huge pages in this process, so that only what was written is resident."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE


def measure_bytes(contender: Contender, recording: Recording) -> tuple[dict[str, float], Store]:
    """GB that a million transitions would take: by the system, by the library if it counts."""
    small_pages()
    store, before = filled(contender, recording)
    for _ in range(SAMPLES):  # what sampling leaves behind counts too
        store.sample()
    found = {"gb_a_million": rss() - before}
    if store.counted:
        found["counted_gb_a_million"] = store.counted()
    scale = 1e6 / 1e9 / len(recording)
    return {name: round(size * scale, 4) for name, size in found.items()}, store


def measure_speed(contender: Contender, recording: Recording) -> tuple[dict[str, float], Store]:
    """Writing into a full buffer (half of the recording once more), then sampling."""
    store, _ = filled(contender, recording)
    passed, count = 0.0, len(recording) // BLOCK // 2
    for block in islice(contender.source(recording), count):
        passed += seconds(store.write, block)
    samples = [seconds(store.sample) for _ in range(SAMPLES)]
    found = {
        "sample_32_ms": round(1e3 * statistics.median(samples), 4),
        "written_per_second": round(count * BLOCK / passed),
    }
    return found, store


def seconds(call: Callable[..., Any], *arguments: Any) -> float:
    started = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - started


PARTS = {"bytes": measure_bytes, "speed": measure_speed}


def measure_part(name: str, part: str, folder: Path) -> dict[str, Any]:
    """What a process that `spawn` has started answers."""
    found, store = PARTS[part](CONTENDERS[name], load(folder))
    return {"metrics": found, "versions": versions(["numpy", "torch", *store.packages])}


def spawn(name: str, part: str, folder: Path) -> tuple[dict[str, Any] | None, int]:
    """Measure a part in a process of its own: what it found (or None), and its exit status."""
    done = subprocess.run(
        [sys.executable, __file__, "--contender", name, "--part", part, "--data", str(folder)],
        env={**os.environ, **ENVIRONMENT[part]},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return (None if done.returncode else json.loads(done.stdout.splitlines()[-1])), done.returncode


def measure(name: str, folder: Path) -> dict[str, Any]:
    """The line of a contender; ends the process where a part of it ended."""
    metrics: dict[str, float] = {}
    used: dict[str, str] = {}
    for part in PARTS:
        found, status = spawn(name, part, folder)
        if found is None:
            sys.exit(status)
        metrics |= found["metrics"]
        used |= found["versions"]
    return {"metrics": metrics, "versions": used}


def table(title: str, text: str, header: list[str], rows: list[list[str]], used: Any) -> str:
    """A markdown page in the form of run.py's; columns of numbers are right-aligned."""
    about = machine()
    numbers = [name not in ("contender", "game", "policy") for name in header]
    lines = [
        f"# {title}",
        "",
        text,
        f"Machine: {about['cpu']}, {about['cores']} cores, {about['memory_gib']} GiB, "
        f"{about['system']}. Versions: {', '.join(f'{k} {v}' for k, v in used.items())}.",
        "",
        "| " + " | ".join(header) + " |",
        "|" + "".join("---:|" if number else "---|" for number in numbers),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def mean_return(about: dict[str, Any]) -> str:
    return "-" if about["mean_return"] is None else f"{about['mean_return']:,.1f}"


def compare_libraries(folder: Path, only: str, python: str) -> tuple[str, list[dict[str, Any]]]:
    """Every contender once: the page and its results. run.py repeats and interleaves them."""
    results, rows, used = [], [], {}
    for name in CONTENDERS:
        if not any(part in name for part in only.split(",")):
            continue
        own = sys.executable if name.startswith("rlmem") else python
        command = [own, __file__, "--contender", name, "--data", str(folder)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            problem = "not installed" if done.returncode == NOT_INSTALLED else "failed"
            results.append({"name": name, "problem": problem})
            rows.append([name, problem, *[""] * (len(DIGITS) - 1)])
            continue
        line = json.loads(done.stdout.splitlines()[-1])
        results.append(line)
        used |= line["versions"]
        found = line["metrics"]
        rows.append(
            [name, *(f"{found[m]:,.{d}f}" if m in found else "-" for m, d in DIGITS.items())]
        )
        print(f"{name}: {found}", file=sys.stderr, flush=True)
    about = json.loads((folder / "about.json").read_text())
    text = (
        f"{about['steps']:,} transitions of {about['game']} ({about['policy']}), scaled to a "
        "million; 1 GB is 10^9 bytes."
    )
    return table("bytes", text, ["contender", *DIGITS], rows, used), results


def compare_games(
    folders: list[Path], name: str, page: str = "bytes_games"
) -> tuple[str, list[dict[str, Any]]]:
    """One memory on many recordings: the page and its results."""
    results, rows, used = [], [], {}
    for folder in folders:
        found, status = spawn(name, "bytes", folder)
        if found is None:
            sys.exit(status)
        about = json.loads((folder / "about.json").read_text())
        used |= found["versions"]
        resident = 1e3 * found["metrics"]["gb_a_million"]
        counted = 1e3 * found["metrics"].get("counted_gb_a_million", float("nan"))
        results.append({"name": name, "folder": folder.name, **found, "recording": about})
        rows.append(
            [
                about["game"],
                about["policy"],
                mean_return(about),
                f"{about['steps']:,}",
                f"{counted:,.0f}",
                f"{resident:,.0f}",
                f"{counted / RAW:.3f}",
            ]
        )
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    header = ["game", "policy", "mean return of an episode", "transitions"]
    header += ["counted, bytes a transition", "resident", f"counted / {RAW:,}"]
    text = f"*{name}*; a transition's frame has {RAW:,} bytes."
    if any(result["recording"]["policy"].startswith("training") for result in results):
        text += " In training with protocol atari_100k an episode is a life."
    return table(page, text, header, rows, used), results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--contender", choices=CONTENDERS)
    parser.add_argument("--part", choices=PARTS, help="a part of what a contender measures")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--games", action="store_true", help="one memory on every --data")
    parser.add_argument("--page", default="bytes_games", help="of --games: the results' name")
    parser.add_argument("--game", default="road_runner", help="random play where --data is not set")
    parser.add_argument("--data", type=Path, nargs="+", help="folders of record_frames.py")
    parser.add_argument("--only", default="", help="contenders whose name contains one of a,b")
    parser.add_argument(
        "--peers-python", default=sys.executable, help="interpreter that has the other libraries"
    )
    parser.add_argument("--results", type=Path, help="write the table and its numbers there")
    args = parser.parse_args()
    if args.list:
        print("\n".join(CONTENDERS))
        return
    folders = args.data or [ensure(args.game)]
    if args.part:
        try:
            print(json.dumps(measure_part(args.contender, args.part, folders[0])))
        except ImportError as error:
            exit_not_installed(error)
    elif args.games:
        name = args.contender or "rlmem compressed"
        write(args, args.page, *compare_games(folders, name, args.page))
    elif args.contender:
        print(json.dumps({"name": args.contender, **measure(args.contender, folders[0])}))
    else:
        write(args, "bytes", *compare_libraries(folders[0], args.only, args.peers_python))


def write(args: argparse.Namespace, name: str, page: str, results: list[dict[str, Any]]) -> None:
    """Print a page, and keep it in `--results`."""
    print(page)
    if args.results:
        args.results.mkdir(parents=True, exist_ok=True)
        content = {"benchmark": name, "machine": machine(), "results": results}
        (args.results / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
        (args.results / f"{name}.md").write_text(page)


if __name__ == "__main__":
    main()
