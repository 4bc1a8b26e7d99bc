"""Curves of other programs, read from CSV files beside the runs."""

from pathlib import Path
from typing import TYPE_CHECKING

from rlmem.analysis.read.runs import CURVES, Run, curves_of, means_of

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("env_steps", "return", "bytes", "seed", "label")


def read_external(path: Path, default_env: str | None) -> list[Run]:
    """Curves of other programs: a CSV file with env_steps, return, bytes, seed, label[, env_id].

    Args:
        default_env: environment of rows without `env_id`.

    Raises:
        ValueError: what the file lacks.
    """
    import pandas as pd

    try:
        text = pd.read_csv(path, dtype=str, encoding_errors="replace", keep_default_na=False)
    except (OSError, ValueError) as error:  # pandas' own errors are ValueErrors
        raise ValueError(f"cannot be read ({' '.join(str(error).split())})") from None
    missing = [name for name in COLUMNS if name not in text]
    if missing:
        raise ValueError(f"has no column {', '.join(missing)}; it needs {', '.join(COLUMNS)}")
    if "env_id" not in text and default_env is None:
        raise ValueError("has no column env_id, and the runs are of several environments")
    if text.empty:
        raise ValueError("holds no line")
    named = text.reindex(columns=["env_id"]).fillna("").replace("", default_env or "")
    table = text.assign(env_id=named["env_id"])
    for name in ("env_steps", "return", "bytes"):
        table[name] = pd.to_numeric(text[name].replace("", "nan"), errors="coerce")
        wrong = table[name].isna() & ~text[name].str.lower().isin(["", "nan"])
        if wrong.any():
            raise ValueError(f"line {wrong.idxmax() + 2} holds something that is no number")
    finite = table[["env_steps", "return"]].abs().lt(float("inf")).all(axis=1)
    whole = finite & table["label"].ne("") & table["seed"].ne("")
    if not whole.all():
        raise ValueError(f"line {whole.idxmin() + 2} is not complete")
    groups = table.groupby(["env_id", "label", "seed"], sort=False)
    return [_run(path, *map(str, key), points) for key, points in groups]


def _run(path: Path, env_id: str, label: str, seed: str, points: "pd.DataFrame") -> Run:
    names = {"return": "train_return_mean", "bytes": "memory_bytes"}
    table = points.sort_values("env_steps").rename(columns=names).reindex(columns=CURVES)
    last = table.iloc[-1]
    summary = {
        "status": "finished",
        "env_id": env_id,
        "env_steps": int(last["env_steps"]),
        "train_return_mean": float(last["train_return_mean"]),
        "eval_return_mean": float(last["train_return_mean"]),
        "memory_bytes_peak": float(table["memory_bytes"].max()),
    }
    number = int(seed) if seed.strip().isdigit() else 0
    config = {"seed": number, "env.name": env_id, "memory.name": label}
    return Run(path, config, summary, curves_of(table), means_of(table), external=label)
