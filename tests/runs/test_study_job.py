"""One job of a study: it goes on where it was cut off, and signals end it with what it has."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import psutil
import pytest
import yaml

from rlmem.errors import OccupiedError
from rlmem.runs import study, study_job
from rlmem.runs.study_file import Study
from rlmem.runs.summary import read_summary
from tests.runs.helpers import signal_at
from tests.runs.test_study import DEFINITION, MATURE

IMPORTING = 40 * 2**20  # bytes of a process that has begun to import
LONG = DEFINITION.replace("max_env_steps=300", "max_env_steps=1000000")


@pytest.mark.slow
def test_a_job_that_was_cut_off_goes_on_with_a_module_that_its_study_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was given may not import it; study.yaml is the user's own."""
    (tmp_path / "my_room.py").write_text(
        "import gymnasium\n"
        "make = 'gymnasium.envs.classic_control.cartpole:CartPoleEnv'\n"
        "gymnasium.register('MyRoom-v0', make, max_episode_steps=50)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    definition = yaml.safe_load(DEFINITION)
    definition["rows"] = {"uniform": "memory=uniform"}
    rooms = {"overrides": "env=cartpole env.id=my_room:MyRoom-v0 agent.train_every=1", "seeds": 1}
    definition["columns"] = {"Rooms": rooms}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(definition))
    (job,) = Study(tmp_path).jobs("Rooms")
    with monkeypatch.context() as patch:
        patch.setattr(study_job, "_told_to_end", threading.Event())
        signal_at(patch, 200)
        with pytest.raises(SystemExit):
            study_job.run_job(job)
    monkeypatch.delitem(sys.modules, "my_room")  # as in a process that has just started
    gymnasium.registry.pop("MyRoom-v0")
    assert study_job.run_job(job) is None
    summary = read_summary(job.folder)
    assert summary is not None
    assert summary["status"] == "finished"


def begun(folder: Path, jobs: int) -> subprocess.Popen:
    """The command, as a terminal begins it, with runs that take long."""
    (folder / "study.yaml").write_text(LONG)
    code = (
        "import signal; "  # a shell's & ignores SIGINT, nohup SIGHUP
        "signal.signal(signal.SIGINT, signal.default_int_handler); "
        "signal.signal(signal.SIGHUP, signal.SIG_DFL); "
        "from rlmem.cli import study_main; study_main()"
    )
    command = [sys.executable, "-uc", code, str(folder), "--only", "CartPole", "--jobs"]
    command.append(str(jobs))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, start_new_session=True, **pipes)


def test_a_job_that_another_command_runs_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def occupied(settings: Any, at_once: int) -> None:
        raise OccupiedError("another process is training there")

    monkeypatch.setattr("rlmem.runs.train.train", occupied)
    (tmp_path / "study.yaml").write_text(DEFINITION)
    job = next(Study(tmp_path).all_jobs(["CartPole"]))
    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(study_job.signal, "signal", lambda *args: None)  # none in a thread
        assert study._run_all(pool, [job], 1) == []
    assert "another command runs it and keeps it" in capsys.readouterr().out
    assert not (job.folder / "error.json").exists()


@pytest.mark.slow
def test_ctrl_c_while_processes_start_is_one_line(tmp_path: Path) -> None:
    process = begun(tmp_path, 2)
    assert process.stdout is not None
    assert "2 at once" in process.stdout.readline()
    while not any(
        "spawn_main" in " ".join(child.cmdline()) and child.memory_info().rss > IMPORTING
        for child in psutil.Process(process.pid).children()
    ):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=MATURE)[1] == (
        "rlmem: interrupted; the same command goes on\n"
    )
    assert not list(tmp_path.glob("runs/*/*/*/error.json"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_study_that_is_ended_leaves_a_checkpoint_and_no_process(
    tmp_path: Path, number: signal.Signals
) -> None:
    """A terminal that is closed tells the jobs as well; of a kill they hear nothing."""
    process = begun(tmp_path, 1)
    run = tmp_path / "runs/cartpole/uniform/seed0"
    deadline = time.monotonic() + MATURE
    while not (run / "metrics.csv").exists() or not (run / "metrics.csv").read_text():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.2)
    (worker,) = (
        child for child in psutil.Process(process.pid).children() if len(child.children()) == 0
        and "spawn_main" in " ".join(child.cmdline())
    )  # fmt: skip
    (os.killpg if number == signal.SIGHUP else os.kill)(process.pid, number)
    if number != signal.SIGKILL:
        told = process.communicate(timeout=MATURE)[1]
        assert "rlmem: interrupted; the same command goes on\n" in told  # SIGHUP: and Python's own
    worker.wait(timeout=MATURE)
    process.communicate(timeout=MATURE)
    assert (read_summary(run) or {})["status"] == "interrupted"
    assert (run / "checkpoints/last/manifest.json").exists()
