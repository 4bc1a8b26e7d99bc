"""What a user sees of a run: one bar (or a line now and then), and a table at the end."""

import datetime
import sys
import threading
import time
from typing import Any

import lightning
from tqdm import tqdm

from rlmem.callbacks.records import Recorder
from rlmem.collect.stream import Stream
from rlmem.units import aligned, readable_bytes


class Progress(lightning.Callback):
    """A bar on a terminal; elsewhere one line every `line_seconds`.

    Args:
        enabled: False shows nothing.
    """

    def __init__(
        self, stream: Stream, recorder: Recorder, enabled: bool, line_seconds: float = 20.0
    ) -> None:
        self.stream, self.recorder, self.enabled = stream, recorder, enabled
        self.line_seconds = line_seconds
        self._bar: tqdm | None = None
        self._waits: threading.Timer | None = None
        self._next = 0.0
        # Done, env steps and time after the first Trainer step.
        self._start: tuple[int, int, float] | None = None
        self._compiled = 0.0  # seconds since then in which something was compiled
        self._compiles_since: float | None = None
        self._told: set[str] = set()  # what was said to be compiled: of many loops once

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Open the bar."""
        if self.enabled and sys.stderr.isatty():
            done, total, unit = self._length()
            self._bar = tqdm(
                total=total,
                initial=done,
                unit=unit.split()[-1].removesuffix("s"),
                unit_scale=True,
                dynamic_ncols=True,
            )

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Refresh a few times a second, no more."""
        if not self.enabled:
            return
        if self._start is None:  # the first rounds are slow: loops are loaded or compiled
            self._start = self._length()[0], self.stream.env_steps, time.monotonic()
            self._compiled = 0.0
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + (0.3 if self._bar is not None else self.line_seconds)
        status = self._status()
        if self._bar is not None:
            self._bar.n = self._length()[0]
            self._bar.set_postfix_str(status)
        else:
            done, total, unit = self._length()
            print(f"{done:>9,} / {total:,} {unit} | {self._speed()}{status}", flush=True)

    def _speed(self) -> str:
        """Steps a second and the seconds left, without the first Trainer step and without what was
        compiled since; nothing where that is too little to say."""
        if self._start is None:
            return ""
        done, total, _ = self._length()
        first, steps, started = self._start
        seconds = time.monotonic() - started - self._compiled
        if done <= first or seconds <= 0:
            return ""
        speed = (self.stream.env_steps - steps) / seconds
        left = (total - done) * seconds / (done - first)
        return f"{speed:,.0f} steps/s | {datetime.timedelta(seconds=round(left))} left | "

    def _length(self) -> tuple[int, int, str]:
        """How much is done, of how much, and what is counted: env steps, or episodes where so many
        end the run."""
        stream, episodes = self.stream, self.stream.config.max_episodes
        if episodes is not None:
            return stream.episodes.count, episodes, "episodes"
        return stream.env_steps, stream.config.max_env_steps, "env steps"

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Wait a while with the first line."""
        self._next = time.monotonic() + (0.0 if sys.stderr.isatty() else self.line_seconds / 4)

    def _status(self) -> str:
        held, returns = self.stream.held, self.stream.episodes.recent_returns
        size = readable_bytes(held.bytes)
        mean = sum(returns) / max(1, len(returns))  # of the last hundred at most
        count = "1 episode" if len(returns) == 1 else f"{len(returns)} episodes"
        last = f"return {mean:.1f} ({count})" if returns else "no episode yet"
        evaluation = self.recorder.last_evaluation
        scored = f", eval {evaluation.mean:.1f}" if evaluation else ""
        return f"{last}{scored} | memory {size}, {held.entries:,} entries"

    def compiling(self, what: str | None) -> None:
        """Told that something begins to be compiled, or (None) is: said after two seconds, once."""
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None
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
        if self._bar is not None:
            self._bar.set_postfix_str(f"compiling {what}")
        elif what not in self._told:
            self._told.add(what)
            print(f"compiling {what}", flush=True)

    def close(self) -> None:
        """Close the bar; call when training is over, however it ended."""
        if self._bar is not None:
            self._bar.n = self._length()[0]
            self._bar.refresh()
            self._bar.close()
            self._bar = None


def summary_table(summary: dict[str, Any]) -> str:
    """The end of a run for people: aligned lines of the summary's main figures, of those it has."""

    def number(key: str, form: str = ",.1f", unit: str = "") -> str | None:
        value = summary.get(key)
        return None if value is None else f"{value:{form}}{unit}"

    budget = summary["memory_budget"]
    score, speed = number("eval_return_mean"), number("env_steps_per_second", ",.1f", "/s")
    rows = [
        ("status", summary["status"]),
        ("run", f"{summary['agent']}, memory {summary['memory']}, {summary['env_id']}"),
        ("seed", str(summary["seed"])),
        ("env steps", f"{summary['env_steps']:,}" + (f" ({speed})" if speed else "")),
        ("gradient steps", f"{summary['grad_steps']:,}"),
        ("episodes", f"{summary['episodes']:,}"),
        ("return, last 100 episodes", number("train_return_mean")),
        (
            f"return, {summary['eval_episodes']} evaluation episodes",
            f"{score} +- {number('eval_return_std')}" if score else None,
        ),
        ("success rate", number("eval_success_rate", ".2f")),
        ("human-normalised score", number("human_normalized_score", ".3f")),
        ("memory", readable_bytes(summary["memory_bytes"])),
        *((f"  {name}", readable_bytes(n)) for name, n in summary["memory_components"].items()),
        ("memory entries", f"{summary['memory_entries']:,}"),
        ("memory budget", budget and readable_bytes(budget)),
        ("bytes a transition", number("bytes_per_transition")),
        ("peak RSS of the process", readable_bytes(summary["peak_rss_bytes"])),
        ("wall time", number("wall_seconds", ",.1f", " s")),
    ]
    return aligned([(name, value) for name, value in rows if value is not None])
