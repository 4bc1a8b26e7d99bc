"""Studies: what is missing is run, what is there is kept, a table says what is not."""

import json
import shutil
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from rlmem.cli import _study
from rlmem.runs import preflight
from rlmem.runs import study as study_runs
from rlmem.runs.study_file import Study, read_definition
from rlmem.runs.summary import read_summary
from tests.settings import settings

MATURE = 300.0  # seconds within which a process starts, or ends, on a busy machine
DEFINITION = """
title: tiny
common: >-
  trainer.max_env_steps=300 trainer.accelerator=cpu evaluation.episodes=1 agent.learning_starts=100
  agent.target_update_every=100 agent.network.hidden=[16] log.every=100
fifo: memory=uniform
rows:
  uniform: memory=uniform
  per: {overrides: memory=per, fifo: [bytes, entries]}
  broken: memory=per memory.budget=100B
columns:
  CartPole: {overrides: env=cartpole, seeds: 2}
  Acrobot: {overrides: env=acrobot, seeds: 1}
"""


class InThisProcess:
    """In place of the pool: a job is run here when it is submitted."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, call: Callable[..., Any], *arguments: Any) -> Future:
        done: Future = Future()
        done.set_result(call(*arguments))
        return done


@pytest.fixture
def no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs begin at once, where their processes are not what is tried."""
    monkeypatch.setattr(study_runs, "ProcessPoolExecutor", InThisProcess)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The CartPole column, run."""
    folder = tmp_path_factory.mktemp("studies") / "tiny"
    folder.mkdir()
    (folder / "study.yaml").write_text(DEFINITION)
    assert _study(str(folder), "CartPole", 2) == 1  # some jobs fail
    return folder


def line_of(study: Path, title: str, label: str) -> list[str]:
    """Cells of a line of the table."""
    section = (study / "report/table.md").read_text().split(f"### {title}\n")[1].split("###")[0]
    (line,) = (row for row in section.splitlines() if row.startswith(f"| {label} |"))
    return [part.strip() for part in line.strip("|").split("|")]


@pytest.mark.slow
def test_every_job_of_a_column_is_run_to_its_end(study: Path) -> None:
    for row in ("uniform", "per", "fifo-of-the-bytes-of-per", "fifo-of-the-entries-of-per"):
        for seed in (0, 1):
            summary = read_summary(study / f"runs/cartpole/{row}/seed{seed}")
            assert summary is not None
            assert summary["status"] == "finished"
            assert summary["env_steps"] >= 300


@pytest.mark.slow
def test_a_fifo_may_hold_the_bytes_of_its_row(study: Path) -> None:
    for seed in (0, 1):
        beside = read_summary(study / f"runs/cartpole/per/seed{seed}")
        fifo = read_summary(study / f"runs/cartpole/fifo-of-the-bytes-of-per/seed{seed}")
        assert beside is not None
        assert fifo is not None
        assert fifo["memory_budget"] == beside["memory_bytes_peak"]
        assert fifo["memory"] == "uniform"


@pytest.mark.slow
def test_a_fifo_may_hold_the_entries_of_its_row(study: Path) -> None:
    beside = read_summary(study / "runs/cartpole/per/seed1")
    fifo = read_summary(study / "runs/cartpole/fifo-of-the-entries-of-per/seed1")
    config = yaml.safe_load(
        (study / "runs/cartpole/fifo-of-the-entries-of-per/seed1/config.yaml").read_text()
    )
    assert beside is not None
    assert fifo is not None
    assert config["memory"]["capacity"] == beside["memory_entries"] == fifo["memory_entries"]
    assert config["memory"]["name"] == "uniform"


@pytest.mark.slow
def test_the_table_says_what_was_run_and_what_is_missing(study: Path) -> None:
    assert line_of(study, "CartPole", "per")[1] == "2"
    assert line_of(study, "CartPole", "FIFO of the bytes of per")[1] == "2"
    assert line_of(study, "CartPole", "FIFO of the entries of per")[1] == "2"
    assert line_of(study, "CartPole", "uniform")[3:5] == ["", ""]
    above = line_of(study, "CartPole", "per")[3:5]  # the FIFOs of its bytes and entries
    assert all(text[:1].isdigit() or text[:1] == "-" for text in above)  # a difference
    assert line_of(study, "CartPole", "broken")[1:3] == ["0", "missing"]
    assert line_of(study, "Acrobot", "uniform")[1:3] == ["0", "missing"]
    page = (study / "report/index.html").read_text()
    assert "<h1>tiny: " in page
    assert "Acrobot: not run" in page
    assert "CartPole: not all seeds were run: broken (0 of 2)" in page


@pytest.mark.slow
@pytest.mark.usefixtures("no_pool")
def test_a_second_call_runs_only_what_is_not_finished(
    study: Path, capsys: pytest.CaptureFixture
) -> None:
    files = [f for f in study.glob("runs/*/*/*/summary.json") if "broken" not in str(f)]
    before = {path: path.stat().st_mtime_ns for path in files}
    assert len(before) == 8
    assert _study(str(study), "CartPole", 1) == 1
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    out, err = capsys.readouterr()
    assert "2 of 6 runs to make, 1 at once; what they print goes to " in out
    assert "2/2, 0.0 s left: CartPole: " in out
    assert "uniform" not in out
    assert "memory.budget=100: too small" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "anew"),
    [
        ("machine: trainer.accelerator=gpu", 0),
        ("machine: trainer.accelerator=cpu trainer.threads=1", 0),
        ("machine: log.progress=false", 0),  # the accelerator stands there no more
        ("common: agent.lr=1", 4),
    ],
)
def test_what_another_machine_ran_counts(
    study: Path, tmp_path: Path, given: str, anew: int
) -> None:
    shutil.copytree(study / "runs", tmp_path / "runs")
    definition = yaml.safe_load((study / "study.yaml").read_text())
    del definition["rows"]["broken"]
    common = definition.pop("common").split()
    common.remove("trainer.accelerator=cpu")
    definition["machine"] = "trainer.accelerator=cpu"
    name, value = given.split(": ")
    definition |= {"common": common} | {
        name: [*(common if name == "common" else []), *value.split()]
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(definition))
    assert sum(job.outdated for job in Study(tmp_path).jobs("CartPole")) == anew


@pytest.mark.slow
@pytest.mark.usefixtures("no_pool")
def test_a_job_that_was_cut_off_keeps_what_it_was_begun_with(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Where study.yaml has changed since, it says so, and the run may go on by itself."""
    definition = yaml.safe_load(DEFINITION)
    definition["rows"] = {"uniform": "memory=uniform"}
    definition["columns"] = {"CartPole": {"overrides": "env=cartpole", "seeds": 1}}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(definition))
    assert _study(str(tmp_path), "", 1) == 0
    folder = tmp_path / "runs/cartpole/uniform/seed0"
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {"status": "interrupted"}))
    before = (folder / "overrides.yaml").read_text()
    definition["common"] += " agent.lr=0.5"
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(definition))
    assert _study(str(tmp_path), "", 1) == 1
    said = capsys.readouterr().err
    assert "agent.lr was 0.0023, is 0.5 since this run was cut off; rem" in said
    assert (folder / "overrides.yaml").read_text() == before


