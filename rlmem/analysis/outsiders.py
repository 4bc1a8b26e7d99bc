"""Curves of other programs, read from CSV files beside the runs."""

import csv
from pathlib import Path

import numpy as np
import pandas as pd

from rlmem.analysis.runs import CURVES, RunData, means_of

COLUMNS = ("env_steps", "return", "bytes", "seed", "label")


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
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise ValueError(f"has no column {', '.join(missing)}; it needs {', '.join(COLUMNS)}")
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
    curves = dict.fromkeys(CURVES, nothing)
    curves |= {"env_steps": steps, "train_return_mean": returns, "memory_bytes": size}
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
    config = {"seed": number, "env.name": env_id, "memory.name": label}
    means = means_of(pd.DataFrame(curves))
    return RunData(path, config, summary, curves, means, outsider=label)
