"""Hindsight goals in a memory's bytes: budgets, saving, and the configuration that makes one."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tensordict import assert_close

from rlmem.envs import EnvSpec
from rlmem.envs.spec import GoalSpec
from rlmem.memories import ReplayMemory
from rlmem.memories.transforms.hindsight import STRATEGIES
from tests.memories.helpers import configured
from tests.memories.transforms.goals import (
    GOAL,
    OWN,
    Distance,
    GoalEnvs,
    Reference,
    achieved_of,
    columns,
    each_sampler,
    each_strategy,
    hindsight_memory,
    hindsight_of,
)


@each_strategy
@each_sampler
def test_a_saved_memory_goes_on_with_the_same_samples(
    strategy: str, sampler: str, tmp_path: Path
) -> None:
    memory, other = (hindsight_memory(strategy, sampler=sampler, seed=s) for s in (0, 9))
    envs = GoalEnvs(np.random.default_rng(0), 2)
    memory.extend(envs.block(85))
    other.extend(GoalEnvs(np.random.default_rng(1), 2).block(33))
    memory.save(tmp_path)
    other.load(tmp_path)
    other.check_valid()
    for rows in (0, 7, 40):
        block = envs.block(rows) if rows else None
        for part in (memory, other):
            if block is not None:
                part.extend(block)
            batch = part.sample(16)
            part.update_priority(batch["index"], batch["next", "reward"].squeeze(-1))
        assert_close(memory.sample(16, 3), other.sample(16, 3), rtol=0, atol=0)
    assert memory.footprint() == other.footprint()


def goal_spec(num_envs: int = 2, size: int = OWN + GOAL) -> EnvSpec:
    return EnvSpec(
        "Goals",
        "gym",
        num_envs,
        (size,),
        np.dtype(np.float32),
        1,
        2,
        1,
        goal=GoalSpec(GOAL, Distance()),
    )


def named(*overrides: str, spec: EnvSpec | None = None) -> ReplayMemory:
    given = ["memory=her", "env=bit_flip", "memory.capacity=60", "agent.gamma=0.98"]
    return configured(spec or goal_spec(), *given, *overrides)


STORAGES = ("dense", "frames", "compressed")
SAMPLERS = ("uniform", "combined", "prioritized", "rank")


@pytest.mark.parametrize(
    ("strategy", "sampler", "storage"),  # storages in turn: each with each of the others
    [
        (strategy, sampler, STORAGES[(i + j) % len(STORAGES)])
        for i, strategy in enumerate(STRATEGIES)
        for j, sampler in enumerate(SAMPLERS)
    ],
)
def test_a_budget_is_filled_and_never_passed_and_goes_on_after_a_load(
    sampler: str, storage: str, strategy: str, tmp_path: Path
) -> None:
    budget = 200_000
    given = [f"memory/storage={storage}", f"memory/sampler={sampler}"]
    given += [f"memory.budget={budget}", f"memory.strategy={strategy}"]
    memory, other = named(*given), named(*given)
    envs, most = GoalEnvs(np.random.default_rng(0), 2), 0
    for _ in range(100):
        memory.extend(envs.block(60))
        memory.sample(8)
        most = max(most, sum(memory.footprint().values()))
    assert 0.9 * budget < most <= budget
    memory.check_valid()
    slots = memory.storage.locate(torch.arange(len(memory))).numpy()
    reference = Reference(envs.rows, len(memory))
    assert sorted(achieved_of(memory, slots)) == reference.held
    memory.save(tmp_path)
    other.load(tmp_path)
    assert_close(memory.sample(16, 2), other.sample(16, 2), rtol=0, atol=0)
    block = envs.block(300)
    for part in (memory, other):
        part.extend(block)
        part.check_valid()
        assert sum(part.footprint().values()) <= budget
        reference = Reference(envs.rows, len(part))
        rows = columns(part.sample(64))
        for goal, number in zip(rows["goal"][:, 0], achieved_of(part, rows["index"]), strict=True):
            assert goal < 0 or goal in reference.lenders(number, strategy)


@each_strategy
def test_a_full_memory_holds_what_was_projected(strategy: str) -> None:
    memory = hindsight_memory(strategy)
    projected = memory.projected_footprint()["achieved_goals"]
    assert projected == 60 * (4 * GOAL + (4 if strategy == "episode" else 0))
    envs = GoalEnvs(np.random.default_rng(0), 2)
    memory.extend(envs.block(20))
    assert memory.footprint()["achieved_goals"] == projected // 3
    memory.extend(envs.block(70))
    assert memory.footprint()["achieved_goals"] == projected


@pytest.mark.parametrize("kind", ["dense", "frames", "compressed"])
def test_the_configuration_names_storage_and_sampler_of_her(kind: str) -> None:
    memory = named(f"memory/storage={kind}", "memory/sampler=prioritized", "memory.k=2")
    assert (hindsight_of(memory).k, memory.storage.kind) == (2, kind)
    assert memory.prioritized
    memory.extend(GoalEnvs(np.random.default_rng(0), 2).block(40))
    batch = memory.sample(8)
    memory.update_priority(batch["index"], torch.arange(8.0))
    memory.check_valid()


def test_loading_goals_of_another_size_is_refused(tmp_path: Path) -> None:
    memory = named()
    memory.extend(GoalEnvs(np.random.default_rng(0), 2).block(30))
    memory.save(tmp_path)
    spec = replace(goal_spec(), goal=GoalSpec(1, Distance()))
    with pytest.raises(ValueError, match="the saved memory's achieved is"):
        named(spec=spec).load(tmp_path)


def test_goals_of_another_save_are_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    envs = GoalEnvs(np.random.default_rng(0), 1)
    memory = hindsight_memory("future", 50)
    for name, rows in (("first", 10), ("second", 10)):
        memory.extend(envs.block(rows))
        memory.save(tmp_path / name)
    shutil.rmtree(tmp_path / "second/hindsight")
    shutil.copytree(tmp_path / "first/hindsight", tmp_path / "second/hindsight")
    again = hindsight_memory("future", 50)
    again.extend(envs.block(30))
    with pytest.raises(ValueError, match="the saved memory holds 10 goals, its storage 20 slots"):
        again.load(tmp_path / "second")
    assert len(again) == 30
    again.check_valid()
