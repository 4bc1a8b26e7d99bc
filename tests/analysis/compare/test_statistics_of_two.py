"""Settings beside settings: improvement, differences, profiles and the Pareto frontier."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rlmem.analysis.compare.statistics import (
    Estimate,
    difference_estimate,
    pareto_frontier,
    performance_profile,
    probability_of_improvement,
    row_mean,
)
from tests.analysis.compare.experiments import SCALES, bounds, coverage, normal


@given(
    hnp.arrays(np.int64, st.integers(1, 8), elements=st.integers(0, 6)),
    hnp.arrays(np.int64, st.integers(1, 8), elements=st.integers(0, 6)),
)
@settings(max_examples=50)
def test_probability_of_improvement_with_ties_is_mann_whitneys_u(x, y):
    expected = scipy.stats.mannwhitneyu(x, y).statistic / (len(x) * len(y))
    assert probability_of_improvement([x], [y], repeats=20).value == pytest.approx(expected)


def test_probability_of_improvement_without_ties_averages_tasks():
    x, y = [normal(6), normal(9, seed=1) + 1], [normal(7, seed=2), normal(5, seed=3)]
    expected = [
        scipy.stats.mannwhitneyu(a, b).statistic / (a.size * b.size)
        for a, b in zip(x, y, strict=True)
    ]
    forward, backward = probability_of_improvement(x, y), probability_of_improvement(y, x)
    assert forward.value == pytest.approx(np.mean(expected))
    assert forward.value + backward.value == pytest.approx(1.0)
    low, high = bounds(forward)
    assert 0 <= low < forward.value < high <= 1
    assert forward.n == 27


def test_probability_of_improvement_is_bootstrapped_like_scipy():
    x, y = normal(9) + 0.5, normal(7, seed=1)

    def u(a, b, axis):
        assert axis == -1
        return (a[..., :, None] > b[..., None, :]).mean(axis=(-2, -1))

    expected = scipy.stats.bootstrap(
        (x, y), u, vectorized=True, method="percentile", n_resamples=10_000, rng=1
    )
    found = bounds(probability_of_improvement([x], [y], repeats=10_000))
    assert found == pytest.approx(tuple(expected.confidence_interval), abs=0.02)


def test_equal_cells_do_not_improve():
    def experiment(rng):
        return probability_of_improvement(*rng.normal(size=(2, 2, 10)), repeats=300)

    assert coverage(experiment, 0.5, 200) > 0.85
    apart = probability_of_improvement([np.array([3.0, 4.0])], [np.array([1.0, 2.0])])
    assert apart == Estimate(1.0, 1.0, 1.0, 4)


def test_difference_is_averaged_over_tasks():
    x = [np.array([1.0, 2.0, 3.0, 4.0, 50.0]), np.array([10.0, 12.0])]
    y = [np.array([0.0, 1.0]), np.array([5.0, 6.0, 7.0])]
    assert difference_estimate(x, y).value == pytest.approx(((3 - 0.5) + (11 - 6)) / 2)
    assert difference_estimate(x, y, row_mean).value == pytest.approx(((12 - 0.5) + (11 - 6)) / 2)
    assert difference_estimate(y, x).value == -difference_estimate(x, y).value


@pytest.mark.parametrize(("widen", "least", "most"), [(False, 0.80, 0.96), (True, 0.90, 0.99)])
def test_difference_of_five_runs_is_covered(widen, least, most):
    def experiment(rng):
        x, y = SCALES[:, None] * rng.normal(size=(2, 3, 5))
        return difference_estimate(x + 2, y, row_mean, repeats=300, widen=widen)

    assert least <= coverage(experiment, 2.0) <= most


@pytest.mark.parametrize("function", [difference_estimate, probability_of_improvement])
def test_cells_have_the_same_tasks(function):
    with pytest.raises(ValueError, match="2 tasks against 1"):
        function([np.zeros(2)] * 2, [np.zeros(2)])


def test_profile_falls_from_one_to_zero():
    tasks = [normal(6), normal(9, seed=1) + 1]
    pooled = np.concatenate(tasks)
    taus = np.concatenate([[pooled.min() - 1e-9], np.linspace(-2, 3, 40), [pooled.max()]])
    taus.sort()
    share, low, high = performance_profile(tasks, taus)
    expected = [np.mean([(task > tau).mean() for task in tasks]) for tau in taus]
    np.testing.assert_allclose(share, expected)
    outside = (taus < pooled.min()) | (taus >= pooled.max())
    for curve in (share, low, high):
        assert (np.diff(curve) <= 0).all()
        assert (curve[taus < pooled.min()] == 1).all()
        assert (curve[taus >= pooled.max()] == 0).all()
    assert outside.any()
    assert (low <= share).all()
    assert (share <= high).all()


def test_profile_is_stratified():
    """Each task lies on one side of tau, so that the share is certain."""
    share, low, high = performance_profile([np.zeros(4), np.ones(4)], [0.5])
    assert (share, low, high) == (0.5, 0.5, 0.5)


POINT = st.sampled_from([0.0, 1.0, 2.0, 3.0, np.inf, -np.inf, np.nan])


@given(st.lists(st.tuples(POINT, POINT), max_size=12))
def test_pareto_frontier_is_brute_force(points):
    def beats(p, q):
        return p[0] <= q[0] and p[1] >= q[1] and p != q

    known = [i for i, p in enumerate(points) if not np.isnan(p).any()]
    left = [i for i in known if not any(beats(points[j], points[i]) for j in known)]
    cost, gain = np.array(points).reshape(-1, 2).T
    found = pareto_frontier(cost, gain).tolist()
    assert found == sorted(left, key=lambda i: (points[i][0], i))


def test_pareto_frontier_by_hand():
    cost, gain = [5.0, 1.0, 3.0, 2.0, 3.0, np.nan], [9.0, 1.0, 4.0, 5.0, 8.0, 99.0]
    assert pareto_frontier(cost, gain).tolist() == [1, 3, 4, 0]
