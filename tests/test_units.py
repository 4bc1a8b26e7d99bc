"""Numbers as people read them."""

import math

import pytest

from rlmem.units import number, readable_bytes, signed


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[(10_350.0, "10,350"), (123_456.7, "123,457"), (-12_213.4, "-12,213"), (1234.56, "1,235")],
        *[(9999.6, "10,000"), (0.51234, "0.5123"), (1e-15, "0"), (math.nan, "-"), (math.inf, "-")],
    ],
)
def test_a_number_is_written_without_an_exponent(value: float, text: str) -> None:
    assert number(value) == text


def test_what_is_rounded_up_to_a_unit_is_written_in_it() -> None:
    assert readable_bytes(2**20 - 1) == "1.0 MiB"
    assert readable_bytes(1023) == "1023 B"
    assert signed(999.7) == "+1,000"
