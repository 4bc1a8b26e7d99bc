"""What is said of a sweep's folder, whole or broken."""

import fcntl
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlmem.analysis.read.sweeps import STATES
from rlmem.analysis.show.status import read_status, render_status, watch
from rlmem.errors import UserError


def make_job(sweep: Path, name: str, status: str | None = None, **parts: Any) -> Path:
    """A job's folder as a run leaves it; parts are of the summary."""
    folder = sweep / name
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump({"trainer": {"max_env_steps": 1000}}))
    (folder / ".lock").touch()
    if status:
        content = {"status": status, "error": None, "env_steps": 1000, "wall_seconds": 60.0}
        content |= {"memory_bytes_peak": 2**20, **parts}
        (folder / "summary.json").write_text(json.dumps(content))
    return folder


def make_progress(folder: Path, env_steps: int, seconds: float) -> None:
    rows = [f"{n},{seconds * n / env_steps}," for n in range(100, env_steps + 1, 100)]
    text = "\n".join(["env_steps,seconds,train_return_mean", *rows, "99999"])  # half a last row
    (folder / "metrics.csv").write_text(text)


def ask(sweep: Path, *names: str, **parts: Any) -> None:
    jobs = {name: name.split("+") for name in names}
    command = {"overrides": [], "launcher": "basic", "at_once": 2, "trials": 0, "jobs": jobs}
    (sweep / "sweep.json").write_text(json.dumps({"commands": [{**command, **parts}]}))


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """One job or two of each kind, and files that are broken in several ways."""
    folder = tmp_path / "sweep"
    folder.mkdir()
    ask(folder, *(f"memory=per+seed={n}" for n in range(7)), "memory=gwr+seed=0")
    make_job(folder, "memory=per+seed=0", "finished")
    make_job(folder, "memory=per+seed=1", "finished", wall_seconds=100, memory_bytes_peak=2**26)
    make_job(folder, "memory=per+seed=2", "failed", error="ValueError: x", env_steps=200)
    make_job(folder, "memory=per+seed=3", "interrupted", env_steps=500, wall_seconds=20)
    killed = make_job(folder, "memory=per+seed=4")
    make_progress(killed, 250, 10)
    (killed / "summary.json").write_text('{"status": "fin')
    early = folder / "memory=per+seed=5"
    early.mkdir()
    (early / "error.json").write_text(json.dumps({"error": "env=pong:\nno", "exit_code": 2}))
    broken = make_job(folder, "not asked for", "finished", wall_seconds="long")
    (broken / "summary.json").write_bytes(b"\xff\xfe")
    (broken / "config.yaml").write_text("trainer: [1")
    (broken / "metrics.csv").write_bytes(b"\0\n\0")
    (folder / "a file").touch()
    (folder / ".submitit").mkdir()
    return folder


def test_the_counts(sweep: Path) -> None:
    status = read_status(sweep)
    assert status.counts == {
        "done": 2,
        "running": 0,
        "interrupted": 3,
        "failed": 2,
        "missing": 2,
    }
    assert {job.name: job.error for job in status.of("failed")} == {
        "memory=per+seed=2": "ValueError: x",
        "memory=per+seed=5": "env=pong: no",
    }
    steps = {job.name[-1]: job.env_steps for job in status.of("interrupted")}
    assert steps == {"3": 500, "4": 200, "r": 0}
    damaged = [name for name, _ in status.damaged]
    assert sorted(damaged) == [
        "memory=per+seed=4/summary.json",
        "not asked for/config.yaml",
        "not asked for/summary.json",
    ]


