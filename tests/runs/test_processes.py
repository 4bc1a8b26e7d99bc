"""Runs of several processes: what they leave, how they end, how they go on."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import yaml
from safetensors.numpy import load_file

from rlmem.callbacks.checkpoint import find_checkpoint, read_manifest
from rlmem.config.shares import share_of
from rlmem.errors import UserError
from rlmem.runs import processes
from rlmem.runs.train import train_run
from tests.runs.helpers import (
    TINY,
    TINY_CONTINUOUS,
    assert_same_run,
    gone,
    rows_of,
    run,
    stopped,
    summary_of,
)
from tests.settings import settings

TWO = ["trainer.devices=2", "env.num_envs=2", "agent.train_every=2"]
EVERY = ["checkpoint.every=90", "checkpoint.keep_memory_when_finished=true"]
WATCHED = ["plugins=[tests.runs.of_each]", "callbacks=of_each"]
SHARED = [*TWO, *WATCHED, *EVERY, "memory=per", "evaluation.every=100"]
ENDLESS = [*TINY, *TWO, "trainer.max_env_steps=100000000", "checkpoint.every=500"]
MATURE = 300.0  # seconds within which processes start, on a busy machine


def until(done: Callable[[], Any]) -> None:
    end = time.monotonic() + MATURE
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def started(folder: Path, *options: Any) -> subprocess.Popen:
    """A run in a process group of its own, once it has a checkpoint."""
    command = [*(options or (sys.executable,)), "train.py", *ENDLESS, f"hydra.run.dir={folder}"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    until(lambda: find_checkpoint(folder))
    return process


def others_of(process: subprocess.Popen) -> list[psutil.Process]:
    below = psutil.Process(process.pid).children(recursive=True)
    return [p for p in below if "spawn_main" in " ".join(p.cmdline())]


@pytest.fixture(scope="module")
def shared_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two processes, finished. Read it, do not write."""
    folder = tmp_path_factory.mktemp("shared") / "run"
    run(folder, *SHARED)
    return folder


@pytest.mark.slow
def test_all_processes_hold_the_same_weights_at_the_end(shared_run: Path) -> None:
    here, there = (load_file(shared_run / f"weights_{rank}.safetensors") for rank in (0, 1))
    saved = load_file(shared_run / "checkpoints/last/model.safetensors")
    assert here.keys() == there.keys()
    for name, value in here.items():
        np.testing.assert_array_equal(value, there[name], err_msg=name)
        np.testing.assert_array_equal(value, saved[name], err_msg=name)


@pytest.mark.slow
def test_counters_are_of_the_whole(shared_run: Path) -> None:
    summary = summary_of(shared_run)
    assert (summary["status"], summary["env_steps"]) == ("finished", 300)
    assert summary["memory_entries"] == summary["transitions_seen"] == 300
    # From the 100th env step on an update every two env steps, that of the 100th included.
    assert summary["grad_steps"] == 101
    episodes = rows_of(shared_run / "episodes.csv")
    assert [int(row["episode"]) for row in episodes] == [*range(1, len(episodes) + 1)]
    assert len(episodes) == summary["episodes"]
    steps = [int(row["env_steps"]) for row in episodes]
    assert steps == sorted(steps)
    # The steps of an episode count twice, and two episodes run in the end.
    assert sum(2 * int(row["length"]) for row in episodes) <= 2 * 300
    assert sum(int(row["length"]) for row in episodes) > 150
    rows = rows_of(shared_run / "metrics.csv")
    assert [int(row["env_steps"]) for row in rows] == [100, 200, 300]
    assert [int(row["memory_entries"]) for row in rows] == [100, 200, 300]
    bytes_held = sum(summary["memory_components"].values())
    assert summary["memory_bytes"] == bytes_held == int(float(rows[-1]["memory_bytes"]))
    assert len({row["env_steps"] for row in rows_of(shared_run / "evaluations.csv")}) == 3
    assert read_manifest(shared_run / "checkpoints/last")["processes"] == 2
    shard = shared_run / "checkpoints/last/shards/1"
    assert {path.name for path in shard.iterdir()} == {"random", "stream", "memory", "diagnostics"}
    assert not [p for p in psutil.Process().children() if "spawn_main" in " ".join(p.cmdline())]


