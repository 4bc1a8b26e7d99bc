"""What GWR's two thresholds do, over a grid of runs that differ in them only.

    y = b0 + bA (a - mean a) + bH (h - mean h) + bAH (a - mean a) (h - mean h)

by ordinary least squares over the runs, `a` and `h` scaled so that the lowest value in the grid is
0 and the highest is 1. Centred at the runs' means, bA is the effect of a step from the lowest to
the highest a_T with h_T averaged, and bH likewise; bAH is how much either changes with the other.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy import stats

from rlmem.analysis.compare.names import make_label
from rlmem.analysis.compare.settings import THRESHOLDS, Setting, on_one_device
from rlmem.analysis.compare.statistics import Array, Estimate
from rlmem.analysis.read.curves import OVER_RUN
from rlmem.analysis.read.runs import Run
from rlmem.units import signed_bytes

TERMS = "a_T", "h_T", "a_T x h_T"
NAN = float("nan")
COEFFICIENTS = 4  # of the fitted surface
LEAST_BASE = 0.1  # of the mean; per cent of less says nothing
MOST_LEVELS = 12  # of which every subset is tried


@dataclass(frozen=True)
class Measure:
    """A number of the runs that the thresholds may change."""

    name: str
    key: str  # of the runs' numbers
    more: str  # what a threshold does that raises it
    less: str
    relative: bool = True  # said in per cent where that has a meaning
    text: Callable[[float], str] | None = None  # with its unit; None: a plain number of `name`


@dataclass(frozen=True)
class Effect:
    """What a step of one term does to one measure.

    Attributes:
        step: None if the runs do not tell the terms apart; without bounds if they are too few.
        percent: the same in per cent of the fitted value at the threshold's lowest, or None.
        rank: Spearman's correlation of the measure with the threshold, NaN for both together.
        span: lowest and highest value of the threshold.
    """

    measure: Measure
    term: str
    step: Estimate | None
    percent: Estimate | None
    rank: float
    span: tuple[float, float]

    @property
    def shown(self) -> bool:
        """Whether its interval leaves 0 out."""
        if self.step is None or self.step.low is None or self.step.high is None:
            return False
        return self.step.low > 0 or self.step.high < 0


@dataclass(frozen=True)
class Effects:
    """All effects of the thresholds in (a part of) one grid."""

    env_id: str
    grid: str
    part: str
    runs: int
    effects: list[Effect]
    notes: list[str]


def threshold_grids(settings: Sequence[Setting]) -> dict[str, list[Setting]]:
    """Settings that differ in GWR's thresholds only, by what sets their grid apart."""
    ours = [
        setting
        for setting in settings
        if all(isinstance(setting.distinct.get(key), int | float) for key in THRESHOLDS)
    ]
    grids: dict[str, list[Setting]] = {}
    for setting in ours:
        rest = {
            key: value
            for key, value in setting.distinct.items()
            if key not in THRESHOLDS and any(c.distinct.get(key) != value for c in ours)
        }
        grids.setdefault(make_label(setting.memory, rest), []).append(setting)
    return grids


def pair(setting: Setting) -> tuple[float, float]:
    """Its two thresholds, activation first."""
    activation, habituation = (setting.distinct[key] for key in THRESHOLDS)
    return activation, habituation


def levels(pairs: Sequence[tuple[float, float]] | set[tuple[float, float]]) -> list[list[float]]:
    """The values of either threshold, in order."""
    return [sorted({values[k] for values in pairs}) for k in range(2)]


def seconds_of(grid: Sequence[Setting]) -> tuple[str, str] | None:
    """Key and name of a grid's times: CPU seconds where every run has them; None where runs
    learned on several devices, which would pass for what the thresholds do.

    Runs may share a machine, and then wall seconds say how busy it was.
    """
    if not on_one_device(grid):
        return None
    runs = [run for setting in grid for run in setting.finished]
    on_cpu = bool(runs) and all(np.isfinite(run.number("cpu_seconds")) for run in runs)
    return ("cpu_seconds", "CPU seconds") if on_cpu else ("wall_seconds", "wall seconds")


def threshold_effects(env_id: str, label: str, grid: Sequence[Setting]) -> Iterator[Effects]:
    """Effects over the largest part of a grid that has no gap, and over all of its runs.

    Nothing unless both thresholds vary. Where pairs are missing, the curvature along one threshold
    passes for an interaction with the other.
    """
    if min(map(len, levels([pair(setting) for setting in grid]))) < 2:
        return
    if not (done := [setting for setting in grid if setting.finished]):
        return
    pairs = {pair(setting) for setting in done}
    whole = complete_part(pairs)
    part = [setting for setting in done if pair(setting) in whole]
    if whole != pairs and sum(len(setting.finished) for setting in part) > COEFFICIENTS:
        yield _effects(env_id, label, "the part without gaps", part, _measures(grid))
    yield _effects(env_id, label, "all runs", done, _measures(grid))


def _measures(grid: Sequence[Setting]) -> list[Measure]:
    measures = [
        Measure("return", grid[0].metric, "scores higher", "scores lower", relative=False),
        Measure("return over the run", OVER_RUN, "scores higher", "scores lower", relative=False),
        Measure("entries", "memory_entries", "stores more", "stores less"),
        Measure(
            "bytes", "memory_bytes_peak", "takes more bytes", "takes fewer bytes", text=signed_bytes
        ),
    ]
    if seconds := seconds_of(grid):
        key, name = seconds
        measures.append(Measure(name, key, "takes more time", "takes less time"))
    return measures


