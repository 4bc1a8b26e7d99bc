"""Runs that do not compare: of other spans, games, keys and counts. A report says so."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlmem.analysis.compare.settings import make_settings
from rlmem.analysis.read.collection import collect
from rlmem.analysis.show.figures import common_games
from rlmem.analysis.show.report import write_report
from rlmem.analysis.show.sentences import finding
from tests.analysis.helpers import make_run


def notes_of(folder: Path, **more: Any) -> list[str]:
    return write_report([folder], folder / "report", **more).collection.notes


def test_runs_that_went_on_with_another_length_are_told(tmp_path: Path) -> None:
    make_run(tmp_path / "a", length_changed_at=[])
    make_run(tmp_path / "b", seed=1, length_changed_at=[500])
    (note,) = notes_of(tmp_path)
    assert note.startswith("1 run went on with another length (length_changed_at in summary.json)")


def test_runs_of_one_label_that_differ_are_told(tmp_path: Path) -> None:
    for seed, lr in enumerate((1e-3, 1e-3, 5e-4)):
        config = {"label": "mine", "agent.lr": lr, "trainer.threads": seed}
        make_run(tmp_path / str(seed), seed=seed, config=config)
    make_run(tmp_path / "other", config={"label": "other", "agent.lr": 1.0})
    (note,) = notes_of(tmp_path)
    assert note.endswith(", mine: its runs differ in agent.lr: 0.0005, 0.001")


def test_a_curve_of_another_program_that_begins_late_does_not_win_by_that(tmp_path: Path) -> None:
    """The same curve, without its first half, has another mean."""
    for seed in range(2):
        make_run(tmp_path / f"runs/{seed}", seed=seed)
    lines = [f"{1000 * k},{100 * (k - 1) / 19},,{s},SB3" for s in range(2) for k in range(1, 21)]
    for name, kept in (("whole", lines), ("late", [*lines[10:20], *lines[30:]])):
        text = "\n".join(["env_steps,return,bytes,seed,label", *kept]) + "\n"
        (tmp_path / f"{name}.csv").write_text(text)
        found = collect([tmp_path / "runs"], [tmp_path / f"{name}.csv"])
        settings = make_settings(found.runs)
        told = any("the first return is known at 5% of a run" in note for note in found.notes)
        assert (told, "over the run" in finding(settings)) == (name == "late", name == "whole")
        assert "uniform and SB3 returned most" in finding(settings)


def test_spans_of_runs_that_end_by_their_episodes_are_told(tmp_path: Path) -> None:
    for name, rows in (("a", 20), ("b", 21), ("c", 30)):
        make_run(tmp_path / name, rows=rows, config={"trainer.max_episodes": 300})
        told = [note for note in collect([tmp_path]).notes if "end by their episodes" in note]
        assert len(told) == (name == "c")
    assert "took 20,000 to 30,000 env steps" in told[0]


def test_profiles_are_over_games_that_all_methods_have() -> None:
    games = {"Pong": 1, "Hero": 2}
    assert common_games({"a": games, "b": {**games, "Alien": 3}, "c": {"Qbert": 1}}) == {*games}
    assert common_games({"a": games, "b": {"Pong": 1, "Alien": 3}}) == set()
    assert common_games({}) == set()


def test_of_how_many_runs_the_return_over_the_run_is_is_told(tmp_path: Path) -> None:
    for seed in range(6):
        make_run(tmp_path / str(seed), seed=seed, final=100 + seed)
    head, *_, last = (tmp_path / "5/metrics.csv").read_text().splitlines()
    (tmp_path / "5/metrics.csv").write_text(f"{head}\n{last}\n")
    found = notes_of(tmp_path)
    assert "CartPole-v1, uniform: 5 of 6 runs have a return over the run; not seed 5" in found
    assert "5 of 6 seeds" in (tmp_path / "report/index.html").read_text()
    (row,) = (tmp_path / "report/summary.csv").read_text().splitlines()[1:]
    (head,) = (tmp_path / "report/summary.csv").read_text().splitlines()[:1]
    cells = dict(zip(head.split(","), row.split(","), strict=True))
    assert (cells["n"], cells["return_over_run_n"]) == ("6", "5")


def test_a_key_that_was_given_is_not_pooled_with_runs_from_before_it(tmp_path: Path) -> None:
    for seed in range(4):
        added = {"agent.added": True} if seed > 1 else {}
        folder = make_run(tmp_path / str(seed), seed=seed, config=added)
        if seed > 1:
            (folder / "overrides.yaml").write_text("[memory=uniform, agent.added=true]")
    settings = make_settings(collect([tmp_path]).runs)
    found = [(setting.label, len(setting.runs)) for setting in settings]
    assert found == [("uniform", 2), ("uniform, added True", 2)]


def test_runs_may_be_gathered_by_links(tmp_path: Path) -> None:
    make_run(tmp_path / "all/0")
    make_run(tmp_path / "elsewhere/1", seed=1)
    (tmp_path / "all/1").symlink_to(tmp_path / "elsewhere/1")
    (tmp_path / "all/up").symlink_to(tmp_path)  # what it leads to is not searched
    found = collect([tmp_path / "all"])
    assert (sorted(run.seed for run in found.runs), found.left_out) == ([0, 1], [])


@pytest.mark.parametrize("scores", [[500.0] * 5, [0.1 + 0.2, *[0.3] * 4]], ids=["equal", "rounded"])
def test_scores_that_are_alike_have_no_interval(tmp_path: Path, scores: list[float]) -> None:
    assert scores[0] == 500 or np.ptp(scores) > 0
    for seed, score in enumerate(scores):
        make_run(tmp_path / str(seed), seed=seed, eval_return_mean=score)
    (setting,) = make_settings(collect([tmp_path]).runs)
    assert setting.return_mean is not None
    assert (setting.return_mean.low, setting.return_mean.high) == (None, None)
    notes_of(tmp_path)
    assert "(each seed)" in (tmp_path / "report/index.html").read_text()


def test_a_run_that_ended_in_another_way_is_named(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", seed=1, status="diverged")
    assert collect([tmp_path]).left_out == [(str(tmp_path / "b"), "diverged")]
