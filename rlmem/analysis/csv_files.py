"""The CSV files of a report: a row a run, a row a cell."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rlmem.analysis.cells import Cell, any_goals
from rlmem.analysis.runs import OVER_RUN, SUCCESS, TIMES
from rlmem.analysis.statistics import Estimate

NUMBERS = (  # of a run
    "env_steps",
    "grad_steps",
    "eval_return_mean",
    "train_return_mean",
    OVER_RUN,
    "human_normalized_score",
    "memory_bytes",
    "memory_bytes_peak",
    "memory_entries",
    "transitions_seen",
    "bytes_per_transition",
    "peak_rss_bytes",
    "env_steps_per_second",
    "wall_seconds",
    "cpu_seconds",
)


def write_results(cells: Sequence[Cell], path: Path) -> None:
    """A row a run; `eval_success_rate` where an environment has goals."""
    numbers = [*NUMBERS, *TIMES, *([SUCCESS] if any_goals(cells) else [])]
    keys = sorted({key for cell in cells for key in cell.setting})
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["env_id", "memory", "label", "seed", "status", *keys, *numbers, "folder"])
        for cell in cells:
            for run in cell.runs:
                row = [cell.env_id, cell.memory, cell.label, run.seed, run.status]
                row += [cell.setting.get(key, "") for key in keys]
                row += [plain(run.number(name)) for name in numbers]
                writer.writerow([*row, run.folder])


def plain(value: float) -> str:
    """A number as a cell; empty for NaN."""
    if not np.isfinite(value):
        return ""
    return str(int(value)) if value == int(value) else repr(value)


def interval(estimate: Estimate | None) -> list[str]:
    """Value, low and high as cells of a CSV file; empty where there is none."""
    if estimate is None:
        return ["", "", ""]
    parts = (estimate.value, estimate.low, estimate.high)
    return ["" if part is None else f"{part:.6g}" for part in parts]


def write_summary(cells: Sequence[Cell], path: Path) -> None:
    """A row a cell; `success_rate` and its bounds where an environment has goals."""
    goals = any_goals(cells)
    kinds = ["return_mean", "return_iqm", "return_over_run"] + ["success_rate"] * goals
    bounds = [f"{kind}{end}" for kind in kinds for end in ("", "_low95", "_high95")]
    means = [name for name in NUMBERS if "return" not in name]
    header = ["env_id", "memory", "label", "n", "not_finished", "return_is", *bounds, *means]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*header, "insert_us", "sample_us"])
        for cell in cells:
            writer.writerow(
                [cell.env_id, cell.memory, cell.label, len(cell.returns)]
                + [len(cell.runs) - len(cell.finished), cell.metric if len(cell.returns) else ""]
                + interval(cell.return_mean)
                + interval(cell.return_iqm)
                + interval(cell.over_run_mean)
                + (interval(cell.success_mean) if goals else [])
                + [plain(cell.mean(name)) for name in means]
                + [plain(cell.mean(name)) for name in TIMES]
            )