@pytest.mark.slow
def test_each_process_plays_episodes_of_its_own(shared_run: Path) -> None:
    folder = shared_run / "checkpoints/last"
    frames = [
        np.concatenate([np.load(piece) for piece in (f / "memory/storage").glob("rows-*.npy")])
        for f in (folder, folder / "shards/1")
    ]
    assert len(frames[0]) == len(frames[1]) == 150
    assert not np.array_equal(frames[0], frames[1])


@pytest.mark.slow
def test_it_resumes_exactly(
    shared_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resumed(tmp_path, SHARED, TINY, monkeypatch)
    assert_same_run(shared_run, tmp_path)


@pytest.mark.slow
def test_td3_resumes_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = [*TWO, *EVERY, "agent=td3", "agent.learning_starts=100"]
    run(tmp_path / "whole", *given, tiny=TINY_CONTINUOUS)
    resumed(tmp_path / "cut", given, TINY_CONTINUOUS, monkeypatch)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def resumed(
    folder: Path, given: list[str], tiny: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop a run between two checkpoints, and let it go on."""
    stopped(monkeypatch, 172, folder, *given, tiny=tiny)
    assert summary_of(folder)["status"] == "interrupted"
    run(folder, *given, f"resume={folder}", tiny=tiny)


@pytest.mark.slow
def test_a_run_of_so_many_episodes_ends_with_them(tmp_path: Path) -> None:
    summary = run(tmp_path, *TWO, "trainer.max_episodes=5", "agent.target_update_every=episode")
    assert 5 <= summary["episodes"] <= 6


@pytest.mark.slow
def test_a_process_that_fails_ends_the_run_in_one_line(tmp_path: Path) -> None:
    line = r"process 1 of 2 ended: agent.lr=7: too much.*; there is no checkpoint yet"
    with pytest.raises(UserError, match=line) as end:
        run(tmp_path, *TWO, *WATCHED, "callbacks.of_each.fails=1")
    assert "\n" not in str(end.value)
    assert summary_of(tmp_path)["status"] == "failed"


@pytest.mark.slow
def test_weights_that_differ_end_the_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="hold different weights after"):
        run(tmp_path, *TWO, *WATCHED, "callbacks.of_each.moves=0")


@pytest.mark.slow
def test_a_process_that_is_killed_ends_the_run_in_one_line(tmp_path: Path) -> None:
    process = started(tmp_path)
    (killed,) = others_of(process)
    killed.send_signal(signal.SIGKILL)
    output, _ = process.communicate(timeout=MATURE)
    assert process.returncode == 2
    last = output.strip().splitlines()[-1]
    assert last.startswith(
        "rlmem: process 1 of 2 ended: killed by SIGKILL; the last checkpoint is of"
    )
    assert last.endswith(f"go on with: resume={tmp_path}")
    checkpoint = find_checkpoint(tmp_path)
    assert checkpoint is not None
    steps = read_manifest(checkpoint)["env_steps"] + 400
    longer = [*ENDLESS, f"trainer.max_env_steps={steps}"]
    assert run(tmp_path, f"resume={tmp_path}", tiny=longer)["env_steps"] == steps


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_end_of_the_first_process_is_that_of_all(tmp_path: Path, number: int) -> None:
    """SIGINT as Ctrl-C in a terminal: every process of the group is signalled."""
    process = started(tmp_path)
    below = psutil.Process(process.pid).children(recursive=True)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    output, _ = process.communicate(timeout=MATURE)
    assert "Traceback" not in output
    if number != signal.SIGKILL:
        assert process.returncode == 128 + number
        assert summary_of(tmp_path)["status"] == "interrupted"
    until(lambda: gone(below))


@pytest.mark.slow
def test_torchrun_starts_it_too(shared_run: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    given = ["train.py", *TINY, *SHARED, f"hydra.run.dir={tmp_path / 'run'}"]
    ended = subprocess.run([*command, *given], capture_output=True, text=True, timeout=2 * MATURE)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("run directory:") == 1
    assert_same_run(tmp_path / "run", shared_run)


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["agent=a3c"], "trainer.devices=2: agent=a3c learns in one process"),
        (["agent=pqn", "memory=rollout"], "trainer.devices=2: agent=pqn learns in one process"),
        (
            ["agent.batch_size=31"],
            r"agent.batch_size=31: .*by 2 processes.*use agent.batch_size=32",
        ),
        (["env.num_envs=1"], "env.num_envs=1: .*use env.num_envs=2 or"),
        (["memory.capacity=999"], "memory.capacity=999: .*use memory.capacity=1000"),
        (
            ["trainer.max_env_steps=5001"],
            "trainer.max_env_steps=5001: .*use trainer.max_env_steps=500",
        ),
        (["trainer.compile=true"], "trainer.compile=true: .*use trainer.devices=1"),
        (
            ["agent=nec", "memory=dnd", "memory.entries=60"],
            "in each of 2 processes, which has 1/2 of what is divided: memory.neighbours=50: m",
        ),
        (
            ["agent=nec", "memory=gq", "memory.entries=80"],
            "in each of 2 processes, .*: memory.neighbours=50: the",
        ),
        (
            ["memory=gwr", "env=minatar_breakout", "trainer.max_env_steps=1600"],
            "the run ends before the map begins, at trainer.max_env_steps=1600 of 2 processes",
        ),
        (["trainer.strategy=fsdp"], "trainer.strategy=fsdp: no such strategy"),
        (["trainer.devices=0"], "trainer.devices=0: must be at least 1"),
    ],
)
def test_what_cannot_be_shared_is_one_line(overrides: list[str], line: str) -> None:
    with pytest.raises(UserError, match=line):
        settings("trainer.devices=2", *overrides)


def test_every_process_has_an_equal_share() -> None:
    whole = settings(
        "trainer.devices=2", "trainer.num_nodes=2", "env.num_envs=4", "memory.budget=8MiB"
    )
    share = share_of(whole, 4, 7)
    assert (share.env.num_envs, share.agent.batch_size, share.memory.capacity) == (1, 16, 12500)
    assert (share.memory.budget, share.seed) == (2 * 2**20, 7)
    assert (whole.env.num_envs, whole.agent.batch_size, whole.seed) == (4, 64, 0)
    assert share.trainer.max_env_steps == whole.trainer.max_env_steps
    nec = settings("agent=nec", "memory=dnd", "trainer.devices=2")
    assert share_of(nec, 2, 0).memory.entries == 50_000


def test_a_process_starts_none_on_another_machine(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"trainer.num_nodes=2: .* by torchrun or srun"):
        run(tmp_path, "trainer.num_nodes=2", "env.num_envs=2", "agent.train_every=2")


def test_as_many_processes_as_were_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TORCHELASTIC_RUN_ID": "1", "WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match="torchrun has started 4 processes, these are 2"):
        run(tmp_path, *TWO)


def test_srun_is_known_by_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = settings(*TWO)
    given = {"SLURM_NTASKS": "2", "SLURM_PROCID": "1", "SLURM_LOCALID": "1"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert processes.outside(cfg) is None  # a batch script, which starts the others itself
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    with pytest.raises(UserError, match="use --nodes=1 --ntasks-per-node=2"):
        processes.outside(cfg)
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "2")
    found = processes.outside(cfg)
    assert found is not None
    assert (found.global_rank(), found.local_rank(), found.world_size()) == (1, 1, 2)


@pytest.mark.parametrize("devices", [1, 4])
def test_a_run_goes_on_with_as_many_processes(tmp_path: Path, devices: int) -> None:
    rest = ["env.num_envs=4", "agent.train_every=4"]
    before = settings("trainer.devices=2", *rest)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(before.values))
    with pytest.raises(UserError, match=r"that run has 2 processes, and .*use trainer.devices=2"):
        train_run(settings(f"trainer.devices={devices}", *rest, f"resume={tmp_path}"))


def test_a_sweep_is_refused(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "train.py",
        "-m",
        "seed=0",
        *TINY,
        *TWO,
        f"hydra.sweep.dir={tmp_path}",
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=MATURE)
    assert ended.returncode == 2
    assert "trainer.devices=2 trainer.num_nodes=1: a sweep's job is one process" in ended.stderr
