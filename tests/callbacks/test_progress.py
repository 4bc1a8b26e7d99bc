"""What a user sees while a run goes on and at its end."""

import io
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from rich.console import Console

from rlmem.callbacks.progress import Progress, readable_bytes, summary_line, summary_table
from rlmem.compiling import compiling, tell, watched
from tests.collect.helpers import ScriptedEnv, make_stream
from tests.collect.test_collector import ring
from tests.runs.helpers import summary_of


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (4096, "4.0 KiB"),
        (7056 * 100_000, "672.9 MiB"),
        (3 * 2**30, "3.0 GiB"),
        (5 * 2**40, "5.0 TiB"),
    ],
)
def test_bytes_are_readable(size: int, text: str) -> None:
    assert readable_bytes(size) == text


def shown(capsys: pytest.CaptureFixture[str], *, enabled: bool, **changes: Any) -> str:
    stream = make_stream(ScriptedEnv(4, 6), ring(), **changes)
    recorder: Any = SimpleNamespace(last_evaluation=None)
    progress = Progress(stream, recorder, enabled, line_seconds=0.0)
    progress.setup(None, None, "fit")
    progress.on_train_start(None, None)
    for batch_idx in range(17):
        batch = next(stream)
        progress.on_train_batch_end(None, None, None, batch, batch_idx)
    progress.close()
    return capsys.readouterr().out


def test_away_from_a_terminal_lines_say_how_far_the_run_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, *_, last = shown(capsys, enabled=True).splitlines()
    assert first.lstrip().startswith("2 / 100 env steps")
    assert "no episode yet" in first
    assert re.search(
        r"34 / 100 env steps \| [\d,]+ steps/s \| \d:\d\d:\d\d left \| "
        r"return 1\d\.\d \(\d episodes?\) \| memory [\d.]+ (B|KiB), 34 entries$",
        last,
    )


def test_the_speed_is_without_the_first_step_and_without_compiling(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=0.0)
    fake = SimpleNamespace(monotonic=lambda: clock.now)
    monkeypatch.setattr("rlmem.callbacks.progress.time", fake)
    monkeypatch.setattr("rlmem.callbacks.progress.threading.Timer", MagicMock())
    stream = make_stream(ScriptedEnv(4, 6), ring())
    recorder: Any = SimpleNamespace(last_evaluation=None)
    progress = Progress(stream, recorder, True, line_seconds=0.0)
    progress.setup(None, None, "fit")
    for seconds, compiled in ((1000, 0), (1, 0), (1, 0), (1, 500)):  # two env steps each
        next(stream)
        clock.now += seconds
        progress.compiling("a loop")
        clock.now += compiled
        progress.compiling(None)
        progress.on_train_batch_end(None, None, None, {}, 0)
    lines = capsys.readouterr().out.splitlines()
    assert "steps/s" not in lines[0]
    assert all("| 2 steps/s |" in line for line in lines[1:])
    assert "| 0:00:46 left |" in lines[-1]  # 92 env steps


def test_a_run_that_episodes_end_counts_them(capsys: pytest.CaptureFixture[str]) -> None:
    first, *_, last = shown(capsys, enabled=True, max_episodes=20).splitlines()
    assert first.lstrip().startswith("0 / 20 episodes | ")
    assert last.lstrip().startswith("6 / 20 episodes | ")


@pytest.mark.parametrize(("width", "bar"), [(120, True), (80, True), (50, False), (30, True)])
def test_on_a_terminal_every_number_is_seen_whatever_its_width(width: int, bar: bool) -> None:
    stream = make_stream(ScriptedEnv(4, 6), ring())
    recorder: Any = SimpleNamespace(last_evaluation=SimpleNamespace(mean=-1234.5))
    progress = Progress(stream, recorder, True)
    for _ in range(17):
        progress.on_train_batch_end(None, None, None, next(stream), 0)
    terminal = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    terminal.print(progress)
    shown = terminal.file.getvalue()  # type: ignore[attr-defined]
    assert all(len(line.rstrip()) <= width for line in shown.splitlines())
    assert ("\u2501" in shown) == bar
    words = (
        r"34 / 100 env steps",
        r"steps/s",
        r"\d:\d\d:\d\d left",
        r"return 1\d",
        r"34 entries",
    )
    assert [w for w in (*words, r"eval -1234\.5") if not re.search(w, shown)] == []
    assert "\u2026" not in shown  # nothing was cut off


