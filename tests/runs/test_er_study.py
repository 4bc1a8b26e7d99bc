"""Runs as the experience-replay study has them: by episodes, in length and in target updates."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from rlmem.agents.dqn import DQN
from tests.runs.helpers import KEEP, assert_same_run, rows_of, run, signal_at, summary_of
from tests.settings import settings

STUDY = ["experiment=er_study", "trainer.accelerator=cpu", "log.progress=false"]
STUDY += ["evaluation.episodes=1", KEEP]
SHORT = [*STUDY, "trainer.max_episodes=8", "checkpoint.every=90"]


def train(folder: Path, *overrides: str) -> dict:
    return run(folder, *overrides, tiny=SHORT)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(folder, "memory=none")
    return folder


def test_the_settings_are_the_studys() -> None:
    cfg = settings(*STUDY)
    agent = cfg.agent
    assert (agent.lr, agent.adam_eps, agent.loss, agent.gamma) == (1e-3, 1e-8, "mse", 0.8)
    assert (agent.batch_size, cfg.memory.capacity, list(agent.network.hidden)) == (
        64,
        10_000,
        [128],
    )
    epsilon = [
        agent.epsilon.start + min(1, t / agent.epsilon.decay_steps) * (agent.epsilon.end - 1)
        for t in (0, 100, 950, 2000)
    ]
    assert epsilon == pytest.approx([max(1 - t / 1000, 0.05) for t in (0, 100, 950, 2000)])
    assert settings(*STUDY, "memory=none").memory.capacity == 64


@pytest.mark.slow
def test_the_run_ends_with_its_episodes(whole: Path) -> None:
    summary = summary_of(whole)
    lengths = [int(row["length"]) for row in rows_of(whole / "episodes.csv")]
    assert (summary["status"], summary["episodes"], len(lengths)) == ("finished", 8, 8)
    assert summary["env_steps"] == sum(lengths)
    assert summary["grad_steps"] == sum(lengths) // 64
    assert summary["train_return_mean"] == np.mean(lengths)


@pytest.mark.slow
def test_a_run_with_its_episodes_has_finished_already(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    before = (folder / "summary.json").read_bytes()
    train(folder, "memory=none", f"resume={folder}")
    assert "finished already" in capsys.readouterr().out
    assert (folder / "summary.json").read_bytes() == before


@pytest.mark.slow
def test_more_episodes_extend_a_run(whole: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    summary = train(folder, "memory=none", "trainer.max_episodes=10", f"resume={folder}")
    assert (summary["status"], summary["episodes"]) == ("finished", 10)
    longer = tmp_path / "longer"
    train(longer, "memory=none", "trainer.max_episodes=10")
    rows = [[r["length"] for r in rows_of(f / "episodes.csv")] for f in (folder, longer)]
    assert rows[0] == rows[1]


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["none", "per"])
def test_a_run_that_is_cut_off_goes_on_bit_for_bit(
    memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a step between a minibatch without replay and the row that tells of it."""
    train(tmp_path / "whole", f"memory={memory}")
    with monkeypatch.context() as patch:
        signal_at(patch, 135)
        with pytest.raises(SystemExit):
            train(tmp_path / "cut", f"memory={memory}")
    train(tmp_path / "cut", f"memory={memory}", f"resume={tmp_path / 'cut'}")
    assert_same_run(tmp_path / "whole", tmp_path / "cut")
    row = rows_of(tmp_path / "cut/metrics.csv")[2]
    assert (row["env_steps"], row["correlation_count"] != "") == ("150", True)


@pytest.mark.slow
def test_the_target_is_copied_when_an_episode_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = []
    monkeypatch.setattr(DQN, "update_target", lambda agent: copies.append(agent.grad_steps))
    train(tmp_path, "memory=uniform")
    ends = [int(row["env_steps"]) for row in rows_of(tmp_path / "episodes.csv")]
    assert copies == [max(0, steps - 63) for steps in ends]


@pytest.mark.slow
@pytest.mark.parametrize("env", ["acrobot", "mountain_car"])
def test_the_other_environments_run(env: str, tmp_path: Path) -> None:
    summary = train(tmp_path, f"env={env}", "trainer.max_episodes=1", "memory=cer")
    assert (summary["status"], summary["episodes"]) == ("finished", 1)
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert config["env"]["terminal_reward"] == -10
