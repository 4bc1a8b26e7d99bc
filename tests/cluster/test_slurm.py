"""A sweep on a real Slurm cluster: of one node, started for this test."""

import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rlmem.analysis.show.status import read_status
from tests.cluster.one_node import OneNode, missing
from tests.runs.helpers import summary_of

REPOSITORY = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=f"not installed: {', '.join(missing())}"),
]
# Six jobs of which one takes longer than a job may, and one is killed: by their lengths.
LONG, KILLED = 120000, 20000
LENGTHS = [1200, 1300, LONG, KILLED, 1400, 1500]
SWEEP = [
    "-m", f"trainer.max_env_steps={','.join(map(str, LENGTHS))}", "hydra/launcher=submitit_slurm",
    "hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=1", "hydra.launcher.timeout_min=2",
    "hydra.launcher.signal_delay_s=30", "agent.batch_size=32", "checkpoint.every=5000",
    "evaluation.episodes=1", "trainer.accelerator=cpu", "trainer.threads=1",
]  # fmt: skip


SAVED = r"interrupted at ([\d,]+) env steps"  # what a job says that is put back
SECONDS = 2400  # of a sweep at most: Slurm lets a job that is put back wait for two minutes


@pytest.fixture
def cluster() -> Iterator[OneNode]:
    folder = Path(tempfile.mkdtemp(prefix="slurm"))  # short, for the names of sockets
    try:
        with OneNode(folder) as started:
            yield started
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def sweep(cluster: OneNode, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The command of a sweep, begun."""
    command = [sys.executable, str(REPOSITORY / "train.py"), *SWEEP, f"hydra.sweep.dir={folder}"]
    pipe = subprocess.PIPE
    begun = subprocess.Popen(command, env=cluster.environment, stdout=pipe, stderr=pipe, text=True)
    try:
        yield begun
    finally:
        begun.kill()


def kill_when_saved(cluster: OneNode, folder: Path, number: int) -> None:
    """SIGKILL a job once it has a checkpoint, as a node short of memory does."""
    end = time.monotonic() + SECONDS
    saved = f"*max_env_steps={LENGTHS[number]}+*/checkpoints/last/manifest.json"
    while not list(folder.glob(saved)):
        assert time.monotonic() < end, "the job to kill saved nothing"
        time.sleep(0.2)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            env = process.environ()
            job = env.get("SLURM_CONF"), env.get("SLURM_ARRAY_TASK_ID")
            own = job == (cluster.environment["SLURM_CONF"], str(number))
            if own and "submitit" in " ".join(process.cmdline()):
                process.kill()


def wait_for_all(cluster: OneNode) -> None:
    """Until no job waits or runs."""
    end = time.monotonic() + SECONDS
    while cluster.ask("squeue", "--noheader").strip():
        assert time.monotonic() < end, "jobs do not end"
        time.sleep(1)


def test_a_sweep_of_which_one_job_times_out_and_one_is_killed(
    cluster: OneNode, tmp_path: Path
) -> None:
    folder = tmp_path / "sweep"
    with sweep(cluster, folder) as begun:
        kill_when_saved(cluster, folder, LENGTHS.index(KILLED))
        _, said = begun.communicate(timeout=SECONDS)
    assert begun.returncode == 1
    assert "Traceback" not in said
    assert re.fullmatch(r"rlmem: Job 1_3 \(task: 0\) was killed; .*", said.strip())
    wait_for_all(cluster)
    states = {job.overrides[0]: job.state for job in read_status(folder).jobs}
    killed = f"trainer.max_env_steps={KILLED}"
    assert states.pop(killed) == "interrupted"
    assert set(states.values()) == {"done"}
    (log,) = folder.glob(".submitit/1_2/*_log.out")
    saved, resumed = (re.findall(p, log.read_text()) for p in (SAVED, r"resumed at ([\d,]+) env"))
    assert len(saved) >= 1
    assert saved == resumed

    with sweep(cluster, folder) as begun:
        _, said = begun.communicate(timeout=SECONDS)
    assert (begun.returncode, said) == (0, "")
    assert read_status(folder).counts["done"] == len(LENGTHS)
    steps = {summary_of(folder / job.name)["env_steps"] for job in read_status(folder).jobs}
    assert {LONG, KILLED} <= steps
