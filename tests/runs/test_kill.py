"""A run that is killed at any moment leaves, once it has gone on, what it would have left."""

import json
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from rlmem.callbacks import checkpoint, evaluation
from rlmem.callbacks.checkpoint import find_checkpoint
from rlmem.callbacks.csv_file import CsvFile
from rlmem.callbacks.evaluation import Evaluation
from rlmem.callbacks.records import COLUMNS, EVALUATIONS
from rlmem.collect.collector import Collector
from rlmem.collect.rollout import EvaluationResult
from tests.runs.helpers import KEEP, TIMINGS, assert_same_run, rows_of, run, stopped, summary_of

# Evaluations at 50, 100 and at the end, checkpoints at 60, 120 and, twice, at the end.
SHORT = [
    *("memory=uniform", "trainer.max_env_steps=150", "agent.learning_starts=40"),
    *("checkpoint.every=60", "evaluation.every=50", "log.every=40"),
]
# Of a process, of the clock, of who edits meanwhile, or of a length that was given later.
UNLIKE = {*TIMINGS, "cpu_seconds", "wall_seconds", "peak_rss_bytes", "git_commit", "summary"}
UNLIKE |= {"length_changed_at"}
# All that writes, renames or removes a run's files.
WRITING: list[tuple[Any, str]] = [
    *((os, "replace"), (shutil, "rmtree"), (torch, "save")),
    *((checkpoint, "save_file"), (checkpoint, "write_checksums"), (CsvFile, "write")),
]
LAST = 14  # writes from the last evaluation on


def snapshots(folder: Path, *overrides: str) -> list[Path]:
    """Train, and copy the folder before each write: what a run killed there would leave, as what
    it has not written yet is in its memory only."""
    run_dir, kept = folder / "run", folder / "killed"
    kept.mkdir()
    before: list[Path] = []

    def noted(write: Callable[..., Any]) -> Callable[..., Any]:
        def note_and_write(*args: Any, **kwargs: Any) -> Any:
            if run_dir.exists():
                before.append(kept / f"{len(before)}")
                shutil.copytree(run_dir, before[-1])
            return write(*args, **kwargs)

        return note_and_write

    with pytest.MonkeyPatch.context() as patch:
        for where, name in WRITING:
            patch.setattr(where, name, noted(getattr(where, name)))
        run(run_dir, *overrides)
    return before


def numbers(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in UNLIKE}


def files(folder: Path) -> set[Path]:
    """All but the pieces of a memory, whose number depends on the saves."""
    found = {path.relative_to(folder) for path in folder.rglob("*")}
    return {path for path in found if not path.match("memory/*/*.npy")}


def assert_same(whole: Path, cut: Path) -> None:
    assert files(whole) == files(cut)
    assert_same_run(whole, cut)
    assert numbers(summary_of(whole)) == numbers(summary_of(cut))
    a, b = ((run / "checkpoints/last/manifest.json").read_text() for run in (whole, cut))
    assert numbers(json.loads(a)) == numbers(json.loads(b))
    a, b = ((run / "checkpoints/best.ckpt").read_bytes() for run in (whole, cut))
    assert a == b


def assert_no_kill_leaves_a_trace(
    folder: Path, *overrides: str, step: int, first: Sequence[str] = ()
) -> None:
    """Let a run go on that was killed before every nth of its writes, or one of the last; compare
    what is left with a run that was let alone.

    Args:
        first: further overrides until the kill.
    """
    run(whole := folder / "whole", *SHORT, *overrides)
    killed = snapshots(folder, *SHORT, *overrides, *first)
    assert len(killed) > 2 * LAST
    for cut in [*killed[step - 1 : -LAST : step], *killed[-LAST:]]:
        again = [f"resume={cut}"] if find_checkpoint(cut) else []
        run(cut, *SHORT, *overrides, *again)
        assert_same(whole, cut)


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_no_trace(tmp_path: Path) -> None:
    assert_no_kill_leaves_a_trace(tmp_path, step=8)


@pytest.mark.slow
def test_a_run_that_was_killed_at_its_end_can_go_on_for_longer(tmp_path: Path) -> None:
    """As if it had been told so from the start: at 100 env steps an evaluation was due anyway."""
    first = [KEEP, "trainer.max_env_steps=100"]
    assert_no_kill_leaves_a_trace(tmp_path, KEEP, first=first, step=12)


def best_of(folder: Path) -> tuple[int, float]:
    content = torch.load(folder / "checkpoints/best.ckpt", weights_only=True)
    return content["env_steps"], content["eval_return_mean"]


