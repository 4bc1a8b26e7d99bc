"""Statistics against scipy, hand computations and simulated experiments.

`python -m tests.analysis.compare.test_statistics` measures how often the intervals hold the true
value, the table in `stratified_bootstrap`.
"""

from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rlmem.analysis.compare import statistics
from rlmem.analysis.compare.statistics import (
    Estimate,
    curve_estimate,
    difference_estimate,
    iqm,
    performance_profile,
    probability_of_improvement,
    row_iqm,
    row_mean,
    stratified_bootstrap,
)
from tests.analysis.compare.experiments import (
    SCALES,
    bounds,
    coverage,
    iqm_estimate,
    mean_estimate,
    normal,
)

# Interquartile mean.


@given(
    hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=13),
        elements=st.floats(-1e6, 1e6),
    ),
    st.data(),
)
def test_iqm_is_scipys_trimmed_mean(scores, data):
    axis = data.draw(st.none() | st.integers(-scores.ndim, scores.ndim - 1))
    expected = scipy.stats.trim_mean(scores, 0.25, axis=axis)
    np.testing.assert_allclose(iqm(scores, axis), expected, rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([5.0], 5.0),
        ([0.0, 9.0, 0.0], 3.0),  # three: nothing is cut
        ([100.0, 1.0, 3.0, -50.0], 2.0),
        ([1.0, 2.0, 3.0, 4.0, 1000.0], 3.0),  # five: one at each end
        (list(range(1, 13)), 6.5),
        ([0, 0, 1, 1, 1, 5, 100, 1000], 2.0),
    ],
)
def test_iqm_by_hand(scores, expected):
    assert iqm(scores) == pytest.approx(expected)


@pytest.mark.parametrize("scores", [[1.0, np.nan, 2.0], []])
def test_iqm_wants_numbers(scores):
    with pytest.raises(ValueError, match="iqm"):
        iqm(scores)


# Bootstrap of a setting.


def test_one_task_is_scipys_percentile_bootstrap():
    scores = normal(12)
    for statistic, plain in ((row_mean, np.mean), (row_iqm, iqm)):
        low, high = bounds(stratified_bootstrap([scores], statistic, repeats=20_000))
        expected = scipy.stats.bootstrap(
            (scores,),
            lambda s, axis, plain=plain: plain(s, axis=axis),
            vectorized=True,
            n_resamples=20_000,
            method="percentile",
            rng=np.random.default_rng(5),
        )
        noise = 0.1 * expected.standard_error
        assert low == pytest.approx(expected.confidence_interval.low, abs=noise)
        assert high == pytest.approx(expected.confidence_interval.high, abs=noise)


def test_value_is_of_the_pooled_runs():
    tasks = [np.array([0.0, 1.0, 2.0]), np.array([10.0, 20.0, 30.0, 40.0, 50.0])]
    pooled = np.concatenate(tasks)
    assert mean_estimate(tasks).value == pytest.approx(pooled.mean())
    assert iqm_estimate(tasks).value == pytest.approx(scipy.stats.trim_mean(pooled, 0.25))
    assert iqm_estimate(tasks).n == 8


@pytest.mark.parametrize("widen", [False, True])
def test_mean_of_normals_is_covered(widen):
    def experiment(rng):
        return mean_estimate([rng.normal(3, 2, 10)], repeats=500, widen=widen)

    assert 0.85 <= coverage(experiment, 3.0) <= (0.99 if widen else 0.98)


def test_three_tasks_are_covered_by_the_stratified_interval_only():
    """Tasks 0, 50 and 100 apart: mixing them would say that their distance is noise."""
    centres = np.array([0.0, 50.0, 100.0])[:, None]

    def draw(rng):
        return centres + SCALES[:, None] * rng.normal(size=(3, 10))

    stratified = coverage(lambda rng: mean_estimate(draw(rng), repeats=500), 50.0)
    assert 0.83 <= stratified <= 0.98
    scores = draw(np.random.default_rng(0))
    low, high = bounds(mean_estimate(scores))
    mixed_low, mixed_high = bounds(mean_estimate([scores.reshape(-1)]))
    assert mixed_high - mixed_low > 5 * (high - low)


