"""Batches are taken apart without making views that are known."""

import torch

from rlmem.agents.base import Minibatches
from tests.agents.test_dqn import make_batch


def test_a_batch_is_its_minibatches_without_what_no_loss_reads() -> None:
    batch = {**make_batch(updates=3), "index": torch.zeros(3, 6, dtype=torch.int64)}
    rows = Minibatches()(batch)
    assert [row.keys() for row in rows] == [batch.keys() - {"index", "truncated"}] * 3
    assert all(torch.equal(row[name], batch[name][u]) for u, row in enumerate(rows) for name in row)


def test_tensors_that_are_overwritten_are_seen_in_the_views_that_are_kept() -> None:
    minibatches, batch = Minibatches(), make_batch(updates=2)
    before = minibatches(batch)[1]["reward"]
    batch["reward"].fill_(7.0)
    after = minibatches(batch)[1]["reward"]
    assert after is before
    assert torch.equal(after, torch.full((6, 1), 7.0))


def test_another_tensor_of_a_column_is_seen() -> None:
    minibatches, batch = Minibatches(), make_batch(updates=2)
    minibatches(batch)
    rows = minibatches({**batch, "weight": batch["weight"] + 1})
    assert torch.equal(rows[1]["weight"], torch.full((6, 1), 2.0))


def test_another_number_of_minibatches_is_seen() -> None:
    minibatches = Minibatches()
    assert [len(minibatches(make_batch(updates=u))) for u in (3, 1, 2)] == [3, 1, 2]
