"""Runs of NEC: stopped in the middle of an episode, finished, scored."""

from pathlib import Path

import pytest

from rlmem.config.shares import share_of
from rlmem.errors import UserError
from rlmem.runs import build, score
from rlmem.runs.evaluate import evaluate
from rlmem.runs.train import train
from tests.runs.helpers import TINY, assert_same_run, rows_of, run, stopped, summary_of
from tests.settings import evaluate_settings, settings

CROSS = "memory.reconstruct.key_nodes=cross"
NEC = [
    "agent=nec",
    "memory=dnd",
    *(s for s in TINY if not s.startswith(("agent.target", "agent.network"))),
    "agent.key_size=8",
    "agent.network.hidden=[16]",
    "memory.neighbours=5",
    "memory.entries=60",  # the slabs are full when the run stops
    "checkpoint.every=120",
    "checkpoint.keep_memory_when_finished=true",
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "memory", [["dnd"], ["mfec"], ["gbmr"], ["gcmr", CROSS, "memory.reconstruct.every=30"]], ids=str
)
@pytest.mark.parametrize("envs", [1, 2])
def test_a_run_stopped_in_mid_episode_goes_on_bit_for_bit(
    memory: list[str], envs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = [f"memory={memory[0]}", *memory[1:]]
    more = [*own, f"env.num_envs={envs}", f"agent.train_every={envs}"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run(whole, *NEC, *more, tiny=())
    stopped(monkeypatch, 202, broken, *NEC, *more, tiny=())
    state = summary_of(broken)
    assert state["memory_components"]["waiting"] > 0
    ends = {int(row["env_steps"]) for row in rows_of(broken / "episodes.csv")}
    assert 202 not in ends  # an episode was running, and its last steps waited for their returns
    train(settings(*NEC, *more, f"resume={broken}", f"paths.output_dir={broken}"))
    assert_same_run(whole, broken)


def test_of_several_processes_the_first_ones_memory_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score, "load_memory", lambda folder, memory: memory.load(folder))
    run = settings(*NEC, "trainer.devices=2", "env.num_envs=2", "agent.train_every=2")
    env = build.build_env(share := share_of(run, 2, seed=7))
    agent = build.build_agent(share, env.spec)
    build.build_memory(share, env.spec, agent.columns()).save(tmp_path)
    assert score.load_run_memory(run, env.spec, agent, tmp_path).values._capacity == 30


@pytest.mark.slow
def test_a_finished_run_is_scored_with_what_its_memory_knew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [s for s in NEC if not s.startswith("checkpoint.keep")]
    summary = run(tmp_path, *given, "evaluation.every=100", tiny=())
    assert summary["memory_entries"] > 100
    scored = ["episodes=3", "seed=5"]
    capsys.readouterr()
    evaluate(evaluate_settings(f"run={tmp_path}", *scored))
    first = capsys.readouterr().out
    assert "checkpoint last at 300 env steps" in first
    evaluate(evaluate_settings(f"run={tmp_path}", *scored))
    assert capsys.readouterr().out == first
    with pytest.raises(
        UserError, match=r"best\.ckpt holds agent=nec's network, but not the memory"
    ):
        evaluate(evaluate_settings(f"run={tmp_path}", "checkpoint=best"))
    with pytest.raises(
        UserError, match=r"best\.ckpt holds agent=nec's network, but not the memory"
    ):
        evaluate(evaluate_settings("mode=map", f"run={tmp_path}", "checkpoint=best"))


def test_keys_of_a_network_that_does_not_learn_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = settings(*NEC, "memory=mfec", f"paths.output_dir={tmp_path}")
    given.overrides = ["agent.lr=3", "agent.network.hidden=[8]", "agent.gamma=.9"]
    train(given)
    lines = [line for line in capsys.readouterr().out.splitlines() if "has no effect" in line]
    why = "has no effect with a memory that makes keys of its own"
    assert lines == [f"WARNING: agent.lr=3: {why}", f"WARNING: agent.network.hidden=[8]: {why}"]