def test_widened_interval_covers_three_runs():
    def experiment(widen):
        return lambda rng: mean_estimate([rng.normal(size=3)], repeats=500, widen=widen)

    assert coverage(experiment(False), 0.0) < 0.85
    assert 0.90 <= coverage(experiment(True), 0.0) <= 0.99


@pytest.mark.parametrize("n", [3, 5, 10])
def test_widened_interval_of_a_mean_is_students(n):
    scores = normal(n)
    low, high = bounds(mean_estimate([scores], widen=True, repeats=20_000))
    student = scipy.stats.t.ppf(0.975, n - 1) * scipy.stats.sem(scores)
    # Not exact: few different resamples of few runs, whose distribution is not normal.
    assert (high - low) / 2 == pytest.approx(student, rel=0.2)


def test_widening_counts_the_runs_of_all_tasks():
    """Ten tasks of three runs know their noise better than one; a dominant one is one."""

    def factor(tasks):
        return statistics._widening(list(tasks), [1.0] * len(tasks), 0.95)

    same = np.tile(normal(1, 3), (10, 1))
    student = scipy.stats.t.ppf(0.975, 20) / scipy.stats.norm.ppf(0.975)
    assert factor(same) == pytest.approx(student * np.sqrt(3 / 2))
    assert factor(same * np.array([1e6] + [1] * 9)[:, None]) == pytest.approx(factor(same[:1]))
    assert factor(np.ones((2, 3))) == 1.0


def test_equal_scores_give_an_interval_without_length():
    estimate = iqm_estimate([np.full(5, 7.0)], widen=True)
    assert estimate == Estimate(7.0, 7.0, 7.0, 5)


def test_higher_confidence_is_wider():
    scores = [normal(8), normal(8, seed=1)]
    narrow, wide = (bounds(iqm_estimate(scores, confidence=c)) for c in (0.8, 0.99))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_seed_decides():
    x, y = [normal(6), normal(7)], [normal(5, seed=1), normal(4, seed=2)]
    for function in (
        lambda seed: iqm_estimate(x, seed=seed),
        lambda seed: probability_of_improvement(x, y, seed=seed),
        lambda seed: difference_estimate(x, y, seed=seed),
    ):
        assert function(4) == function(4)
        assert function(4).value == function(5).value
        assert bounds(function(4)) != bounds(function(5))
    for function in (
        lambda seed: curve_estimate(normal(6, 9), seed=seed),
        lambda seed: performance_profile(x, [-0.3, 0.0, 0.4], repeats=50, seed=seed),
    ):
        np.testing.assert_array_equal(function(4), function(4))
        assert not np.array_equal(function(4), function(5))


def test_single_run_has_no_interval():
    one, many = np.array([2.0]), np.array([1.0, 2.0, 3.0])
    assert mean_estimate([one]) == Estimate(2.0, None, None, 1)
    assert mean_estimate([one, many]) == Estimate(2.0, None, None, 4)
    assert mean_estimate([one, many], widen=True) == Estimate(2.0, None, None, 4)
    assert difference_estimate([many], [one]) == Estimate(0.0, None, None, 4)
    assert probability_of_improvement([many], [one]) == Estimate(0.5, None, None, 4)
    share, low, high = performance_profile([one, many], [0.0, 2.0])
    assert share.tolist() == [1.0, 1 / 6]  # each task counts alike
    assert np.isnan([low, high]).all()


@pytest.mark.parametrize(
    "tasks", [[], [np.array([])], [np.array([1.0, np.nan])], np.zeros(3), [np.zeros((2, 2))]]
)
def test_wrong_scores_are_errors(tasks):
    good = [np.zeros(2)] * len(tasks)
    for call in (
        lambda: iqm_estimate(tasks),
        lambda: difference_estimate(tasks, good),
        lambda: probability_of_improvement(good, tasks),
        lambda: performance_profile(tasks, [0.0]),
    ):
        with pytest.raises(ValueError, match="scores"):
            call()


