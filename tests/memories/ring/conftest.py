"""What tests of dictionaries share."""

from collections.abc import Iterator

import pytest

from rlmem.memories.compression import packing


@pytest.fixture(scope="module")
def small_dictionaries() -> Iterator[None]:
    """Dictionaries pay for some kilobytes."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"CONTEXT": 100, "FIRST": 8, "LEAST": 256}.items():
            patch.setattr(packing, name, value)
        yield
