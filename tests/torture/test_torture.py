"""A few fixed cases of each class of torture; `make torture` tries as many as there is time for."""

import pytest

from tests.torture.__main__ import CLASSES, table
from tests.torture.runner import Tally, run_trial

CASES = [("kills", 100), ("damage", 100), ("crafted", 0), ("crafted", 12), ("crafted", 103)]
CASES += [("overrides", 0), ("overrides", 135), ("library", 0)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), CASES)
def test_a_fixed_case_survives(name: str, seed: int) -> None:
    survived, told = run_trial(CLASSES[name], name, seed)
    assert survived, told


def test_what_ends_a_process_is_told() -> None:
    def crash(rng: object, folder: object) -> str:
        import os

        os.kill(os.getpid(), 9)
        return ""

    survived, told = run_trial(crash, "crash", 0)  # type: ignore[arg-type]
    assert (survived, "code -9" in told) == (False, True)


def test_the_table_counts_what_survived() -> None:
    assert table({"kills": Tally(3, [(1, "x")])}).endswith("| kills | 3 | 2 |")
