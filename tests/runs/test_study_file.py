"""What a study.yaml says, and what is refused; what a study's page shows of runs made by hand."""

import csv
from pathlib import Path
from typing import Any

import pytest

from rlmem.cli import _study
from rlmem.config import check
from rlmem.runs.study import _check_jobs, report_study
from rlmem.runs.study_file import Study, slug
from rlmem.runs.study_job import composed
from tests.analysis.helpers import make_run
from tests.settings import settings

COLUMNS = "\ncolumns: {b: {overrides: env=cartpole memory.capacity=77, seeds: 2}, c: env=acrobot}"
ROWS = """
title: by hand
common: evaluation.episodes=1
fifo: memory=uniform memory/storage=dense
baselines: [per]
rows:
  per: {overrides: memory=per, seeds: 3}
  gwr: {overrides: memory=gwr, fifo: [entries, bytes]}
  cer: {overrides: memory=cer, fifo: entries}
  none: {overrides: memory=none, fifo: true}
"""


@pytest.fixture
def study(tmp_path: Path) -> Study:
    (tmp_path / "study.yaml").write_text(ROWS + COLUMNS)
    return Study(tmp_path)


def run(study: Study, label: str, seed: int = 0, **summary: Any) -> None:
    folder = study.folder / "runs/b" / slug(label) / f"seed{seed}"
    make_run(folder, label.split()[-1], seed, config={"label": label}, **summary)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("rows: {", "study.yaml cannot be read"),
        ("rows: {a: '', b: '', a: memory=per}\ncolumns: {c: ''}", "it has a twice"),
        ("rows: {yes: '', true: memory=per}\ncolumns: {c: ''}", "it has True twice"),
        ("rows: {a: memory=per}", "needs rows and columns"),
        ("rows: {a: ''}\ncolumns: {b: ''}\nrepeat: 3", "unknown key repeat"),
        (
            "rows: {a: {over: ''}}\ncolumns: {b: ''}",
            "unknown key over; there are fifo, overrides, seeds",
        ),
        ("rows: {a: ''}\ncolumns: {b: {overrides: '', seeds: many}}", "seeds=many"),
        ("rows: {a: {seeds: 0}}\ncolumns: {b: ''}", "a has seeds=0; a number of runs"),
        ("rows: {a: {seeds: true}}\ncolumns: {b: ''}", "a has seeds=True"),
        ("rows: {a: ''}\ncolumns: {b: {rows: {c: seed=1}}}", "b, c: seed=1: the study sets it"),
        ("rows: {a: resume=auto}\ncolumns: {b: ''}", "a: resume=auto: the study sets it"),
        ("rows: {a: hydra.run.dir=x}\ncolumns: {b: ''}", "a: hydra.run.dir=x: the study sets it"),
        ("rows: {a: ''}\ncolumns: {b: {rows: {c: x=1}}}", "b has rows: c, which is no row"),
        ("rows: {a: ''}\ncolumns: {b: {skip: [c]}}", "b has skip: c, which is no row"),
        ("rows: {a: ''}\ncolumns: {b: {skip: a}}", "b has skip=a; a list of rows"),
        ("rows: {a: ''}\ncolumns: {b: {rows: [a]}}", "b has rows=['a']; a mapping"),
        ("rows: {a: ''}\ncolumns: {b: ''}\nfirst_seed: -1", "first_seed=-1; a whole"),
        ("rows: {a: ''}\ncolumns: {b: {first_seed: x}}", "b has first_seed=x; a whole number"),
        ("rows: [a]\ncolumns: {b: ''}", "rows must be a mapping"),
        ("rows: {}\ncolumns: {b: ''}", "rows must be a mapping"),
        ("rows: {a: 3}\ncolumns: {b: ''}", "a: 3: not a line or a list of overrides"),
        ("rows: {a: [3]}\ncolumns: {b: ''}", "a: [3]: not a line or a list"),
        ("rows: {a: ''}\ncolumns: {b: ''}\ncommon: {c: d}", "common: {'c': 'd'}: not a line"),
        ("rows: {a: ''}\ncolumns: {b: ''}\ntitle: [c]", "title=['c']; a line of text"),
        (
            "rows: {a: {fifo: nodes}}\ncolumns: {b: ''}",
            "a has fifo=nodes; true, bytes, entries, or",
        ),
        ("rows: {a: {fifo: [bytes, [1]]}}\ncolumns: {b: ''}", "a has fifo=['bytes', [1]]"),
        ("rows: {a: ''}\ncolumns: {b: {fifo: true}}", "b has an unknown key fifo"),
        ("rows: {a: '', b: ''}\ncolumns: {c: ''}\nbaselines: [d]", "d is no row; there are a; b"),
        ("rows: {a: ''}\ncolumns: {c: ''}\nbaselines: a", "baselines=a; a list of rows"),
        ("rows: {a: ''}\ncolumns: {c: ''}\nhighlight: [b]", "highlight: b is no row; there are a"),
        (
            "rows: {a: {fifo: true}, FIFO of the bytes of a: ''}\ncolumns: {b: ''}",
            "is named like the FIFO of another",
        ),
    ],
)
def test_a_definition_that_is_not_understood_is_one_line(
    tmp_path: Path, content: str, message: str, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "study.yaml").write_text(content)
    assert _study(str(tmp_path), "", 0) == 2
    error = capsys.readouterr().err
    assert message in error
    if "cannot be read" not in message:
        assert error.count("\n") == 1


