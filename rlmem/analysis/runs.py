"""Reading what runs left: configuration, summary, curves. Nothing here fails on a broken file."""

import contextlib
import csv
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from rlmem.analysis.sweep_files import SweepFiles, load_yaml

# What is read of metrics.csv.
CURVES = ("frames", "seconds", "train_return_mean", "memory_bytes", "insert_us", "sample_us")
OVER_RUN = "return_over_run"
NOT_RUNS = {"checkpoints", "wandb", "videos", "report"}  # unless they are runs themselves
OUTSIDER_COLUMNS = ("env_steps", "return", "bytes", "seed", "label")


@dataclass
class RunData:
    """One run as it lies on disk.

    Attributes:
        config: nested configuration, resolved.
        summary: content of summary.json, {} if the run has not ended.
        curves: column of metrics.csv -> float64 [rows], NaN where a cell is empty; always with
            `env_steps`.
        outsider: label of a curve that comes from a CSV file of somebody else.
    """

    folder: Path
    config: dict[str, Any]
    summary: dict[str, Any]
    curves: dict[str, np.ndarray]
    overrides: list[str] = field(default_factory=list)
    outsider: str | None = None

    @property
    def status(self) -> str:
        """finished, failed, interrupted, or `no summary` (running, or killed)."""
        return str(self.summary.get("status", "no summary"))

    @property
    def env_id(self) -> str:
        """The environment's name, and its own arguments: with others it is another task."""
        env = self.config.get("env") or {}
        name = str(self.summary.get("env_id") or env.get("id") or env.get("name"))
        own = env.get("kwargs") or {}
        return ", ".join([name, *(f"{key}={value}" for key, value in own.items())])

    @property
    def seed(self) -> int:
        return int(self.config["seed"])

    @property
    def label(self) -> str | None:
        """Name that its user gave the setting."""
        label = self.config.get("label")
        return None if label is None else str(label)

    @property
    def memory(self) -> str:
        """Name of its memory."""
        return str(self.config["memory"].get("name"))

    def number(self, name: str) -> float:
        """A number of the summary, or `return_over_run`; NaN if there is none."""
        if name == OVER_RUN:
            return self._over_run()
        value = self.summary.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return float("nan")
        return float(value) if abs(value) < 1e300 else float("nan")

    def _over_run(self) -> float:
        """Mean over env steps of the learning curve: the area under it by its length.

        The curve is the mean return of the last 100 training episodes. Where a final return tells
        what was known in the end, this tells how soon, and what was forgotten on the way.
        """
        steps, returns = self.curves["env_steps"], self.curves["train_return_mean"]
        x, y = steps[np.isfinite(returns)], returns[np.isfinite(returns)]
        if len(x) < 2 or x[-1] <= x[0]:
            return float("nan")
        return float(np.trapezoid(y, x) / (x[-1] - x[0]))


@dataclass
class Collection:
    """Runs, and what was found beside them.

    Attributes:
        left_out: (path, reason) of what does not count in the means.
        notes: what the reader of a comparison should know.
    """

    runs: list[RunData] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def find_runs(folder: Path) -> Iterator[Path]:
    """Run directories (they hold a config.yaml) below a folder, or the folder itself; sorted."""
    for path, folders, files in os.walk(folder):
        if "config.yaml" in files:
            folders.clear()
            yield Path(path)
        folders[:] = sorted(
            name
            for name in folders
            if name[0] != "." and (name not in NOT_RUNS or Path(path, name, "config.yaml").exists())
        )


def read_run(folder: Path) -> RunData:
    """Read one run directory.

    Raises:
        ValueError: the configuration or the summary cannot be read; says which and why.
    """
    config = _mapping(folder / "config.yaml", load_yaml)
    if not isinstance(config.get("seed"), int) or not all(
        isinstance(config.get(part), dict) for part in ("memory", "env")
    ):
        raise ValueError("config.yaml is no configuration of a run (seed, memory, env)")
    summary = {}
    if (folder / "summary.json").exists():
        summary = _mapping(folder / "summary.json", json.loads)
    overrides: Any = []
    with contextlib.suppress(OSError, ValueError, yaml.YAMLError):  # absent without command line
        overrides = load_yaml((folder / "overrides.yaml").read_text())
    return RunData(
        folder,
        config,
        summary,
        read_columns(folder / "metrics.csv", ("env_steps", *CURVES)),
        [str(o) for o in overrides] if isinstance(overrides, list) else [],
    )


def _mapping(path: Path, parse: Any) -> dict[str, Any]:
    try:
        content = parse(path.read_text())
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"{path.name} cannot be read ({reason})") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} holds no mapping")
    return content


