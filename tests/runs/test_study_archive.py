"""runs.zip: a study's finished runs, from which another clone makes the same page and goes on."""

import shutil
import zipfile
from pathlib import Path

import pytest
import yaml

from rlmem.cli import _study
from rlmem.runs.study_archive import pack, unpack
from rlmem.runs.study_file import Job, Study
from tests.analysis.helpers import make_run

DEFINITION = """
title: by hand
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


def make_job(job: Job, **changes: str) -> None:
    label = {"label": job.row}
    memory = job.overrides[1].removeprefix("memory=")
    make_run(job.folder, memory, job.seed, final=100 / 3 + job.seed, config=label, **changes)
    (job.folder / "overrides.yaml").write_text(yaml.safe_dump([*job.overrides]))


def clone(study: Study, definition: str = DEFINITION) -> Study:
    """The study as a repository holds it."""
    folder = study.folder.with_name("second")
    folder.mkdir()
    (folder / "study.yaml").write_text(definition)
    shutil.copy(study.folder / "runs.zip", folder)
    return Study(folder)


def test_a_clone_makes_the_same_report(study: Study, capsys: pytest.CaptureFixture) -> None:
    assert _study(str(study.folder), "", 0) == 0
    assert "runs.zip" in capsys.readouterr().out
    second = clone(study)
    assert _study(str(second.folder), "", 0) == 0
    assert "6 finished runs taken from" in capsys.readouterr().out
    for name in ("table.md", "summary.csv"):
        assert (second.folder / name).read_text() == (study.folder / name).read_text()
    assert (second.folder / "table.md").read_text().count("| 2 |") == 3


def test_the_same_runs_give_the_same_bytes(study: Study) -> None:
    assert pack(study) == 6
    before = (study.folder / "runs.zip").read_bytes()
    second = clone(study)
    assert unpack(second) == 6
    assert unpack(second) == 0
    assert pack(second) == 6
    assert (second.folder / "runs.zip").read_bytes() == before


def test_it_names_no_folder_of_the_machine(study: Study) -> None:
    pack(study)
    with zipfile.ZipFile(study.folder / "runs.zip") as archive:
        config = yaml.safe_load(archive.read("runs/cartpole/uniform/seed0/config.yaml"))
        contents = b"".join(archive.read(name) for name in archive.namelist())
    assert config["paths"]["output_dir"] == "runs/cartpole/uniform/seed0"
    assert str(study.folder).encode() not in contents


def test_a_run_of_other_overrides_is_not_taken(study: Study) -> None:
    pack(study)
    changed = DEFINITION.replace("memory=gwr", "memory=gwr agent.lr=1")
    second = clone(study, changed)
    assert unpack(second) == 2
    assert [job.row for job in second.jobs("CartPole") if job.done] == ["uniform"] * 2


def test_a_run_of_other_overrides_is_named_and_not_packed(
    study: Study, capsys: pytest.CaptureFixture
) -> None:
    changed = DEFINITION.replace("memory=gwr", "memory=gwr agent.lr=1")
    (study.folder / "study.yaml").write_text(changed)
    assert _study(str(study.folder), "", 0) == 0
    line = "CartPole: runs made with other overrides than study.yaml has now: gwr (2), "
    assert f"warning: {line}" in capsys.readouterr().out
    assert line in (study.folder / "index.html").read_text()
    with zipfile.ZipFile(study.folder / "runs.zip") as archive:
        assert {name.split("/")[2] for name in archive.namelist()} == {"uniform"}


def test_a_run_that_has_begun_is_left_alone_and_not_packed(study: Study) -> None:
    pack(study)
    second = clone(study)
    make_job(mine := second.jobs("CartPole")[0], status="interrupted")
    assert unpack(second) == 5
    assert not mine.done
    assert pack(second) == 5


def test_a_report_of_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "study.yaml").write_text(DEFINITION)
    assert _study(str(tmp_path), "", 0) == 0
    assert "nothing to report" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["study.yaml"]


@pytest.mark.parametrize("content", ["", "paths: 3", "a: [", "\0"])
def test_a_run_whose_configuration_is_damaged_is_left_out(study: Study, content: str) -> None:
    (study.jobs("CartPole")[0].folder / "config.yaml").write_text(content)
    assert pack(study) == 5


def test_an_interrupted_unpacking_is_made_good(study: Study) -> None:
    pack(study)
    second = clone(study)
    half = second.jobs("CartPole")[0].folder
    half.mkdir(parents=True)
    (half / "summary.json").write_text("{")  # the last file before config.yaml
    assert unpack(second) == 6
    assert all(job.done for job in second.jobs("CartPole"))


def test_without_finished_runs_the_archive_stays(study: Study) -> None:
    pack(study)
    before = (study.folder / "runs.zip").read_bytes()
    shutil.rmtree(study.folder / "runs")
    assert pack(study) == 0
    assert (study.folder / "runs.zip").read_bytes() == before
    assert not list(study.folder.glob("*.new"))


def test_a_damaged_archive_is_one_line(study: Study, capsys: pytest.CaptureFixture) -> None:
    pack(study)
    second = clone(study)
    content = (second.folder / "runs.zip").read_bytes()
    (second.folder / "runs.zip").write_bytes(content[: len(content) // 2])
    assert _study(str(second.folder), "", 0) == 2
    told = capsys.readouterr().err
    assert "runs.zip: cannot be read" in told
    assert told.count("\n") == 1
    data = 30 + len("runs/cartpole/uniform/seed0/config.yaml")  # behind the first file's header
    (second.folder / "runs.zip").write_bytes(content[:data] + b"12345678" + content[data + 8 :])
    assert _study(str(second.folder), "", 0) == 2
    assert "runs.zip: cannot be read" in capsys.readouterr().err
