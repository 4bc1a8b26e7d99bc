"""The entry points: exit codes, resuming by the directory alone, late imports."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rlmem.cli import repeat_overrides
from rlmem.config import compose
from rlmem.errors import UserError
from rlmem.runs.resume import command_to_go_on

ROOT = Path(__file__).parents[1]


def command(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / arguments[0]), *arguments[1:]],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def here(run_dir: Path) -> list[str]:
    """What keeps Hydra in the directory of a run that goes on."""
    return [f"hydra.run.dir={run_dir}"]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run directory that was started with three overrides."""
    saved = tmp_path / "run" / "overrides.yaml"
    saved.parent.mkdir(parents=True)
    saved.write_text(yaml.safe_dump(["memory=per", "seed=3", "+debug=true"]))
    return tmp_path / "run"


def test_resuming_a_directory_repeats_its_overrides(run_dir: Path) -> None:
    resume = f"resume={run_dir}"
    saved = ["memory=per", "seed=3", "+debug=true"]
    assert repeat_overrides([resume]) == [*here(run_dir), *saved, resume]


def test_an_override_that_is_given_again_replaces_the_saved_one(run_dir: Path) -> None:
    given = [f"resume={run_dir}", "seed=9", "debug=false"]
    assert repeat_overrides(given) == [*here(run_dir), "memory=per", *given]


@pytest.mark.parametrize("name", ["a,b", "x[1]", "a{b", "with space", "seed=1", "7"])
def test_the_command_that_a_run_prints_goes_on_with_it(run_dir: Path, name: str) -> None:
    folder = run_dir.rename(run_dir.with_name(name))
    program, script, given = shlex.split(command_to_go_on(folder))
    assert (program, script) == ("python", "train.py")
    cfg = compose(
        "train", [o for o in repeat_overrides([given]) if not o.startswith(("hydra.", "+debug"))]
    )
    assert (str(cfg.resume), cfg.seed) == (str(folder), 3)


def test_a_saved_resume_is_not_repeated(run_dir: Path) -> None:
    saved = run_dir / "overrides.yaml"
    saved.write_text(yaml.safe_dump(["memory=per", "resume=elsewhere"]))
    resume = f"resume={run_dir}"
    assert repeat_overrides([resume]) == [*here(run_dir), "memory=per", resume]


@pytest.mark.parametrize("argv", [[], ["memory=per"], ["resume=auto"], ["resume=null"], ["-m"]])
def test_other_commands_stay_as_they_are(argv: list[str]) -> None:
    assert repeat_overrides(argv) == argv


def test_a_directory_without_a_run_is_named_before_anything_else(run_dir: Path) -> None:
    with pytest.raises(UserError, match=f"^resume={run_dir.parent}: no run there"):
        repeat_overrides([f"resume={run_dir.parent}", "trainer.max_env_steps=1"])
    (run_dir / "config.yaml").write_text("seed: 1")
    (run_dir / "overrides.yaml").unlink()
    with pytest.raises(UserError, match=r"its overrides\.yaml is missing"):
        repeat_overrides([f"resume={run_dir}"])


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (["resume=a,b"], r"resume=a,b: one run a command; .* resume='\"a,b\"'"),
        (["resume=glob(*)"], "one run a command"),
        (["resume=a", "hydra.run.dir=b"], "hydra.run.dir=b: resume=a goes on in its own directory"),
    ],
)
def test_one_run_is_resumed_where_it_lies(more: list[str], line: str) -> None:
    with pytest.raises(UserError, match=line):
        repeat_overrides(more)


def test_the_command_line_imports_no_torch_before_it_is_needed() -> None:
    code = (
        "import sys, rlmem.cli; "
        "print([m for m in ('torch', 'lightning', 'torchrl', 'gymnasium') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["train.py", "memory=grw"], "rlmem: memory=grw: no such memory; did you mean gwr?"),
        (["evaluate.py", "run=nowhere"], "rlmem: run=nowhere: no run there"),
    ],
)
def test_a_users_mistake_is_one_line_and_code_2(
    arguments: list[str], line: str, tmp_path: Path
) -> None:
    done = command(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(line)
    assert done.stderr.count("\n") == 1
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.slow
def test_a_run_is_scored_from_the_command_line(finished_run: Path, tmp_path: Path) -> None:
    run_dir = shutil.copytree(finished_run, tmp_path / "run")
    done = command("evaluate.py", f"run={run_dir}", "episodes=2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "CartPole-v1, checkpoint last at 300 env steps" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.slow
def test_a_strangers_run_directory_runs_no_code(finished_run: Path, tmp_path: Path) -> None:
    run_dir = shutil.copytree(finished_run, tmp_path / "run")
    line = "+hydra.callbacks.x={_target_: os.system, _args_: [touch canary]}"
    (run_dir / "overrides.yaml").write_text(yaml.safe_dump(["memory=per", line]))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    done = command("train.py", f"resume={run_dir}", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"rlmem: {run_dir}/overrides.yaml: '+hydra.callbacks.x=")
    assert done.stderr.count("\n") == 1
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(
    ("jobs", "line"),
    [
        ("0", "--jobs 0: must be at least 1; --report runs nothing"),
        ("-1", "--jobs -1: must be at least 1; --report runs nothing"),
        ("two", "argument --jobs: invalid int value: 'two'"),
    ],
)
def test_a_study_is_told_how_many_runs_at_once(jobs: str, line: str) -> None:
    done = command("study.py", "no_replay", "--jobs", jobs)
    assert done.returncode == 2
    assert done.stderr.endswith(f"error: {line}\n")