@pytest.mark.slow
@pytest.mark.usefixtures("no_pool")
def test_a_job_without_a_log_fails_alone(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    definition = yaml.safe_load(DEFINITION)
    definition["rows"] = {"uniform": "memory=uniform"}
    definition["columns"] = {"CartPole": {"overrides": "env=cartpole", "seeds": 2}}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(definition))
    (tmp_path / "runs/cartpole/uniform/seed0/log.txt").mkdir(parents=True)
    assert _study(str(tmp_path), "", 1) == 1
    out, err = capsys.readouterr()
    assert "log.txt: Is a directory" in err
    assert "1 finished run, recorded" in out


@pytest.mark.usefixtures("no_pool")
def test_a_job_counts_the_memories_of_those_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = yaml.safe_load(DEFINITION)
    definition["rows"] = {
        "uniform": "memory=uniform memory.capacity=1000000",
        "none": "memory=none",
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(definition))
    monkeypatch.setattr(preflight, "memory_limit", lambda: (50 * 2**20, "the machine's memory"))
    # Two seeds of CartPole at once, each 28 MiB when full; then the one of Acrobot.
    assert _study(str(tmp_path), "CartPole", 4) == _study(str(tmp_path), "Acrobot", 4) == 0
    for job, told in (("cartpole/uniform/seed1", True), ("acrobot/uniform/seed0", False)):
        log = (tmp_path / "runs" / job / "log.txt").read_text()
        assert ("WARNING: 2 jobs run at once, and all together" in log) == told


@pytest.mark.slow
def test_an_error_is_kept_beside_its_job(study: Path) -> None:
    error = json.loads((study / "runs/cartpole/broken/seed0/error.json").read_text())
    assert error["error"].startswith("memory.budget=100: too small")


def test_unknown_names_are_one_line_with_what_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "study.yaml").write_text(DEFINITION)
    assert _study(str(tmp_path), "Pong", 1) == 2
    assert "no such column; there are CartPole, Acrobot" in capsys.readouterr().err
    assert _study("no_such_study", "", 1) == 2
    assert (
        "studies/no_such_study: no such study; in studies there are a3c, atari_100k, "
        in capsys.readouterr().err
    )


STUDIES = Path(__file__).parents[2] / "studies"


@pytest.mark.parametrize("name", sorted(path.parent.name for path in STUDIES.glob("*/study.yaml")))
def test_every_study_composes(name: str) -> None:
    """Each row in the first column that has it, each column with its first row."""
    if "rows" not in read_definition(STUDIES / name):
        return  # its folder's own code runs it
    study = Study(STUDIES / name)
    rows: set[str] = set()
    for column in study.columns:
        jobs = [
            job for job in study.jobs(column) if job.seed == study.columns[column]["first_seed"]
        ]
        for k, job in enumerate(jobs):
            if k == 0 or job.row not in rows:
                rows.add(job.row)
                settings(*job.overrides)
    assert rows == set(study.rows)
