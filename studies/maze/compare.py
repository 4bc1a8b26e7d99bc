"""What the runs say: each memory in the released maze, and maze by maze in the random ones."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from rlmem.analysis.compare.statistics import Estimate, row_mean, stratified_bootstrap

BASE = "Q table"
RELEASED = "released"  # the column of the released maze; all others are random ones


@dataclass(frozen=True)
class Pairs:
    """A memory against another one, maze by maze.

    Attributes:
        ratio: pandas Series of floats by maze: its env steps over the other's, each the sum over
            the seeds that both have there.
        mean: geometric mean of the ratios, and its interval over the mazes.
        p: of Wilcoxon's signed-rank test that the ratios' logarithms lie around 0; mazes with a
            ratio of 1 are left out of it.
        runs: of each of the two.
    """

    ratio: pd.Series
    mean: Estimate
    p: float
    runs: int

    @property
    def below(self) -> int:
        """Mazes in which it took fewer env steps."""
        return int((self.ratio < 1).sum())

    @property
    def equal(self) -> int:
        """Mazes in which both took as many."""
        return int((self.ratio == 1).sum())

    @property
    def sd(self) -> float:
        """Standard deviation of the ratios over the mazes."""
        return float(self.ratio.std(ddof=1))


def released(table: pd.DataFrame) -> pd.DataFrame:
    """The runs in the released maze."""
    return table[table["maze"] == RELEASED]


def random_mazes(table: pd.DataFrame) -> pd.DataFrame:
    """The runs in random mazes."""
    return table[table["maze"] != RELEASED]


def mean_of(values: pd.Series) -> Estimate:
    """A mean over runs and its 95 % interval."""
    return stratified_bootstrap([values.to_numpy(np.float64)], row_mean, widen=True)


def of_mazes(runs: pd.DataFrame, name: str) -> Estimate:
    """The mean over mazes of a number's mean over each maze's runs, and its interval over mazes."""
    return mean_of(runs.groupby("maze")[name].mean())


def paired(table: pd.DataFrame, row: str, other: str) -> Pairs | None:
    """One memory's env steps over another's on the same random mazes and seeds.

    Returns:
        None where they have fewer than two mazes in common.
    """
    places = random_mazes(table).pivot(index=["maze", "seed"], columns="row", values="env_steps")
    if not {row, other} <= set(places):
        return None
    both = places[[row, other]].dropna()
    sums = both.groupby("maze").sum()
    if len(sums) < 2:
        return None
    ratio = sums[row] / sums[other]
    logs = np.log(ratio.to_numpy())
    around = stratified_bootstrap([logs], row_mean, widen=True)
    assert around.low is not None
    assert around.high is not None
    value, low, high = np.exp([around.value, around.low, around.high]).tolist()
    p = float(stats.wilcoxon(logs).pvalue) if logs.any() else 1.0
    return Pairs(ratio, Estimate(value, low, high, len(ratio)), p, len(both))


def rows_of(table: pd.DataFrame, order: Sequence[str]) -> list[str]:
    """The rows that have runs, in the study's order."""
    there = set(table["row"])
    return [row for row in order if row in there]
