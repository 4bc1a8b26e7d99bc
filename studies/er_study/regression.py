"""Which of two figures of a run's minibatches goes with its result: a regression over runs.

A row is a finished run: its outcome, and of each figure (a column of metrics.csv) the mean over the
run. All three are scaled within their environment to mean 0 and deviation 1, so that

    outcome = b0 + b1 first + b2 second + u(setting) + e

is in deviations, b1 and b2 can be held against each other, and u is a random intercept of each
setting of each environment (a linear mixed model, REML, statsmodels' intervals). The same is fitted
for each environment, and each of these also with a fixed intercept for each setting, which asks of
runs of one setting only. The difference |b1| - |b2| has a percentile interval from resampled runs,
drawn within their settings and scaled anew, with the settings' share of the variance held.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rlmem.analysis.compare.settings import Setting
from rlmem.analysis.compare.statistics import Estimate
from rlmem.analysis.read.runs import Run
from rlmem.errors import UserError

LEAST = 10  # runs of a fit
RESAMPLES, AT_ONCE = 2000, 200
ALL, WITHIN = "all environments", "within settings"


@dataclass(frozen=True)
class Row:
    """A run: the outcome and the means of both figures."""

    setting: Setting
    run: Run
    values: tuple[float, float, float]


@dataclass(frozen=True)
class Fit:
    """The model over some of the runs.

    Attributes:
        first, second: the coefficients, in deviations of the outcome for one of the figure.
        difference: |first| - |second|.
    """

    name: str
    runs: int
    settings: int
    first: Estimate
    second: Estimate
    difference: Estimate


@dataclass
class Regression:
    """All that is said of an outcome and two figures."""

    outcome: str
    of: tuple[str, str]
    rows: list[Row]
    fits: list[Fit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def regress(settings: Sequence[Setting], outcome: str, of: tuple[str, str]) -> Regression:
    """Fit the model over all environments and for each, with random and with fixed intercepts.

    Args:
        outcome: a number of the runs' summaries.
        of: two columns of metrics.csv.

    Raises:
        UserError: statsmodels is missing.
    """
    found = Regression(outcome, of, _rows(settings, outcome, of))
    finished = sum(len(setting.finished) for setting in settings)
    if lost := finished - len(found.rows):
        found.notes.append(f"{lost} of {finished} runs lack {outcome}, {of[0]} or {of[1]}")
    rows = _varied(found)
    environments = list(dict.fromkeys(row.setting.env_id for row in rows))
    parts = [(ALL, rows, False), (WITHIN, rows, True)]
    if len(environments) > 1:
        for env in environments:
            here = [row for row in rows if row.setting.env_id == env]
            parts += [(env, here, False), (f"{env}, {WITHIN}", here, True)]
    for name, part, within in parts:
        count = len({row.setting.number for row in part})
        if len(part) >= max(LEAST, count + 4) and count > 1:
            found.fits.append(_fit(name, part, within))
        elif not within:
            found.notes.append(
                f"{name}: {len(part)} runs of {count} settings are too few for a fit; it takes "
                f"{LEAST} of 2, and 4 more than settings"
            )
    return found


def _rows(settings: Sequence[Setting], outcome: str, of: tuple[str, str]) -> list[Row]:
    rows = []
    for setting in settings:
        for run in setting.finished:
            first, second = (run.means.get(name, float("nan")) for name in of)
            values = (run.number(outcome), first, second)
            if np.isfinite(values).all():
                rows.append(Row(setting, run, values))
    return rows


def _varied(found: Regression) -> list[Row]:
    """The rows of environments in which all three numbers vary; the others are named."""
    kept: list[Row] = []
    for env in dict.fromkeys(row.setting.env_id for row in found.rows):
        here = [row for row in found.rows if row.setting.env_id == env]
        spread = np.ptp([row.values for row in here], axis=0)
        same = [n for n, s in zip((found.outcome, *found.of), spread, strict=True) if not s > 0]
        if same:
            found.notes.append(f"{env}: {same[0]} is the same in all runs, which tells nothing")
        else:
            kept += here
    return kept


def _codes(names: Sequence[object]) -> np.ndarray:
    return np.unique([str(name) for name in names], return_inverse=True)[1]


def _fit(name: str, rows: Sequence[Row], within: bool) -> Fit:
    values = np.array([row.values for row in rows])
    env = _codes([row.setting.env_id for row in rows])
    setting = _codes([row.setting.number for row in rows])
    table = scaled(values, env)
    intervals, ratio = _within(table, setting) if within else mixed_model(table, setting)
    beta = coefficients(table, setting, ratio)
    resampled = np.abs(_resample(values, env, setting, ratio))
    apart = resampled[:, 0] - resampled[:, 1]
    low, high = np.quantile(apart, [0.025, 0.975])
    n = len(rows)
    first, second = (
        Estimate(float(b), float(bounds[0]), float(bounds[1]), n)
        for b, bounds in zip(beta, intervals, strict=True)
    )
    difference = Estimate(abs(first.value) - abs(second.value), float(low), float(high), n)
    return Fit(name, n, int(setting.max()) + 1, first, second, difference)


def scaled(values: np.ndarray, env: np.ndarray) -> np.ndarray:
    """Columns [..., n, 3] with mean 0 and deviation 1 within each environment (codes [n])."""
    same = env[:, None] == env
    counts = same.sum(1, keepdims=True)
    table = values - (same / counts) @ values
    deviation = np.sqrt((same / np.maximum(counts - 1, 1)) @ table**2)
    return table / np.where(deviation > 0, deviation, 1.0)


def mixed_model(table: np.ndarray, setting: np.ndarray) -> tuple[np.ndarray, float]:
    """The linear mixed model of columns outcome, first, second [n, 3].

    Returns:
        95 % intervals [2, 2] of both coefficients, and the variance of the settings' intercepts
        over that of the runs; 0 where none is found, which is ordinary least squares.

    Raises:
        UserError: statsmodels is missing.
    """
    try:
        from statsmodels.regression.linear_model import OLS
        from statsmodels.regression.mixed_linear_model import MixedLM
    except ImportError:
        raise UserError("regression needs statsmodels: pip install 'rlmem[plot]'") from None
    design = np.column_stack([np.ones(len(table)), table[:, 1:]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a variance at 0, which is said in other words
        try:
            found = MixedLM(table[:, 0], design, setting).fit(reml=True)
            bounds = np.asarray(found.conf_int())[1:3]
            ratio = float(np.asarray(found.cov_re)[0, 0] / found.scale)
            if np.isfinite(bounds).all() and np.isfinite(ratio):
                return bounds, ratio
        except np.linalg.LinAlgError:
            pass
    return np.asarray(OLS(table[:, 0], design).fit().conf_int())[1:3], 0.0


def _within(table: np.ndarray, setting: np.ndarray) -> tuple[np.ndarray, float]:
    """The same with a fixed intercept for each setting."""
    from statsmodels.regression.linear_model import OLS

    design = np.column_stack([table[:, 1:], np.eye(setting.max() + 1)[setting]])
    return np.asarray(OLS(table[:, 0], design).fit().conf_int())[:2], np.inf


def coefficients(table: np.ndarray, setting: np.ndarray, ratio: float) -> np.ndarray:
    """Generalised least squares of a model with random intercepts: both coefficients, [..., 2].

    Args:
        table: outcome, first and second, [..., n, 3].
        setting: codes [n].
        ratio: variance of the intercepts over that of the runs; infinite: fixed intercepts.
    """
    same = setting[:, None] == setting
    counts = same.sum(1)
    share = (1 - 1 / np.sqrt(1 + counts * ratio)) / counts
    partly = np.eye(len(setting)) - share[:, None] * same  # less a share of the setting's mean
    design = partly @ table
    outcome = design[..., :1].copy()
    design[..., 0] = partly.sum(1)
    turned = np.swapaxes(design, -1, -2)
    found = np.linalg.pinv(turned @ design, rcond=1e-10, hermitian=True) @ (turned @ outcome)
    return found[..., 1:, 0]


def _resample(values: np.ndarray, env: np.ndarray, setting: np.ndarray, ratio: float) -> np.ndarray:
    """Coefficients [RESAMPLES, 2] of runs that are drawn again within their settings."""
    rng = np.random.default_rng(0)
    order = np.argsort(setting, kind="stable")
    counts = np.bincount(setting)
    first, size = (np.repeat(part, counts) for part in (np.cumsum(counts) - counts, counts))
    env, setting = env[order], setting[order]
    found = []
    for _ in range(RESAMPLES // AT_ONCE):
        drawn = order[first + rng.integers(size, size=(AT_ONCE, len(size)))]
        found.append(coefficients(scaled(values[drawn], env), setting, ratio))
    return np.concatenate(found)
