"""What the checks of numbers share: result files, differences, and how pages write them."""

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd

from rlmem.analysis.compare.statistics import Estimate, row_mean, stratified_bootstrap
from rlmem.analysis.read.record import read_record

ROOT = Path(__file__).parents[2]
WORDS = {3: "three", 5: "five"}
Claim = tuple[str, str]  # page, what must stand there


def results(study: str, env_id: str = "") -> pd.DataFrame:
    """results.csv of a study, of the environments whose id holds a text."""
    table = pd.read_csv(ROOT / "studies" / study / "results.csv")
    return table[table["env_id"].str.contains(env_id)] if env_id else table


def of(table: pd.DataFrame, label: str, column: str) -> pd.Series:
    """A column of the runs with a label, by seed."""
    return table[table["label"] == label].set_index("seed")[column].sort_index()


def evaluated(study: str, game: str, label: str, env_steps: int) -> pd.Series:
    """What the runs of a game with a label scored after so many env steps, by seed."""
    recorded = read_record(ROOT / "studies" / study / "runs.npz")
    runs = [run for run in recorded if run.label == label and game in run.task]
    at = [run.curves["evaluated_at"] == env_steps for run in runs]
    scores = [run.curves["eval_return_mean"][there] for run, there in zip(runs, at, strict=True)]
    return pd.Series({run.seed: float(score[0]) for run, score in zip(runs, scores, strict=True)})


def paired(ours: pd.Series, theirs: pd.Series) -> Estimate:
    """How much higher ours is, of the seeds that both have."""
    found = (ours - theirs).dropna().to_numpy()
    return stratified_bootstrap([found], row_mean, widen=True)


def interval(estimate: Estimate, form: str = ".1f") -> str:
    """low to high, as pages write it."""
    return " to ".join(short(bound, form) for bound in (estimate.low, estimate.high))


def short(number: float | None, form: str) -> str:
    assert number is not None
    return re.sub(r"^(-?)0\.", r"\1.", f"{number:{form}}") if form != ".1f" else f"{number:{form}}"


def listed(values: pd.Series, form: str = ",.0f") -> str:
    """The values, by seed."""
    return ", ".join(f"{value:{form}}" for value in values)


def benchmark(name: str) -> dict[str, Any]:
    return json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())
