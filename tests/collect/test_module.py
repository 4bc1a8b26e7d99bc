"""Trainer steps: how many rounds each has, and what the agent and the memory are told in them."""

import time
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import pytest
import torch

from rlmem.agents.base import Learner
from rlmem.collect.collector import Collector
from rlmem.collect.module import EnvStepDataModule, TrainerSteps
from rlmem.memories.base.batch import Batch
from rlmem.runs import build
from tests.collect.helpers import ScriptedEnv, make_stream, ring
from tests.settings import settings


@pytest.mark.parametrize(("rounds", "steps"), [(1, [1] * 50), (8, [8] * 6 + [2]), (99, [50])])
def test_a_trainer_step_has_so_many_rounds(rounds: int, steps: list[int]) -> None:
    stream = make_stream(ScriptedEnv(5, 7), ring())
    trainer_steps = TrainerSteps(stream, rounds)
    assert len(trainer_steps) >= len(steps)
    assert [len(list(step)) for step in trainer_steps] == steps
    assert len(trainer_steps) == 0


@pytest.mark.parametrize(
    ("a_round", "steps"), [(0.1, [3] * 16 + [2]), (1e-4, [50]), (9.0, [1] * 50)]
)
def test_a_trainer_step_without_a_number_lasts_a_quarter_of_a_second(
    a_round: float, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = make_stream(ScriptedEnv(5, 7), ring())
    monkeypatch.setattr(time, "monotonic", lambda: a_round * stream.env_steps / 2)
    assert [len(list(step)) for step in TrainerSteps(stream, None)] == steps


@pytest.mark.parametrize("rounds", [None, 3, 10**9])
def test_a_trainer_step_ends_where_something_is_due(rounds: int | None) -> None:
    stream = make_stream(ScriptedEnv(5, 7), ring())
    stream.due_every(14)
    stream.due_every(35)
    due = {every: [] for every in (14, 35)}
    for step in TrainerSteps(stream, rounds):
        list(step)
        for every, found in due.items():
            if stream.crossed(every):
                found.append(stream.env_steps)
    assert due == {14: [14, 28, 42, 56, 70, 84, 98], 35: [36, 70]}


def test_a_round_is_played_when_it_is_asked_for() -> None:
    stream = make_stream(ScriptedEnv(5, 7), ring())
    for step in TrainerSteps(stream, 5):
        before = stream.env_steps
        for number, _ in enumerate(step, start=1):
            assert stream.env_steps == before + 2 * number


def test_a_requested_stop_ends_the_run_after_the_round() -> None:
    stream = make_stream(ScriptedEnv(5, 7), ring())
    steps = TrainerSteps(stream, 10**9)
    for _ in next(steps):
        stream.stop_requested = stream.env_steps == 6
    assert stream.env_steps == 6
    assert list(steps) == []


@pytest.mark.parametrize("lower", [True, False])
def test_only_learning_is_done_in_the_trainers_precision(lower: bool) -> None:
    stream = make_stream(ScriptedEnv(5, 7), ring())
    seen: list[bool] = []
    policy = stream.policy

    def noted(*args: Any) -> np.ndarray:
        seen.append(torch.is_autocast_enabled("cpu"))
        return policy(*args)

    stream.policy = noted
    with torch.autocast("cpu", torch.bfloat16, enabled=lower):
        for _ in next(TrainerSteps(stream, 3)):
            assert torch.is_autocast_enabled("cpu") == lower
    assert seen == [False] * 3


@pytest.mark.parametrize(
    ("rounds", "ends"),
    [(1, [10, 20, 30, 40]), (3, [12, 24, 30, 40]), (5, [10, 20, 30, 40]), (99, [40])],
)
def test_crossed_says_once_when_a_multiple_of_an_interval_is_reached(
    rounds: int, ends: list[int]
) -> None:
    stream = make_stream(ScriptedEnv(100, 100), ring(), max_env_steps=40)
    found = []
    for step in TrainerSteps(stream, rounds):
        list(step)
        if stream.crossed(10):
            found.append(stream.env_steps)
    assert found == ends


@pytest.mark.parametrize("rounds", [1, 8])
def test_priorities_are_written_before_the_next_draw(rounds: int, tmp_path: Path) -> None:
    overrides = ["memory=per", "agent.learning_starts=64", "trainer.max_env_steps=100"]
    overrides += ["agent.batch_size=64", "agent.train_every=1", "agent.updates_per_step=1"]
    cfg = settings(*overrides)
    env = build.build_env(cfg)
    agent, memory = build.build_agent(cfg, env.spec), build.build_memory(cfg, env.spec)
    stream = build.build_stream(cfg, env, memory, agent)
    events: list[Any] = []
    draw, update = memory.draw, memory.update_priority

    def logged_draw(*args: Any) -> Batch:
        batch = draw(*args)
        events.append(("draw", batch["index"]))
        return batch

    def logged_update(index: torch.Tensor, td_error: torch.Tensor) -> None:
        events.append(("write", index))
        update(index, td_error)

    memory.draw, memory.update_priority = logged_draw, logged_update
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(agent, datamodule=EnvStepDataModule(stream, rounds))
    assert [name for name, _ in events] == ["draw", "write"] * 37
    for (_, drawn), (_, written) in zip(events[::2], events[1::2], strict=True):
        assert torch.equal(drawn, written)


def test_the_data_module_moves_batches_but_their_indices_to_the_trainers_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = EnvStepDataModule(make_stream(ScriptedEnv(5, 7), ring()), 4)
    step = next(module.train_dataloader())
    # A device that every machine has, and that knows no lower precision.
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: False)
    step = module.transfer_batch_to_device(step, torch.device("meta"), 0)
    for batch in step:
        where = {name: column.device.type for name, column in batch.items()}
        assert where.pop("index") == "cpu"
        assert set(where.values()) == {"meta"}


@pytest.mark.parametrize("rounds", [1, 7])
def test_the_agent_is_told_of_each_round_in_which_episodes_ended(rounds: int) -> None:
    def ends(*lengths: int, vector_steps: int = 1, before: int = 0) -> list[tuple[int, int]]:
        env = ScriptedEnv(*lengths)
        stream = make_stream(env, ring(len(lengths)), vector_steps=vector_steps)
        for _ in range(before):  # of a run that was resumed after them
            next(stream)
        steps = TrainerSteps(stream, rounds)
        agent = Noted(stream)
        for number, step in enumerate(steps):
            agent.training_step(step, number)
        return agent.found

    assert ends(9)[:3] == [(9, 1), (18, 1), (27, 1)]
    assert ends(10, 10, 15) == [(30, 2), (45, 1), (60, 2), (90, 3)]
    assert ends(4, vector_steps=10)[:2] == [(10, 2), (20, 3)]
    assert ends(9, before=12)[0] == (18, 1)


class Noted(Learner):
    """Learns nothing and notes at which env steps how many episodes ended."""

    def __init__(self, stream: Collector) -> None:
        super().__init__()
        self.stream = stream
        self.found: list[tuple[int, int]] = []

    def update(self, batch: Batch) -> dict[str, torch.Tensor]:
        return {"loss": torch.zeros(1)}

    def round_ended(self, episodes_ended: int) -> None:
        if episodes_ended:
            self.found.append((self.stream.env_steps, episodes_ended))
