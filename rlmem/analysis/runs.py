"""What a run left: configuration, summary, curves. Broken cells and lines are left out."""

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

from rlmem.analysis.sweep_files import load_yaml

# What is read of metrics.csv.
CURVES = ("frames", "seconds", "train_return_mean", "memory_bytes", "insert_us", "sample_us")
OVER_RUN = "return_over_run"
SUCCESS = "eval_success_rate"  # of environments with goals
NOT_RUNS = {"checkpoints", "wandb", "videos", "report"}  # unless they are runs themselves


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