def test_the_old_name_of_baselines_works_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "study.yaml").write_text(ROWS.replace("baselines", "controls") + COLUMNS)
    assert Study(tmp_path).baselines == ["per"]
    assert "controls is now called baselines" in capsys.readouterr().err


def test_a_study_may_lie_in_a_folder_of_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "s,7 (8)"
    folder.mkdir()
    (folder / "study.yaml").write_text("rows: {a: memory=per}\ncolumns: {b: env=cartpole}")
    study = Study(folder)
    _check_jobs(study, ["b"])
    (job,) = study.jobs("b")
    assert check(composed(job)).paths.output_dir == str(folder / "runs/b/a/seed0")


def test_a_column_may_go_without_a_row(tmp_path: Path) -> None:
    columns = "columns: {b: {overrides: env=acrobot, skip: [gwr, none]}, c: env=cartpole}"
    (tmp_path / "study.yaml").write_text(ROWS + columns)
    study = Study(tmp_path)
    assert list(study.labels("b")) == ["per", "cer", "FIFO of the entries of cer"]
    assert {job.row for job in study.jobs("b")} == {"per", "cer"}
    run(study, "cer")
    report_study(study)
    assert "gwr" not in (tmp_path / "report/table.md").read_text().split("### c")[0]


def test_seeds_start_where_the_study_says(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("first_seed: 50\n" + ROWS + COLUMNS)
    jobs = Study(tmp_path).jobs("b")
    assert [job.seed for job in jobs if job.row == "per"] == [50, 51, 52]
    assert "seed=51" in next(job for job in jobs if job.seed == 51).overrides


def test_a_column_may_have_a_first_seed_of_its_own(tmp_path: Path) -> None:
    columns = "columns: {b: {seeds: 2, first_seed: 7}, c: env=acrobot}"
    (tmp_path / "study.yaml").write_text("first_seed: 50\nrows: {per: memory=per}\n" + columns)
    found = [(job.column, job.seed) for job in Study(tmp_path).all_jobs("bc")]
    assert found == [("b", 7), ("b", 8), ("c", 50)]


def test_a_column_has_the_last_word_on_a_row(tmp_path: Path) -> None:
    columns = "columns: {b: {overrides: env=acrobot, rows: {per: agent.lr=0.5}}, c: env=cartpole}"
    rows = "rows: {per: memory=per agent.lr=0.1, cer: memory=cer agent.lr=0.2}\n"
    (tmp_path / "study.yaml").write_text(rows + columns)
    study = Study(tmp_path)
    found = {
        (job.column, job.row): settings(*job.overrides).agent.lr
        for column in study.columns
        for job in study.jobs(column)
    }
    assert found == {("b", "per"): 0.5, ("b", "cer"): 0.2, ("c", "per"): 0.1, ("c", "cer"): 0.2}


def test_a_row_may_have_more_seeds_than_its_column(study: Study) -> None:
    assert [len(study.seeds("b", row)) for row in study.rows] == [3, 2, 2, 2]
    assert [len(study.seeds("c", row)) for row in study.rows] == [3, 1, 1, 1]


def test_jobs_come_seed_by_seed(study: Study) -> None:
    jobs = study.jobs("b")
    assert [job.seed for job in jobs] == [0, 0, 0, 0, 1, 1, 1, 1, 2]
    assert [job.row for job in jobs][-2:] == ["none", "per"]
    assert jobs[1].overrides[-2:] == ("label='gwr'", "seed=0")


def test_each_fifo_has_a_label_and_stands_below_its_row(study: Study) -> None:
    assert list(study.labels("b")) == [
        "per",
        "gwr",
        "FIFO of the bytes of gwr",
        "FIFO of the entries of gwr",
        "cer",
        "FIFO of the entries of cer",
        "none",
        "FIFO of the bytes of none",
    ]


def test_a_fifo_differs_from_its_row_in_the_memory_only(tmp_path: Path) -> None:
    gwr = "memory=gwr threshold.activation=0.5 memory/sampler=uniform agent.lr=0.1"
    columns = "columns: {b: {overrides: env=acrobot, rows: {gwr: agent.lr=0.2 +memory.phi=0.1}}}"
    rows = f"fifo: memory=uniform\nrows: {{gwr: {{overrides: {gwr}, fifo: bytes}}}}\n"
    (tmp_path / "study.yaml").write_text(rows + columns)
    study = Study(tmp_path)
    run(study, "gwr", size=4321)
    (job,) = study.fifo_jobs("b")
    assert job.overrides[:4] == ("env=acrobot", "agent.lr=0.1", "agent.lr=0.2", "memory=uniform")
    cfg = settings(*job.overrides)
    assert (cfg.agent.lr, cfg.memory.name, cfg.memory.budget) == (0.2, "uniform", 4321)


def test_fifos_hold_what_the_finished_run_beside_them_held(study: Study) -> None:
    run(study, "gwr", size=4321, memory_entries=99)
    run(study, "gwr", seed=1, status="interrupted")
    run(study, "per")
    jobs = list(study.fifo_jobs("b"))
    assert [job.row for job in jobs] == list(study.labels("b"))[2:4]
    budgets = [settings(*job.overrides).memory for job in jobs]
    assert [memory.budget for memory in budgets] == [4321, None]
    assert budgets[1].capacity == 99  # not what the column says
    assert {memory.storage.part.name for memory in budgets} == {"dense"}


def test_the_page_names_missing_fifos_of_both_kinds(study: Study) -> None:
    run(study, "gwr")
    run(study, "FIFO of the entries of gwr")
    report_study(study)
    page = (study.folder / "report/index.html").read_text()
    assert "FIFO of the bytes of gwr (0 of 2), FIFO of the entries of gwr (1 of 2)" in page
    assert "per (0 of 3)" in page


def test_the_table_holds_each_row_against_both_fifos(study: Study) -> None:
    run(study, "gwr", final=50)
    run(study, "FIFO of the bytes of gwr", final=20)
    run(study, "FIFO of the entries of gwr", final=60)
    report_study(study)
    table = (study.folder / "report/table.md").read_text()
    assert "above its FIFO [95 %] | above the FIFO of its entries [95 %] |" in table
    assert "| gwr | 1 | 50 | 30 | -10 | 25 | 15 | -5 |" in table
    widths = {line.count("|") for line in table.splitlines() if line.startswith("|")}
    assert len(widths) == 1


def test_findings_open_the_page(study: Study) -> None:
    run(study, "gwr")
    (study.folder / "findings.md").write_text("It **saves** nothing. <script>alert(1)</script>")
    report_study(study)
    page = (study.folder / "report/index.html").read_text()
    assert page.index("<strong>saves</strong>") < page.index("All settings")
    assert "<script>alert" not in page


def test_rows_are_held_against_the_baselines_and_fifos_are_not(study: Study) -> None:
    for label in ("per", "gwr", "none", "FIFO of the bytes of none"):
        run(study, label, cpu_seconds=5.0)
    report_study(study)
    with (study.folder / "report/baselines.csv").open(newline="") as file:
        rows = [(row["label"], row["baseline"]) for row in csv.DictReader(file)]
    assert rows == [("gwr", "per"), ("none", "per")]


def test_rows_that_a_study_highlights_are_alone_in_colour(tmp_path: Path) -> None:
    named = "\nhighlight: [none, FIFO of the bytes of none]"
    (tmp_path / "study.yaml").write_text(ROWS + COLUMNS + named)
    study = Study(tmp_path)
    for label in ("per", "gwr", "none", "FIFO of the bytes of none"):
        run(study, label)
    report = report_study(study)
    assert report is not None
    (drawn,) = [drawn for drawn in report.figures if drawn.name.startswith("bytes")]
    spoken = [d for d in report.figures if d.name.startswith(("bytes", "curves", "final"))]
    assert all(d.caption.startswith("Among those in colour, on ") for d in spoken)
    assert "In grey: 2 other settings." in drawn.key
    colours = {setting.label: setting.look.colour for setting in report.settings}
    assert colours["none"] in drawn.svg
    assert colours["gwr"] not in drawn.svg


def test_a_study_without_a_kind_of_fifos_has_no_column_for_it(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("rows: {per: {fifo: true}}\ncolumns: {b: ''}")
    study = Study(tmp_path)
    run(study, "per")
    report_study(study)
    header = (tmp_path / "report/table.md").read_text().splitlines()[2]
    assert header == (
        "| setting | seeds | return, mean [95 %] | above its FIFO [95 %] "
        "| return over the run [95 %] | over the run, above its FIFO [95 %] "
        "| env steps | gradient steps "
        "| bytes, peak "
        "| insert, us | sample, us | wall time |"
    )
    assert not (tmp_path / "report/baselines.csv").exists()
    (tmp_path / "study.yaml").write_text("rows: {per: ''}\ncolumns: {b: ''}")
    report_study(Study(tmp_path))
    assert "above" not in (tmp_path / "report/table.md").read_text()