# Curves.


def test_curve_is_the_statistic_at_each_point():
    values = normal(9, 20)
    for statistic, plain in ((row_iqm, iqm), (row_mean, np.mean)):
        value, low, high = curve_estimate(values, statistic)
        np.testing.assert_allclose(value, plain(values, axis=0))
        assert (low <= value).all()
        assert (value <= high).all()


def test_curve_intervals_are_those_of_single_points():
    values = np.random.default_rng(0).gamma(2.0, size=(8, 4))
    _, low, high = curve_estimate(values, repeats=20_000)
    _, wide_low, wide_high = curve_estimate(values, repeats=20_000, widen=True)
    for k, column in enumerate(values.T):
        single = bounds(iqm_estimate([column], repeats=20_000))
        assert (low[k], high[k]) == pytest.approx(single, abs=0.05 * (single[1] - single[0]))
        single = bounds(iqm_estimate([column], repeats=20_000, widen=True))
        wide = wide_low[k], wide_high[k]
        assert wide == pytest.approx(single, abs=0.05 * (single[1] - single[0]))


def test_points_share_the_resampling():
    """Points that repeat a point, shifted, have its interval, shifted."""
    point = normal(7, 1)
    value, low, high = curve_estimate(point + np.arange(5.0))
    for curve in (value, low, high):
        np.testing.assert_allclose(curve, curve[0] + np.arange(5.0))


def test_a_curve_of_one_run_has_no_interval():
    value, low, high = curve_estimate([[1.0, 2.0, 3.0]])
    assert value.tolist() == [1, 2, 3]
    assert np.isnan([low, high]).all()


@pytest.mark.parametrize("values", [np.zeros(4), np.zeros((0, 3))])
def test_curve_wants_runs_and_points(values):
    with pytest.raises(ValueError, match="runs, points"):
        curve_estimate(values)


def measure(draw: Callable[..., np.ndarray], scales: np.ndarray, statistic, widen: bool) -> str:
    """Percent of 95 % intervals that hold the population's value, for some numbers of runs."""
    column = scales[:, None]
    population = column * draw(np.random.default_rng(7), (len(scales), 300_000))
    truth = float(statistic(population.reshape(-1)))

    def experiment(n):
        def make(rng):
            scores = column * draw(rng, (len(scales), n))
            return stratified_bootstrap(scores, statistic, repeats=1000, widen=widen)

        return make

    return "\t".join(f"{100 * coverage(experiment(n), truth, 2000):.0f}" for n in (3, 5, 10, 20))


def measure_improvement(shift: float) -> str:
    """The same for the probability of improvement of normal scores, one of them shifted."""
    truth = float(scipy.stats.norm.cdf(shift / np.sqrt(2)))

    def experiment(n):
        return lambda rng: probability_of_improvement(
            rng.normal(size=(1, n)) + shift, rng.normal(size=(1, n)), repeats=1000
        )

    return "\t".join(f"{100 * coverage(experiment(n), truth, 2000):.0f}" for n in (3, 5, 10, 20))


if __name__ == "__main__":
    print("runs of a task", 3, 5, 10, 20, sep="\t")
    for name, draw in {
        "normal": lambda rng, shape: rng.normal(size=shape),
        "lognormal": lambda rng, shape: rng.lognormal(0, 0.7, size=shape),
    }.items():
        for scales in (SCALES[:1], SCALES):
            for statistic in (row_mean, row_iqm):
                for widen in (False, True):
                    label = f"{name}, {len(scales)} tasks, {statistic.__name__}, {widen=}"
                    print(label, measure(draw, scales, statistic, widen), sep="\t", flush=True)
    for shift in (0.0, 1.0):
        print(f"improvement, {shift=}", measure_improvement(shift), sep="\t", flush=True)
