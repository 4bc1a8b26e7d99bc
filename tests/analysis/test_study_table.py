"""The cells of a study's table."""

from rlmem.analysis.statistics import Estimate
from rlmem.analysis.study_table import readable


def test_what_a_sum_that_cancels_leaves_is_0() -> None:
    assert readable(Estimate(8.882e-16, -1.5, 1e-8, n=3)) == "0 [-1.5, 1e-08]"


def test_an_estimate_without_bounds_is_its_value() -> None:
    assert readable(Estimate(1234.5, None, None, n=1)) == "1,234"
    assert readable(None) == "missing"