def complete_part(pairs: set[tuple[float, float]]) -> set[tuple[float, float]]:
    """The largest set of values of both thresholds, two or more of each, with every pair there."""
    rows, columns = levels(pairs)
    best: set[tuple[float, float]] = set()
    if len(columns) > MOST_LEVELS:
        return best
    for count in range(len(columns), 1, -1):
        for chosen in combinations(columns, count):
            full = [a for a in rows if all((a, h) in pairs for h in chosen)]
            if len(full) > 1 and len(full) * count > len(best):
                best = {(a, h) for a in full for h in chosen}
    return best


def _effects(
    env_id: str, label: str, part: str, settings: Sequence[Setting], measures: Sequence[Measure]
) -> Effects:
    points = [(*pair(setting), run) for setting in settings for run in _one_a_seed(setting)]
    spans = [(values[0], values[-1]) for values in levels({pair(setting) for setting in settings})]
    effects = [effect for measure in measures for effect in _of_measure(measure, points, spans)]
    return Effects(env_id, label, part, len(points), effects, _notes(settings))


def _one_a_seed(setting: Setting) -> list[Run]:
    """Its finished runs, of each seed the first: the same run again is no further evidence."""
    return list({run.seed: run for run in reversed(setting.finished)}.values())[::-1]


def _notes(settings: Sequence[Setting]) -> list[str]:
    """What the reader of a fit should know."""
    notes = []
    if any(len(_one_a_seed(setting)) < len(setting.finished) for setting in settings):
        notes.append("of runs that have setting and seed in common one is counted")
    pairs = {pair(setting) for setting in settings}
    rows, columns = levels(pairs)
    if len(pairs) < (whole := len(rows) * len(columns)):
        notes.append(
            f"{len(pairs)} of {whole} pairs have runs: what bends along one threshold may "
            "pass for an interaction, and the slopes lean on the pairs that are there"
        )
    if all(len(setting.finished) == 1 for setting in settings):
        notes.append(
            "n=1 run a pair: the intervals are made of the lack of fit, how far the runs lie from "
            "the fitted surface, in which chance cannot be told from curvature"
        )
    return notes


def _of_measure(
    measure: Measure,
    points: Sequence[tuple[float, float, Run]],
    spans: Sequence[tuple[float, float]],
) -> Iterator[Effect]:
    """The effects of both thresholds, and that of both together."""
    rows = [(a, h, run.number(measure.key)) for a, h, run in points]
    table = np.array([row for row in rows if np.isfinite(row[2])], np.float64).reshape(-1, 3)
    value = table[:, 2]
    scaled = [(table[:, k] - low) / ((high - low) or 1.0) for k, (low, high) in enumerate(spans)]
    steps = surface(scaled[0], scaled[1], value)
    for k, x in enumerate(scaled):
        step, percent = steps and steps[k], None
        if steps and step and measure.relative:
            # Fitted at its lowest and the other's mean. The mean of all is what is fitted at both
            # means only where the pairs have equally many runs: else their product has a mean too.
            both = steps[2].value * np.cov(np.stack(scaled), bias=True)[0, 1]
            base = value.mean() - both - step.value * x.mean()
            if base > LEAST_BASE * value.mean():
                percent = _scaled(step, 100 / base)
        yield Effect(measure, TERMS[k], step, percent, rank_correlation(x, value), spans[k])
    yield Effect(measure, TERMS[2], steps and steps[2], None, NAN, (NAN, NAN))


def _scaled(estimate: Estimate, factor: float) -> Estimate:
    low, high = (
        None if bound is None else bound * factor for bound in (estimate.low, estimate.high)
    )
    return Estimate(estimate.value * factor, low, high, estimate.n)


def surface(
    a: Array, h: Array, y: Array, confidence: float = 0.95
) -> tuple[Estimate, Estimate, Estimate] | None:
    """Steps of `a`, of `h` and of both together in y, each [n], with Student's intervals.

    None where the runs do not tell the four coefficients apart. As many runs as coefficients
    leave no residual, and so no interval.
    """
    if len(y) < COEFFICIENTS:
        return None
    x, z = a - a.mean(), h - h.mean()
    design = np.stack([np.ones_like(x), x, z, x * z], axis=1)
    found, _, rank, _ = np.linalg.lstsq(design, y, rcond=1e-10)
    if rank < COEFFICIENTS:
        return None
    rounding = 1e-9 * np.abs(y).max()
    degrees = len(y) - COEFFICIENTS
    arms = np.full(COEFFICIENTS, np.nan)
    if degrees:
        residual = y - design @ found
        variance = np.diag(np.linalg.inv(design.T @ design)) * (residual @ residual) / degrees
        arms = stats.t.ppf((1 + confidence) / 2, degrees) * np.sqrt(variance)
        arms[arms < rounding] = 0.0
    first, second, both = (
        _step(0.0 if abs(value) < rounding else value, arm, len(y))
        for value, arm in zip(found[1:].tolist(), arms[1:].tolist(), strict=True)
    )
    return first, second, both


def _step(value: float, arm: float, n: int) -> Estimate:
    if not np.isfinite(arm):
        return Estimate(value, None, None, n)
    return Estimate(value, value - arm, value + arm, n)


def rank_correlation(x: Array, y: Array) -> float:
    """Spearman's correlation, ties at their mean rank; NaN where one of both is constant or empty.

    >>> round(rank_correlation(np.array([1.0, 2, 3]), np.array([1.0, 8, 27])), 12)
    1.0
    """
    if len(x) < 2 or not np.ptp(x) or not np.ptp(y):
        return NAN
    found: Any = stats.spearmanr(x, y)
    return float(found.statistic)
