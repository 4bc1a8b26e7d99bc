"""Runs that are stopped go on as if they had not been."""

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlmem.callbacks import checkpoint, evaluation
from rlmem.callbacks.evaluation import Evaluation
from rlmem.collect.rollout import EvaluationResult, evaluate_policy
from rlmem.envs import EnvStepper
from rlmem.envs.serial import SerialEnvStepper
from rlmem.errors import UserError
from rlmem.runs.resume import lock_run
from tests.runs.helpers import (
    CARTPOLE,
    KEEP,
    TINY,
    TINY_ATARI,
    TINY_GWR,
    assert_same_run,
    rows_of,
    run,
    stopped,
    summary_of,
)

ROOT = Path(__file__).parents[2]
PONG = [*TINY_ATARI, *TINY_GWR, "env=pong", "checkpoint.every=240", KEEP]
PONG += ["trainer.max_env_steps=400", "log.every=40"]

# The command line, with a SIGTERM to itself at 201 env steps: between two checkpoints.
STOPPED = """
import os, signal, sys
from rlmem.collect.collector import Collector
draw = Collector._draw
def draw_or_stop(stream):
    if stream.env_steps == 201:
        os.kill(os.getpid(), signal.SIGTERM)
    return draw(stream)
Collector._draw = draw_or_stop
from rlmem.cli import train_main
train_main()
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The uninterrupted run of CartPole with PER."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(folder, *CARTPOLE)
    return folder


def test_a_signal_leaves_a_summary_that_says_so(interrupted: Path) -> None:
    summary = summary_of(interrupted)
    assert summary["status"] == "interrupted"
    assert summary["error"] is None
    assert summary["env_steps"] == 201


@pytest.mark.slow
def test_the_signal_handlers_are_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handled = signal.SIGTERM, signal.SIGINT
    before = [signal.getsignal(number) for number in handled]
    stopped(monkeypatch, 60, tmp_path, *CARTPOLE)
    assert [signal.getsignal(number) for number in handled] == before


@pytest.mark.slow
def test_the_resumed_run_equals_the_uninterrupted_bit_for_bit(whole: Path, copy: Path) -> None:
    summary = run(copy, *CARTPOLE, f"resume={copy}")
    assert summary["status"] == "finished"
    assert_same_run(whole, copy)


@pytest.mark.slow
@pytest.mark.parametrize("at", [60, 120, 240], ids=["before learning", "at a save", "at the next"])
def test_the_moment_of_the_signal_makes_no_difference(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    stopped(monkeypatch, at, tmp_path, *CARTPOLE)
    run(tmp_path, *CARTPOLE, f"resume={tmp_path}")
    assert_same_run(whole, tmp_path)


@pytest.mark.slow
def test_noise_resets_and_returns_that_shorten_go_on_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["agent=rainbow", "env=cartpole", *CARTPOLE, "agent.batch_size=16"]
    given += ["agent.noisy=true", "agent.epsilon.start=0", "agent.epsilon.end=0"]
    given += ["agent.reset_every=60", "agent.anneal.n_step=3", "agent.anneal.gamma=0.995"]
    given += ["agent.anneal.steps=40", "agent.weight_decay=0.1", "agent.target_update_every=50"]
    run(tmp_path / "whole", *given)
    stopped(monkeypatch, 170, tmp_path / "cut", *given)  # after a reset, while returns shorten
    run(tmp_path / "cut", *given, f"resume={tmp_path / 'cut'}")
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.slow
def test_a_lost_run_file_is_written_again(copy: Path) -> None:
    before = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text("")
    run(copy, *CARTPOLE, f"resume={copy}")
    assert json.loads((copy / "run.json").read_text()) == before


@pytest.mark.slow
def test_a_crash_goes_on_from_the_last_save(whole: Path, interrupted: Path, tmp_path: Path) -> None:
    from rlmem.agents.dqn import DQN

    update = DQN._update

    def fail_late(agent: DQN, *args: object) -> object:
        if agent.grad_steps == 90:  # env step 190, past the save at 120
            raise FloatingPointError
        return update(agent, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DQN, "_update", fail_late)
        with pytest.raises(FloatingPointError):
            run(tmp_path, *CARTPOLE)
    assert summary_of(tmp_path)["status"] == "failed"
    run(tmp_path, *CARTPOLE, f"resume={tmp_path}")
    assert_same_run(whole, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "memory",
    [
        ["none"],
        ["cer"],
        ["per_rank"],
        ["per", "trainer.rounds=7"],
        ["gwr"],
        ["medqn_u", "agent.optimizer=rmsprop", "agent.tau=0.1"],
        ["medqn_r", "memory.consolidation.inner_steps=2"],
    ],
    ids=" ".join,
)
def test_every_memory_resumes_bit_for_bit(
    memory: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = [*CARTPOLE[1:], f"memory={memory[0]}", *memory[1:], "agent.n_step=2"]
    overrides += ["env.num_envs=2"]
    overrides += ["agent.train_every=2"]
    run(tmp_path / "whole", *overrides)
    stopped(monkeypatch, 200, tmp_path / "cut", *overrides)
    run(tmp_path / "cut", *overrides, f"resume={tmp_path / 'cut'}")
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        [],
        ["memory.prototype=exemplar", "memory/sampler=prioritized", "memory.eviction=lru"],
    ],
    ids=["gwr", "exemplars"],
)
def test_pong_with_gwr_resumes_bit_for_bit(
    more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = [*PONG, *more]
    run(tmp_path / "whole", *overrides)
    stopped(monkeypatch, 320, tmp_path / "cut", *overrides)
    run(tmp_path / "cut", *overrides, f"resume={tmp_path / 'cut'}")
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.slow
def test_the_command_line_stops_with_143_and_resumes_from_the_directory_alone(
    whole: Path, tmp_path: Path
) -> None:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    cut = subprocess.run(
        [sys.executable, "-c", STOPPED, *TINY, *CARTPOLE, f"hydra.run.dir={tmp_path}/cut"],
        env=env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert cut.returncode == 143, cut.stderr
    assert f"go on with: python train.py resume={tmp_path}/cut" in cut.stdout
    assert "Traceback" not in cut.stderr
    resumed = subprocess.run(
        [sys.executable, "train.py", f"resume={tmp_path}/cut"],
        env=env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert resumed.returncode == 0, resumed.stderr
    assert "resumed at 201 env steps" in resumed.stdout
    assert_same_run(whole, tmp_path / "cut")


@pytest.mark.slow
def test_a_disk_without_locks_is_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Lustre is that was mounted without them. Nothing guards against a second writer there."""

    def none(file: Any, how: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", none)
    assert run(tmp_path)["status"] == "finished"


@pytest.mark.slow
def test_an_evaluation_is_left_off_at_a_signal_and_made_when_the_run_goes_on(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its games may take longer than whoever ends the run waits for it."""
    played: list[int] = []

    def signalled(env: EnvStepper, policy: Any, **how: Any) -> EvaluationResult:
        def act(*args: Any) -> Any:
            played.append(1)
            if len(played) == 3:
                signal.raise_signal(signal.SIGTERM)
            return policy(*args)

        return evaluate_policy(env, act, **how)

    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "evaluate_policy", signalled)
        with pytest.raises(SystemExit):
            run(tmp_path, *CARTPOLE)
    assert len(played) == 3
    assert summary_of(tmp_path)["env_steps"] == 100
    assert rows_of(tmp_path / "evaluations.csv") == []
    run(tmp_path, *CARTPOLE, f"resume={tmp_path}")
    assert_same_run(whole, tmp_path)


@pytest.mark.slow
def test_a_signal_in_the_final_evaluation_leaves_a_run_that_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = Evaluation.evaluate

    def stop_and_evaluate(callback: Evaluation, *args: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return evaluate(callback, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Evaluation, "evaluate", stop_and_evaluate)
        with pytest.raises(SystemExit) as end:
            run(tmp_path / "cut", *CARTPOLE[:2])
    assert end.value.code == 128 + signal.SIGTERM
    assert summary_of(tmp_path / "cut")["status"] == "interrupted"
    summary = run(tmp_path / "cut", *CARTPOLE[:2], f"resume={tmp_path}/cut")
    assert (summary["status"], summary["env_steps"]) == ("finished", 300)


@pytest.mark.slow
def test_a_finished_run_that_kept_its_memory_can_be_extended(
    finished_run: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(finished_run, tmp_path / "run"))
    overrides = ["memory=per", "evaluation.every=100", "evaluation.episodes=2", KEEP]
    summary = run(folder, *overrides, f"resume={folder}", "trainer.max_env_steps=400")
    assert (summary["status"], summary["env_steps"]) == ("finished", 400)


@pytest.mark.slow
def test_the_newest_loss_is_kept_until_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["memory=none", "agent.batch_size=150", "agent.learning_starts=0", KEEP]
    given += ["log.every=200", "log.diagnostics=false"]
    run(tmp_path / "whole", *given)
    stopped(monkeypatch, 160, tmp_path / "cut", *given)
    run(tmp_path / "cut", *given, f"resume={tmp_path / 'cut'}")
    assert rows_of(tmp_path / "cut/metrics.csv")[0]["loss"] != ""
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def test_a_run_directory_has_one_writer(tmp_path: Path) -> None:
    with lock_run(tmp_path), pytest.raises(UserError, match="another process is training there"):
        lock_run(tmp_path)
    lock_run(tmp_path).close()


def test_a_run_that_could_not_begin_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []
    monkeypatch.setattr(SerialEnvStepper, "close", lambda stepper: closed.append(stepper))
    monkeypatch.setattr("rlmem.runs.train.write_config", refuse)
    with pytest.raises(UserError, match="no room") as error:  # which keeps the run's frames alive
        run(tmp_path)
    lock_run(tmp_path).close()
    assert len(set(closed)) == 2, error  # that of training and that of evaluation


def refuse(*given: Any) -> None:
    raise UserError("no room")


def test_a_checkpoint_is_not_ahead_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a run leaves them that is killed right after a save."""
    save = checkpoint.save_checkpoint

    def save_and_copy(folder: Path, *args: Any, **kwargs: Any) -> None:
        save(folder, *args, **kwargs)
        if not (tmp_path / "killed").exists():
            shutil.copytree(tmp_path / "run", tmp_path / "killed")

    overrides = ["checkpoint.every=130", "log.every=1000"]
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_checkpoint", save_and_copy)
        run(tmp_path / "run", *overrides)
    summary = run(tmp_path / "killed", *overrides, f"resume={tmp_path / 'killed'}")
    assert summary["env_steps"] == 300
    numbers = [int(row["episode"]) for row in rows_of(tmp_path / "killed" / "episodes.csv")]
    assert len(numbers) > 5
    assert numbers == list(range(1, len(numbers) + 1))
