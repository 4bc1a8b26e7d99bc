"""Runs without replay: resumed in the middle of a rollout or an episode, scored, and refused."""

from pathlib import Path

import pytest

from rlmem.errors import UserError
from rlmem.runs import build
from rlmem.runs.score import score
from tests.runs.helpers import KEEP, assert_same_run, rows_of, run, stopped, summary_of
from tests.settings import evaluate_settings, settings

COMMON = [
    "trainer.max_env_steps=600",
    "trainer.accelerator=cpu",
    "trainer.threads=1",
    "checkpoint.every=200",
    "log.every=100",
    "log.progress=false",
    "evaluation.episodes=2",
]
PQN = [*COMMON, "agent=pqn", "memory=rollout", "env=cartpole", "env.num_envs=4"]
PQN += ["memory.capacity=128", "agent.batch_size=32"]
STREAM = [*COMMON, "agent=stream_q", "memory=trace", "env=cartpole"]
MINATAR = [o for o in PQN if o != "env=cartpole"] + ["env=minatar_breakout"]
PONG = [*(o for o in PQN if o != "env=cartpole"), "env=pong", "env.protocol.max_frames=400"]
STREAM_PONG = [o for o in STREAM if o != "env=cartpole"] + ["env=pong", "env.num_envs=1"]
STREAM_PONG += ["env.protocol.max_frames=400"]


