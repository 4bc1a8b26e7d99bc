"""What a user sees while a run goes on and at its end."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from rlmem.callbacks.progress import Progress, readable_bytes, summary_table
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
