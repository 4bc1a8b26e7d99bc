"""results.csv and runs.npz: a study's finished runs, from which a clone makes the same page."""

import csv
import os
import shutil
from pathlib import Path

import pytest
import yaml

from rlmem.analysis.read.record import read_record
from rlmem.cli import _study
from rlmem.runs.study import record, report_study
from rlmem.runs.study_file import Study, StudyJob
from tests.analysis.helpers import make_run

DEFINITION = """
title: by hand
baselines: [uniform]
fifo: memory=uniform
rows:
  uniform: memory=uniform
  gwr: {overrides: memory=gwr, fifo: true}
columns:
  CartPole: {overrides: env=cartpole, seeds: 2}
"""


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Both rows and a FIFO, two seeds each."""
    folder = tmp_path / "first"
    folder.mkdir()
    (folder / "study.yaml").write_text(DEFINITION)
    study = Study(folder)
    for job in study.jobs("CartPole"):
        make_job(job)
    for job in study.fifo_jobs("CartPole"):
        make_job(job)
    return study


def make_job(job: StudyJob, final: float | None = None, **changes: str) -> None:
    label, final = {"label": job.row}, 100 / 3 + job.seed if final is None else final
    memory = job.overrides[1].removeprefix("memory=")
    make_run(job.folder, memory, job.seed, final=final, rows=150, config=label, **changes)
    (job.folder / "overrides.yaml").write_text(yaml.safe_dump([*job.overrides]))


def clone(study: Study, definition: str = DEFINITION) -> Study:
    """The study as a repository holds it."""
    folder = study.folder.with_name("second")
    folder.mkdir()
    (folder / "study.yaml").write_text(definition)
    for name in ("runs.npz", "results.csv"):
        shutil.copy(study.folder / name, folder)
    return Study(folder)


def rows_recorded(study: Study) -> list[str | None]:
    return [run.label for run in read_record(study.folder / "runs.npz")]


def test_a_clone_makes_the_same_report(study: Study, capsys: pytest.CaptureFixture) -> None:
    assert _study(str(study.folder), "", 0) == 0
    assert "6 finished runs, recorded in" in capsys.readouterr().out
    second = clone(study)
    assert _study(str(second.folder), "", 0) == 0
    first, second = study.folder / "report", second.folder / "report"
    names = {path.relative_to(first) for path in first.rglob("*.*")}
    assert {Path("baselines.csv"), Path("table.md"), Path("figures/curves-CartPole-v1.svg")} < names
    assert names == {path.relative_to(second) for path in second.rglob("*.*")}
    for name in names:
        one, other = ((folder / name).read_bytes() for folder in (first, second))
        if name.name in ("index.html", "results.csv"):  # these name the folders
            source = f"<p class=from>Made of {study.folder}/runs.".encode()
            one = one.replace(source, b"<p class=from>Made of 6 recorded runs.")
            one = one.replace(b"/first/", b"/second/")
        assert one == other, name
    assert (second / "table.md").read_text().count("| 2 |") == 3


def test_a_report_of_a_clone_changes_no_file_of_the_repository(study: Study) -> None:
    assert record(study) == (6, 0)
    second = clone(study)
    before = {path: path.read_bytes() for path in second.folder.iterdir()}
    assert _study(str(second.folder), "", 0) == 0
    assert {path: path.read_bytes() for path in second.folder.glob("*.*")} == before


def test_a_run_that_is_made_anew_does_not_lose_the_fifo_beside_it(study: Study) -> None:
    record(study)
    second = clone(study, DEFINITION.replace("seeds: 2", "seeds: 3"))
    begun = next(job for job in second.jobs("CartPole") if (job.row, job.seed) == ("gwr", 0))
    make_job(begun, status="interrupted")
    make_job(next(job for job in second.jobs("CartPole") if job.seed == 2))
    assert record(second) == (7, 0)
    assert rows_recorded(second).count("FIFO of the bytes of gwr") == 2


def test_the_same_runs_give_the_same_bytes(study: Study) -> None:
    record(study)
    before = (study.folder / "runs.npz").read_bytes()
    (study.folder / "runs.npz").unlink()
    record(study)
    assert (study.folder / "runs.npz").read_bytes() == before


def test_columns_of_one_environment_stand_apart(tmp_path: Path) -> None:
    definition = DEFINITION.replace(
        "  CartPole: {overrides: env=cartpole, seeds: 2}",
        "  Short: env=cartpole trainer.max_env_steps=300\n  Long: env=cartpole",
    )
    (tmp_path / "study.yaml").write_text(definition)
    study = Study(tmp_path)
    for job in [*study.jobs("Short"), *study.jobs("Long")]:
        make_job(job, final=15 if job.column == "Short" else 105)
    report = report_study(study)
    assert report is not None
    assert {s.env_id for s in report.settings} == {"CartPole-v1, Short", "CartPole-v1, Long"}
    record(study)
    for page in (tmp_path / "report/summary.csv", tmp_path / "results.csv"):
        with page.open() as file:
            found = {(row["env_id"], row["label"]) for row in csv.DictReader(file)}
        assert ("CartPole-v1, Short", "uniform") in found
        assert len(found) == 4
    text = (tmp_path / "report/table.md").read_text()
    assert [line.split(" | ")[2] for line in text.splitlines() if "| uniform" in line] == [
        "15",
        "105",
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [("overrides.yaml", "[memory=uniform, agent.lr=1]"), ("summary.json", '{"status": "failed"}'),
     ("config.yaml", "[]"), ("metrics.csv", "env_steps\n1000\nx\n"), ("metrics.csv", "")],
)  # fmt: skip
def test_a_run_that_cannot_be_recorded_leaves_the_recorded_one(
    study: Study, name: str, content: str
) -> None:
    """One of other overrides, one that was cut off, a damaged one; beside them one that is new."""
    record(study)
    (study.folder / "runs/cartpole/uniform/seed0" / name).write_text(content)
    assert record(Study(study.folder))[0] == 6
    (kept, *_) = read_record(study.folder / "runs.npz")
    assert (kept.seed, kept.number("eval_return_mean")) == (0, pytest.approx(100 / 3))
    assert len(kept.curves["env_steps"]) > 1


@pytest.mark.parametrize(
    ("name", "content"), [("config.yaml", "[]"), ("metrics.csv", "env_steps\n1000\nx\n")]
)
def test_a_damaged_run_is_told(
    study: Study, name: str, content: str, capsys: pytest.CaptureFixture
) -> None:
    (study.folder / "runs/cartpole/uniform/seed0" / name).write_text(content)
    assert _study(str(study.folder), "", 0) == 1
    said = [line for line in capsys.readouterr().out.splitlines() if "warning: CartPole" in line]
    assert len(said) == 1
    assert said[0].startswith(f"warning: CartPole: uniform, seed 0: {name}")
    assert "remove " in said[0]


def test_what_a_killed_report_left_goes_and_one_that_is_made_now_stays(study: Study) -> None:
    left, now = (study.folder / f"report/.rlmem-report-{name}" for name in ("left", "now"))
    for folder in (left, now):
        folder.mkdir(parents=True)
        (folder / "summary.csv").touch()
    os.utime(left, (0, 0))
    report_study(study)
    assert not left.exists()
    assert now.exists()


def test_it_names_no_folder_of_the_machine(study: Study) -> None:
    record(study)
    (run, *_) = read_record(clone(study).folder / "runs.npz")
    assert run.folder == study.folder.with_name("second") / "runs/cartpole/uniform/seed0"
    assert not any(str(study.folder) in str(value) for value in run.config.values())


def test_a_recorded_run_counts_as_done(study: Study) -> None:
    record(study)
    second = clone(study)
    jobs = list(second.all_jobs(second.columns))
    assert len(jobs) == 6
    assert all(job.done for job in jobs)


def test_a_recorded_run_of_other_overrides_is_named_and_run_anew(
    study: Study, capsys: pytest.CaptureFixture
) -> None:
    record(study)
    changed = DEFINITION.replace("memory=gwr", "memory=gwr agent.lr=1")
    second = clone(study, changed)
    assert [job.row for job in second.jobs("CartPole") if job.done] == ["uniform"] * 2
    assert _study(str(second.folder), "", 0) == 0
    line = "CartPole: runs made with other overrides than study.yaml has now: gwr (2), "
    assert f"warning: {line}" in capsys.readouterr().out
    assert line in (second.folder / "report/index.html").read_text()
    assert rows_recorded(second).count("gwr") == 2


def test_a_run_of_other_overrides_in_its_folder_is_named_and_not_recorded(
    study: Study, capsys: pytest.CaptureFixture
) -> None:
    changed = DEFINITION.replace("memory=gwr", "memory=gwr agent.lr=1")
    (study.folder / "study.yaml").write_text(changed)
    assert _study(str(study.folder), "", 0) == 0
    line = "CartPole: runs made with other overrides than study.yaml has now: gwr (2), "
    assert f"warning: {line}" in capsys.readouterr().out
    assert line in (study.folder / "report/index.html").read_text()
    assert rows_recorded(study) == ["uniform", "uniform"]


def test_a_run_that_has_begun_is_gone_on_with_and_the_recorded_one_stays_recorded(
    study: Study,
) -> None:
    record(study)
    second = clone(study)
    make_job(mine := second.jobs("CartPole")[0], status="interrupted")
    assert not mine.done
    assert record(second) == (6, 0)


def test_runs_that_are_made_later_join_the_recorded_ones(study: Study) -> None:
    record(study)
    more = DEFINITION.replace("seeds: 2", "seeds: 3")
    second = clone(study, more)
    (mine,) = [job for job in second.jobs("CartPole") if job.seed == 2 and job.row == "uniform"]
    make_job(mine)
    assert record(second) == (7, 0)
    assert len(rows_recorded(second)) == 7
    shutil.rmtree(second.folder / "runs")
    assert sum(job.done for job in Study(second.folder).jobs("CartPole")) == 5


def test_runs_that_are_no_longer_asked_for_do_not_count_and_are_named(
    study: Study, capsys: pytest.CaptureFixture
) -> None:
    """Those in runs/, as in a clone without it; seeds that chose a setting are not those that test
    it."""
    record(study)
    definition = DEFINITION.replace("seeds: 2", "seeds: 2, first_seed: 1")
    (study.folder / "study.yaml").write_text(definition)
    later = Study(study.folder)
    (new, *_) = [job for job in later.jobs("CartPole") if (job.row, job.seed) == ("uniform", 2)]
    make_job(new)
    report = report_study(later)
    assert report is not None
    assert {run.seed for setting in report.settings for run in setting.runs} == {1, 2}
    said = [path for path, why in report.collection.left_out if "does not ask for it" in why]
    assert len(said) == 3
    assert record(later) == (4, 0)
    assert "warning: 3 recorded runs that study.yaml no longer asks" in capsys.readouterr().out


def test_the_budgets_of_a_fifo_are_each_seeds_own(study: Study) -> None:
    for job in study.fifo_jobs("CartPole"):
        path = job.folder / "config.yaml"
        config = yaml.safe_load(path.read_text())
        config["memory"]["budget"] = 1000 + job.seed
        path.write_text(yaml.safe_dump(config))
    report = report_study(study)
    assert report is not None
    assert not [note for note in report.collection.notes if "differ in" in note]


def test_a_report_of_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "study.yaml").write_text(DEFINITION)
    assert _study(str(tmp_path), "", 0) == 0
    assert "nothing to report" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["study.yaml"]


def test_a_report_of_jobs_that_all_failed_at_once_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "study.yaml").write_text(DEFINITION)
    job = Study(tmp_path).jobs("CartPole")[0]
    job.folder.mkdir(parents=True)
    (job.folder / "log.txt").write_text("what it printed\n")
    assert _study(str(tmp_path), "", 0) == 0
    assert "nothing to report" in capsys.readouterr().out


@pytest.mark.parametrize("content", ["", "paths: 3", "a: [", "\0"])
def test_a_run_whose_configuration_is_damaged_is_left_out(study: Study, content: str) -> None:
    (study.jobs("CartPole")[0].folder / "config.yaml").write_text(content)
    assert record(study) == (5, 1)


def test_without_finished_runs_the_record_stays(study: Study) -> None:
    record(study)
    before = (study.folder / "runs.npz").read_bytes()
    shutil.rmtree(study.folder / "runs")
    assert record(Study(study.folder))[0] == 6
    assert (study.folder / "runs.npz").read_bytes() == before
    assert not list(study.folder.glob("*.new"))


def test_a_damaged_record_is_one_line(study: Study, capsys: pytest.CaptureFixture) -> None:
    record(study)
    path = clone(study).folder / "runs.npz"
    path.write_bytes(path.read_bytes()[:1000])
    assert _study(str(path.parent), "", 0) == 2
    told = capsys.readouterr().err
    assert "runs.npz: cannot be read" in told
    assert told.count("\n") == 1
