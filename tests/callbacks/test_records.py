"""The run's files: rows, columns, what a resumed run keeps."""

import csv
import functools
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import rlmem
from rlmem import distributed
from rlmem.callbacks.records import Recorder
from rlmem.runs import summary
from tests.runs.helpers import rows_of, run, summary_of

# DESIGN.md, "What a run leaves": people's scripts read these.
SUMMARY_KEYS = {
    *("status", "error", "agent", "memory", "env_id", "seed", "env_steps", "frames"),
    *(
        "grad_steps",
        "length_changed_at",
        "episodes",
        "train_return_mean",
        "eval_return_mean",
        "eval_return_std",
    ),
    *("eval_episodes", "eval_unended", "eval_success_rate", "human_normalized_score"),
    *("memory_bytes", "memory_bytes_peak"),
    *("memory_components", "memory_budget", "memory_entries", "transitions_seen"),
    "bytes_per_transition",
    *("peak_rss_bytes", "env_steps_per_second", "wall_seconds", "cpu_seconds"),
    *("device", "versions", "git_commit"),
}
VERSIONS = {"python", "torch", "torchrl", "lightning", "gymnasium", "ale_py", "rlmem"}


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("episodes.csv", ["env_steps", "episode", "return", "length", "seconds"]),
        ("evaluations.csv", ["env_steps", "episode", "return", "length"]),
    ],
)
def test_the_columns_are_those_that_scripts_read(
    finished_run: Path, name: str, columns: list[str]
) -> None:
    with (finished_run / name).open(newline="") as file:
        assert next(csv.reader(file)) == columns


def test_metrics_have_a_row_a_log_step_and_the_curves(finished_run: Path) -> None:
    rows = rows_of(finished_run / "metrics.csv")
    assert [row["env_steps"] for row in rows] == ["100", "200", "300"]
    curves = {
        *("frames", "grad_steps", "train_return_mean", "memory_bytes", "memory_entries"),
        *("bytes_per_transition", "td_error_mean", "td_error_median", "td_error_max"),
        *("td_error_std", "correlation_count", "env_steps_per_second", "epsilon", "loss"),
    }
    assert curves <= rows[0].keys()
    assert all(row["td_error_mean"] for row in rows[1:])


def test_a_run_that_ends_before_its_first_row_has_one(tmp_path: Path) -> None:
    run(tmp_path, "log.every=100000")
    (row,) = rows_of(tmp_path / "metrics.csv")
    assert (row["env_steps"], row["grad_steps"]) == ("300", "201")
    assert float(row["loss"]) > 0


def test_the_loss_of_rare_updates_stands_in_the_rows_without_diagnostics(tmp_path: Path) -> None:
    given = ["experiment=pqn", "env=cartpole", "trainer.max_env_steps=3000", "log.progress=false"]
    run(tmp_path, *given, "evaluation.episodes=1", "log.diagnostics=false", tiny=[])
    rows = rows_of(tmp_path / "metrics.csv")
    assert len(rows) == 3
    assert all(row["loss"] for row in rows)


def test_the_components_of_a_row_add_up_to_its_bytes(finished_run: Path) -> None:
    for row in rows_of(finished_run / "metrics.csv"):
        parts = [int(value) for name, value in row.items() if name.startswith("memory/")]
        assert sum(parts) == int(row["memory_bytes"]) > 0


def test_episodes_are_numbered_and_as_long_as_their_return_on_cartpole(finished_run: Path) -> None:
    rows = rows_of(finished_run / "episodes.csv")
    assert [int(row["episode"]) for row in rows] == list(range(1, len(rows) + 1))
    assert all(float(row["return"]) == int(row["length"]) for row in rows)
    steps = [int(row["env_steps"]) for row in rows]
    assert steps == np.cumsum([int(row["length"]) for row in rows]).tolist()


def test_evaluations_come_at_each_multiple_and_at_the_end(finished_run: Path) -> None:
    rows = rows_of(finished_run / "evaluations.csv")
    assert [(r["env_steps"], r["episode"]) for r in rows] == [
        (steps, episode) for steps in ("100", "200", "300") for episode in ("1", "2")
    ]


def test_the_summary_has_every_key(finished_run: Path) -> None:
    summary = summary_of(finished_run)
    assert summary.keys() == SUMMARY_KEYS
    assert summary["versions"].keys() == VERSIONS
    assert summary["versions"]["rlmem"] == rlmem.__version__


