"""Ctrl-C in a sweep whose jobs run beside each other: each saves first."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
WAIT = 120  # seconds; generous, for machines that do other things meanwhile


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


def begun(folder: Path, *given: str) -> subprocess.Popen:
    argv = ["-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "hydra.sweep.dir=sweep"]
    code = (
        "import sys; from rlmem.config import run_hydra; "
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


def wait_for(folder: Path, count: int) -> None:
    end = time.monotonic() + WAIT
    while len(names(folder, "started")) < count:
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.slow
def test_each_job_saves_and_none_begins(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    process = begun(tmp_path, "seed=1,2,3,4")
    wait_for(tmp_path, 2)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=WAIT)
    again = "rlmem: interrupted; the same command with hydra.sweep.dir=sweep goes on\n"
    assert (process.returncode, err) == (130, again)
    assert names(tmp_path, "saved") == names(tmp_path, "started") == ["seed=1", "seed=2"]
    assert names(tmp_path, "error.json") == []


@pytest.mark.slow
def test_the_second_signal_interrupts_at_once(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    process = begun(tmp_path, f"seed={WAIT},{WAIT + 1}")
    wait_for(tmp_path, 2)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(1)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=WAIT)
    assert process.returncode == 130
    assert "rlmem: interrupted\n" in err
    assert names(tmp_path, "saved") == []
