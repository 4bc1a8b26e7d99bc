"""The tables of a run, and what is drawn and averaged of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlmem.run_files import table_text, whole_lines

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

# What is drawn of metrics.csv, over env steps.
CURVES = ("env_steps", "frames", "seconds", "train_return_mean", "memory_bytes")
EVALUATED = ("evaluated_at", "eval_return_mean")  # of evaluations.csv: env steps, mean return
POINTS = 100  # of a run's curves at most
OVER_RUN = "return_over_run"
# Microseconds of the memory, and what each is an average over.
TIMES = {"insert_us": "env_steps", "sample_us": "grad_steps"}


def read_table(path: Path) -> "pd.DataFrame":
    """The rows of a CSV file that have a number of env steps; cells without a number are NaN, and
    `attrs["damaged"]` counts the rows in which one of them is not empty.

    A last line without its end was cut off while it was written, and is left out. No file, or none
    with env steps, is a table without rows.
    """
    return table_of(text_of(path))


def text_of(path: Path) -> str:
    """The text of a table up to its last whole line; '' where there is none."""
    try:
        return whole_lines(table_text(path))
    except (OSError, ValueError):
        return ""


def table_of(text: str) -> "pd.DataFrame":
    """See `read_table`."""
    import io

    import pandas as pd

    nothing = pd.DataFrame({"env_steps": []}, dtype="float64")
    try:
        table = pd.read_csv(io.StringIO(text), on_bad_lines="skip", index_col=False)
    except ValueError:  # pandas' own errors are ValueErrors
        return nothing
    if "env_steps" not in table:
        return nothing
    columns = {name: pd.to_numeric(table[name], errors="coerce") for name in table.columns}
    numbers = pd.DataFrame(columns, dtype="float64")
    rows = numbers["env_steps"].notna()
    known = numbers.columns[numbers.notna().any()]  # the others are of text
    odd: Any = (table[known].notna() & numbers[known].isna()).any(axis=1)
    whole = numbers.dropna(subset=["env_steps"]).reset_index(drop=True)
    whole.attrs["damaged"] = int((odd & rows).sum())
    return whole


def curves_of(
    table: "pd.DataFrame", evaluations: "pd.DataFrame | None" = None
) -> dict[str, "np.ndarray"]:
    """The columns that are drawn, in at most POINTS rows evenly spaced from first to last.

    Args:
        table: rows of metrics.csv.
        evaluations: rows of evaluations.csv, of which a mean over the episodes is drawn; None, or
            without returns: there are none.
    """
    import pandas as pd

    played = pd.DataFrame(columns=pd.Index(EVALUATED))
    if evaluations is not None and "return" in evaluations:
        means: Any = evaluations.groupby("env_steps")["return"].mean()
        played = pd.DataFrame(dict(zip(EVALUATED, (means.index, means.to_numpy()), strict=True)))
    return _thinned(table, CURVES) | _thinned(played, EVALUATED)


def _thinned(table: "pd.DataFrame", columns: tuple[str, ...]) -> dict[str, "np.ndarray"]:
    import numpy as np

    kept = np.unique(np.linspace(0, len(table) - 1, min(len(table), POINTS)).round().astype(int))
    thinned = table.reindex(columns=columns).iloc[kept]
    return {name: thinned[name].to_numpy(np.float32) for name in columns}


def means_of(table: "pd.DataFrame") -> dict[str, float]:
    """Each column's mean over its rows, TIMES as means of steps and updates, and OVER_RUN."""
    means = table.drop(columns=["env_steps", *TIMES], errors="ignore").mean().to_dict()
    means |= {name: mean_time(table, name, of) for name, of in TIMES.items()}
    means[OVER_RUN] = return_over_run(table)
    return {name: float(value) for name, value in means.items() if value == value}


def mean_time(table: "pd.DataFrame", name: str, of: str) -> float:
    """Mean of a time over what it is of: a row counts as often as steps or updates were made in it.

    The first row that has the time is left out: code is compiled and caches are filled in it.
    """
    if name not in table or of not in table:
        return float("nan")
    rows = table.assign(made=table[of].diff()).dropna(subset=[name]).iloc[1:]
    made = float(rows["made"].sum())
    return float((rows[name] * rows["made"]).sum()) / made if made > 0 else float("nan")


def return_over_run(table: "pd.DataFrame") -> float:
    """Mean over env steps of the learning curve: the area under it by its length.

    The curve is the mean return of the last 100 training episodes. Where a final return tells
    what was known in the end, this tells how soon, and what was forgotten on the way.
    """
    import numpy as np

    if "train_return_mean" not in table:
        return float("nan")
    x, y = table[["env_steps", "train_return_mean"]].dropna().to_numpy().T
    if len(x) < 2 or x[-1] <= x[0]:
        return float("nan")
    return float(np.trapezoid(y, x) / (x[-1] - x[0]))