def test_a_job_runs_as_long_as_its_folder_is_held(sweep: Path) -> None:
    with (sweep / "memory=per+seed=4/.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        status = read_status(sweep)
        assert [job.name for job in status.of("running")] == ["memory=per+seed=4"]
        assert "memory=per+seed=4  200 / 1,000 env steps (20%)" in render_status(status)
    assert not read_status(sweep).of("running")


def test_an_error_counts_until_the_job_has_run_again(sweep: Path) -> None:
    folder = sweep / "memory=per+seed=0"
    (folder / "error.json").write_text(json.dumps({"error": "later", "exit_code": 1}))
    os.utime(folder / "summary.json", (1, 1))
    assert "memory=per+seed=0" in {job.name for job in read_status(sweep).of("failed")}
    os.utime(folder / "error.json", (0, 0))
    assert "memory=per+seed=0" in {job.name for job in read_status(sweep).of("done")}


def test_the_time_left(tmp_path: Path) -> None:
    ask(tmp_path, *(f"memory={m}+seed={n}" for m in ("per", "gwr") for n in range(3)))
    assert read_status(tmp_path).seconds_left is None
    assert "time left: unknown" in render_status(read_status(tmp_path))
    half = make_job(tmp_path, "memory=gwr+seed=0")
    make_progress(half, 500, 50)
    assert read_status(tmp_path).seconds_left == pytest.approx((50 + 5 * 100) / 2)  # own speed
    make_job(tmp_path, "memory=per+seed=0", "finished", wall_seconds=10)
    make_job(tmp_path, "memory=gwr+seed=1", "finished", wall_seconds=90)
    left = 2 * 10 + 90 + 90 / 2  # each as long as those of its own memory; two at once
    assert read_status(tmp_path).seconds_left == pytest.approx(max(left / 2, 90))


def test_the_time_left_of_a_setting_of_which_none_is_done_is_of_its_own_speed(
    tmp_path: Path,
) -> None:
    ask(tmp_path, *(f"env={env}+seed={n}" for env in ("cartpole", "pong") for n in range(2)))
    for seed in range(2):
        make_job(tmp_path, f"env=cartpole+seed={seed}", "finished", wall_seconds=40)
    make_progress(make_job(tmp_path, "env=pong+seed=0"), 100, 3_600)
    left = 0.9 * 36_000 + 36_000
    assert read_status(tmp_path).seconds_left == pytest.approx(max(left / 2, 36_000))


def test_a_run_that_episodes_end_is_as_far_as_its_episodes(tmp_path: Path) -> None:
    job = make_job(tmp_path, "seed=0")
    lengths = {"max_env_steps": 100_000, "max_episodes": 300}
    (job / "config.yaml").write_text(yaml.safe_dump({"trainer": lengths}))
    (job / "metrics.csv").write_text("env_steps,seconds,episodes\n1000,5,60\n2000,10,100\n")
    (found,) = read_status(tmp_path).jobs
    assert found.share == pytest.approx(1 / 3)


def test_the_time_left_is_no_shorter_than_the_longest_job(tmp_path: Path) -> None:
    ask(tmp_path, "seed=0", "seed=1", at_once=8)
    make_job(tmp_path, "seed=0", "finished", wall_seconds=40)
    assert read_status(tmp_path).seconds_left == 40


def test_trials_that_are_not_drawn_are_missing(tmp_path: Path) -> None:
    ask(tmp_path, trials=5)
    assert read_status(tmp_path).counts["missing"] == 5
    make_job(tmp_path, "lr=0.1", "finished", wall_seconds=10)
    status = read_status(tmp_path)
    assert (status.counts["done"], status.counts["missing"]) == (1, 4)
    assert status.seconds_left == 20


def test_the_text(sweep: Path) -> None:
    make_job(sweep, "x" * 180, "failed", error="y" * 300)
    text = render_status(read_status(sweep))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0].endswith("sweep: 10 jobs")
    assert [line.split()[0] for line in lines[1:6]] == list(STATES)
    assert "  memory=per+seed=5  " in text
    assert "env=pong: no" in text
    assert "memory, peak, 2 done jobs, median 32.5 MiB:" in text
    assert "       1.0 MiB to      8.0 MiB  ####" in text  # in equal ratios: they differ by much
    assert "wall time, 2 done jobs, median 1 min 20 s:" in text
    assert lines[-1].startswith("time left: about ")
    assert lines[-1].endswith("2 jobs at once")


def test_long_lists_are_cut(tmp_path: Path) -> None:
    for number in range(30):
        make_job(tmp_path, f"seed={number}", "failed", error="x")
    text = render_status(read_status(tmp_path))
    assert text.count("  seed=") == 20
    assert "and 10 more" in text


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"commands": 3}', '{"commands": [3, {}, {"jobs": [1]}]}', "\0"]
)
def test_a_broken_record_leaves_the_folders(tmp_path: Path, content: str) -> None:
    make_job(tmp_path, "seed=0", "finished")
    (tmp_path / "sweep.json").write_text(content)
    status = read_status(tmp_path)
    assert status.counts["done"] == 1
    assert content == '{"commands": 3}' or status.damaged
    render_status(status)


def test_numbers_that_no_run_has_say_nothing(tmp_path: Path) -> None:
    make_job(tmp_path, "seed=0", "finished")
    (tmp_path / "seed=0/summary.json").write_text(
        json.dumps({"status": "finished", "env_steps": 10**400, "wall_seconds": 10**400})
    )
    (job,) = read_status(tmp_path).jobs
    assert (job.state, job.env_steps, job.seconds) == ("done", 0, 0.0)


