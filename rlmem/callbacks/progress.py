"""What a user sees of a run: one bar (or a line now and then), and a table at the end."""

import sys
import threading
import time
from typing import Any

import lightning
from tqdm import tqdm

from rlmem.callbacks.records import Recorder
from rlmem.collect.collector import EnvStepStream
from rlmem.units import readable_bytes


class Progress(lightning.Callback):
    """A bar on a terminal; elsewhere one line every `line_seconds`.

    Args:
        enabled: False shows nothing.
    """

    def __init__(
        self, stream: EnvStepStream, recorder: Recorder, enabled: bool, line_seconds: float = 20.0
    ) -> None:
        self.stream, self.recorder, self.enabled = stream, recorder, enabled
        self.line_seconds = line_seconds
        self._bar: tqdm | None = None
        self._waits: threading.Timer | None = None
        self._next = 0.0

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
        if not self.enabled or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + (0.3 if self._bar is not None else self.line_seconds)
        status = self._status()
        if self._bar is not None:
            self._bar.n = self._length()[0]
            self._bar.set_postfix_str(status)
        else:
            done, total, unit = self._length()
            steps, first, started = self._start
            seconds = max(time.monotonic() - started, 1e-9)
            left = (total - done) * seconds / (done - first) if done > first else float("inf")
            print(
                f"{done:>9,} / {total:,} {unit} | "
                f"{(self.stream.env_steps - steps) / seconds:,.0f} steps/s | {left:,.0f} s left | "
                f"{status}",
                flush=True,
            )

    def _length(self) -> tuple[int, int, str]:
        """How much is done, of how much, and what is counted: env steps, or episodes where so many
        end the run."""
        stream, episodes = self.stream, self.stream.config.max_episodes
        if episodes is not None:
            return stream.episodes.count, episodes, "episodes"
        return stream.env_steps, stream.config.max_env_steps, "env steps"

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Note where the run starts."""
        self._start = (self.stream.env_steps, self._length()[0], time.monotonic())
        self._next = time.monotonic() + (0.0 if sys.stderr.isatty() else self.line_seconds / 4)

    def _status(self) -> str:
        memory, returns = self.stream.memory, self.stream.episodes.recent_returns
        size = readable_bytes(sum(memory.footprint().values()))
        last = f"return {returns[-1]:.1f}" if returns else "no episode yet"
        evaluation = self.recorder.last_evaluation
        scored = f", eval {evaluation.mean:.1f}" if evaluation else ""
        return f"{last}{scored} | memory {size}, {memory.storage.entries:,} entries"

    def compiling(self, what: str | None) -> None:
        """Told that something begins to be compiled, or (None) is: said after two seconds."""
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None
        if what is not None and self.enabled:
            self._waits = threading.Timer(2.0, self._say, [f"compiling {what}"])
            self._waits.daemon = True
            self._waits.start()

    def _say(self, text: str) -> None:
        if self._bar is not None:
            self._bar.set_postfix_str(text)
        else:
            print(text, flush=True)

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
    shown = [(name, value) for name, value in rows if value is not None]
    width = max(len(name) for name, _ in shown)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in shown)
