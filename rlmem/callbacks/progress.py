"""What a user sees of a run: a bar and its numbers on a terminal (elsewhere a line now and then),
and a table at the end."""

import datetime
import math
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import lightning
from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rlmem.callbacks.records import Recorder
from rlmem.collect.stream import Stream
from rlmem.units import aligned, readable_bytes, readable_seconds, several

SHORTEST_BAR, LONGEST_BAR = 6, 40  # columns


class Progress(lightning.Callback):
    """A bar on a terminal; elsewhere one line every `line_seconds`.

    Args:
        enabled: False shows nothing.
        lines: at most so many, each after an equal part of the run, in place of one every
            `line_seconds`.
        several_at_once: other runs write to the same terminal: lines there too.
        name: what a line begins with.
    """

    def __init__(
        self,
        stream: Stream,
        recorder: Recorder,
        enabled: bool,
        line_seconds: float = 20.0,
        lines: int | None = None,
        several_at_once: bool = False,
        name: str = "",
    ) -> None:
        self.stream, self.recorder, self.enabled = stream, recorder, enabled
        self.line_seconds, self.lines, self.name = line_seconds, lines, name
        self.several_at_once = several_at_once
        self._live: Live | None = None
        self._waits: threading.Timer | None = None
        self._next = 0.0  # when something is shown again
        self._next_part = 1  # of `lines`
        # Done, env steps and time after the first Trainer step.
        self._start: tuple[int, int, float] | None = None
        self._compiled = 0.0  # seconds since then in which something was compiled
        self._compiles_since: float | None = None
        self._compiles = ""  # what the bar says of it
        self._told: set[str] = set()  # what was said to be compiled: of many loops once

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Open the bar."""
        console = Console(stderr=True, highlight=False)
        screen = console.is_terminal and not console.is_dumb_terminal
        if self.enabled and screen and not self.several_at_once:
            # It is drawn when there is something new, by no thread of its own.
            self._live = Live(
                console=console,
                auto_refresh=False,
                redirect_stdout=sys.stdout.isatty(),
                get_renderable=lambda: self,
            )
            self._live.start(refresh=True)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Refresh a few times a second, no more."""
        if not self.enabled:
            return
        if self._start is None:  # the first rounds are slow: loops are loaded or compiled
            self._start = self._length()[0], self.stream.env_steps, time.monotonic()
            self._compiled = 0.0
            done, total, _ = self._length()
            self._next_part = 1 + done * (self.lines or 0) // total  # of a resumed run
        if self._live is not None:
            if time.monotonic() >= self._next:
                self._next = time.monotonic() + 0.3
                self._live.refresh()
        elif self._is_due():
            done, total, unit = self._length()
            parts = [f"{done:>9,} / {total:,} {unit}", *self._speed(), *self._status()]
            print(self.name + " | ".join(parts), flush=True)

    def _is_due(self) -> bool:
        """Whether a line is to be written."""
        if self.lines is not None:
            done, total, _ = self._length()
            if done * self.lines < self._next_part * total:
                return False
            self._next_part = 1 + done * self.lines // total
            return True
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + self.line_seconds
        return True

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """The bar where there is room for it, and the numbers in as few lines as they need."""
        done, total, unit = self._length()
        first, *rest = fitted(
            [f"{done:,} / {total:,} {unit}", *self._speed()], options.max_width
        ) + fitted([self._compiles] if self._compiles else self._status(), options.max_width)
        room = min(LONGEST_BAR, options.max_width - len(first) - 1)
        if room >= SHORTEST_BAR:
            line = Table.grid(padding=(0, 1, 0, 0))
            line.add_row(ProgressBar(total, done, room), Text(first, no_wrap=True))
            yield line
        else:
            yield Text(first, no_wrap=True, overflow="ellipsis")
        for text in rest:
            yield Text(text, no_wrap=True, overflow="ellipsis")

    def _speed(self) -> list[str]:
        """Steps a second and the time left, without the first Trainer step and without what was
        compiled since; nothing where that is too little to say."""
        if self._start is None:
            return []
        done, total, _ = self._length()
        first, steps, started = self._start
        seconds = time.monotonic() - started - self._compiled
        if done <= first or seconds <= 0:
            return []
        speed = (self.stream.env_steps - steps) / seconds
        left = max(0.0, (total - done) * seconds / (done - first))
        return [f"{speed:,.0f} steps/s", f"{datetime.timedelta(seconds=round(left))} left"]

    def _length(self) -> tuple[int, int, str]:
        """How much is done, of how much, and what is counted: env steps, or episodes where so many
        end the run."""
        stream, episodes = self.stream, self.stream.config.max_episodes
        if episodes is not None:
            return stream.episodes.count, episodes, "episodes"
        return stream.env_steps, stream.config.max_env_steps, "env steps"

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Wait a while with the first line."""
        self._next = time.monotonic() + self.line_seconds / 4

    def _status(self) -> list[str]:
        held, returns = self.stream.held, self.stream.episodes.recent_returns
        mean = sum(returns) / max(1, len(returns))  # of the last hundred at most
        last = f"return {mean:.1f} ({several(len(returns), 'episode')})"
        evaluation = self.recorder.last_evaluation
        scored = f", eval {evaluation.mean:.1f}" if evaluation else ""
        entries = f"{held.entries:,} " + ("entry" if held.entries == 1 else "entries")
        return [
            (last if returns else "no episode yet") + scored,
            f"memory {readable_bytes(held.bytes)}, {entries}",
        ]

    def compiling(self, what: str | None) -> None:
        """Told that something begins to be compiled, or (None) is: said after two seconds, once."""
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None
        self._compiles = ""
        now = time.monotonic()
        if what is not None:
            self._compiles_since = now
        elif self._compiles_since is not None:
            self._compiled += now - self._compiles_since
            self._compiles_since = None
        if what is not None and self.enabled:
            self._waits = threading.Timer(2.0, self._say_compiling, [what])
            self._waits.daemon = True
            self._waits.start()

    def _say_compiling(self, what: str) -> None:
        live = self._live
        if live is not None:
            self._compiles = f"compiling {what}"
            live.refresh()
        elif what not in self._told:
            self._told.add(what)
            print(f"{self.name}compiling {what}", flush=True)

    def close(self) -> None:
        """Close the bar; call when training is over, however it ended."""
        if self._live is not None:
            self._compiles = ""
            self._live.stop()
            self._live = None


def fitted(parts: list[str], width: int) -> list[str]:
    """Parts in a row, in as few lines as they need; a part that is too long is broken at commas.

    >>> fitted(["return 12.9", "memory 8.8 MiB", "4 entries"], 30)
    ['return 12.9 | memory 8.8 MiB', '4 entries']
    """
    short = [p for part in parts for p in ([part] if len(part) <= width else part.split(", "))]
    lines = short[:1]
    for part in short[1:]:
        joined = f"{lines[-1]} | {part}"
        lines[-1:] = [joined] if len(joined) <= width else [lines[-1], part]
    return lines


def _scored(summary: dict[str, Any]) -> str | None:
    """Mean and spread of the evaluation's episodes; of one episode there is no spread."""
    mean, spread = summary.get("eval_return_mean"), summary.get("eval_return_std")
    if mean is None:
        return None
    known = spread is not None and math.isfinite(spread) and summary["eval_episodes"] > 1
    return f"{mean:,.1f}" + (f" +- {spread:,.1f}" if known else "")


