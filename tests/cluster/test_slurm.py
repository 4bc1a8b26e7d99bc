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
SETTINGS = [
    "agent.batch_size=32", "checkpoint.every=5000", "evaluation.episodes=1",
    "trainer.accelerator=cpu", "trainer.threads=1",
]  # fmt: skip
MAY_RUN = 90  # seconds of a job at most: its two minutes less the thirty for saving
LAUNCHER = [
    "hydra/launcher=submitit_slurm", "hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=1",
    "hydra.launcher.timeout_min=2", "hydra.launcher.signal_delay_s=30",
]  # fmt: skip
# Six jobs of which the third takes longer than a job may, and one is killed: by their lengths,
# which are whole rounds of environments and updates.
ROUND, KILLED = 16, 20000
OTHERS = [1200, 1280, KILLED, 1360, 1440]


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


@pytest.fixture
def lengths(tmp_path: Path) -> list[int]:
    """Env steps of each job. The long one is cut off on a fast machine and ends on a slow one:
    it takes two and a half times what a job may at the speed that this machine has now."""
    folder = tmp_path / "speed"
    command = [sys.executable, str(REPOSITORY / "train.py"), *SETTINGS, f"hydra.run.dir={folder}"]
    subprocess.run([*command, "trainer.max_env_steps=10000"], check=True, capture_output=True)
    long = 2.5 * MAY_RUN * summary_of(folder)["env_steps_per_second"]
    return [*OTHERS[:2], ROUND * round(long / ROUND), *OTHERS[2:]]


@contextlib.contextmanager
def sweep(cluster: OneNode, folder: Path, lengths: list[int]) -> Iterator[subprocess.Popen[str]]:
    """The command of a sweep, begun."""
    swept = f"trainer.max_env_steps={','.join(map(str, lengths))}"
    command = [sys.executable, str(REPOSITORY / "train.py"), "-m", swept, *LAUNCHER, *SETTINGS]
    command.append(f"hydra.sweep.dir={folder}")
    pipe = subprocess.PIPE
    begun = subprocess.Popen(command, env=cluster.environment, stdout=pipe, stderr=pipe, text=True)
    try:
        yield begun
    finally:
        begun.kill()


def kill_when_saved(cluster: OneNode, folder: Path, number: int) -> None:
    """SIGKILL a job once it has a checkpoint, as a node short of memory does."""
    end = time.monotonic() + SECONDS
    saved = f"*max_env_steps={KILLED}+*/checkpoints/last/manifest.json"
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
    cluster: OneNode, lengths: list[int], tmp_path: Path
) -> None:
    folder = tmp_path / "sweep"
    with sweep(cluster, folder, lengths) as begun:
        kill_when_saved(cluster, folder, lengths.index(KILLED))
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

    with sweep(cluster, folder, lengths) as begun:
        _, said = begun.communicate(timeout=SECONDS)
    assert (begun.returncode, said) == (0, "")
    assert read_status(folder).counts["done"] == len(lengths)
    steps = {summary_of(folder / job.name)["env_steps"] for job in read_status(folder).jobs}
    assert steps == set(lengths)
