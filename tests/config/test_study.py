"""A search goes on: what it lacks is drawn, what failed or was cut off runs again."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlmem.analysis.show.status import read_status
from rlmem.config import run_hydra
from rlmem.config.schema import TrainSettings

pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
optuna = pytest.importorskip("optuna")

FOLDER = Path("multirun/gwr_thresholds/cartpole-gwr")


def task(cfg: TrainSettings) -> Any:
    """Stand in for a training: a file says how the next one ends."""
    with Path("trials").open("a") as trials:
        trials.write(f"{cfg.threshold.activation} {cfg.threshold.habituation}\n")
    end = Path("end").read_text() if Path("end").exists() else ""
    Path("end").unlink(missing_ok=True)
    Path(cfg.paths.output_dir, "config.yaml").touch()
    if end == "interrupt":
        raise KeyboardInterrupt
    if end == "fail":
        raise RuntimeError("a bug")
    if cfg.objective.part.name == "return_and_bytes":
        return cfg.threshold.activation, 2**20
    return -math.inf if end == "too large" else cfg.threshold.activation


@pytest.fixture(autouse=True)
def in_a_fresh_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def search(trials: int, *more: str) -> int:
    argv = ["hparams_search=gwr_thresholds", "env=cartpole", "memory=gwr", *more]
    return run_hydra(task, "train", [*argv, f"hydra.sweeper.n_trials={trials}"])


def drawn() -> list[str]:
    return Path("trials").read_text().splitlines()


def finished_trials() -> list[float]:
    (summary,) = optuna.get_all_study_summaries(f"sqlite:///{FOLDER}/study.db")
    study = optuna.load_study(study_name=summary.study_name, storage=f"sqlite:///{FOLDER}/study.db")
    done = study.get_trials(states=[optuna.trial.TrialState.COMPLETE])
    return [trial.value for trial in done]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("n_jobs=0", "must be at least 1"),
        ("direction=up", "must be minimize or maximize"),
        ("storage=foo", "is no address of a database"),
    ],
)
def test_a_wrong_value_of_the_sweeper_is_one_line(
    given: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert search(2, f"hydra.sweeper.{given}") == 2
    assert f"hydra.sweeper.{given}: {told}" in capsys.readouterr().err.splitlines()[-1]


def test_the_same_command_stops_at_the_trials_that_were_asked_for() -> None:
    assert search(2) == 0
    assert search(2) == 0
    assert len(drawn()) == 2
    assert search(3) == 0
    assert len(set(drawn())) == 3
    assert len(finished_trials()) == 3
    best = yaml.safe_load((FOLDER / "optimization_results.yaml").read_text())
    assert best["best_value"] == max(finished_trials())
    (command,) = json.loads((FOLDER / "sweep.json").read_text())["commands"]
    assert (command["trials"], command["jobs"]) == (3, {})
    assert read_status(FOLDER).counts["missing"] == 0


@pytest.mark.parametrize(("end", "code"), [("interrupt", 130), ("fail", 1)])
def test_a_trial_that_did_not_end_runs_again_with_its_parameters(
    end: str, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("end").write_text(end)
    assert search(2) == code
    assert ("1 failed; the same command with" in capfd.readouterr().err) == (end == "fail")
    broken, rest = drawn()[0], drawn()[1:]
    assert search(2) == 0
    assert drawn()[len(rest) + 1] == broken
    assert len(drawn()) == 3
    assert len(finished_trials()) == 2
    assert not list(FOLDER.rglob("error.json"))


def test_a_run_that_is_worth_nothing_is_a_trial_all_the_same() -> None:
    Path("end").write_text("too large")
    assert search(2) == 0
    assert -math.inf in finished_trials()
    assert len(drawn()) == 2


def test_return_and_bytes_make_a_front() -> None:
    assert search(2, "objective=return_and_bytes") == 0
    front = yaml.safe_load((FOLDER / "optimization_results.yaml").read_text())
    best = max(float(line.split()[0]) for line in drawn())
    assert [s["values"] for s in front["solutions"]] == [[pytest.approx(best), 2**20]]
    assert search(1) == 0  # another objective is another study
    assert len(drawn()) == 3
