"""Whoever writes rows that do not follow each other is told, once."""

import warnings

import numpy as np
import pytest

from rlmem.memories.compression.compressed import CompressedFrameStorage
from rlmem.memories.ring.dense import DenseStorage
from rlmem.memories.ring.frames import FrameStorage
from rlmem.memories.ring.ring import RingStorage
from tests.memories.helpers import RandomEnvs

IMAGE = {"frame_shape": (1, 6, 6), "dtype": np.uint8}


def written(storage: RingStorage, rows: int = 20, **envs: float) -> list[str]:
    """Write rows of two environments in turn, in ten blocks; what was warned of."""
    given = RandomEnvs(np.random.default_rng(0), **IMAGE, num_envs=2, **envs)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(10):
            block = given.block(rows)
            if storage.num_envs == 1:
                del block["env_id"]
            storage.append(block)
    return [str(each.message) for each in caught]


@pytest.mark.parametrize("kind", [FrameStorage, CompressedFrameStorage, DenseStorage])
def test_two_environments_written_as_one_are_told(kind: type[RingStorage]) -> None:
    (told,) = written(kind(1000, **IMAGE, stack=4), end=0.05)
    assert "end with an observation that none begins with" in told
    assert "num_envs=" in told


@pytest.mark.parametrize("end", [0.0, 0.05, 1.0])
@pytest.mark.parametrize("budget", [None, 8_000])
def test_rows_in_the_order_of_time_are_not(end: float, budget: int | None) -> None:
    assert written(FrameStorage(1000, **IMAGE, stack=4, num_envs=2, budget=budget), end=end) == []


def test_whole_rows_may_come_in_any_order() -> None:
    assert written(DenseStorage(1000, **IMAGE), end=0.05) == []
    assert written(DenseStorage(1000, **IMAGE, n_step=3), end=0.05) != []


def test_a_few_rows_are_not_enough_to_tell() -> None:
    assert written(FrameStorage(1000, **IMAGE), rows=3) == []
