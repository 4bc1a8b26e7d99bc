"""Simulated experiments: how often an interval holds the truth."""

from collections.abc import Callable
from functools import partial

import numpy as np

from rlmem.analysis.compare.statistics import (
    Estimate,
    row_iqm,
    row_mean,
    stratified_bootstrap,
)

mean_estimate = partial(stratified_bootstrap, statistic=row_mean)
iqm_estimate = partial(stratified_bootstrap, statistic=row_iqm)

SCALES = np.array([1.0, 3.0, 9.0])


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def bounds(estimate: Estimate) -> tuple[float, float]:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low, estimate.high


def coverage(
    make: Callable[[np.random.Generator], Estimate], truth: float, experiments: int = 300
) -> float:
    """Share of simulated experiments whose interval holds the truth."""
    rng = np.random.default_rng(1)
    intervals = [bounds(make(rng)) for _ in range(experiments)]
    return float(np.mean([low <= truth <= high for low, high in intervals]))
