"""What the processes of one machine tell each other; here each is a thread."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from rlmem.neighbours import Neighbours


def each(size: int, does: Callable[[Neighbours], Any]) -> list[Any]:
    """What each of so many does, all at once."""
    all_of_them = Neighbours.meet(size)
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(does, all_of_them))


@pytest.mark.parametrize("size", [2, 5])
def test_the_largest_of_each_number(size: int) -> None:
    told = each(size, lambda one: one.largest([one.rank, -one.rank, 2**62]))
    assert told == [[size - 1, 0, 2**62]] * size


@pytest.mark.parametrize("size", [2, 3])
def test_means_of_many_sizes_in_turn(size: int) -> None:
    """The memory grows on the way, and a row is not written before all have read it."""
    lengths = [(3, 40), (1,), (70_000, 2), (5,), (200_000,), (3, 40)] * 20

    def averaged(one: Neighbours) -> list[torch.Tensor]:
        rng = np.random.default_rng(one.rank)
        found = []
        for shape in lengths:
            tensors = [torch.from_numpy(rng.normal(size=n)) for n in shape]
            one.average(tensors)
            found += tensors
        return found

    rngs = [np.random.default_rng(rank) for rank in range(size)]
    told = each(size, averaged)
    position = 0
    for shape in lengths:
        for n in shape:
            mean = sum(rng.normal(size=n) for rng in rngs) / size
            for row in told:
                assert torch.equal(row[position], told[0][position])
            np.testing.assert_allclose(told[0][position], mean, rtol=1e-12, atol=1e-15)
            position += 1


def test_tensors_keep_their_form() -> None:
    def averaged(one: Neighbours) -> list[torch.Tensor]:
        across = torch.arange(6.0).reshape(2, 3).T * (one.rank + 1)  # not contiguous
        tensors = [torch.tensor(4.0 * one.rank), across]
        one.average(tensors)
        return tensors

    for number, across in each(2, averaged):
        assert number.item() == 2
        assert torch.equal(across, torch.arange(6.0).reshape(2, 3).T * 1.5)


@pytest.mark.parametrize("act", ["largest", "average"])
@pytest.mark.parametrize("rank", [0, 1])
def test_one_that_is_gone_is_noticed(act: str, rank: int) -> None:
    both = Neighbours.meet(2)
    both[1 - rank].close()
    with pytest.raises(RuntimeError):
        both[rank].largest([1]) if act == "largest" else both[rank].average([torch.ones(3)])