def summary_line(summary: dict[str, Any], seconds: float) -> str:
    """The end of a sweep's job in one line; of one that is not finished, where it stands."""
    score, mean = _scored(summary), summary.get("train_return_mean")
    episodes = several(summary["eval_episodes"], "episode")
    if score is not None:
        said = f"return {score} ({episodes}), "
    else:
        said = f"return {mean:,.1f} (last episodes), " if mean is not None else ""
    size = readable_bytes(summary["memory_bytes"])
    status = summary["status"]
    at = "" if status == "finished" else f" at {summary['env_steps']:,} env steps"
    return f"{status}{at} in {readable_seconds(seconds)}: {said}memory {size}"


def summary_table(summary: dict[str, Any], seconds: float | None = None) -> str:
    """The end of a run for people: aligned lines of the summary's main figures, of those it has.

    Args:
        seconds: of this run, with what came before and after training, imports aside.
    """

    def number(key: str, form: str = ",.1f", unit: str = "") -> str | None:
        value = summary.get(key)
        return None if value is None else f"{value:{form}}{unit}"

    budget, trained = summary["memory_budget"], summary.get("wall_seconds")
    speed = number("env_steps_per_second", ",.1f", "/s")
    in_all = ""
    if seconds is not None:
        resumed = trained is not None and trained > seconds  # what it trained before is not in here
        this = "this time, " if resumed else ""
        in_all = f"; {this}with preparation and last evaluation {readable_seconds(seconds)}"
    rows = [
        ("status", summary["status"]),
        ("run", f"{summary['agent']}, memory {summary['memory']}, {summary['env_id']}"),
        ("seed", str(summary["seed"])),
        ("env steps", f"{summary['env_steps']:,}" + (f" ({speed})" if speed else "")),
        ("gradient steps", f"{summary['grad_steps']:,}"),
        ("episodes", f"{summary['episodes']:,}"),
        ("return, last 100 episodes", number("train_return_mean")),
        (f"return, {several(summary['eval_episodes'], 'evaluation episode')}", _scored(summary)),
        ("success rate", number("eval_success_rate", ".2f")),
        ("human-normalised score", number("human_normalized_score", ".3f")),
        ("memory", readable_bytes(summary["memory_bytes"])),
        *((f"  {x}", readable_bytes(n)) for x, n in summary["memory_components"].items() if n),
        ("memory entries", f"{summary['memory_entries']:,}"),
        ("memory budget", budget and readable_bytes(budget)),
        ("bytes a transition", number("bytes_per_transition")),
        ("most RAM of the process", readable_bytes(summary["peak_rss_bytes"])),
        ("time", None if trained is None else readable_seconds(trained) + in_all),
    ]
    return aligned([(name, value) for name, value in rows if value is not None])
