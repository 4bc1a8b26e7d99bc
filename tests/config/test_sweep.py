"""What a sweep leaves in its folder: the jobs that were asked for, and why one failed."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir

from rlmem.analysis.show.status import read_status
from rlmem.config import CONF_DIR, run_hydra
from rlmem.config.schema import TrainSettings
from rlmem.config.sweep import Sweep, SweepRecord, at_once, write_error
from rlmem.errors import UserError
from rlmem.machine import usable_cores
from tests.settings import settings


def task(cfg: TrainSettings) -> Any:
    """Stand in for a training: seeds choose how it ends, until a file says that all is well."""
    Path(cfg.paths.output_dir, "ran").touch()
    if not Path("mended").exists():
        if cfg.seed == 7:
            raise UserError("env=pong: not installed")
        if cfg.seed == 8:
            raise RuntimeError("a\nbug")
        if cfg.seed == 9:
            raise KeyboardInterrupt
        if cfg.seed == 10:
            os.kill(os.getpid(), signal.SIGKILL)
    return float(cfg.seed)


@pytest.fixture(autouse=True)
def in_a_fresh_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def sweep(*argv: str) -> int:
    return run_hydra(task, "train", ["-m", *argv, "hydra.sweep.dir=sweep"])


def commands() -> list[dict[str, Any]]:
    return json.loads(Path("sweep/sweep.json").read_text())["commands"]


def test_one_folder_for_all_jobs_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert sweep("seed=1,2", "paths.output_dir=mine") == 2
    line = "rlmem: paths.output_dir=mine: is of one run; a sweep takes hydra.sweep.dir=mine\n"
    assert capfd.readouterr().err == line
    assert not Path("sweep").exists()


def test_a_runs_folder_is_no_place_for_a_sweep(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_hydra(task, "train", ["-m", "seed=1,2", "hydra.run.dir=mine"]) == 2
    line = "rlmem: hydra.run.dir=mine: is of one run; a sweep takes hydra.sweep.dir=mine\n"
    assert capfd.readouterr().err == line


def test_a_sweep_without_a_job_is_a_mistake(capfd: pytest.CaptureFixture[str]) -> None:
    assert sweep("env=glob(none_such*)") == 2
    out, err = capfd.readouterr()
    assert err.startswith("rlmem: the sweep has no jobs")
    assert "compare them" not in out
    assert commands() == []


def test_a_job_that_another_command_could_not_start_has_not_failed() -> None:
    """The same command was given twice; the job that runs has ended well since."""
    assert sweep("seed=1") == 0
    folder = Path("sweep/seed=1")
    write_error(folder, "another process is training there", 2)
    (folder / "summary.json").write_text('{"status": "finished"}')
    assert SweepRecord.current is not None
    assert SweepRecord.current.failed() == []
    (folder / "summary.json").unlink()
    assert len(SweepRecord.current.failed()) == 1


def test_the_jobs_that_never_start_are_known() -> None:
    assert sweep("seed=1,9,2", "memory=per") == 130
    (command,) = commands()
    assert command["overrides"] == ["seed=1,9,2", "memory=per"]
    assert (command["launcher"], command["at_once"], command["trials"]) == ("basic", 1, 0)
    assert command["jobs"] == {
        f"memory=per+seed={seed}": [f"seed={seed}", "memory=per"] for seed in (1, 9, 2)
    }
    assert not Path("sweep/memory=per+seed=2").exists()
    assert read_status(Path("sweep")).counts["missing"] == 3  # a stand-in leaves no run


def test_an_error_is_not_written_over_a_finished_run() -> None:
    Path("run").mkdir()
    write_error(Path("run"), "why", 2)
    assert Path("run/error.json").exists()
    Path("run/error.json").unlink()
    Path("run/summary.json").write_text('{"status": "finished"}')
    write_error(Path("run"), "that run has other settings", 2)
    assert not Path("run/error.json").exists()


@pytest.mark.parametrize(("folder", "left"), [("mine/a", {"mine"}), ("mine/b/c", {"mine"})])
def test_a_refused_command_leaves_what_was_there(folder: str, left: set[str]) -> None:
    Path("mine").mkdir()
    assert run_hydra(task, "train", [f"hydra.run.dir={folder}", "agent.batch_size=0"]) == 2
    assert {str(path) for path in Path().rglob("*")} == left
    assert run_hydra(task, "train", ["hydra.run.dir=new/a", "agent.batch_size=0"]) == 2
    assert {str(path) for path in Path().rglob("*")} == left


@pytest.mark.parametrize(
    "argv",
    [
        ["agent.network.hidden=[64,64],[32]", "memory/sampler=rank"],
        ["logger=[csv]", "debug=true", "experiment=grid", "hydra.searchpath=[file://mine]"],
        ["label='a b','c=d'", "seed=range(2)"],
        ["memory=glob(per*)"],
        ["seed=1,2", "hydra.sweep.subdir=${hydra.job.num}"],
        ["seed=1,2", "agent.lr=0.1,0.2", "hydra.sweep.subdir=seed${seed}-lr${agent.lr}"],
        ["seed=1,2", "label=${env.name}-x"],
        ["memory=uniform,per", "seed=1,2", "hydra.sweep.subdir=${memory.name}_${seed}"],
    ],
)
def test_the_names_are_those_of_the_folders(argv: list[str]) -> None:
    Path("mine/experiment").mkdir(parents=True)
    text = "# @package _global_\nhydra: {sweeper: {params: {seed: '1,2'}}}\n"
    Path("mine/experiment/grid.yaml").write_text(text)
    assert sweep(*argv) == 0
    (command,) = commands()
    assert sorted(command["jobs"]) == sorted(str(p.parent.name) for p in Path().rglob("ran"))


def test_commands_for_one_folder_come_together() -> None:
    sweep("seed=1,2")
    sweep("seed=3")
    sweep("seed=1,2")
    assert [list(command["jobs"]) for command in commands()] == [["seed=3"], ["seed=1", "seed=2"]]


def test_a_command_that_differs_in_what_makes_no_other_job_is_the_same() -> None:
    sweep("seed=1,2")
    sweep("seed=1,2", "log.progress=false")
    assert [list(command["jobs"]) for command in commands()] == [["seed=1", "seed=2"]]


@pytest.mark.parametrize("argv", [["memory=per,grw"], ["agent.lrr=1,2"], ["seed=interval(0,1)"]])
def test_a_wrong_command_is_taken_back(argv: list[str]) -> None:
    sweep("seed=1")
    before = commands()
    assert sweep(*argv) == 2
    assert commands() == before


def test_failed_jobs_are_listed_and_the_same_command_runs_them_again(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert sweep("seed=8,1,7") == 1
    err = capfd.readouterr().err
    assert "Error executing job" not in err  # Hydra's own line beside ours
    told = "rlmem: 2 failed; the same command with hydra.sweep.dir=sweep runs what failed again:"
    lines = err[err.index(told) :].splitlines()[1:]
    assert lines == ["  seed=8  RuntimeError: a bug", "  seed=7  env=pong: not installed"]
    status = read_status(Path("sweep"))
    assert {job.name: job.error for job in status.of("failed")} == {
        "seed=8": "RuntimeError: a bug",
        "seed=7": "env=pong: not installed",
    }
    Path("mended").touch()
    assert sweep("seed=8,1,7") == 0
    assert "failed" not in capfd.readouterr().err
    assert not list(Path("sweep").rglob("error.json"))


def test_batches_follow_one_with_a_job_that_failed() -> None:
    assert sweep("seed=8,1,2,3", "hydra.sweeper.max_batch_size=2") == 1
    assert sorted(file.parent.name for file in Path("sweep").glob("*/ran")) == [
        f"seed={seed}" for seed in (1, 2, 3, 8)
    ]


@pytest.mark.parametrize("content", ["null", "[1]", '{"commands": [1]}', "{"])
def test_a_damaged_record_is_written_anew(content: str) -> None:
    Path("sweep").mkdir()
    Path("sweep/sweep.json").write_text(content)
    assert sweep("seed=1") == 0
    (command,) = json.loads(Path("sweep/sweep.json").read_text())["commands"]
    assert list(command["jobs"]) == ["seed=1"]


def test_a_job_that_is_killed_is_told_in_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    argv = ["seed=10,1", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    assert sweep(*argv) == 1
    err = capfd.readouterr().err
    assert "Traceback" not in err
    assert "rlmem: a job was killed; " in err
    Path("mended").touch()
    assert sweep(*argv) == 0


def test_a_job_whose_values_do_not_go_together_leaves_its_error() -> None:
    assert sweep("memory.capacity=10,1000", "agent.batch_size=32") == 2
    (job,) = read_status(Path("sweep")).of("failed")
    assert job.error is not None
    assert job.error.startswith("memory.capacity=10: less than one batch")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["hydra/launcher=joblib"], usable_cores()),
        (["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"], 2),
        (["hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "hydra.sweeper.max_batch_size=1"], 1),
    ],
)
def test_how_many_run_at_once_is_known(argv: list[str], expected: int) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        cfg = hydra_compose("train", argv, return_hydra_config=True)
    assert at_once(cfg.hydra, 100) == expected


@pytest.mark.parametrize(
    ("launcher", "key", "value"),
    [
        ("joblib", "batch_size", "'1'"),
        ("submitit_local", "timeout_min", "1440"),
        ("submitit_slurm", "max_num_timeout", "20"),
        ("submitit_slurm", "array_parallelism", "64"),
    ],
)
def test_the_launchers_have_our_defaults(
    launcher: str, key: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(f"hydra_plugins.hydra_{launcher.split('_')[0]}_launcher")
    argv = [f"hydra/launcher={launcher}", "--cfg", "hydra", "-p", "hydra.launcher"]
    assert run_hydra(task, "train", argv) == 0
    assert f"\n{key}: {value}\n" in capsys.readouterr().out


SUMMARY = {"eval_return_mean": 12.0, "memory_bytes_peak": 2048}


@pytest.mark.parametrize(
    ("overrides", "value"),
    [
        ([], 12.0),
        (["objective=return_and_bytes"], (12.0, 2048)),
        (["objective=return_at_budget", "objective.budget=2KiB"], 12.0),
        (["objective=return_at_budget", "objective.budget=2047"], float("-inf")),
    ],
)
def test_the_objective(overrides: list[str], value: Any) -> None:
    objective = settings(*overrides).objective.build()
    assert objective.value(SUMMARY) == value
    assert (objective.directions == "maximize") == isinstance(value, float)


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["objective.kind=bytes"], "objective.kind=bytes: no such objective; available: eval_ret"),
        (["objective=return_at_budget"], "objective.budget is not set; give it, such as obj"),
        (["objective.budget=2MiB"], "only objective=return_at_budget reads it"),
        (
            ["objective=return_at_budget", "objective.budget=2MB2"],
            "objective.budget=2MB2 is not a number of bytes",
        ),
    ],
)
def test_an_objective_that_cannot_be(overrides: list[str], line: str) -> None:
    with pytest.raises(UserError, match=line):
        settings(*overrides)


def search(*more: str) -> int:
    """Without -m, which a search does not need."""
    given = ["hparams_search=dqn_small", "env=cartpole", "hydra.sweep.dir=sweep", *more]
    return run_hydra(task, "train", given)


@pytest.mark.slow
def test_a_search_whose_trials_all_fail_lists_them(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("optuna")
    assert search("seed=7", "hydra.sweeper.n_trials=2") == 2
    told = capfd.readouterr()
    assert "2 failed; the same command with" in told.err
    assert "Record does not exist" not in told.err + told.out


@pytest.mark.slow
def test_a_search_of_no_trial_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("optuna")
    assert search("hydra.sweeper.n_trials=0") == 2
    told = capfd.readouterr().err
    assert "rlmem: the search made no trial; use hydra.sweeper.n_trials=1 or more\n" in told
    assert "Record does not exist" not in told


def test_one_folder_for_all_trials_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert search("paths.output_dir=mine") == 2
    assert "paths.output_dir=mine: is of one run" in capfd.readouterr().err


@pytest.mark.parametrize("error", [{"a": 1}, {"exit_code": "x"}, {"error": 5, "exit_code": 10**9}])
def test_an_error_file_of_other_values_is_a_failure_all_the_same(error: dict[str, Any]) -> None:
    Path("sweep/seed=7").mkdir(parents=True)
    Path("sweep/seed=7/error.json").write_text(json.dumps(error))
    ((name, _, code),) = Sweep(Path("sweep"), {"seed=7": []}, []).failed()
    assert (name, code) == ("seed=7", 1)
