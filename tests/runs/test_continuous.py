"""Whole runs with continuous actions: memories, switches, resuming, the paper's protocol."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from rlmem.envs import EnvSpec
from rlmem.errors import UserError
from rlmem.runs import build
from rlmem.runs.evaluate import evaluate
from tests.runs.helpers import KEEP, TINY_CONTINUOUS, assert_same_run, rows_of, run, signal_at
from tests.settings import evaluate_settings, settings

pytest.importorskip("mujoco")
slow = pytest.mark.slow
RINGS = ["none", "uniform", "cer", "per", "per_rank"]
SAVING = ["checkpoint.every=120", "evaluation.every=100", KEEP]


@slow
@pytest.mark.parametrize(
    ("agent", "memory"),
    [*(("ddpg", memory) for memory in RINGS), ("td3", "none"), ("td3", "per")],
)
def test_every_ring_memory_trains_on_continuous_actions(
    agent: str, memory: str, tmp_path: Path
) -> None:
    choice = [f"memory={memory}", f"agent={agent}", "agent.n_step=3"]
    summary = run(tmp_path, *choice, tiny=TINY_CONTINUOUS)
    assert (summary["status"], summary["agent"]) == ("finished", agent)
    assert (summary["env_id"], summary["memory"]) == ("Reacher-v5", memory)
    updates = 13 if memory == "none" else 201  # none: one each 16 transitions
    assert (summary["env_steps"], summary["grad_steps"]) == (300, updates)
    assert summary["memory_components"]["actions"] == summary["memory_entries"] * 2 * 4


@slow
def test_gwr_trains_on_continuous_actions(tmp_path: Path) -> None:
    summary = run(tmp_path, "memory=gwr", "threshold.activation=0.55", tiny=TINY_CONTINUOUS)
    assert (summary["status"], summary["grad_steps"]) == ("finished", 201)
    assert 0 < summary["memory_entries"] < 300


@pytest.mark.parametrize(
    ("memory", "storage"),
    [
        *(("uniform", storage) for storage in ("dense", "frames", "compressed", "memmap")),
        *((memory, "frames") for memory in RINGS if memory != "uniform"),
    ],
)
def test_a_ring_gives_back_the_continuous_actions_it_took(
    memory: str, storage: str, tmp_path: Path
) -> None:
    choice = [f"memory={memory}", f"memory/storage={storage}", "memory.capacity=40", "env=reacher"]
    choice.append("agent.batch_size=32")
    if storage == "memmap":
        choice.append(f"memory.storage.directory={tmp_path}")
    spec = EnvSpec("x", "gym", 1, (3,), np.dtype(np.float32), 1, 0, 1, action_shape=(2,))
    held = build.build_memory(settings(*choice), spec)
    observation = np.random.default_rng(0).normal(size=(61, 3)).astype(np.float32)
    no = np.zeros((60, 1), bool)
    following = {"observation": observation[1:], "reward": np.zeros((60, 1), np.float32)}
    block = {"observation": observation[:-1], "action": observation[:-1, :2] / 3}
    held.extend({**block, "next": {**following, "terminated": no, "truncated": no}})
    batch = held.sample(16, 2)
    assert (batch["action"].shape, batch["action"].dtype) == ((2, 16, 2), torch.float32)
    assert torch.equal(batch["action"], batch["observation"][..., :2] / 3)
    assert held.footprint()["actions"] == len(held) * 2 * 4


@slow
@pytest.mark.parametrize(
    "choice",
    [
        ["agent=ddpg", "memory=uniform"],
        ["agent=td3", "memory=per", "agent.updates_per_step=3", "agent.n_step=2"],
        ["agent=td3", "memory=cer", "env=half_cheetah", "env.num_envs=2", "agent.train_every=2"],
        ["agent=ddpg", "memory=gwr", "threshold.activation=0.55"],
    ],
    ids=["ddpg", "td3 in blocks", "td3 on two cheetahs", "ddpg with a map"],
)
def test_a_resumed_run_equals_the_uninterrupted_bit_for_bit(
    choice: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = [*choice, *SAVING]
    run(tmp_path / "whole", *overrides, tiny=TINY_CONTINUOUS)
    with monkeypatch.context() as patch:
        signal_at(patch, 210)
        with pytest.raises(SystemExit):
            run(tmp_path / "cut", *overrides, tiny=TINY_CONTINUOUS)
    run(tmp_path / "cut", *overrides, f"resume={tmp_path / 'cut'}", tiny=TINY_CONTINUOUS)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


@slow
def test_ddpg_learns_to_reach(tmp_path: Path) -> None:
    """Random play scores about -43 an episode on Reacher, an arm at rest about -11."""
    learning = ["trainer.max_env_steps=3000", "agent.learning_starts=500", "agent.batch_size=64"]
    speed = ["agent.updates_per_step=10", "agent.network.hidden=[64,64]", "evaluation.episodes=10"]
    rates = ["agent.actor_lr=1e-3", "agent.critic_weight_decay=0"]
    summary = run(tmp_path, *learning, *speed, *rates, tiny=TINY_CONTINUOUS)
    assert summary["eval_return_mean"] > -20


@slow
def test_the_papers_protocol_runs(tmp_path: Path) -> None:
    small = [s for s in TINY_CONTINUOUS if not s.startswith(("env=", "agent=", "memory.cap"))]
    paper = ["experiment=gwrr_paper", "env=inverted_pendulum", "memory=uniform", *small]
    summary = run(tmp_path, "evaluation.every=100", "evaluation.episodes=2", tiny=paper)
    assert (summary["status"], summary["env_id"]) == ("finished", "InvertedPendulum-v4")
    assert [int(row["env_steps"]) for row in rows_of(tmp_path / "evaluations.csv")] == (
        [100] * 2 + [200] * 2 + [300] * 2
    )


@slow
def test_a_checkpoint_is_scored_without_exploration(tmp_path: Path) -> None:
    run(tmp_path, "agent=td3", tiny=TINY_CONTINUOUS)
    scores = []
    for _ in range(2):
        evaluate(evaluate_settings(f"run={tmp_path}", "episodes=2", "seed=7"))
        scores.append(json.loads((tmp_path / "evaluation/summary.json").read_text()))
    assert scores[0] == scores[1]
    assert scores[0]["epsilon"] == 0.0
    assert OmegaConf.load(tmp_path / "config.yaml").evaluation.epsilon == 0.0


@pytest.mark.parametrize(
    ("choice", "line"),
    [
        (
            ["env=reacher"],
            "agent=dqn: its actions are discrete, those of env=reacher (Reacher-v5) are 2 "
            "continuous numbers; use agent=ddpg or agent=td3",
        ),
        (
            ["agent=td3", "env=cartpole"],
            "agent=td3: its actions are continuous, those of env=cartpole (CartPole-v1) are 2 "
            "discrete ones; use agent=dqn",
        ),
    ],
)
def test_an_agent_that_does_not_fit_the_actions_is_named(
    choice: list[str], line: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as caught:
        run(tmp_path, *choice, tiny=[])
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_images_are_refused_by_continuous_agents(tmp_path: Path) -> None:
    pytest.importorskip("Box2D")
    with pytest.raises(UserError, match=r"it takes vectors, env=CarRacing-v3 .* gives images"):
        run(tmp_path, "agent=ddpg", "env=gym", "env.id=CarRacing-v3", tiny=[])
