"""A process that runs jobs for another one ends with it, saved."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

WORKER = """
import os, signal, sys, time
from pathlib import Path
from rlmem.orphan import job_for

folder, parent, busy = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "busy"
told = []
signal.signal(signal.SIGTERM, lambda *args: told.append(1))
with job_for(parent):
    (folder / "worker").write_text(str(os.getpid()))
    while busy and not told:
        time.sleep(0.01)
    (folder / "saved").touch()
time.sleep(0.5 if busy else 1000)  # as in a pool's queue: handed another job, or none
with job_for(parent):
    (folder / "another").touch()
"""
PARENT = """
import os, subprocess, sys
worker, folder, at = sys.argv[1:]
subprocess.run([sys.executable, "-c", worker, folder, str(os.getpid()), at])
"""


@pytest.mark.parametrize("at", ["busy", "idle"])
def test_it_ends_behind_the_job_that_runs(tmp_path: Path, at: str) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, WORKER, str(tmp_path), at])
    number, mark = tmp_path / "worker", tmp_path / ("worker" if at == "busy" else "saved")
    while not (mark.exists() and number.read_text()):
        assert parent.poll() is None
        time.sleep(0.01)
    worker = psutil.Process(int(number.read_text()))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    worker.wait(timeout=60)
    assert (tmp_path / "saved").exists()
    assert not (tmp_path / "another").exists()


@pytest.mark.parametrize("parent", ["None", "os.getpid()", "1"])
def test_jobs_of_this_process_or_of_another_machine_are_let_alone(parent: str) -> None:
    code = (
        "import os, threading; from rlmem.orphan import job_for\n"
        f"with job_for({parent}):\n    with job_for({parent}):\n        pass\n"
        "assert threading.active_count() == 1"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
