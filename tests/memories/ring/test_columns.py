"""Columns that an agent adds to transitions: kept, counted, sampled and saved like the action."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlmem.collect.collector import Collector
from rlmem.memories import (
    CompressedFrameStorage,
    DenseStorage,
    FrameStorage,
    ReplayMemory,
    RingWriter,
    UniformSampler,
)
from tests.collect.helpers import ScriptedEnv, make_stream
from tests.memories.helpers import RandomEnvs

COLUMNS: dict[str, Any] = {"log_prob": ((), np.float32), "hidden": ((3,), np.float64)}
KINDS = {"frames": FrameStorage, "dense": DenseStorage, "compressed": CompressedFrameStorage}


def memory_of(kind: str = "frames", num_envs: int = 1, **options: Any) -> ReplayMemory:
    storage = KINDS[kind](40, (4,), np.float32, columns=COLUMNS, num_envs=num_envs, **options)
    return ReplayMemory(storage, UniformSampler(), RingWriter(), seed=0)


def block_of(envs: RandomEnvs, rows: int) -> dict[str, Any]:
    """The columns say what the first number of the observation is."""
    block = envs.block(rows)
    first = block["observation"][:, 0]
    return {**block, "log_prob": first, "hidden": np.stack([first, 2 * first, -first], 1)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_transitions_columns_are_drawn_with_it(kind: str, tmp_path: Path) -> None:
    memory, envs = memory_of(kind), RandomEnvs(np.random.default_rng(0))
    for rows in (25, 1, 30, 3):
        memory.extend(block_of(envs, rows))
    memory.save(tmp_path)
    other = memory_of(kind)
    other.load(tmp_path)
    for each in (memory, other):
        batch = each.draw(8, 3)
        first = batch["observation"][..., 0]
        assert torch.equal(batch["log_prob"], first)
        assert batch["hidden"].dtype == torch.float64
        assert torch.equal(batch["hidden"], torch.stack([first, 2 * first, -first], -1).double())
    assert torch.equal(memory.sample(8)["log_prob"], other.sample(8)["log_prob"])


def test_whole_numbers_that_a_column_does_not_have_are_refused() -> None:
    columns = {"option": ((), np.uint8)}
    storage = FrameStorage(40, (4,), np.float32, columns=columns)
    memory = ReplayMemory(storage, UniformSampler(), RingWriter(), seed=0)
    block = RandomEnvs(np.random.default_rng(0)).block(2)
    for wrong in ([300, 1], [0.5, 1]):
        with pytest.raises(ValueError, match=r"option (300|0.5) .* held as uint8"):
            memory.extend({**block, "option": np.array(wrong)})
    memory.extend({**block, "option": np.array([255.0, 0.0])})
    assert memory.draw(8, 1)["option"].max() == 255


def test_their_bytes_count_and_a_budget_holds_with_them() -> None:
    memory = memory_of()
    memory.extend(block_of(RandomEnvs(np.random.default_rng(0)), 10))
    held = memory.footprint()
    assert (held["log_prob"], held["hidden"]) == (40, 240)
    small, envs = memory_of(budget=1500), RandomEnvs(np.random.default_rng(0))
    for _ in range(20):
        small.extend(block_of(envs, 5))
        assert sum(small.footprint().values()) <= 1500
    assert 0 < len(small) < 40


def test_a_block_that_lacks_a_column_changes_nothing() -> None:
    memory, envs = memory_of(), RandomEnvs(np.random.default_rng(0))
    block = block_of(envs, 3)
    del block["hidden"]
    with pytest.raises(ValueError, match="without 'hidden'"):
        memory.extend(block)
    block["hidden"] = np.zeros((3, 2))
    with pytest.raises(ValueError, match=r"hidden of shape \(3, 2\) was given, not \(3, 3\)"):
        memory.extend(block)
    assert len(memory) == 0


@pytest.mark.parametrize("name", ["action", "rows", "a-b", "steps_to_next_obs", "frames"])
def test_a_name_that_is_taken_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="taken by the memory itself"):
        FrameStorage(10, (4,), np.float32, columns={name: ((), np.float32)})


@pytest.mark.parametrize("columns", [{"lp": np.float32}, ["lp"], {"lp": (3, np.float32)}])
def test_columns_are_given_by_name_shape_and_dtype(columns: Any) -> None:
    with pytest.raises(ValueError, match=r"give the shape of a row and the dtype of each by its n"):
        FrameStorage(10, (4,), np.float32, columns=columns)


@pytest.mark.parametrize("storage", [FrameStorage, CompressedFrameStorage, DenseStorage])
def test_no_column_has_the_name_of_a_component(storage: Any) -> None:
    ring = storage(10, (1, 8, 8), columns={"extra": ((), np.float32)})
    for component in ring.footprint().keys() - {"extra"}:
        with pytest.raises(ValueError, match="taken by the memory itself"):
            storage(10, (1, 8, 8), columns={component: ((), np.float32)})


def test_what_a_policy_adds_goes_with_its_transition() -> None:
    def policy(observation: np.ndarray, epsilon: float, rng: np.random.Generator) -> Any:
        first = observation[:, 3]
        hidden = np.stack([first, 2 * first, -first], 1)
        return np.zeros(len(observation), np.int64), {"log_prob": first, "hidden": hidden}

    memory = memory_of(num_envs=2)
    given = make_stream(ScriptedEnv(5, 7), memory, vector_steps=3)
    stream = Collector(given.env, memory, policy, lambda steps: 0.0, given.config, COLUMNS)
    drawn = [batch for batch in stream if batch]
    assert drawn
    first = drawn[-1]["observation"][..., 3]
    assert torch.equal(drawn[-1]["log_prob"], first)
    assert torch.equal(drawn[-1]["hidden"][..., 2], -first.double())
