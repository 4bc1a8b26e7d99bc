"""Runs whose workers learn by themselves: counted, stopped, killed and gone on with."""

import csv
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

from rlmem.callbacks.checkpoint import find_checkpoint, read_manifest
from rlmem.collect import workers
from rlmem.collect.workers import WorkerStream
from rlmem.config.schema import EvaluateSettings
from rlmem.errors import UserError
from rlmem.runs.score import score
from tests.runs.helpers import assert_same_run, gone, rows_of, run, summary_of
from tests.settings import evaluate_settings, settings

TINY = [
    "agent=a3c",
    "env=cartpole",
    "agent.workers=1",
    "agent.n_step=5",
    "agent.network.hidden=[16]",
    "trainer.max_env_steps=600",
    "trainer.accelerator=cpu",
    "checkpoint.every=250",
    "checkpoint.reseed_every=200",
    "log.every=100",
    "log.progress=false",
    "evaluation.episodes=1",
]
OFTEN = [*TINY, "checkpoint.every=10"]
ENDLESS = [*TINY, "agent.workers=2", "trainer.max_env_steps=100000000", "checkpoint.every=500"]
MATURE = 300.0  # seconds within which a worker starts, on a busy machine


def until(true: Callable[[], Any]) -> Any:
    end = time.monotonic() + MATURE
    while not (found := true()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return found


def started(folder: Path) -> subprocess.Popen:
    """An endless run in a process of its own, once its first checkpoint is there."""
    command = [sys.executable, "train.py", *ENDLESS, f"hydra.run.dir={folder}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    until(lambda: find_checkpoint(folder))
    return process


def workers_of(process: subprocess.Popen) -> list[psutil.Process]:
    below = psutil.Process(process.pid).children(recursive=True)
    found = [p for p in below if "spawn_main" in " ".join(p.cmdline())]
    assert len(found) == 2
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one worker that was let alone. Read it, do not write."""
    folder = tmp_path_factory.mktemp("a3c") / "whole"
    run(folder, tiny=OFTEN)
    return folder


@pytest.mark.slow
def test_one_worker_is_deterministic_and_rows_change_nothing(whole: Path, tmp_path: Path) -> None:
    run(tmp_path / "again", tiny=OFTEN)
    assert_same_run(whole, tmp_path / "again")
    rows = ["log.every=70", "evaluation.every=90", "trainer.rounds=1"]
    run(tmp_path / "rows", *rows, tiny=OFTEN)
    for name in ("model.safetensors", "optimizer.safetensors"):
        files = [f / "checkpoints/last" / name for f in (whole, tmp_path / "rows")]
        assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("at", [110, 260, 430])
def test_one_worker_resumes_exactly(
    whole: Path, tmp_path: Path, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped between checkpoints, after an episode was cut, and after a checkpoint."""
    begin = WorkerStream.begin_step

    def begin_or_signal(stream: WorkerStream) -> None:
        if stream.env_steps >= at and not stream.stop_requested:
            signal.raise_signal(signal.SIGTERM)
        begin(stream)

    cut = tmp_path / "cut"
    with monkeypatch.context() as patch:
        patch.setattr(WorkerStream, "begin_step", begin_or_signal)
        with pytest.raises(SystemExit) as end:
            run(cut, tiny=OFTEN)
    assert end.value.code == 128 + signal.SIGTERM
    assert summary_of(cut)["status"] == "interrupted"
    run(cut, f"resume={cut}", tiny=OFTEN)
    assert_same_run(whole, cut)


@pytest.mark.slow
def test_a_recurrent_network_resumes_exactly_and_is_scored(tmp_path: Path) -> None:
    """Its hidden state and running statistics go on; scoring forgets them between episodes."""
    tiny = [
        *("agent=a3c", "env=pong", "agent.workers=1", "agent.n_step=4", "log.progress=false"),
        *("evaluation.episodes=1", "env.protocol.max_frames=200", "log.every=40"),
        *("checkpoint.keep_memory_when_finished=true", "trainer.max_env_steps=80"),
    ]
    summary = run(tmp_path / "whole", tiny=tiny)
    assert summary["memory_components"]["hidden_state"] == 4 * 512
    assert summary["memory_components"]["frames"] == 5 * 42 * 42
    run(tmp_path / "cut", "trainer.max_env_steps=40", tiny=tiny)
    (tmp_path / "cut/evaluations.csv").unlink()
    run(tmp_path / "cut", f"resume={tmp_path / 'cut'}", tiny=tiny)
    for name in ("model.safetensors", "optimizer.safetensors"):
        files = [tmp_path / f / "checkpoints/last" / name for f in ("whole", "cut")]
        assert files[0].read_bytes() == files[1].read_bytes()
    options = evaluate_settings(f"run={tmp_path / 'whole'}", "episodes=2", "seed=1")
    assert isinstance(options, EvaluateSettings)
    assert score(options) == score(options)


@pytest.mark.slow
def test_workers_are_counted_together(tmp_path: Path) -> None:
    tiny = [*TINY, "agent.workers=3", "evaluation.every=200"]
    summary = run(tmp_path, "trainer.max_env_steps=3000", tiny=tiny)
    assert summary["status"] == "finished"
    assert 3000 <= summary["env_steps"] < 3000 + 3 * 5
    assert summary["memory_components"] == {
        "frames": 3 * 6 * 4 * 4,
        "transitions": 3 * 5 * 12,
    }
    assert summary["memory_entries"] == 15
    assert summary["transitions_seen"] == summary["env_steps"]
    rows = rows_of(tmp_path / "metrics.csv")
    for name in ("loss", "policy_loss", "value_loss", "entropy", "grad_norm", "staleness"):
        assert all(np.isfinite(float(row[name])) for row in rows)
    assert 0 < float(rows[0]["entropy"]) <= np.log(2)
    steps = [int(row["grad_steps"]) for row in rows]
    assert steps == sorted(steps)
    assert summary["grad_steps"] >= summary["env_steps"] / 5
    with (tmp_path / "episodes.csv").open(newline="") as file:
        episodes = [(float(r["return"]), int(r["length"])) for r in csv.DictReader(file)]
    assert len(episodes) == summary["episodes"] > 20
    assert all(value == length for value, length in episodes)  # CartPole's returns
    assert gone([p for p in psutil.Process().children() if "spawn_main" in " ".join(p.cmdline())])


@pytest.mark.slow
def test_a_run_of_so_many_episodes_ends_with_them(tmp_path: Path) -> None:
    summary = run(tmp_path, "trainer.max_episodes=7", "trainer.max_env_steps=5000", tiny=TINY)
    assert summary["episodes"] == 7


@pytest.mark.slow
def test_a_run_shorter_than_its_start_has_its_length(tmp_path: Path) -> None:
    """Rounds in which nothing is heard, while the worker imports torch, end nothing."""
    summary = run(tmp_path, "trainer.max_env_steps=5", "trainer.rounds=1", tiny=TINY)
    assert (summary["status"], summary["env_steps"]) == ("finished", 5)


@pytest.mark.slow
def test_an_environment_that_fails_ends_the_run_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = workers.work
    monkeypatch.setattr(workers, "work", failing_work)
    with pytest.raises(UserError, match=r"worker 0 of 1 ended: env.id=Nothing-v9.*resume=") as line:
        run(tmp_path, tiny=TINY)
    assert "\n" not in str(line.value)
    assert summary_of(tmp_path)["status"] == "failed"
    monkeypatch.setattr(workers, "work", work)
    run(tmp_path, f"resume={tmp_path}", tiny=TINY)
    assert summary_of(tmp_path)["status"] == "finished"


def failing_work(job: Any, number: int, parent: int, desk: Any, pipe: Any, state: Any) -> None:
    """In a worker's place: its environment is no more."""
    job.env.id = "Nothing-v9"
    from rlmem.collect.worker import work

    work(job, number, parent, desk, pipe, state)


@pytest.mark.slow
def test_a_worker_that_is_killed_ends_the_run_saved(tmp_path: Path) -> None:
    process = started(tmp_path)
    killed, other = workers_of(process)
    killed.send_signal(signal.SIGKILL)
    output, _ = process.communicate(timeout=MATURE)
    assert process.returncode == 2
    last = output.strip().splitlines()[-1]
    assert last.startswith("rlmem: worker")
    assert "killed by SIGKILL; the run is saved" in last
    assert gone([killed, other])
    steps = summary_of(tmp_path)["env_steps"]
    longer = [*ENDLESS, f"trainer.max_env_steps={steps + 400}"]
    summary = run(tmp_path, f"resume={tmp_path}", tiny=longer)
    assert (summary["status"], summary["env_steps"] >= steps + 400) == ("finished", True)


@pytest.mark.slow
def test_a_worker_that_is_killed_before_its_report_is_answered_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer finds nobody; the run does not go on with the worker that is left."""
    take = WorkerStream._take
    killed: list[int] = []

    def kill_and_take(stream: WorkerStream, process: Any, report: Any) -> None:
        if not (killed or report.resting):
            process.process.kill()
            process.process.join()
            killed.append(process.number)
        take(stream, process, report)

    monkeypatch.setattr(WorkerStream, "_take", kill_and_take)
    with pytest.raises(
        UserError, match=r"worker \d of 2 ended: killed by SIGKILL; the run is saved"
    ):
        run(tmp_path, "trainer.max_env_steps=20000", tiny=ENDLESS)
    assert summary_of(tmp_path)["status"] == "failed"


@pytest.mark.slow
def test_a_kill_of_the_main_process_leaves_none(tmp_path: Path) -> None:
    process = started(tmp_path)
    below = psutil.Process(process.pid).children(recursive=True)
    assert len(workers_of(process)) == 2
    process.kill()
    process.wait()
    until(lambda: gone(below))
    checkpoint = find_checkpoint(tmp_path)
    assert checkpoint is not None
    steps = read_manifest(checkpoint)["env_steps"]
    longer = [*ENDLESS, f"trainer.max_env_steps={steps + 400}"]
    summary = run(tmp_path, f"resume={tmp_path}", tiny=longer)
    assert summary["status"] == "finished"


@pytest.mark.slow
def test_an_interrupt_of_the_whole_group_saves_and_leaves_none(tmp_path: Path) -> None:
    """As Ctrl-C in a terminal: every process of the group is signalled."""
    command = [sys.executable, "train.py", *ENDLESS, f"hydra.run.dir={tmp_path}"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    until(lambda: find_checkpoint(tmp_path))
    below = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=MATURE)
    assert process.returncode == 128 + signal.SIGINT
    assert "Traceback" not in output
    assert summary_of(tmp_path)["status"] == "interrupted"
    until(lambda: gone(below))


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("memory=uniform", "memory=uniform: agent=a3c .*use memory=worker_rollouts"),
        ("env.num_envs=4", "env.num_envs=4: each worker has one; use agent.workers=4"),
        ("memory.capacity=100", "memory.capacity=100: .*agent.n_step"),
        ("memory.budget=1MiB", "memory.budget=1MiB: .*agent.n_step"),
        ("trainer.precision=bf16-mixed", "trainer.precision=bf16-mixed: "),
        ("trainer.accelerator=gpu", "trainer.accelerator=gpu: "),
        ("agent.network.kind=lstm24", "agent.network.kind=lstm24: no such .*lstm42"),
        ("agent.n_step=0", "agent.n_step=0: must be at least 1 and at most 100000"),
        ("agent.batch_size=64", "agent.batch_size=64: agent=a3c learns from each rollout of"),
        ("agent.train_every=4", "agent.train_every=4: .*leave the key out"),
        ("agent.learning_starts=100", "agent.learning_starts=100: .*leave the key out"),
        ("agent.updates_per_step=8", "agent.updates_per_step=8: .*leave the key out"),
        ("agent.workers=0", "agent.workers=0: must be at least 1"),
    ],
)
def test_what_does_not_go_together_is_one_line(override: str, line: str) -> None:
    with pytest.raises(UserError, match=line):
        settings(*TINY, override)


def test_the_memory_is_of_workers_only() -> None:
    with pytest.raises(UserError, match=r"memory=worker_rollouts: .*agent=dqn has none"):
        settings("memory=worker_rollouts", "env=cartpole")


def test_continuous_actions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="agent=a3c: its actions are discrete"):
        run(tmp_path, "env=gym", "env.id=Pendulum-v1", tiny=[*TINY[:1], *TINY[2:]])


@pytest.mark.parametrize(
    ("kind", "screen"),
    [
        ("lstm42", (42, [34, 194], 1)),
        ("gru160", (160, [35, 195], 1)),
        ("stack160", (160, [35, 195], 4)),
        ("nature", (84, None, 4)),
    ],
)
def test_a_network_chooses_its_screen(kind: str, screen: tuple) -> None:
    env = settings("agent=a3c", "env=pong", f"agent.network.kind={kind}").env
    assert (env.screen_size, env.rows, env.stack, env.num_envs) == (*screen, 1)
    assert settings("env=pong").env.num_envs == 4