@pytest.mark.parametrize(
    ("tiny", "at"),
    [(PQN, 300), (MINATAR, 300), (PONG, 300), (STREAM, 333), (STREAM_PONG, 333)],
    ids=["pqn", "pqn, boards", "pqn, screens", "stream_q", "stream_q, screens"],
)
def test_a_run_stopped_in_the_middle_goes_on_bit_for_bit(
    tiny: list[str], at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    own = [*tiny, KEEP]
    run(whole, tiny=own)
    stopped(monkeypatch, at, cut, tiny=own)
    assert summary_of(cut)["env_steps"] == at
    if tiny is not STREAM and tiny is not STREAM_PONG:
        assert 0 < summary_of(cut)["memory_entries"] < 128  # in the middle of a rollout
    run(cut, f"resume={cut}", tiny=own)
    assert_same_run(whole, cut)


def test_a_rollout_gives_epochs_times_minibatches_of_gradient_steps(tmp_path: Path) -> None:
    summary = run(tmp_path, tiny=PQN)
    assert summary["grad_steps"] == 600 // 128 * 4 * 4
    assert summary["memory_entries"] == 600 % 128
    assert {"frames", "value"} <= {*summary["memory_components"]}
    assert summary["bytes_per_transition"] == summary["memory_bytes"] / 128
    rows = rows_of(tmp_path / "metrics.csv")
    assert [int(row["env_steps"]) for row in rows] == [100, 200, 300, 400, 500, 600]
    assert rows[0]["loss"] == ""
    assert float(rows[1]["loss"]) > 0
    assert float(rows[1]["td_error_std"]) > 0


def test_a_trace_is_counted_by_its_bytes(tmp_path: Path) -> None:
    summary = run(tmp_path, tiny=STREAM)
    weights = 4 * 32 + 32 + 32 * 32 + 32 + 32 * 2 + 2
    assert summary["memory_components"]["trace"] == 4 * weights
    # Of observations and returns mean, spread, count; and the running return.
    assert summary["memory_components"]["statistics"] == (8 * 4 + 8 * 4 + 8) + 3 * 8 + 8
    assert summary["memory_entries"] == 1
    assert summary["grad_steps"] == 600
    rest = {"trace", "statistics"}
    small = sum(n for name, n in summary["memory_components"].items() if name not in rest)
    assert small < 700


@pytest.mark.parametrize("tiny", [PQN, STREAM], ids=["pqn", "stream_q"])
def test_a_finished_run_is_scored(tiny: list[str], tmp_path: Path) -> None:
    run(tmp_path, tiny=tiny)
    for checkpoint in ("last", "best"):
        found = score(evaluate_settings(f"run={tmp_path}", f"checkpoint={checkpoint}", "seed=7"))
        assert found["return_mean"] >= 8
    last = rows_of(tmp_path / "evaluations.csv")
    again = score(evaluate_settings(f"run={tmp_path}", "episodes=2"))
    assert again["episodes"] == len(last)


@pytest.mark.parametrize("tiny", [PQN, STREAM], ids=["pqn", "stream_q"])
def test_evaluation_leaves_a_run_as_it_is(tiny: list[str], tmp_path: Path) -> None:
    run(tmp_path / "seldom", tiny=tiny)
    run(tmp_path / "often", "evaluation.every=100", tiny=tiny)
    left, right = (rows_of(tmp_path / name / "episodes.csv") for name in ("seldom", "often"))
    assert [r["env_steps"] for r in left] == [r["env_steps"] for r in right]
    left, right = (rows_of(tmp_path / name / "metrics.csv") for name in ("seldom", "often"))
    assert [r["loss"] for r in left] == [r["loss"] for r in right]


@pytest.mark.parametrize("experiment", ["pqn", "stream_q"])
@pytest.mark.parametrize("env", ["acrobot", "minatar_asterix", "pong"])
def test_the_experiments_fit_every_kind_of_environment(experiment: str, env: str) -> None:
    cfg = settings(f"experiment={experiment}", f"env={env}")
    spec = build.build_env(cfg).spec
    agent = build.build_agent(cfg, spec)
    memory = build.build_memory(cfg, spec, agent.columns())
    agent.join(memory)
    assert cfg.env.num_envs == (
        1 if experiment == "stream_q" else {"acrobot": 4, "minatar_asterix": 128, "pong": 8}[env]
    )
    assert sum(memory.projected_footprint().values()) > 0


@pytest.mark.parametrize(
    ("tiny", "overrides", "line"),
    [
        (PQN, ["memory=uniform"], "memory=uniform: agent=pqn learns from what was just played"),
        (PQN, ["memory=none"], "memory=none: agent=pqn learns from what was just played"),
        (PQN, ["memory=trace"], "memory=trace: .*agent=pqn"),
        (PQN, ["agent=dqn"], "memory=rollout: it is used once and emptied, and agent=dqn learns"),
        (PQN, ["agent=stream_q"], "memory=rollout: .*agent=stream_q"),
        (PQN, ["agent.batch_size=50"], "agent.batch_size=50: memory.capacity=128 is no multiple"),
        (PQN, ["memory.capacity=130", "agent.batch_size=26"], "memory.capacity=130: a rollout is"),
        (PQN, ["env.num_envs=6"], "memory.capacity=128: a rollout is .*use memory.capacity=96$"),
        (PQN, ["agent.n_step=3"], "agent.n_step=3: agent=pqn mixes returns of all lengths"),
        (PQN, ["memory.capacity=1024"], "memory.capacity=1024: the run ends before a rollout is"),
        (PQN, ["memory.budget=1KiB"], "memory.budget=1KiB: a rollout of 128 transitions of 4 env"),
        (PQN, ["memory.budget=much"], "memory.budget=much"),
        (PQN, ["env=reacher"], "agent=pqn: its actions are discrete, those of env=reacher"),
        (PQN, ["agent.trace_lambda=2"], "agent.trace_lambda=2.*: must be at least 0 and at most 1"),
        (PQN, ["trainer.compile=true"], "trainer.compile=true: the update of agent=pqn"),
        (STREAM, ["memory=uniform"], "memory=uniform: agent=stream_q learns from each step as"),
        (STREAM, ["agent=dqn"], "memory=trace: it holds an agent's eligibility tr.*agent=dqn"),
        (STREAM, ["env.num_envs=4"], "env.num_envs=4: agent=stream_q learns from one step of one"),
        (STREAM, ["agent.batch_size=2"], "agent.batch_size=2: agent=stream_q learns from one step"),
        (STREAM, ["agent.train_every=4"], "agent.train_every=4: agent=stream_q learns from one"),
        (STREAM, ["agent.n_step=3"], "agent.n_step=3: agent=stream_q learns from one step"),
        (STREAM, ["memory.capacity=5"], "memory.capacity=5: memory=trace holds the newest"),
        (STREAM, ["memory.budget=1MiB"], "memory.budget=1MiB: memory=trace holds one batch"),
        (STREAM, ["env=reacher"], "agent=stream_q: its actions are discrete, those of env=reacher"),
    ],
)
def test_what_cannot_work_is_one_line(
    tiny: list[str], overrides: list[str], line: str, tmp_path: Path
) -> None:
    groups = [o.partition("=")[0] + "=" for o in overrides]
    own = [o for o in tiny if not o.startswith(tuple(groups))]
    with pytest.raises(UserError, match=line) as error:
        run(tmp_path / "run", *overrides, tiny=own)
    assert "\n" not in str(error.value)
