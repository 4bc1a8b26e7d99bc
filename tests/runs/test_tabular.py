"""Runs of an agent that asks its memory: the same learning as without a run, resumed, scored."""

from pathlib import Path

import numpy as np
import pytest

from rlmem.collect.config import derive_seed
from rlmem.config.schema import EvaluateSettings
from rlmem.errors import UserError
from rlmem.memories.memory import ReplayMemory
from rlmem.memories.values.base import Visits
from rlmem.runs import build
from rlmem.runs.score import score
from tests.runs.helpers import assert_same_run, rows_of, run, signal_at, summary_of
from tests.settings import evaluate_settings, settings

TINY = [
    "agent=tabular",
    "env=mini_maze",
    "env.maze=3",
    "env.size=6",
    "env.pits=6",
    "trainer.max_env_steps=900",
    "trainer.accelerator=cpu",
    "checkpoint.every=250",
    "log.every=100",
    "log.progress=false",
    "evaluation.episodes=2",
]
MEMORIES = ["q_table", "gq", "gcmr", "gbmr"]
CROSS = "memory.reconstruct.key_nodes=cross"


@pytest.mark.parametrize(
    "memory",
    [
        ["memory=q_table"],
        ["memory=gbmr", "env.num_envs=2"],
        ["memory=gcmr", CROSS, "memory.reconstruct.every=30", "memory.capacity=20"],
        ["memory=gcmr", "memory.form=released", "memory.budget=8KiB"],
    ],
    ids=["q_table", "gbmr", "cross", "released"],
)
def test_a_run_stopped_in_an_episode_goes_on_bit_for_bit(
    memory: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert run(whole, *memory, tiny=TINY)["bytes_per_transition"] is None  # none is drawn
    with monkeypatch.context() as patch:
        signal_at(patch, 330)  # the first episodes have 200 steps, or end at the goal
        with pytest.raises(SystemExit):
            run(cut, *memory, tiny=TINY)
    assert summary_of(cut)["env_steps"] == 330
    assert 330 not in [int(row["env_steps"]) for row in rows_of(cut / "episodes.csv")]
    run(cut, *memory, f"resume={cut}", tiny=TINY)
    assert_same_run(whole, cut)


def test_a_run_is_what_a_bare_loop_around_memory_and_maze_is(tmp_path: Path) -> None:
    cfg = settings(*TINY, "memory=gcmr", "seed=5")
    run(tmp_path, "memory=gcmr", "seed=5", tiny=TINY)
    env = build.build_env(cfg)
    agent, memory = build.build_agent(cfg, env.spec), build.build_memory(cfg, env.spec)
    agent.join(memory)
    values = memory.storage.values  # the library's class: no trainer, no collector
    rng = np.random.default_rng(derive_seed(5, 1))
    observation, ends = env.reset(derive_seed(5, 2, 0)), []
    zero = np.zeros(1, np.int64)
    for step in range(900):
        action = agent.explore(observation, 0.03, rng)
        after = env.step(action)
        values.visited(
            Visits(
                key=observation,
                hash=zero,
                action=action,
                target=zero.astype(np.float32),
                reward=after.reward,
                next_key=after.next_observation,
                terminated=after.terminated,
                truncated=after.truncated,
                env_id=zero,
            )
        )
        observation = after.observation
        if after.terminated[0] or after.truncated[0]:
            ends.append(step + 1)
    assert [int(row["env_steps"]) for row in rows_of(tmp_path / "episodes.csv")] == ends
    assert 10 < len(ends) < 900 // 10


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_finished_run_is_scored_with_its_memory(memory: str, tmp_path: Path) -> None:
    summary = run(tmp_path, f"memory={memory}", "trainer.max_env_steps=4000", tiny=TINY)
    assert summary["memory_entries"] <= 37
    assert summary["grad_steps"] == 0
    assert summary["eval_return_mean"] == 200.0
    found = score(scoring(tmp_path))
    assert found["return_mean"] == 200.0
    with pytest.raises(UserError, match=r"best.ckpt.*use checkpoint=last"):
        score(scoring(tmp_path, "checkpoint=best"))


def test_evaluation_leaves_a_memory_as_it_is(tmp_path: Path) -> None:
    small = ["memory=gcmr", "memory.capacity=12"]
    often = ["evaluation.every=100"]
    run(tmp_path / "seldom", *small, tiny=TINY)
    run(tmp_path / "often", *small, *often, tiny=TINY)
    left, right = (rows_of(tmp_path / name / "episodes.csv") for name in ("seldom", "often"))
    assert [row["env_steps"] for row in left] == [row["env_steps"] for row in right]


@pytest.mark.slow
@pytest.mark.parametrize("observation", ["position", "one_hot", "pixels"])
def test_a_network_plays_the_same_maze(observation: str, tmp_path: Path) -> None:
    own = [o for o in TINY if o != "agent=tabular"]
    summary = run(tmp_path, f"env.observation={observation}", "env.size=10", tiny=own)
    assert summary["grad_steps"] > 600
    assert summary["episodes"] >= 4


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_budget_is_what_a_full_memory_takes(memory: str) -> None:
    made = built(*TINY, f"memory={memory}", "memory.budget=20KiB")
    full = sum(made.projected_footprint().values())
    assert 20_000 < full <= 20 * 1024


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["memory=uniform"], "memory=uniform: agent=tabular has no network, so its memory must"),
        (["memory=dnd"], "memory=dnd: agent=tabular has no network, so its memory must answer"),
        (["memory=gq", "agent=dqn"], "memory=gq: nothing is drawn from it, and agent=dqn learns"),
        (["memory=gq", "memory.target=return"], "memory.target=return: agent=tabular learns from"),
        (["memory=gq", "agent.n_step=3"], "agent.n_step=3: memory=gq learns from single steps"),
        (["memory=gq", "agent.train_every=4"], "agent.train_every=4: agent=tabular learns after"),
        (
            ["memory=gq", "memory.dist_th=-1"],
            "memory.dist_th=-1: must be auto, or a number, at least 0",
        ),
        (["memory=gcmr", "memory.reconstruct.t1=1"], r"memory.reconstruct.t1=1.0: must be above"),
        (["memory=gcmr", "memory.reconstruct.every=0"], "memory.reconstruct.every=0: must be epi"),
        (["memory=gq", "memory.neighbours=50", "memory.capacity=9"], "memory.neighbours=50: the"),
        (["memory=gq", "memory.form=sounds"], "memory.form=sounds: no such form"),
        (["memory=q_table", "memory.capacity=1"], "memory.capacity=1: must be at least 2"),
        (["memory=gq", "env.observation=pixels"], "memory=gq: its keys are observations, and th"),
        (["memory=gq", "env=reacher"], "memory=gq: its keys are observations.*continuous actions"),
        (
            ["memory=gq", "memory/storage=dense"],
            "memory/storage=dense: agent=tabular draws",
        ),
        (["memory=gcmr", "memory/sampler=rank"], "memory/sampler=rank: agent=tabular draws noth"),
        (["memory=gbmr", "memory.share=0.9"], "memory.share=0.9: agent=tabular draws nothing"),
        (["memory=gq", "agent.learning_starts=9"], "agent.learning_starts=9: agent=tabular learn"),
        (["memory=gq", "agent.batch_size=32"], "agent.batch_size=32: agent=tabular learns from"),
        (["memory=gq", "memory.entries=1"], "memory.entries=1: must be at least 2"),
        (["memory=gq", "checkpoint.reseed_every=0"], "checkpoint.reseed_every=0: must be at lea"),
        (["memory=gq", "memory.budget=10"], "memory.budget=10: use .* bytes or more"),
    ],
)
def test_what_cannot_work_is_one_line(overrides: list[str], line: str) -> None:
    own = [o for o in TINY if not (o.startswith("env") and "env=reacher" in overrides)]
    own = [o for o in own if not (o == "agent=tabular" and "agent=dqn" in overrides)]
    with pytest.raises(UserError, match=line) as error:
        built(*own, *overrides)
    assert "\n" not in str(error.value)


def built(*overrides: str) -> ReplayMemory:
    cfg = settings(*overrides)
    spec = build.build_env(cfg).spec
    return build.build_memory(cfg, spec, build.build_agent(cfg, spec).columns())


def scoring(folder: Path, *overrides: str) -> EvaluateSettings:
    return evaluate_settings(f"run={folder}", "episodes=3", "epsilon=0", *overrides)
