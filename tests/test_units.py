"""Numbers as people read them."""

import math

import pytest

from rlmem.units import number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[(10_350.0, "10,350"), (123_456.7, "123,457"), (-12_213.4, "-12,213"), (1234.56, "1,235")],
        *[(0.51234, "0.5123"), (1e-15, "0"), (math.nan, "-"), (math.inf, "-")],
    ],
)
def test_a_number_is_written_without_an_exponent(value: float, text: str) -> None:
    assert number(value) == text
