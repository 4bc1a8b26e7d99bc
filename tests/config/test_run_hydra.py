"""The door of the command line: exit codes, one line for a user's mistake, sweeps that go on."""

import copy
import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.config_store import ConfigStore

from rlmem.config import CONF_DIR, check_output_dir, compose, run_hydra, safe_name
from rlmem.config.schema import EvaluateSettings, TrainSettings
from rlmem.errors import UserError
from rlmem.version import __version__


def task(cfg: TrainSettings) -> None:
    """Stand in for a training: seeds choose how it ends."""
    Path(cfg.paths.output_dir, "ran").write_text(cfg.memory.name)
    if cfg.seed == 7:
        raise UserError("resume=x: no such run")
    if cfg.seed == 8:
        raise RuntimeError("a bug")
    if cfg.seed == 9:
        raise KeyboardInterrupt


def nothing(cfg: EvaluateSettings) -> None:
    """Stand in for a score."""


def refused(cfg: EvaluateSettings) -> None:
    """Stand in for a score of no run."""
    raise UserError(f"run={cfg.run}: no run there")


@pytest.fixture(autouse=True)
def in_a_fresh_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)


def folders() -> list[str]:
    return sorted(str(file.parent) for file in Path().rglob("ran"))


def test_a_run_goes_to_outputs_env_memory_and_leaves_no_log_file() -> None:
    assert run_hydra(task, "train", ["memory=gwr", "env=pong", "seed=3"]) == 0
    (folder,) = folders()
    assert re.fullmatch(r"outputs/pong/gwr/[\d_-]+-seed3", folder)
    assert {file.name for file in Path(folder).iterdir()} == {"ran"}


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["memory=grw"], "memory=grw: no such memory; did you mean gwr?"),
        (["memory.capcity=10"], "memory.capcity=10: no such key in memory;"),
        (["env=atari"], "env.game is not set; give it, such as env.game=seaquest"),
        (["threshold.activation=1.7"], "threshold.activation=1.7: must be above 0"),
        (["seed=7"], "resume=x: no such run"),
        (["paths.output_dir=null"], "paths.output_dir=null: a run needs a folder"),
        (["hydra.run.dir=file/below"], "hydra.run.dir=file/below: cannot write to"),
        (["paths.output_dir=file/below"], "paths.output_dir=file/below: cannot write there"),
        (["hydra.run.dir="], "hydra.run.dir=: names no folder; such as hydra.run.dir=outputs/mine"),
        (
            ["hydra.sweep.dir=x"],
            "hydra.sweep.dir=x: is of a sweep; add -m, or write hydra.run.d",
        ),
        (["seed=${oc.env:NONE}"], "seed=${oc.env:NONE}: the environment variable NONE is not set"),
        (["seed=${agent.los}"], "seed=${agent.los}: no such key, agent.los; did you mean agent.l"),
        (["~memory"], "~memory: hydra.run.dir follows memory.name; leave it out"),
        (["-m", "seed=interval(1,2)"], "seed=interval(1,2): is for a search, hydra/sweeper=optuna"),
        (["-m", "hydra.launcher.n_jobs=2"], "hydra.launcher.n_jobs=2: no such key in hydra.launch"),
        (["-m", "memory=uniform,grw"], "memory=grw (in memory=uniform,grw): no such memory;"),
    ],
)
def test_a_users_mistake_is_one_line_and_code_2(
    argv: list[str], line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("file").write_text("not a folder")
    assert run_hydra(task, "train", argv) == 2
    err = capfd.readouterr().err
    assert err.startswith(f"rlmem: {line}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("argv", [["seed=7"], ["memory=grw"]])
def test_debug_or_the_variable_shows_the_traceback(
    argv: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_hydra(task, "train", [*argv, "debug=true"]) == 2
    assert "Traceback" in capfd.readouterr().err
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    assert run_hydra(task, "train", argv) == 2
    assert "Traceback" in capfd.readouterr().err


def test_a_command_that_is_refused_changes_nothing_in_a_runs_folder(tmp_path: Path) -> None:
    given = ["env=cartpole", "hydra.run.dir=mine"]
    assert run_hydra(task, "train", [*given, "seed=3"]) == 0
    before = {path: path.read_bytes() for path in Path("mine").rglob("*") if path.is_file()}
    assert run_hydra(task, "train", [*given, "seed=5", "trainer.max_env_steps=0"]) == 2
    after = {path: path.read_bytes() for path in Path("mine").rglob("*") if path.is_file()}
    assert before == after


def test_a_bug_comes_through_and_leaves_the_environment_as_it_was() -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        run_hydra(task, "train", ["seed=8"])
    assert "HYDRA_FULL_ERROR" not in os.environ


def test_an_interrupt_is_code_130() -> None:
    assert run_hydra(task, "train", ["seed=9"]) == 130


def test_a_failing_job_is_named_and_the_sweep_goes_on(capfd: pytest.CaptureFixture[str]) -> None:
    argv = ["-m", "seed=1,7,8,2", "memory/sampler=rank", "hydra.sweep.dir=sweep"]
    assert run_hydra(task, "train", argv) == 2
    err = capfd.readouterr().err
    assert "rlmem: job 2 (seed=7 memory/sampler=rank) failed: resume=x: no" in err
    assert "rlmem: job 3 (seed=8 memory/sampler=rank) failed: RuntimeError: a" in err
    assert folders() == [f"sweep/memory.sampler=rank+seed={seed}" for seed in (1, 2, 7, 8)]


def test_a_disk_that_fills_up_between_two_jobs_leaves_the_sweep_to_go_on(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Path.mkdir

    def full(folder: Path, *args: Any, **options: Any) -> None:
        if folder.name == "seed=2":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        make(folder, *args, **options)

    monkeypatch.setattr(Path, "mkdir", full)
    assert run_hydra(task, "train", ["-m", "seed=1,2,3", "hydra.sweep.dir=sweep"]) == 2
    assert "rlmem: the disk is full; with more room the same command" in capfd.readouterr().err
    (command,) = json.loads(Path("sweep/sweep.json").read_text())["commands"]
    assert len(command["jobs"]) == 3


def test_a_sweep_may_be_asked_for_behind_other_overrides() -> None:
    assert run_hydra(task, "train", ["memory=per", "-m", "seed=1,2", "hydra.sweep.dir=sweep"]) == 0
    assert len(folders()) == 2


def test_evaluate_leaves_the_error_of_a_job_where_it_is(tmp_path: Path) -> None:
    Path("error.json").write_text("{}")
    assert run_hydra(nothing, "evaluate", ["run=here"]) == 0
    assert Path("error.json").read_text() == "{}"


def test_evaluating_several_runs_leaves_no_file_of_hydras() -> None:
    assert run_hydra(nothing, "evaluate", ["-m", "run=here,there"]) == 0
    assert list(Path().iterdir()) == []
    Path("multirun.yaml").write_text("mine")
    assert run_hydra(nothing, "evaluate", ["-m", "run=here,there"]) == 0
    assert Path("multirun.yaml").exists()


def test_evaluating_runs_that_fail_leaves_no_file_of_hydras() -> None:
    assert run_hydra(refused, "evaluate", ["-m", "run=here,there"]) == 2
    assert list(Path().iterdir()) == []


def test_evaluating_no_run_is_a_mistake(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_hydra(nothing, "evaluate", ["-m", "run=glob(*)"]) == 2
    assert capfd.readouterr().err.startswith("rlmem: the sweep has no jobs")
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("name", ["train", "evaluate"])
def test_the_version_is_our_own(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_hydra(nothing, name, ["--version"]) == 0
    assert capfd.readouterr().out == f"rlmem {__version__}\n"


def test_the_joblib_launcher_runs_a_sweep(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    argv = ["-m", "memory=uniform,per", "seed=7", "hydra.sweep.dir=sweep"]
    argv += ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    assert run_hydra(task, "train", argv) == 2
    assert capfd.readouterr().err.count("failed: resume=x: no such run") == 2
    assert folders() == ["sweep/memory=per+seed=7", "sweep/memory=uniform+seed=7"]


def test_help_is_short_and_loads_nothing_slow() -> None:
    code = (
        "import atexit, sys; from rlmem.config import run_hydra; slow = {'torch', 'gymnasium'}; "
        "atexit.register(lambda: print('loaded:', *slow & {*sys.modules}, file=sys.stderr)); "
        "run_hydra(print, 'train', ['--help'])"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == "loaded:"
    assert "memory: cer, dnd, gbmr, gcmr, gq, gwr, gwr_plain, gwr_released, her" in done.stdout
    assert len(done.stdout.splitlines()) <= 45
    listed = done.stdout.partition("Groups (group=option):\n")[2].partition("\n\n")[0]
    defaults = yaml.safe_load((CONF_DIR / "train.yaml").read_text())["defaults"]
    chosen = {group for entry in defaults if isinstance(entry, dict) for group in entry}
    assert {re.split("[/:]", line)[0] for line in listed.splitlines()} == chosen - {
        *("hydra", "override hydra/help")
    }


def test_the_store_of_options_is_never_copied_and_what_it_gives_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = ConfigStore.instance()
    monkeypatch.setattr(store, "repo", {**store.repo})
    store.store(group="objective", name="mine", node={"name": "mine", "weights": [1]})
    assert copy.deepcopy({"sources": [store]})["sources"][0] is store
    given = compose("train", ["objective=mine"]).objective
    given.weights.append(2)
    assert compose("train", ["objective=mine"]).objective.weights == [1]


def test_the_config_can_be_printed_with_its_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_hydra(task, "train", ["env=pong", "--cfg", "job", "--resolve"]) == 0
    assert "capacity: 100000" in capsys.readouterr().out
    assert folders() == []


def test_a_jobs_folder_is_one_component_and_never_shared() -> None:
    assert safe_name("memory/sampler=rank+seed=1") == "memory.sampler=rank+seed=1"
    assert safe_name("seed=1+memory/sampler=rank") == "seed=1+memory.sampler=rank"
    assert safe_name("label=a.b") == "label=a.b" != safe_name("label=a/b")
    lists = [safe_name(f"agent.network.hidden={hidden}") for hidden in ("[64,64]", "[64-64]")]
    assert lists[0] != lists[1]
    long = [safe_name(sign * 300 + str(number)) for sign in "a語" for number in range(2)]
    assert len({*long}) == 4
    assert all(len(name.encode()) <= 200 and "/" not in name for name in long + lists)


def test_the_output_directory_is_made_and_tried(tmp_path: Path) -> None:
    check_output_dir(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write there"):
        check_output_dir(tmp_path / "file" / "below")