def test_a_sweeps_job_writes_few_lines_however_long_it_takes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = Progress(
        make_stream(ScriptedEnv(4, 6), ring()),
        SimpleNamespace(last_evaluation=None),  # type: ignore[arg-type]
        True,
        line_seconds=0.0,
        lines=4,
        name="job 3: ",
    )
    for _ in range(50):
        progress.on_train_batch_end(None, None, None, next(progress.stream), 0)
    lines = capsys.readouterr().out.splitlines()
    assert [int(re.findall(r"(\d+) / 100 env steps", line)[0]) for line in lines] == [
        26,
        50,
        76,
        100,
    ]
    assert all(line.startswith("job 3: ") for line in lines)


def test_a_disabled_bar_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, enabled=False) == ""


def test_the_table_shows_the_summarys_main_figures(finished_run: Path) -> None:
    lines = dict(
        re.split(r"\s{2,}", line.strip(), maxsplit=1)
        for line in summary_table(summary_of(finished_run)).splitlines()
    )
    assert lines["status"] == "finished"
    assert lines["run"] == "dqn, memory per, CartPole-v1"
    assert lines["env steps"].startswith("300 (")
    assert "human-normalised score" not in lines  # CartPole has none
    assert lines["memory entries"] == "300"


@pytest.mark.parametrize(
    ("episodes", "row", "said"),
    [
        (1, "return, 1 evaluation episode", "9.0"),
        (5, "return, 5 evaluation episodes", "9.0 +- 2.0"),
    ],
)
def test_of_one_episode_there_is_no_spread(
    finished_run: Path, episodes: int, row: str, said: str
) -> None:
    summary = summary_of(finished_run) | {"eval_return_mean": 9.0, "eval_return_std": 2.0}
    summary["eval_episodes"] = episodes
    lines = dict(re.split(r"\s{2,}", x.strip()) for x in summary_table(summary).splitlines())
    assert lines[row] == said
    count = row.removeprefix("return, ").replace("evaluation ", "")
    line = summary_line(summary, 75.0)
    assert line.startswith(f"finished in 1 min 15 s: return {said} ({count}), memory ")
    line = summary_line(summary | {"status": "interrupted", "env_steps": 1200}, 75.0)
    assert line.startswith("interrupted at 1,200 env steps in 1 min 15 s: return ")


@pytest.mark.parametrize(
    ("trained", "said"),
    [(8.0, "8.0 s; with preparation and"), (23.0, "23 s; this time, with preparation and")],
)
def test_the_time_of_a_run_that_went_on_is_not_taken_for_this_process(
    finished_run: Path, trained: float, said: str
) -> None:
    table = summary_table(summary_of(finished_run) | {"wall_seconds": trained}, 10.0)
    assert re.search(rf"^time +{said} last evaluation 10 s$", table, re.MULTILINE)


def test_a_run_that_failed_at_once_shows_what_it_has(finished_run: Path) -> None:
    kept = ("status", "agent", "memory", "env_id", "seed", "memory_components")
    summary = {k: v if k in kept else None for k, v in summary_of(finished_run).items()}
    for key in ("env_steps", "grad_steps", "episodes", "eval_episodes", "memory_bytes"):
        summary[key] = 0
    summary |= {"memory_entries": 0, "peak_rss_bytes": 1, "memory_components": {}}
    table = summary_table(summary)
    assert "evaluation episodes" not in table
    assert "None" not in table


def test_a_word_is_said_of_what_compiles_for_long_and_of_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    timers: list[Any] = []

    class Timer:
        """Rings when the test says so."""

        def __init__(self, seconds: float, act: Any, arguments: list[str]) -> None:
            self.ring = lambda: act(*arguments)
            self.seconds, self.cancelled = seconds, False
            timers.append(self)

        def start(self) -> None:
            pass

        def cancel(self) -> None:
            self.cancelled = True

    monkeypatch.setattr("threading.Timer", Timer)
    progress = Progress(make_stream(ScriptedEnv(5), ring(1)), None, enabled=True)
    with watched(progress.compiling):
        with compiling("the update"):
            timers[0].ring()
        with compiling("the update"):  # another of many: one line is enough
            timers[1].ring()
        tell("something short")
        tell(None)
    with compiling("what nobody watches"):
        pass
    assert [(t.seconds, t.cancelled) for t in timers] == [(2.0, True)] * 3
    assert capsys.readouterr().out == "compiling the update\n"
