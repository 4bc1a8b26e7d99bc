"""Reading runs: whole ones, broken ones, and those of others."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rlmem.analysis.read.collection import collect
from rlmem.analysis.read.curves import CURVES, EVALUATED, POINTS, read_table
from rlmem.analysis.read.runs import read_run
from tests.analysis.helpers import VERSIONS, make_run


def test_all_runs_below_a_folder_are_found_once(tmp_path: Path) -> None:
    make_run(tmp_path / "a" / "x")
    make_run(tmp_path / "b", seed=1)
    (tmp_path / "b" / "checkpoints").mkdir()
    (tmp_path / "b" / "checkpoints" / "config.yaml").write_text("{}")
    found = collect([tmp_path, tmp_path / "b"])
    assert sorted(run.seed for run in found.runs) == [0, 1]
    assert found.left_out == found.notes == []


def test_a_study_may_name_a_column_as_it_likes(tmp_path: Path) -> None:
    for seed, name in enumerate(("report", "videos", "checkpoints", "wandb")):
        make_run(tmp_path / name / f"seed{seed}" if name != "wandb" else tmp_path / name, seed=seed)
    (tmp_path / "a/wandb/run-1/files").mkdir(parents=True)
    (tmp_path / "a/wandb/run-1/files/config.yaml").write_text("wandb_version: 1")
    found = collect([tmp_path])
    assert sorted(run.seed for run in found.runs) == [0, 1, 2, 3]
    assert found.left_out == found.notes == []


def test_the_curves_are_those_of_the_file(tmp_path: Path) -> None:
    (run,) = collect([make_run(tmp_path / "a", final=10, rows=5)]).runs
    assert run.curves["env_steps"].tolist() == [1000, 2000, 3000, 4000, 5000]
    assert run.curves["train_return_mean"].tolist() == [0, 2.5, 5, 7.5, 10]
    assert (run.env_id, run.memory, run.status) == ("CartPole-v1", "uniform", "finished")


@pytest.mark.parametrize("name", ["config.yaml", "summary.json"])
@pytest.mark.parametrize("content", [b"{", b"- 1", b"\xff\xfe\0", b"[1"])
def test_a_broken_file_leaves_its_run_out_and_is_named(
    tmp_path: Path, name: str, content: bytes
) -> None:
    make_run(tmp_path / "good")
    make_run(tmp_path / "bad", seed=1)
    (tmp_path / "bad" / name).write_bytes(content)
    found = collect([tmp_path])
    assert [run.seed for run in found.runs] == [0]
    ((path, reason),) = found.left_out
    assert path.endswith("bad")
    assert name in reason


@pytest.mark.parametrize(
    "change",
    [
        {"seed": None},
        {"seed": "x"},
        {"memory": "uniform"},
        {"env": []},
        {"seed": [1]},
        {"seed": True},
    ],
    ids=str,
)
def test_a_configuration_of_no_run_is_left_out(tmp_path: Path, change: dict[str, Any]) -> None:
    folder = make_run(tmp_path / "a")
    config = yaml.safe_load((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(yaml.safe_dump({**config, **change}))
    found = collect([tmp_path])
    assert found.runs == []
    assert "no configuration of a run" in found.left_out[0][1]


@pytest.mark.parametrize(
    "value", ["Infinity", "NaN", "true", '"9"', "[1]", "null", "1" + "0" * 400]
)
def test_what_is_no_finite_number_of_a_summary_is_nan(tmp_path: Path, value: str) -> None:
    folder = make_run(tmp_path / "a")
    (folder / "summary.json").write_text(f'{{"status": "finished", "eval_return_mean": {value}}}')
    found = collect([tmp_path])
    (run,) = found.runs
    assert np.isnan(run.number("eval_return_mean"))
    said = any("summary.json: eval_return_mean is" in note for note in found.notes)
    assert said == (value != "null")


@pytest.mark.parametrize("value", ["many", [1], {"a": 1}, True, 10**400])
def test_env_steps_that_are_no_number_are_named(tmp_path: Path, value: Any) -> None:
    make_run(tmp_path / "a", env_steps=value, config={"log.every": 10})
    found = collect([tmp_path])
    assert len(found.runs) == 1
    assert any("summary.json: env_steps is" in note for note in found.notes)


def test_an_interval_of_the_log_that_no_run_has_says_nothing_of_its_rows(tmp_path: Path) -> None:
    make_run(tmp_path / "a", config={"log.every": 10**400})
    (run,) = collect([tmp_path]).runs
    assert run.faults == []


def test_runs_may_be_called_as_folders_that_are_no_runs(tmp_path: Path) -> None:
    make_run(tmp_path / "report")
    make_run(tmp_path / "x" / "videos")
    assert len(collect([tmp_path]).runs) == 2


@pytest.mark.parametrize(
    "content",
    ["", "env_steps\n", "x,y\n1,2\n", "env_steps,train_return_mean\n1000,4000\n2000", "\0\0"],
)
def test_broken_curves_leave_what_is_whole(tmp_path: Path, content: str) -> None:
    folder = make_run(tmp_path / "a")
    (folder / "metrics.csv").write_text(content)
    (run,) = collect([folder]).runs
    assert len(run.curves["env_steps"]) == content.count("4000")
    assert run.number("eval_return_mean") == 100


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda lines: lines[:12], "it ends at env step 11000 of 20000"),
        (lambda lines: [lines[0], *lines[15:]], "it begins at env step 15000"),
        (lambda lines: [*lines[:3], lines[3] + ",9", *lines[4:]], "1 row of 20"),
        (lambda lines: [*lines[:3], f"x{lines[3]}", *lines[4:]], "1 row of 20"),
        (lambda lines: [*lines[:3], lines[3].replace(".", "l"), *lines[4:]], "1 row of 20"),
        (lambda lines: [*lines[:3], f"-{lines[3]}", *lines[4:]], "its env_steps fall"),
    ],
    ids=["cut", "late", "cell", "text", "number", "order"],
)
def test_rows_that_are_damaged_do_not_count_and_are_named(
    tmp_path: Path, change: Callable[[list[str]], list[str]], why: str
) -> None:
    folder = make_run(tmp_path / "a", config={"log.every": 1000})
    assert collect([folder]).notes == []
    lines = (folder / "metrics.csv").read_text().splitlines()
    (folder / "metrics.csv").write_text("\n".join(change(lines)) + "\n")
    found = collect([folder])
    (run,) = found.runs
    assert np.isnan(run.number("return_over_run"))
    assert run.number("eval_return_mean") == 100
    (note,) = found.notes
    assert "metrics.csv is damaged" in note
    assert why in note


def test_a_run_that_goes_on_with_rows_more_often_is_whole(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", config={"log.every": 100})
    lines = (folder / "metrics.csv").read_text().splitlines()
    (folder / "metrics.csv").write_text("\n".join([lines[0], *lines[10:]]) + "\n")
    assert "it begins at env step 10000" in collect([folder]).notes[0]
    (folder / "run.json").write_text(json.dumps({"id": "a", "log_every": 10_000}))
    assert collect([folder]).notes == []


def test_a_damaged_evaluation_is_named_and_not_drawn(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", evaluated=4)
    text = (folder / "evaluations.csv").read_text()
    (folder / "evaluations.csv").write_text(text.replace(",1,", ",1,z", 1))
    (note,) = collect([folder]).notes
    assert note.endswith("evaluations.csv is damaged (1 row of 8): its curve does not count")
    assert len(read_run(folder).curves["evaluated_at"]) == 0


def test_cells_that_are_no_numbers_are_nan(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("env_steps,a,b\n1,,2\n2,x,3\nthree,1,1\n4,5,6\n")
    table = read_table(tmp_path / "m.csv")
    assert table["env_steps"].tolist() == [1, 2, 4]
    np.testing.assert_array_equal(table["a"], [np.nan, np.nan, 5])


def test_a_last_line_without_its_end_is_left_out(tmp_path: Path) -> None:
    """A number that was cut off is a number all the same."""
    (tmp_path / "m.csv").write_text("env_steps,a\n1,10\n2,2")
    assert read_table(tmp_path / "m.csv")["a"].tolist() == [10]


def test_long_curves_keep_some_rows_as_they_are_with_both_ends(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path / "a", rows=1234, final=5.0))
    assert run.curves.keys() == {*CURVES, *EVALUATED}
    steps, returns = run.curves["env_steps"], run.curves["train_return_mean"]
    assert len(steps) == len(returns) == POINTS
    assert steps[[0, -1]].tolist() == [1000, 1_234_000]
    np.testing.assert_allclose(returns, 5 * (steps / 1000 - 1) / 1233, rtol=1e-6)
    assert np.isnan(read_run(make_run(tmp_path / "b", rows=3)).curves["seconds"]).sum() == 0


def test_evaluations_are_means_of_their_episodes(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path / "a", final=8.0, evaluated=4))
    at, means = (run.curves[name] for name in EVALUATED)
    assert at.tolist() == [5000, 10_000, 15_000, 20_000]
    assert means.tolist() == [2, 4, 6, 8]
    assert len(run.curves["env_steps"]) == 20  # which has points of its own
    (run.folder / "evaluations.csv").write_text("env_steps,episode,return,length\n5,1,3,9\n5,2,9")
    assert read_run(run.folder).curves["eval_return_mean"].tolist() == [3]  # the last line is cut
    (run.folder / "evaluations.csv").unlink()
    assert len(read_run(run.folder).curves["evaluated_at"]) == 0


def write_metrics(folder: Path, *lines: str) -> Path:
    make_run(folder)
    (folder / "metrics.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_the_return_over_a_run_is_its_curves_mean_over_env_steps(tmp_path: Path) -> None:
    head = "env_steps,train_return_mean"
    run = read_run(write_metrics(tmp_path / "a", head, "1000,", "2000,10", "3000,20", "7000,20"))
    assert run.number("return_over_run") == pytest.approx((15 * 1000 + 20 * 4000) / 5000)
    run = read_run(write_metrics(tmp_path / "b", head, "1000,", "2000,10", "3000,-20", "7000,20"))
    assert run.number("return_over_run") == pytest.approx((-5 * 1000 + 0 * 4000) / 5000)
    assert np.isnan(read_run(write_metrics(tmp_path / "c", head, "1,1")).number("return_over_run"))


def test_a_time_is_a_mean_over_steps_and_updates_without_the_first_row_of_it(
    tmp_path: Path,
) -> None:
    """The first rows hold what is compiled, and rows differ in how much was done in them."""
    run = read_run(
        write_metrics(
            tmp_path / "a",
            "env_steps,grad_steps,insert_us,sample_us",
            *("100,0,9000,", "200,10,10,80000", "300,40,20,100", "700,50,40,200"),
        )
    )
    assert run.number("insert_us") == pytest.approx((10 + 20 + 4 * 40) / 6)
    assert run.number("sample_us") == pytest.approx((3 * 100 + 1 * 200) / 4)
    run = read_run(write_metrics(tmp_path / "b", "env_steps,grad_steps,sample_us", "100,50,7"))
    assert np.isnan(run.number("sample_us"))
    assert np.isnan(run.number("insert_us"))


def test_other_columns_have_their_plain_mean(tmp_path: Path) -> None:
    lines = "env_steps,td_error_mean,x", "100,,a", "200,1,b", "900,4,c"
    run = read_run(write_metrics(tmp_path / "a", *lines))
    assert run.means["td_error_mean"] == 2.5
    assert "x" not in run.means


def test_what_makes_a_comparison_unclean_is_said(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", seed=1, rows=30, versions={**VERSIONS, "rlmem": "0.2.0"})
    make_run(tmp_path / "c", seed=2, status="failed")
    make_run(tmp_path / "d", seed=3, status="no summary")
    found = collect([tmp_path])
    assert len(found.runs) == 4
    assert any("several versions of rlmem: 0.1.0, 0.2.0" in note for note in found.notes)
    assert any("different lengths (20,000, 30,000 env steps)" in note for note in found.notes)
    reasons = dict(found.left_out)
    assert reasons[str(tmp_path / "c")] == "failed: ValueError: no luck"
    assert "has not ended" in reasons[str(tmp_path / "d")]


@pytest.mark.parametrize("ended", [True, False])
def test_a_copied_run_is_no_further_seed(tmp_path: Path, ended: bool) -> None:
    (make_run(tmp_path / "a") / "run.json").write_text('{"id": "0123abcd"}')
    if not ended:
        (tmp_path / "a/summary.json").unlink()
    make_run(tmp_path / "b", seed=1)
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    found = collect([tmp_path])
    assert sorted(run.seed for run in found.runs) == [0, 1]
    assert (str(tmp_path / "copy"), f"a copy of {tmp_path / 'a'}") in found.left_out


def test_a_coarse_log_beside_a_fine_one_is_said(tmp_path: Path) -> None:
    for every in (100, 1000):
        make_run(tmp_path / f"{every}", seed=every, config={"log.every": every})
    assert "CartPole-v1: runs of several log.every (100, 1000)" in collect([tmp_path]).notes[0]


def test_runs_of_so_many_episodes_may_differ_in_env_steps(tmp_path: Path) -> None:
    for name, rows in (("a", 20), ("b", 30)):
        make_run(tmp_path / name, rows=rows, config={"trainer.max_episodes": 300})
    assert not any("different lengths" in note for note in collect([tmp_path]).notes)


def test_jobs_of_a_sweep_that_left_no_run_are_said(tmp_path: Path) -> None:
    make_run(tmp_path / "seed=0")
    (tmp_path / "seed=1").mkdir()
    (tmp_path / "seed=1/error.json").write_text('{"error": "no such game"}')
    jobs = {f"seed={seed}": [f"seed={seed}"] for seed in range(3)}
    command = {"jobs": jobs, "trials": 0, "at_once": 1}
    (tmp_path / "sweep.json").write_text(json.dumps({"commands": [command]}))
    found = collect([tmp_path])
    assert [run.seed for run in found.runs] == [0]
    assert found.left_out == [(str(tmp_path / "seed=1"), "failed: no such game")]
    assert found.notes == [f"{tmp_path}: 1 of 3 jobs has not started"]
    (tmp_path / "seed=0/config.yaml").unlink()
    search = {"jobs": {}, "trials": 7, "at_once": 1}
    (tmp_path / "sweep.json").write_text(json.dumps({"commands": [command, search]}))
    make_run(tmp_path / "0", seed=7)  # a trial
    found = collect([tmp_path])
    gone = (str(tmp_path / "seed=0"), "finished, but its config.yaml is gone")
    assert (found.left_out[0], len(found.left_out)) == (gone, 2)
    assert found.notes == [f"{tmp_path}: 7 of 10 jobs have not started"]


def test_a_curve_that_begins_late_is_told(tmp_path: Path) -> None:
    """Its return over the run leaves out how long it took to the first episode's end."""
    make_run(tmp_path / "early")
    path = make_run(tmp_path / "late", seed=1) / "metrics.csv"
    head, *rows = (line.split(",") for line in path.read_text().splitlines())
    for row in rows[:9]:
        row[head.index("train_return_mean")] = ""
    path.write_text("\n".join(map(",".join, [head, *rows])) + "\n")
    (note,) = collect([tmp_path]).notes
    assert "the first return is known at 5% of a run, of another at 50%" in note


