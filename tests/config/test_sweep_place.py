"""Where a job stands in its sweep, and the few lines that it says."""

import json
import re
from pathlib import Path

import pytest

from rlmem.cli import _train
from rlmem.config import run_hydra
from rlmem.config.sweep_place import _command, place_of_this_job
from tests.runs.helpers import TINY


def test_outside_of_a_sweep_there_is_no_place() -> None:
    assert place_of_this_job() is None


@pytest.mark.parametrize("content", ["", "[]", '{"commands": 3}', '{"commands": [{"jobs": []}]}'])
def test_a_damaged_plan_says_nothing_of_how_many_jobs_there_are(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "sweep.json").write_text(content)
    assert _command(tmp_path, "seed=0") == (0, set(), 1, 0)


def test_the_newest_command_that_asked_for_a_job_counts(tmp_path: Path) -> None:
    commands = [
        {"jobs": {"a": ["x=1", "seed=0"], "b": ["x=1", "seed=1"]}, "trials": 0, "at_once": 2},
        {"jobs": {"c": ["x=2"]}, "trials": 0, "at_once": 1},
    ]
    (tmp_path / "sweep.json").write_text(json.dumps({"commands": commands}))
    assert _command(tmp_path, "a") == (2, {"x=1"}, 2, 0)
    assert _command(tmp_path, "c") == (1, set(), 1, 0)


def test_a_search_that_goes_on_counts_what_it_has_made(tmp_path: Path) -> None:
    command = {"jobs": {}, "trials": 9, "made": 4, "at_once": 1, "overrides": ["env=pong"]}
    (tmp_path / "sweep.json").write_text(json.dumps({"commands": [command]}))
    assert _command(tmp_path, "env=pong+agent.lr=0.1") == (9, {"env=pong"}, 1, 4)


@pytest.mark.slow
def test_each_job_of_a_sweep_says_which_it_is_in_ten_lines_at_most(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    argv = ["-m", "seed=0,1", "memory=uniform,none", *TINY, f"hydra.sweep.dir={tmp_path}"]
    argv = [a for a in argv if not a.startswith("log.progress")] + ["log.progress=true"]
    assert run_hydra(_train, "train", argv) == 0
    out = capfd.readouterr().out
    jobs = re.split(r"^(?=job \d+ of 4)", out, flags=re.M)[1:]
    assert len(jobs) == 4
    assert jobs[0].startswith("job 1 of 4: seed=0 memory=uniform\n")
    assert re.match(r"job 4 of 4, about \d+ s left: seed=1 memory=none\n", jobs[3])
    assert all(len(job.splitlines()) <= 10 for job in jobs)
    assert all("\nmemory when full (" in job and "\nfinished in " in job for job in jobs)
    assert out.endswith(f"compare them: python evaluate.py mode=report sweep={tmp_path}\n")