def test_the_summary_says_what_happened(finished_run: Path) -> None:
    summary = summary_of(finished_run)
    expected = {
        "status": "finished",
        "error": None,
        "agent": "dqn",
        "memory": "per",
        "env_id": "CartPole-v1",
        "seed": 0,
        "env_steps": 300,
        "frames": 300,
        "grad_steps": 201,
        "eval_episodes": 2,
        "human_normalized_score": None,
        "memory_entries": 300,
        "transitions_seen": 300,
    }
    assert {key: summary[key] for key in expected} == expected
    assert summary["memory_bytes"] == sum(summary["memory_components"].values())
    assert summary["memory_bytes_peak"] >= summary["memory_bytes"]
    assert summary["bytes_per_transition"] == summary["memory_bytes"] / 300
    assert summary["peak_rss_bytes"] > summary["memory_bytes"]
    scores = [float(r["return"]) for r in rows_of(finished_run / "evaluations.csv")[-2:]]
    assert summary["eval_return_mean"] == np.mean(scores)
    assert summary["eval_return_std"] == pytest.approx(np.std(scores))


def test_the_commit_is_rlmems_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that of a repository that it is installed in."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:  # of a hook, or a rebase
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    run_git = functools.partial(subprocess.run, cwd=tmp_path, check=True, capture_output=True)
    run_git(["git", "init"])
    names = ["-c", "user.name=a", "-c", "user.email=a@b"]
    run_git(["git", *names, "commit", "--allow-empty", "-m", "theirs"])
    (tmp_path / "summary.py").touch()
    monkeypatch.setattr(summary, "__file__", str(tmp_path / "summary.py"))
    assert summary.git_commit() is None
    run_git(["git", "add", "summary.py"])
    assert summary.git_commit() is not None


def recorder_of(seconds: dict[str, float], tmp_path: Path) -> Recorder:
    stream = SimpleNamespace(due_every=lambda steps: None, seconds=seconds, peak_rss_bytes=0)
    recorder = Recorder(tmp_path, cast(Any, stream), 100, [])
    recorder._last_parts = dict.fromkeys(seconds, 0.0)
    return recorder


def test_times_are_of_the_steps_of_the_process_that_took_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "size", 2)
    recorder = recorder_of({"act": 1.0, "env": 2.0, "insert": 3.0, "sample": 4.0}, tmp_path)
    found = recorder._microseconds(steps=200, updates=50)  # 100 steps are another process's
    assert found == {"act_us": 1e4, "env_us": 2e4, "insert_us": 3e4, "sample_us": 8e4}
    assert set(recorder._microseconds(steps=200, updates=50).values()) == {0.0}  # since the last


def test_the_first_row_of_a_run_that_goes_on_has_no_times(tmp_path: Path) -> None:
    recorder = recorder_of({"act": 1.0, "env": 2.0, "insert": 3.0, "sample": 4.0}, tmp_path)
    recorder.stream.env_steps, recorder.stream.over = 100, 0
    saved = {"seconds": 5.0, "memory_bytes_peak": 1, "best_return": None, "last_evaluation": None}
    recorder.open(saved)
    recorder._last_parts = dict.fromkeys(recorder._last_parts, 0.0)
    assert set(recorder._microseconds(steps=100, updates=100).values()) == {None}
    recorder.stream.seconds["insert"] = 4.0
    assert recorder._microseconds(steps=100, updates=100)["insert_us"] == 1e4


def test_times_that_nobody_takes_are_empty(tmp_path: Path) -> None:
    recorder = recorder_of({"act": 1.0, "env": 2.0}, tmp_path)
    found = recorder._microseconds(steps=100, updates=50)
    assert (found["insert_us"], found["sample_us"]) == (None, None)


def test_a_row_in_which_no_step_was_made_has_no_speed(tmp_path: Path) -> None:
    """The row at the end of a run that was killed behind it, and is ended now."""
    recorder = recorder_of({}, tmp_path)
    recorder.stream.env_steps = 0
    recorder.open()
    recorder.stream.env_steps, recorder.stream.frames = 100, 400
    recorder.stream.episodes = SimpleNamespace(recent_returns=[], recent_lengths=[], count=0)
    agent = SimpleNamespace(grad_steps=0, epsilon=lambda env_steps: 0.0)
    assert recorder._progress(agent)["env_steps_per_second"] > 0
    assert recorder._progress(agent)["env_steps_per_second"] is None


def test_the_largest_resident_set_is_that_of_all_segments(tmp_path: Path) -> None:
    recorder = recorder_of({}, tmp_path)
    assert 0 < recorder.peak_rss_bytes < 2**50
    recorder._rss_before = 2**50  # of a segment before
    assert recorder.peak_rss_bytes == 2**50
