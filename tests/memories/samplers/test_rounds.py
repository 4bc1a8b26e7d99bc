"""Minibatches that are drawn for a whole round, against updates and env steps that take turns."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from rlmem.memories import (
    CombinedSampler,
    FrameStorage,
    LatestSampler,
    NewestSampler,
    PrioritizedSampler,
    RankSampler,
    ReplayMemory,
    RingWriter,
    UniformSampler,
)
from rlmem.memories.samplers.base import ReplaySampler
from tests.memories.helpers import RandomEnvs


def memory_of(sampler: ReplaySampler, capacity: int = 200) -> ReplayMemory:
    storage = FrameStorage(capacity, (4,), np.float32)
    return ReplayMemory(storage, sampler, RingWriter(), seed=0)


def rounds(rows: int, count: int, seed: int = 0) -> list[dict]:
    envs = RandomEnvs(np.random.default_rng(seed))
    return [envs.block(rows) for _ in range(count)]


def rewards(memory: ReplayMemory, updates: int, batch_size: int = 8) -> np.ndarray:
    """Of the minibatches of a round, [updates, batch_size]; a reward names its transition."""
    return memory.draw(batch_size, updates)["reward"].squeeze(-1).numpy().copy()


def one_by_one(sampler: ReplaySampler, blocks: list[dict], updates: int) -> np.ndarray:
    """The minibatches of the last block's round if `updates` draws share out its rows."""
    memory, (*before, last) = memory_of(sampler), blocks
    for block in before:
        memory.extend(block)
    n, found, done = len(last["action"]), [], 0
    for update in range(1, updates + 1):
        upto = update * n // updates
        part = {k: v[done:upto] for k, v in last.items() if k != "next"}
        part["next"] = {k: v[done:upto] for k, v in last["next"].items()}
        if upto > done:
            memory.extend(part)
        done = upto
        found.append(rewards(memory, 1)[0])
    return np.stack(found)


@pytest.mark.parametrize(("rows", "updates"), [(16, 8), (8, 8), (12, 5), (16, 1)])
def test_each_minibatch_of_cer_has_the_newest_transition_of_its_own_update(
    rows: int, updates: int
) -> None:
    blocks = rounds(rows, 3)
    memory = memory_of(CombinedSampler())
    for block in blocks:
        memory.extend(block)
    together = rewards(memory, updates)[:, -1]
    apart = one_by_one(CombinedSampler(), blocks, updates)[:, -1]
    np.testing.assert_array_equal(together, apart)
    assert len(set(together)) == updates


def test_cer_with_more_updates_than_rows_keeps_to_the_round() -> None:
    memory = memory_of(CombinedSampler())
    for block in rounds(2, 3):
        memory.extend(block)
    newest = memory.storage.newest(2).numpy()
    drawn = memory.draw(8, 5)["index"][:, -1].tolist()
    assert drawn == [newest[0]] * 4 + [newest[1]]


@pytest.mark.parametrize(("rows", "updates"), [(16, 8), (8, 8), (12, 5), (16, 1), (3, 8)])
def test_the_newest_minibatches_of_a_round_are_those_of_updates_in_turn(
    rows: int, updates: int
) -> None:
    blocks = rounds(rows, 5)
    memory = memory_of(NewestSampler())
    for block in blocks:
        memory.extend(block)
    np.testing.assert_array_equal(
        rewards(memory, updates), one_by_one(NewestSampler(), blocks, updates)
    )


def test_a_storage_of_one_minibatch_has_but_the_newest() -> None:
    memory = memory_of(NewestSampler(), capacity=8)
    for block in rounds(4, 5):
        memory.extend(block)
    drawn = memory.draw(8, 4)["index"].numpy()
    assert (drawn == memory.storage.newest(8).numpy()).all()


@pytest.mark.parametrize("rows", [100, 32, 7, 1])
def test_without_replay_each_transition_is_used_once(rows: int) -> None:
    memory = memory_of(LatestSampler(history=32), capacity=32 + rows)
    seen = []
    for block in rounds(rows, 2000 // rows):
        memory.extend(block)
        if updates := memory.available(32, 1):
            seen.append(rewards(memory, updates, 32).reshape(-1))
    used = np.concatenate(seen)
    written = 2000 // rows * rows
    assert len(used) == len(set(used)) == written // 32 * 32


def test_what_was_overwritten_is_not_used_twice() -> None:
    memory = memory_of(LatestSampler(history=32), capacity=40)
    for block in rounds(30, 4):
        memory.extend(block)
    used = rewards(memory, memory.available(20, 1), 20).reshape(-1)
    assert len(used) == len(set(used)) == 40


@pytest.mark.parametrize(
    "make", [UniformSampler, partial(PrioritizedSampler, 200), partial(RankSampler, 200)]
)
def test_a_rounds_draws_and_weights_are_those_of_one_after_the_other(make: Any) -> None:
    together, apart = memory_of(make()), memory_of(make())
    for block in rounds(20, 2):
        for memory in (together, apart):
            index = torch.as_tensor(memory.extend(block))
            memory.update_priority(index, (index - 25).double())
    round_, ones = together.draw(8, 3), [apart.sample(8) for _ in range(3)]
    assert round_["index"].tolist() == [one["index"].tolist() for one in ones]
    assert round_["weight"].tolist() == [one["weight"].tolist() for one in ones]
