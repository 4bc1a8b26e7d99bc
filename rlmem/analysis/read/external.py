"""Curves of other programs, read from CSV files beside the runs."""

import math
import re
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

from rlmem.analysis.read.curves import curves_of, means_of
from rlmem.analysis.read.runs import Run
from rlmem.errors import one_line

_SEED = re.compile(r"\d{1,15}(\.0*)?")  # as spreadsheets and pandas write it
COLUMNS = ("env_steps", "return", "bytes", "seed", "label")
Point = tuple[float, float, float, float]  # env steps, return, bytes, score in an evaluation


def read_external(path: Path, default_env: str | None) -> list[Run]:
    """Curves of other programs: a CSV file with env_steps, return, bytes, seed, label[, env_id,
    eval_return].

    `return` is of training: an evaluation is set against `eval_return` alone.

    Args:
        default_env: environment of rows without `env_id`.

    Raises:
        ValueError: what the file lacks.
    """
    import pandas as pd

    try:
        text = pd.read_csv(path, dtype=str, encoding_errors="replace", keep_default_na=False)
    except (OSError, ValueError) as error:  # pandas' own errors are ValueErrors
        raise ValueError(f"cannot be read ({one_line(error)})") from None
    missing = [name for name in COLUMNS if name not in text]
    if missing:
        raise ValueError(f"has no column {', '.join(missing)}; it needs {', '.join(COLUMNS)}")
    if "env_id" not in text and default_env is None:
        raise ValueError(
            "has no column env_id (CartPole-v1, ALE/RoadRunner), and there are not runs of one "
            "environment to take it from"
        )
    curves: dict[tuple[str, str, int], list[Point]] = {}
    for line, row in enumerate(text.to_dict("records"), start=2):
        try:
            size, score = (float(row.get(key) or "nan") for key in ("bytes", "eval_return"))
            point = float(row["env_steps"]), float(row["return"]), size, score
        except ValueError:
            raise ValueError(f"line {line} holds something that is no number") from None
        if not (all(map(math.isfinite, point[:2])) and row["label"] and row["seed"]):
            raise ValueError(f"line {line} is not complete")
        if point[0] < 0 or size < 0 or math.isinf(size):
            raise ValueError(f"line {line}: env_steps and bytes are finite numbers from 0 on")
        if not _SEED.fullmatch(row["seed"].strip()):
            raise ValueError(f"line {line}: seed {one_line(row['seed'], 20)} is no whole number")
        if not (env_id := row.get("env_id") or default_env):
            raise ValueError(f"line {line} has no env_id, and the runs are of several environments")
        key = (env_id, row["label"], int(float(row["seed"])))
        curves.setdefault(key, []).append(point)
    if not curves:
        raise ValueError("holds no line")
    return [_run(path, *key, sorted(points, key=itemgetter(0))) for key, points in curves.items()]


def _run(path: Path, env_id: str, label: str, seed: int, points: list[Point]) -> Run:
    import pandas as pd

    for (at, *_), (following, *_) in pairwise(points):
        if at == following != points[-1][0]:  # at the last step the last line counts
            raise ValueError(
                f"seed {seed} of {one_line(label, 40)} has env_steps {at:.0f} twice; give each run "
                "a seed of its own"
            )
    names = ["env_steps", "train_return_mean", "memory_bytes", "eval_return_mean"]
    table = pd.DataFrame(points, columns=pd.Index(names))
    scores = table.pop("eval_return_mean").dropna()
    summary = {
        "status": "finished",
        "env_id": env_id,
        "env_steps": int(points[-1][0]),
        "train_return_mean": points[-1][1],
        "eval_return_mean": None if scores.empty else float(scores.iloc[-1]),
        "memory_bytes_peak": max((size for _, _, size, _ in points if size == size), default=None),
    }
    config = {"seed": seed, "env.name": env_id, "memory.name": label}
    return Run(path, config, summary, curves_of(table), means_of(table), external=label)