def test_no_job_lies_outside_its_sweep(tmp_path: Path) -> None:
    make_job(tmp_path, "secret", "finished")
    (tmp_path / "sweep").mkdir()
    make_job(tmp_path / "sweep", "seed=0", "finished")
    jobs = {"../secret": [], f"{tmp_path}/secret": [], "seed=0": []}
    command = {"jobs": jobs, "trials": 0, "at_once": 1}
    (tmp_path / "sweep/sweep.json").write_text(json.dumps({"commands": [command]}))
    status = read_status(tmp_path / "sweep")
    assert [job.name for job in status.jobs] == ["seed=0"]
    assert len(status.damaged) == 2


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("nowhere", "no such folder; give a sweep's folder"),
        ("empty", "no sweep there; give a sweep's folder"),
        ("run", "that is one run; give the folder of a sweep's runs"),
    ],
)
def test_a_folder_that_is_no_sweep_is_a_users_mistake(tmp_path: Path, name: str, line: str) -> None:
    (tmp_path / "empty").mkdir()
    make_job(tmp_path, "run")
    for name_of_hydras in (".hydra", "evaluation"):
        (tmp_path / "run" / name_of_hydras).mkdir()
        (tmp_path / "run" / name_of_hydras / "config.yaml").touch()
    with pytest.raises(UserError, match=f"^sweep=.*{name}: {line}"):
        read_status(tmp_path / name)


def test_a_thousand_jobs_are_counted(tmp_path: Path) -> None:
    names = [f"a={a}+b={b}+seed={seed}" for a in range(10) for b in range(20) for seed in range(5)]
    ask(tmp_path, *names)
    for number, name in enumerate(names):
        if number % 2:
            make_job(tmp_path, name, "finished")
    status = read_status(tmp_path)
    assert (status.counts["done"], status.counts["missing"]) == (500, 500)
    assert len(render_status(status).splitlines()) < 60


@pytest.mark.parametrize("width", [80, 60, 48])
def test_the_text_fits_into_a_terminal(sweep: Path, width: int) -> None:
    with (sweep / "memory=per+seed=4/.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lines = render_status(read_status(sweep), width).splitlines()
    assert max(map(len, lines)) <= width
    (running,) = [line for line in lines if "200 / 1,000" in line]
    assert "seed=4" in running
    assert [line for line in lines if line.endswith(" 1") and "#" in line]


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def texts(*found: str) -> Callable[[int], tuple[str, bool]]:
    """What `watch` reads: the last text is of a sweep that has ended."""
    left = list(found)
    return lambda width: (left.pop(0), bool(left))


def test_a_terminal_is_written_again_in_its_place_until_nothing_runs() -> None:
    screen, waited = Screen(), []
    watch(texts("a 1\nb", "a 2\nb\nc", "a 3"), screen, waited.append)
    assert waited == [5.0, 5.0]
    assert screen.getvalue() == (
        "a 1\033[K\nb\033[K\n\033[J"
        "\033[2Fa 2\033[K\nb\033[K\nc\033[K\n\033[J"
        "\033[3Fa 3\033[K\n\033[J"
    )


def test_what_is_piped_is_written_once_and_plain() -> None:
    pipe = io.StringIO()
    waited: list[float] = []
    watch(texts("a 1", "a 2"), pipe, waited.append)
    assert (pipe.getvalue(), waited) == ("a 1\n", [])


def test_ctrl_c_ends_the_watch() -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    screen = Screen()
    watch(texts("a", "b"), screen, interrupt)
    assert screen.getvalue().endswith("\n")


def test_a_failed_job_is_named_by_what_sets_it_apart(tmp_path: Path) -> None:
    long = "agent.network.hidden=[256,256,256]+trainer.max_env_steps=100000+evaluation.every=5000"
    ask(tmp_path, *(f"memory.budget={size}MiB+{long}" for size in (1, 2)))
    for folder in json.loads((tmp_path / "sweep.json").read_text())["commands"][0]["jobs"]:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "error.json").write_text(json.dumps({"error": "it failed"}))
    text = render_status(read_status(tmp_path), 80)
    assert "  memory.budget=1MiB  it failed\n  memory.budget=2MiB  it failed\n" in text


def test_ranges_that_are_printed_alike_are_one(tmp_path: Path) -> None:
    ask(tmp_path, *(f"seed={n}" for n in range(4)))
    for n in range(4):
        make_job(tmp_path, f"seed={n}", "finished", memory_bytes_peak=2**20 + n)
    text = render_status(read_status(tmp_path))
    assert text.count("1.0 MiB to      1.0 MiB") == 1
