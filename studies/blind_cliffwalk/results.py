"""Results of the Blind Cliffwalk: their file, their medians."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from rlmem.errors import UserError

BASE = "uniform"  # whose updates are divided by the others'


@dataclass(frozen=True)
class Result:
    """One run: how many updates n states took; given up at that number unless it converged."""

    n: int
    sampler: str
    seed: int
    updates: int
    converged: bool

    @property
    def sentence(self) -> str:
        """One line for people."""
        given_up = "" if self.converged else ", given up"
        return f"{self.sampler}, n={self.n}, seed {self.seed}: {self.updates:,} updates{given_up}"


def transitions(n: int) -> int:
    """Of the memory of n states."""
    return 2 ** (n + 1) - 2


def read_results(path: Path) -> list[Result]:
    """The results of a file, none if it is not there.

    Raises:
        UserError: it holds something else.
    """
    if not path.exists():
        return []
    types = {"n": int, "sampler": str, "seed": int, "updates": int, "converged": bool}
    try:
        table = pd.read_csv(path, dtype=types)[[*types]]
    except (OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: cannot be read ({reason}); remove it to run all again") from None
    return [Result(*row) for row in table.itertuples(index=False, name=None)]


def write_results(results: Sequence[Result], path: Path) -> None:
    """Write all results, in order, in place of the file that is there."""
    table = pd.DataFrame([asdict(result) for result in results])
    table.insert(1, "transitions", transitions(table["n"]))
    table["converged"] = table["converged"].map({True: "true", False: "false"})
    fresh = path.with_suffix(".new")
    table.sort_values(["n", "sampler", "seed"]).to_csv(fresh, index=False)
    os.replace(fresh, path)


def summarize(results: Sequence[Result]) -> pd.DataFrame:
    """Columns median, low, high and given_up (runs) by (sampler, n).

    A run that was given up counts with the updates that it made.
    """
    table = pd.DataFrame([asdict(result) for result in results])
    groups = table.groupby(["sampler", "n"])
    found = groups["updates"].agg(median="median", low="min", high="max")
    found["given_up"] = (~table["converged"]).groupby([table["sampler"], table["n"]]).sum()
    return found


def ratios(found: pd.DataFrame, sampler: str) -> pd.Series:
    """Median updates of uniform replay over those of a sampler, by n; empty without either."""
    medians = found["median"].unstack("sampler")
    if BASE not in medians or sampler not in medians:
        return pd.Series(dtype="float64")
    return (medians[BASE] / medians[sampler]).dropna()
