"""Ctrl-C in a sweep whose jobs run beside each other: each saves first."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins

from rlmem.config import compose, interrupt, run_hydra
from rlmem.errors import UserError

ROOT = Path(__file__).parents[2]
pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
WAIT = 120  # seconds; generous, for machines that do other things meanwhile


@pytest.fixture(autouse=True)
def in_a_fresh_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def until_interrupted(cfg: Any) -> None:
    """Stand in for a training: at the signal it saves, which takes a second, and ends."""
    folder, came = Path(cfg.paths.output_dir), []
    signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    (folder / "started").touch()
    end = time.monotonic() + WAIT
    while not came and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(float(cfg.seed))
    (folder / "saved").touch()
    sys.exit(128 + came[0])


def fails(cfg: Any) -> None:
    raise UserError("env=pong: not installed")


def interrupts(cfg: Any) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def begun(folder: Path, *given: str) -> subprocess.Popen:
    argv = ["-m", "hydra/launcher=joblib", "hydra.sweep.dir=sweep"]
    code = (
        "import signal, sys; "  # which a shell that runs the tests behind it may ignore
        "signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from rlmem.config import run_hydra; "
        "from tests.config.test_interrupt import until_interrupted as task; "
        f"sys.exit(run_hydra(task, 'train', {[*argv, *given]}))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # as a terminal's: the signal goes to all of its processes
    )


def names(folder: Path, file: str) -> list[str]:
    return sorted(path.parent.name for path in folder.glob(f"sweep/*/{file}"))


def wait_for(folder: Path, files: str, count: int) -> None:
    end = time.monotonic() + WAIT
    while len([*folder.glob(files)]) < count:
        assert time.monotonic() < end
        time.sleep(0.05)


SAVED = (
    "\nrlmem: interrupted: jobs that run are saved, no other begins; again: at once\n"
    "rlmem: interrupted; the same command with hydra.sweep.dir=sweep goes on\n"
)


@pytest.mark.slow
@pytest.mark.parametrize(("n_jobs", "seeds"), [(2, "1,2,3,4,5,6,7,8"), (4, "1,2")])
def test_each_job_saves_and_none_begins(tmp_path: Path, n_jobs: int, seeds: str) -> None:
    """With more workers than jobs as well: one without a job would be interrupted."""
    process = begun(tmp_path, f"seed={seeds}", f"hydra.launcher.n_jobs={n_jobs}")
    wait_for(tmp_path, "sweep/*/started", 2)
    time.sleep(1)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=WAIT)
    assert (process.returncode, err) == (130, SAVED)
    assert names(tmp_path, "saved") == names(tmp_path, "started") == ["seed=1", "seed=2"]
    assert names(tmp_path, "error.json") == []


@pytest.mark.slow
def test_a_killed_command_leaves_no_process_and_begins_no_job(tmp_path: Path) -> None:
    """joblib's workers would go on with its queue, and then wait for ever."""
    process = begun(tmp_path, "seed=1,2,3,4", "hydra.launcher.n_jobs=2")
    wait_for(tmp_path, "sweep/*/started", 2)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate(timeout=WAIT)
    assert psutil.wait_procs(workers, WAIT)[1] == []
    assert names(tmp_path, "started") == ["seed=1", "seed=2"]


@pytest.mark.slow
def test_before_the_first_job_the_signal_interrupts_at_once(tmp_path: Path) -> None:
    """While Hydra composes each job, which takes minutes of a large grid."""
    process = begun(tmp_path, "seed=range(200)", "hydra.launcher.n_jobs=2")
    wait_for(tmp_path, "sweep/sweep.json", 1)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=WAIT)
    assert (process.returncode, err) == (130, SAVED.splitlines(keepends=True)[-1])
    assert names(tmp_path, "started") == []


@pytest.mark.parametrize("launcher", ["basic", "joblib", "submitit_local"])
@pytest.mark.parametrize("raises", [True, False])
def test_an_interrupt_that_gets_lost_while_jobs_are_composed_counts(
    launcher: str, raises: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """OmegaConf's copies turn some into an error of their own."""
    real = Plugins.instantiate_sweeper

    def losing(*args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        if raises:
            raise UnboundLocalError("old")
        return real(*args, **kwargs)

    monkeypatch.setattr(Plugins, "instantiate_sweeper", losing)
    argv = ["-m", "seed=1,2", "hydra.sweep.dir=sweep", f"hydra/launcher={launcher}"]
    with interrupt.handled_by(signal.default_int_handler):
        assert run_hydra(fails, "train", argv) == 130
    assert capfd.readouterr().err == SAVED.splitlines(keepends=True)[-1]


@pytest.mark.parametrize("raises", [True, False])
def test_an_interrupt_that_gets_lost_in_a_composition_counts(
    raises: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a study's jobs, of `rlmem.train`."""

    def losing(*args: Any) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        if raises:
            raise UnboundLocalError("old")

    monkeypatch.setattr("hydra.compose", losing)
    with interrupt.handled_by(signal.default_int_handler):
        with pytest.raises(KeyboardInterrupt):
            compose("train", ["seed=1"])
        monkeypatch.undo()
        with interrupt.handled_by(signal.SIG_IGN):  # as of a command behind a shell
            assert compose("train", ["seed=1"]).seed == 1
        assert compose("train", ["seed=1"]).seed == 1


def test_a_job_that_does_not_begin_keeps_why_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # Of a command that another test had printed or refused Hydra keeps the configuration.
    monkeypatch.setattr(HydraConfig.instance(), "cfg", None)
    argv = ["-m", "seed=1,2,3", "hydra.sweep.dir=sweep", "hydra/launcher=joblib"]
    argv += ["hydra.launcher.n_jobs=1"]
    before = signal.getsignal(signal.SIGINT)
    assert run_hydra(fails, "train", argv) == 2
    assert names(tmp_path, "error.json") == ["seed=1", "seed=2", "seed=3"]
    capfd.readouterr()
    assert run_hydra(interrupts, "train", argv) == 130
    assert names(tmp_path, "error.json") == ["seed=2", "seed=3"]
    err = capfd.readouterr().err
    assert "2 failed" in err
    assert err.endswith(SAVED.splitlines(keepends=True)[-1])
    assert signal.getsignal(signal.SIGINT) == before
    assert not HydraConfig.initialized()


def test_no_workers_are_a_mistake(capfd: pytest.CaptureFixture[str]) -> None:
    argv = ["-m", "seed=1,2", "hydra/launcher=joblib", "hydra.launcher.n_jobs=0"]
    assert run_hydra(fails, "train", argv) == 2
    line = "rlmem: hydra.launcher.n_jobs=0: must be at least 1; -1 takes all cores\n"
    assert capfd.readouterr().err == line


def test_scores_that_are_interrupted_say_so(
    capfd: pytest.CaptureFixture[str],
) -> None:
    argv = ["-m", "run=a,b", "hydra/launcher=joblib", "hydra.launcher.n_jobs=1"]
    assert run_hydra(interrupts, "evaluate", argv) == 130
    assert capfd.readouterr().err == "rlmem: interrupted\n"


@pytest.mark.slow
def test_the_second_signal_interrupts_at_once(tmp_path: Path) -> None:
    process = begun(tmp_path, f"seed={WAIT},{WAIT + 1}", "hydra.launcher.n_jobs=2")
    wait_for(tmp_path, "sweep/*/started", 2)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(1)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=WAIT)
    assert process.returncode == 130
    assert err.endswith(SAVED.splitlines(keepends=True)[-1])
    assert names(tmp_path, "saved") == []
