"""Hindsight goals against a plain store of episodes: whose they are, what becomes of a row."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict, assert_close

from rlmem.agents.dqn import DQN
from rlmem.config import check, compose
from rlmem.errors import UserError
from rlmem.memories import FrameStorage, HindsightTransform, MapStorage
from rlmem.memories.samplers.sequence import SequenceSampler
from tests.memories.transforms.goals import (
    GOAL,
    OWN,
    SAMPLERS,
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

KINDS = ("dense", "frames", "compressed", "memmap")


@each_strategy
@given(
    capacity=st.integers(3, 60),
    blocks=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    num_envs=st.integers(1, 3),
    end=st.sampled_from([0.0, 0.1, 0.5]),
    in_turn=st.booleans(),
    reload=st.booleans(),
    kind=st.sampled_from(["dense", "frames", "compressed"]),
    seed=st.integers(0, 999),
)
@settings(max_examples=60)
def test_each_transition_takes_each_goal_of_its_strategy_equally_often(
    strategy: str,
    capacity: int,
    blocks: list[int],
    num_envs: int,
    end: float,
    in_turn: bool,
    reload: bool,
    kind: str,
    seed: int,
) -> None:
    envs = GoalEnvs(np.random.default_rng(seed), num_envs, end)
    memory = hindsight_memory(strategy, capacity, kind=kind, num_envs=num_envs)
    for number, rows in enumerate(blocks):
        memory.extend(envs.block(rows, in_turn=in_turn))
        memory.check_valid()
        if reload and number == len(blocks) // 2:
            states = [part.state_dict() for part in (memory.storage, hindsight_of(memory))]
            memory = hindsight_memory(strategy, capacity, kind=kind, num_envs=num_envs)
            for part, state in zip((memory.storage, hindsight_of(memory)), states, strict=True):
                part.load_state_dict(state)
            memory.check_valid()
    reference = Reference(envs.rows, len(memory))
    slots = memory.storage.locate(torch.arange(len(memory))).numpy()
    assert sorted(achieved_of(memory, slots)) == reference.held
    for slot, number in zip(slots, achieved_of(memory, slots), strict=True):
        lenders = reference.lenders(number, strategy)
        draws = (np.arange(len(lenders)) + 0.5) / len(lenders)
        chosen = hindsight_of(memory)._choose(np.repeat(slot, len(lenders)), draws)
        assert sorted(achieved_of(memory, chosen)) == lenders


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("kind", KINDS)
@each_strategy
def test_a_row_is_as_it_was_written_or_one_of_another_goal_throughout(
    strategy: str, kind: str, sampler: str
) -> None:
    rules = Distance(radius=3.0)
    memory = hindsight_memory(strategy, kind=kind, sampler=sampler, rules=rules)
    envs = GoalEnvs(np.random.default_rng(0), 2)
    for rows in (20, 35, 30):
        memory.extend(envs.block(rows))
    reference = Reference(envs.rows, len(memory))
    batch = memory.sample(64, 6)
    assert batch["observation"].shape == (6, 64, OWN + GOAL)
    rows, stored = (
        columns(batch),
        columns(memory.storage.get(batch["index"]).set("index", batch["index"])),
    )
    np.testing.assert_array_equal(rows["goal"], rows["goal_after"])
    for part in ("own", "after"):
        np.testing.assert_array_equal(rows[part], stored[part])
    relabelled = (rows["goal"] != stored["goal"]).any(1)
    for name in ("reward", "terminated", "truncated", "done"):
        np.testing.assert_array_equal(rows[name][~relabelled], stored[name][~relabelled])
    assert 0.5 < relabelled.mean() < 1.0
    numbers = achieved_of(memory, rows["index"])
    for i in np.flatnonzero(relabelled):
        assert rows["goal"][i, 0] in reference.lenders(numbers[i], strategy)
    own = np.stack([numbers, -numbers], 1).astype(np.float32)[relabelled]
    goal = rows["goal"][relabelled]
    np.testing.assert_array_equal(rows["reward"][relabelled], rules.reward(own, goal))
    # The episodes' own goals are out of reach, so that what was terminated stays so.
    ends = rules.terminated(own, goal) | stored["terminated"][relabelled]
    was_done = stored["done"][relabelled]
    np.testing.assert_array_equal(rows["terminated"][relabelled], ends)
    np.testing.assert_array_equal(rows["truncated"][relabelled], was_done & ~ends)
    np.testing.assert_array_equal(rows["done"][relabelled], was_done | ends)
    assert ends.any()
    # An episode's last transition is the only one that may lend itself a goal, but for these.
    assert (was_done & ~ends).any() == (strategy in ("episode", "random"))


def test_a_goal_that_was_reached_ends_no_episode_of_another_goal() -> None:
    """One episode of three steps, which ends at its goal [2, -2]."""
    memory = hindsight_memory("random", num_envs=1, k=10**6)
    block = GoalEnvs(np.random.default_rng(0), 1, end=0.0).block(3)
    block["observation"][:, OWN:] = block["next"]["observation"][:, OWN:] = [2, -2]
    block["next"]["terminated"][2] = True
    memory.extend(block)
    rows = columns(memory.sample(500))
    last = rows["index"] == 2
    reached = rows["goal"][:, 0] == rows["index"]
    np.testing.assert_array_equal(rows["terminated"], reached)
    np.testing.assert_array_equal(rows["truncated"], last & ~reached)
    np.testing.assert_array_equal(rows["done"], last | reached)
    assert (last & ~reached).any()


@each_sampler
@pytest.mark.parametrize("k", [1, 4, 8])
def test_a_share_of_k_in_k_plus_one_is_relabelled(k: int, sampler: str) -> None:
    memory = hindsight_memory(k=k, sampler=sampler)
    memory.extend(GoalEnvs(np.random.default_rng(0), 2).block(50))
    goal = columns(memory.sample(1000, 20))["goal"]
    assert (goal[:, 0] >= 0).mean() == pytest.approx(k / (k + 1), abs=0.01)


def test_a_batch_without_a_hindsight_goal_is_as_it_was_drawn() -> None:
    memory = hindsight_memory(k=1)
    memory.extend(GoalEnvs(np.random.default_rng(0), 2).block(50))
    batches = [memory.sample(1) for _ in range(20)]
    untouched = [b for b in batches if b["observation"][0, OWN] < 0]
    assert 0 < len(untouched) < 20
    for batch in untouched:
        assert torch.equal(batch["observation"], memory.storage.get(batch["index"])["observation"])


def test_torchrls_tensordicts_are_taken() -> None:
    block = GoalEnvs(np.random.default_rng(0), 2).block(40)
    memory, other = hindsight_memory(), hindsight_memory()
    memory.extend(block)
    other.extend(TensorDict(block, batch_size=[40]))
    assert_close(memory.sample(16), other.sample(16), rtol=0, atol=0)


def transform(**changes: Any) -> HindsightTransform:
    settings = {"capacity": 60, "goal_size": GOAL, "strategy": "future", "k": 4, **changes}
    rules = Distance()
    return HindsightTransform(reward=rules.reward, terminated=rules.terminated, **settings)


@pytest.mark.parametrize("wrong", [{"strategy": "past"}, {"k": 0}, {"goal_size": 0}])
def test_an_argument_out_of_its_range_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        transform(**wrong)


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        (MapStorage(60, (5,), np.float32, 5, num_actions=2), "memory=her needs a ring, not a Map"),
        (FrameStorage(60, (5,), np.float32, n_step=3), "n_step=3"),
        (FrameStorage(60, (5,), np.float32, stack=2), "stack=2"),
        (FrameStorage(60, (5,), np.uint8), "float32 vectors"),
        (FrameStorage(60, (1, 5, 5), np.float32), "float32 vectors"),
        (FrameStorage(60, (1,), np.float32), "end in a goal of 2"),
        (FrameStorage(50, (5,), np.float32), "the storage has 50 slots"),
    ],
    ids=["map", "n_step", "stack", "dtype", "images", "size", "capacity"],
)
def test_a_storage_that_it_does_not_work_on_is_refused(storage: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        transform().register_storage(storage)


def test_a_block_without_achieved_goals_is_refused() -> None:
    memory = hindsight_memory()
    block = GoalEnvs(np.random.default_rng(0), 2).block(4)
    del block["next"]["achieved_goal"]
    with pytest.raises(ValueError, match="achieved_goal"):
        memory.extend(block)


def test_achieved_goals_that_are_no_numbers_are_refused_before_anything_is_written() -> None:
    memory = hindsight_memory()
    block = GoalEnvs(np.random.default_rng(0), 2).block(4)
    achieved = block["next"]["achieved_goal"]
    block["next"]["achieved_goal"] = np.full(np.shape(achieved), "here")
    with pytest.raises(ValueError, match="could not convert"):
        memory.extend(block)
    assert len(memory) == 0
    block["next"]["achieved_goal"] = torch.tensor(np.asarray(achieved), requires_grad=True)
    memory.extend(block)
    assert len(memory) == len(np.asarray(block["action"]))


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("reward", lambda achieved, goal: np.zeros((len(goal), 1))),
        ("reward", lambda achieved, goal: -1.0),
        ("terminated", lambda achieved, goal: np.zeros(len(goal))),
        ("terminated", lambda achieved, goal: achieved == goal),
    ],
)
def test_a_rule_gives_one_value_a_pair_of_goals(name: str, rule: Any) -> None:
    memory = hindsight_memory("future", 60)
    memory.extend(GoalEnvs(np.random.default_rng(0)).block(40))
    setattr(hindsight_of(memory), name, rule)
    with pytest.raises(UserError, match=rf"{name} gave \w+ of shape .* it gives \w+ of shape \("):
        memory.sample(16)


def test_runs_of_transitions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their steps would each be of another goal."""
    memory = hindsight_memory("future", 60)
    memory.extend(GoalEnvs(np.random.default_rng(0)).block(40))
    monkeypatch.setattr(memory, "sampler", SequenceSampler(5))
    with pytest.raises(ValueError, match="draw no sequences"):
        memory.draw(8, 1)
    monkeypatch.setattr(DQN, "takes_sequences", True)
    given = ["memory=her", "env=bit_flip", "memory/sampler=sequence"]
    with pytest.raises(UserError, match=r"^memory/sampler=sequence: memory=her gives each"):
        check(compose("train", given))
