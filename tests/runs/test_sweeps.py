"""Sweeps of real runs: in other processes, cut off by a scheduler, and a search."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from rlmem.analysis.show.status import read_status
from rlmem.cli import _train
from rlmem.collect.collector import Collector
from rlmem.config import CONF_DIR, run_hydra
from rlmem.config.plugins import set_defaults
from rlmem.config.quoting import shell_override
from rlmem.runs.resume import lock_run
from tests.runs.helpers import TINY, TINY_GWR, rows_of, signal_at, summary_of

ROOT = Path(__file__).parents[2]


def train_or_be_stopped(cfg: DictConfig) -> Any:
    """Train; one with PER that starts gets SIGUSR2 at 201 env steps, as from Slurm at its time's
    end."""
    from rlmem.runs.train import train

    draw, starts = Collector._draw, not Path(cfg.paths.output_dir, "checkpoints").exists()
    starts &= cfg.memory.name == "per"

    def draw_or_stop(stream: Collector) -> Any:
        if starts and stream.env_steps == 201:
            os.kill(os.getpid(), signal.SIGUSR2)
        return draw(stream)

    Collector._draw = draw_or_stop  # type: ignore[method-assign]
    return train(cfg)


def command(
    folder: Path, *argv: str, task: str = "rlmem.cli:_train"
) -> subprocess.CompletedProcess:
    """`python train.py ...` in a fresh process, with another task in place of training."""
    module, name = task.split(":")
    code = (
        "import sys; from rlmem.config import run_hydra; "
        f"from {module} import {name}; sys.exit(run_hydra({name}, 'train', {list(argv)}))"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_same_command_skips_finished_jobs_and_goes_on_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    argv = ["-m", "seed=0,1,2", *TINY, f"hydra.sweep.dir={tmp_path}"]
    assert run_hydra(_train, "train", [argv[0], "seed=0", *argv[2:]]) == 0
    with monkeypatch.context() as patch:
        signal_at(patch, 201)  # the sweep stops at seed 1
        assert run_hydra(_train, "train", argv) == 128 + signal.SIGTERM
    again = shell_override("hydra.sweep.dir", str(tmp_path))
    assert f"rlmem: interrupted; the same command with {again} goes on" in capfd.readouterr().err
    status = read_status(tmp_path)
    counts = {"done": 1, "interrupted": 1, "missing": 1}
    assert {state: count for state, count in status.counts.items() if count} == counts
    (cut,) = status.of("interrupted")
    assert (cut.env_steps, cut.max_env_steps) == (201, 300)
    finished = tmp_path / status.of("done")[0].name / "summary.json"
    before = finished.stat().st_mtime_ns
    capfd.readouterr()
    assert run_hydra(_train, "train", argv) == 0
    assert "resumed at 201 env steps" in capfd.readouterr().out
    assert finished.stat().st_mtime_ns == before
    assert read_status(tmp_path).counts["done"] == 3


def test_two_commands_share_the_jobs_of_a_sweep(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A job that another command runs is left to it, and has not failed."""
    argv = ["-m", "seed=0,1", *TINY, f"hydra.sweep.dir={tmp_path}", "hydra.sweep.subdir=${seed}"]
    with lock_run(tmp_path / "0"):
        assert run_hydra(_train, "train", argv) == 0
    assert "another command runs it" in capfd.readouterr().out
    assert not [*tmp_path.rglob("error.json")]
    assert [job.name for job in read_status(tmp_path).of("done")] == ["1"]
    assert run_hydra(_train, "train", argv) == 0
    assert read_status(tmp_path).counts["done"] == 2


def test_a_training_that_fails_is_listed_and_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    argv = ["-m", "seed=0,1", *TINY, f"hydra.sweep.dir={tmp_path}"]

    def fail(stream: Collector) -> Any:
        raise RuntimeError("the env is gone")

    with monkeypatch.context() as patch:
        patch.setattr(Collector, "_draw", fail)
        assert run_hydra(_train, "train", argv) == 1
    assert "2 failed; the same command with" in capfd.readouterr().err
    errors = [job.error for job in read_status(tmp_path).of("failed")]
    assert errors == ["RuntimeError: the env is gone"] * 2
    assert run_hydra(_train, "train", argv) == 0
    assert read_status(tmp_path).counts["done"] == 2


def test_slurm_takes_our_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    from submitit import SlurmExecutor

    (tmp_path / "srun").write_text("#!/bin/sh\n")
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    set_defaults()
    overrides = ["hydra/launcher=submitit_slurm", "hydra.launcher.partition=gpu"]
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        cfg = compose("train", overrides, return_hydra_config=True)
    keys = set(cfg.hydra.launcher) - {"_target_", "submitit_folder", "max_num_timeout", "name"}
    params = {key: cfg.hydra.launcher[key] for key in keys}
    assert params["partition"] == "gpu"
    assert cfg.hydra.launcher.max_num_timeout == 20
    params["time"], params["mem"] = params.pop("timeout_min"), f"{params.pop('mem_gb')}GB"
    params["ntasks_per_node"] = params.pop("tasks_per_node")
    params["additional_parameters"] = dict(params["additional_parameters"])
    executor = SlurmExecutor(tmp_path / "jobs")
    executor.update_parameters(**params)
    text = executor._make_submission_file_text("train", "1")
    assert "--signal=USR2@120" in text
    assert "--time=720" in text
    assert "--cpus-per-task=4" in text


@pytest.mark.slow
def test_a_scheduler_runs_jobs_and_one_whose_time_is_over_is_saved_and_goes_on(
    tmp_path: Path,
) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    argv = ["-m", "memory=uniform,per", *TINY, "hydra.sweep.dir=sweep"]
    done = command(
        tmp_path,
        *argv,
        "hydra/launcher=submitit_local",
        task="tests.runs.test_sweeps:train_or_be_stopped",
    )
    assert done.returncode == 0, done.stderr
    logs = [log.read_text() for log in (tmp_path / "sweep/.submitit").glob("*/*_log.out")]
    (stopped,) = (text for text in logs if "SIGUSR2: saving, then stopping" in text)
    assert "resumed at 201 env steps" in stopped
    assert len(logs) == 2
    status = read_status(tmp_path / "sweep")
    assert status.counts["done"] == len(status.jobs) == 2
    folders = [tmp_path / "sweep" / job.name for job in status.jobs]
    assert {summary_of(folder)["memory"] for folder in folders} == {"uniform", "per"}
    for folder in folders:
        assert summary_of(folder)["env_steps"] == 300
        assert [row["env_steps"] for row in rows_of(folder / "metrics.csv")][-1] == "300"


@pytest.mark.slow
def test_a_search_and_going_on_with_it(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    argv = ["hparams_search=gwr_thresholds", *TINY_GWR, *TINY, f"hydra.sweep.dir={tmp_path}"]
    for trials in (2, 3):
        assert run_hydra(_train, "train", [*argv, f"hydra.sweeper.n_trials={trials}"]) == 0
        status = read_status(tmp_path)
        assert status.counts["done"] == len(status.jobs) == trials
    best = (tmp_path / "optimization_results.yaml").read_text()
    scores = [summary_of(tmp_path / job.name)["eval_return_mean"] for job in status.jobs]
    assert f"best_value: {max(scores)}" in best