@pytest.mark.parametrize(("last", "best"), [(7.0, (150, 7.0)), (4.0, (50, 5.0))])
def test_the_best_model_is_of_an_evaluation_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: float, best: tuple[int, float]
) -> None:
    draw = Collector._draw
    returns = iter([5.0, 9.0, last])  # at 50, at 100, and at the end

    def score(*args: Any, **kwargs: Any) -> EvaluationResult:
        return EvaluationResult([next(returns)], [1])

    def fail_at_110(stream: Collector) -> Any:
        if stream.env_steps == 110:
            raise FloatingPointError
        return draw(stream)

    monkeypatch.setattr(evaluation, "evaluate_policy", score)
    with monkeypatch.context() as patch:
        patch.setattr(Collector, "_draw", fail_at_110)
        with pytest.raises(FloatingPointError):
            run(tmp_path, *SHORT)
    assert best_of(tmp_path) == (100, 9.0)
    run(tmp_path, *SHORT, "evaluation.every=null", f"resume={tmp_path}")
    scores = [(int(r["env_steps"]), float(r["return"])) for r in rows_of(tmp_path / EVALUATIONS)]
    assert scores == [(50, 5.0), (150, last)]
    assert best_of(tmp_path) == best


def stopped_after_an_evaluation(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A run that SIGTERM stops at 100 env steps, just when it is scored."""
    evaluate = Evaluation.evaluate

    def evaluate_and_stop(callback: Evaluation, *arguments: Any) -> None:
        evaluate(callback, *arguments)
        if callback.stream.env_steps == 100:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Evaluation, "evaluate", evaluate_and_stop)
        with pytest.raises(SystemExit):
            run(folder, *SHORT)


def test_what_was_scored_at_a_step_is_not_scored_there_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_after_an_evaluation(monkeypatch, tmp_path)
    before = (tmp_path / EVALUATIONS).read_bytes()
    assert [row["env_steps"] for row in rows_of(tmp_path / EVALUATIONS)] == ["50", "100"]
    summary = run(tmp_path, *SHORT, "trainer.max_env_steps=100", f"resume={tmp_path}")
    assert (summary["status"], summary["eval_episodes"]) == ("finished", 1)
    assert (tmp_path / EVALUATIONS).read_bytes() == before


@pytest.mark.parametrize("end", ["killed", "interrupted"])
def test_the_last_checkpoint_says_that_a_run_is_finished(
    finished_run: Path, tmp_path: Path, end: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed or interrupted after it, or when it was to go on for longer."""
    folder = Path(shutil.copytree(finished_run, tmp_path / "run"))
    files = {name: (folder / name).read_bytes() for name in (*COLUMNS, "summary.json")}
    shutil.copytree(folder / "checkpoints/last", folder / "checkpoints/last.old")
    for name in COLUMNS:
        with (folder / name).open("a") as file:
            file.write(rows_of(folder / name)[-1]["env_steps"] + ",1,2\n")
    if end == "killed":
        (folder / "summary.json").unlink()
    else:
        content = {**summary_of(folder), "status": "interrupted"}
        (folder / "summary.json").write_text(json.dumps(content))
    overrides = ["memory=per", "evaluation.every=100", "evaluation.episodes=2", KEEP]
    run(folder, *overrides, f"resume={folder}")
    assert "finished already" in capsys.readouterr().out
    assert {name: (folder / name).read_bytes() for name in files} == files
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {"last", "best.ckpt"}


def without_counts(folder: Path) -> None:
    """Make the checkpoint one of those that do not tell what rows they know."""
    path = folder / "checkpoints/last/manifest.json"
    manifest = json.loads(path.read_text())
    for key in ("rows", "evaluated_at", "summary"):
        del manifest[key]
    path.write_text(json.dumps({**manifest, "format": 2}))
    (path.parent / "checksums.json").unlink()
    (path.parent / "best.ckpt").unlink()


@pytest.mark.parametrize("at", [101, 100])
def test_an_older_checkpoint_keeps_the_rows_up_to_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run(whole, *SHORT)
    if at == 100:
        stopped_after_an_evaluation(monkeypatch, cut)
    else:
        stopped(monkeypatch, at, cut, *SHORT)
    without_counts(cut)
    run(cut, *SHORT, f"resume={cut}")
    assert_same(whole, cut)


def test_an_older_checkpoint_at_the_end_is_scored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = checkpoint.save_checkpoint

    def fail_after_the_last_evaluation(*args: Any, **kwargs: Any) -> None:
        if kwargs["summary"]:
            raise FloatingPointError
        save(*args, **kwargs)

    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run(whole, *SHORT)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_checkpoint", fail_after_the_last_evaluation)
        with pytest.raises(FloatingPointError):
            run(cut, *SHORT)
    assert rows_of(cut / EVALUATIONS)[-1]["env_steps"] == "150"
    without_counts(cut)
    run(cut, *SHORT, f"resume={cut}")
    assert_same(whole, cut)