def read_columns(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Columns of a CSV file as float64 [rows], NaN for empty or broken cells; absent ones are NaN.

    Rows without a number in the first of the names are dropped, so half a last line is no harm.
    """
    rows: list[list[float]] = []
    try:
        with path.open(newline="", errors="replace") as file:
            lines = csv.reader(line.replace("\0", "") for line in file)
            header = next(lines, [])
            places = [header.index(name) if name in header else -1 for name in names]
            for line in lines:
                row = [_number(line, place) for place in places]
                if len(line) == len(header) and row[0] == row[0]:
                    rows.append(row)
    except (OSError, csv.Error):
        pass  # what was read until here counts
    table = np.array(rows, np.float64).reshape(-1, len(names))
    return {name: table[:, k] for k, name in enumerate(names)}


def _number(line: list[str], place: int) -> float:
    if not 0 <= place < len(line):
        return float("nan")
    try:
        return float(line[place])
    except ValueError:
        return float("nan")


def read_outsiders(path: Path, default_env: str | None) -> list[RunData]:
    """Curves of other programs: a CSV file with env_steps, return, bytes, seed, label[, env_id].

    Args:
        default_env: environment of rows without `env_id`.

    Raises:
        ValueError: what the file lacks.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
            reader = csv.DictReader(file)
            header, rows = list(reader.fieldnames or []), list(reader)
    except (OSError, csv.Error) as error:
        raise ValueError(f"cannot be read ({error})") from None
    missing = [name for name in OUTSIDER_COLUMNS if name not in header]
    if missing:
        raise ValueError(
            f"has no column {', '.join(missing)}; it needs {', '.join(OUTSIDER_COLUMNS)}"
        )
    if "env_id" not in header and default_env is None:
        raise ValueError("has no column env_id, and the runs are of several environments")
    curves: dict[tuple[str, str, str], list[tuple[float, float, float]]] = {}
    for line, row in enumerate(rows, start=2):
        try:
            point = float(row["env_steps"]), float(row["return"]), float(row["bytes"] or "nan")
        except (TypeError, ValueError):
            raise ValueError(f"line {line} holds something that is no number") from None
        if not (np.isfinite(point[:2]).all() and row["label"] and row["seed"]):
            raise ValueError(f"line {line} is not complete")
        key = (row.get("env_id") or default_env or "", row["label"], row["seed"])
        curves.setdefault(key, []).append(point)
    if not curves:
        raise ValueError("holds no line")
    return [_outsider(path, *key, np.array(sorted(points))) for key, points in curves.items()]


def _outsider(path: Path, env_id: str, label: str, seed: str, points: np.ndarray) -> RunData:
    steps, returns, size = points.T
    nothing = np.full(len(steps), np.nan)
    curves = {"env_steps": steps, **dict.fromkeys(CURVES, nothing)}
    curves |= {"train_return_mean": returns, "memory_bytes": size}
    summary = {
        "status": "finished",
        "env_id": env_id,
        "env_steps": int(steps[-1]),
        "train_return_mean": float(returns[-1]),
        "eval_return_mean": float(returns[-1]),
    }
    if not np.isnan(size).all():
        summary["memory_bytes_peak"] = float(np.nanmax(size))
    number = int(seed) if seed.strip().isdigit() else 0
    config = {"seed": number, "env": {"name": env_id}, "memory": {"name": label}}
    return RunData(path, config, summary, curves, outsider=label)


def collect(folders: Sequence[Path], outsiders: Sequence[Path] = ()) -> Collection:
    """Everything that can be read below the folders, each run once."""
    found = Collection()
    seen: set[Path] = set()
    for folder in folders:
        for run_dir in find_runs(folder):
            if (resolved := run_dir.resolve()) in seen:
                continue
            seen.add(resolved)
            try:
                found.runs.append(read_run(run_dir))
            except ValueError as error:
                found.left_out.append((str(run_dir), str(error)))
    for sweep in sorted({sweep for folder in folders for sweep in _sweeps(folder)}):
        _add_unstarted(found, sweep)
    environments = {run.env_id for run in found.runs}
    default = environments.pop() if len(environments) == 1 else None
    for path in outsiders:
        try:
            found.runs += read_outsiders(path, default)
        except ValueError as error:
            found.left_out.append((str(path), str(error)))
    _note(found)
    return found


def _sweeps(folder: Path) -> Iterator[Path]:
    """A folder and those up to two levels below that hold a sweep."""
    for pattern in ("sweep.json", "*/sweep.json", "*/*/sweep.json"):
        yield from (path.parent.resolve() for path in folder.glob(pattern))


def _add_unstarted(found: Collection, folder: Path) -> None:
    """The jobs that a sweep was asked for and that left no run."""
    files = SweepFiles(folder)
    asked = files.asked().jobs
    unstarted = [
        files.job(name, overrides)
        for name, overrides in asked.items()
        if not (folder / name / "config.yaml").exists()
    ]
    failed = [job for job in unstarted if job.state == "failed"]
    found.left_out += [(str(folder / job.name), f"failed: {job.error}") for job in failed]
    if missing := len(unstarted) - len(failed):
        found.notes.append(f"{folder}: {missing} of {len(asked)} jobs have not started")


def _note(found: Collection) -> None:
    """What makes a comparison less than clean."""
    ours = [run for run in found.runs if run.outsider is None]
    for status in ("failed", "interrupted", "no summary"):
        runs = [run for run in ours if run.status == status]
        for run in runs:
            reason = {"no summary": "has not ended: no summary.json"}.get(status, status)
            error = run.summary.get("error")
            found.left_out.append((str(run.folder), f"{reason}: {error}" if error else reason))
    for name in ("rlmem", "torch", "gymnasium", "ale_py"):
        listed = [run.summary.get("versions") for run in ours]
        versions = {str(part.get(name)) for part in listed if isinstance(part, dict)}
        if len(versions) > 1:
            found.notes.append(f"runs of several versions of {name}: {', '.join(sorted(versions))}")
    commits = {str(run.summary.get("git_commit"))[:9] for run in ours if run.summary}
    if len(commits) > 1:
        found.notes.append(f"runs of {len(commits)} commits of rlmem")
    for env_id in sorted({run.env_id for run in found.runs}):
        steps = {int(r.number("env_steps")) for r in ours if _ended(r) and r.env_id == env_id}
        if len(steps) > 1:
            shown = ", ".join(f"{s:,}" for s in sorted(steps))
            found.notes.append(f"{env_id}: runs of different lengths ({shown} env steps)")


def _ended(run: RunData) -> bool:
    by_episodes = isinstance(t := run.config.get("trainer"), dict) and t.get("max_episodes")
    return run.status == "finished" and run.number("env_steps") > 0 and not by_episodes