def test_an_argument_of_the_environment_that_some_runs_lack_is_told(tmp_path: Path) -> None:
    for seed, more in enumerate(({}, {}, {"env.kwargs.cell": 2})):
        make_run(tmp_path / f"{seed}", seed=seed, config={"env.kwargs.size": 1, **more})
    (note,) = collect([tmp_path]).notes
    assert note.startswith("CartPole-v1: env.kwargs.cell is given by some runs alone")
    assert collect([tmp_path / "0", tmp_path / "1"]).notes == []


def test_a_commit_that_is_not_known_is_no_other_one(tmp_path: Path) -> None:
    for seed, commit in enumerate(("abcdef", None, "abcdef")):
        make_run(tmp_path / f"{seed}", seed=seed, git_commit=commit)
    assert collect([tmp_path]).notes == []
    make_run(tmp_path / "3", seed=3, git_commit="abcdef-dirty")
    assert collect([tmp_path]).notes == ["runs of 2 commits of rlmem"]


def test_a_link_to_a_sweep_leads_to_its_runs(tmp_path: Path) -> None:
    for seed in (0, 1):
        make_run(tmp_path / "sweep" / f"seed={seed}", seed=seed)
    (tmp_path / "sweep" / "sweep.json").write_text("{}")
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "linked").symlink_to(tmp_path / "sweep")
    assert [run.seed for run in collect([tmp_path / "all"]).runs] == [0, 1]
