"""The run's files: metrics.csv, episodes.csv, evaluations.csv, and whoever else wants the rows.

CSV and JSON on disk are the source of truth; other loggers show the same numbers. Everything is
counted in env steps. Rows are made at intervals from what the training step returned: a log call
a step would halve the speed of a small network.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import lightning
import numpy as np
import torch

from rlmem import distributed
from rlmem.callbacks.csv_file import CsvFile
from rlmem.callbacks.diagnostics import ReplayDiagnostics
from rlmem.collect.rollout import EvaluationResult
from rlmem.collect.stream import Stream
from rlmem.machine import peak_rss_bytes
from rlmem.registry import part

EPISODE_COLUMNS = ["env_steps", "episode", "return", "length", "seconds"]
EVALUATION_COLUMNS = ["env_steps", "episode", "return", "length"]
METRICS, EPISODES, EVALUATIONS = "metrics.csv", "episodes.csv", "evaluations.csv"
COLUMNS = {METRICS: None, EPISODES: EPISODE_COLUMNS, EVALUATIONS: EVALUATION_COLUMNS}
TIMED = ("_us", "_per_second")


class MetricsLogger(Protocol):
    """Where rows go besides the files: `log`, and what else of these it likes."""

    def log(self, row: dict[str, Any]) -> None:
        """Take one row; it holds `env_steps`."""

    def image(self, env_steps: int, name: str, path: Path) -> None:
        """Take a picture, a file that stays where it is."""

    def close(self, status: str, summary: dict[str, Any]) -> None:
        """The run is over."""


@part("logger", "csv")
def files_only(settings: Any, run: Any, run_dir: Path, name: str) -> None:
    """No logger: the run's files are written whatever loggers are chosen."""


def cut_files(run_dir: Path, saved: Mapping[str, Any]) -> None:
    """Drop what a run's files hold beyond a checkpoint, of which the manifest is given."""
    for name, columns in COLUMNS.items():
        CsvFile(run_dir / name, columns, saved["env_steps"], saved["rows"].get(name)).close()


def _shortened(value: Any, digits: int) -> Any:
    """A float with so many significant digits; anything else as it is."""
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


class Recorder(lightning.Callback):
    """Writes the files and tells the loggers.

    Args:
        run_dir: where the files go.
        stream: the run's stream.
        every: env steps between rows of metrics.csv.
        loggers: further takers of the rows.
        diagnostics: gives the columns of the newest minibatch; None: there is its loss only.
    """

    def __init__(
        self,
        run_dir: Path,
        stream: Stream,
        every: int,
        loggers: Sequence[MetricsLogger],
        diagnostics: ReplayDiagnostics | None = None,
    ) -> None:
        self.stream, self.every, self.loggers = stream, every, loggers
        self.diagnostics = diagnostics
        stream.due_every(every)
        self.bytes_peak = 0
        self.seconds_before = self.cpu_seconds_before = 0.0
        self._rss_before = 0  # the largest of earlier segments
        self.last_evaluation: EvaluationResult | None = None
        self.evaluated_at = 0  # env steps of the last evaluation; 0: there was none
        self.best_return: float | None = None
        self._newest: dict[str, Any] = {}  # what the newest minibatch gave, until the next row
        self._run_dir = run_dir
        self._files: dict[str, CsvFile] = {}
        self._compiles = False  # in the first row of a run that goes on
        self._started, self._cpu_started = time.perf_counter(), time.process_time()

    def open(self, saved: Mapping[str, Any] | None = None) -> None:
        """Open the files; call once before training, with the stream as it goes on.

        Args:
            saved: `state_dict` of the checkpoint that the run goes on from: rows that it does not
                know are dropped. None for a new run: all are.
        """
        keep: Mapping[str, int] = {}
        if saved is not None:
            self.seconds_before, self.bytes_peak = saved["seconds"], saved["memory_bytes_peak"]
            self.cpu_seconds_before = saved.get("cpu_seconds", 0.0)
            self._rss_before = saved.get("peak_rss_bytes", 0)
            self.best_return = saved["best_return"]
            if (loss := saved.get("loss")) is not None:
                self._newest = {"loss": [loss]}
            if saved["last_evaluation"]:
                self.last_evaluation = EvaluationResult(**saved["last_evaluation"])
            # Older checkpoints do not count rows. Where theirs is the run's last step, what was
            # scored there may have come after it: that is dropped and done again.
            known = self.stream.env_steps - self.stream.over
            self.evaluated_at = saved.get("evaluated_at", known)
            keep = saved.get("rows", {})
        for name, columns in COLUMNS.items():
            until = self.evaluated_at if name == EVALUATIONS else self.stream.env_steps
            self._files[name] = CsvFile(self._run_dir / name, columns, until, keep.get(name))
        self._started, self._cpu_started = time.perf_counter(), time.process_time()
        self._last_steps, self._last_seconds = self.stream.env_steps, self.seconds
        self._last_parts = dict(self.stream.seconds)
        self._last_grad_steps = 0
        self._compiles = saved is not None

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps of the records, as JSON values; `open` takes it."""
        return {
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "peak_rss_bytes": self.peak_rss_bytes,
            "memory_bytes_peak": self.bytes_peak,
            "best_return": self.best_return,
            "last_evaluation": asdict(self.last_evaluation) if self.last_evaluation else None,
            "evaluated_at": self.evaluated_at,
            "loss": self._newest_loss(),
            "rows": {name: file.rows for name, file in self._files.items()},
        }

    def _newest_loss(self) -> float | None:
        """That of the newest minibatch since the last row, where there was one."""
        loss = float(self._newest["loss"][-1]) if self._newest else np.nan
        return loss if np.isfinite(loss) else None

    @property
    def seconds(self) -> float:
        """Wall seconds of the run, earlier segments included."""
        return self.seconds_before + time.perf_counter() - self._started

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of the run's processes over all threads, earlier segments included."""
        own = time.process_time() - self._cpu_started
        return self.cpu_seconds_before + own + self.stream.cpu_seconds

    @property
    def peak_rss_bytes(self) -> int:
        """Largest resident set of the run's processes, earlier segments included."""
        return max(self._rss_before, peak_rss_bytes() + self.stream.peak_rss_bytes)

    def on_train_start(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        """Start counting speed here."""
        self._last_steps, self._last_seconds = self.stream.env_steps, self.seconds
        self._last_grad_steps = pl_module.grad_steps

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Make a row at each interval, of the newest minibatch since the row before."""
        self._newest = outputs or self._newest
        if self.stream.crossed(self.every):
            self.write_row(pl_module, self._newest, trainer.callback_metrics)
            self._newest = {}

    def write_only_row(self, trainer: lightning.Trainer, agent: Any) -> None:
        """Make the row of a run that finishes before its first is due; of others none."""
        if self.stream.env_steps < self.every:
            self.write_row(agent, self._newest, trainer.callback_metrics)

    def write_row(
        self, agent: Any, outputs: dict[str, Any], logged: Mapping[str, torch.Tensor]
    ) -> None:
        """Make one row of metrics and write the episodes that ended.

        What the agent logged (`self.log`) stands behind the columns that every run has, and does
        not replace them. Numbers have eight digits, times and speeds four: a clock repeats no more
        of them.
        """
        self.write_episodes()
        learning = self.stream.combined(self._learning(outputs))
        columns = {**self._progress(agent), **learning, **self._memory()}
        columns |= {n: float(value) for n, value in logged.items() if n not in columns}
        row = {
            name: _shortened(value, 4 if name.endswith(TIMED) else 8)
            for name, value in columns.items()
        }
        self._files[METRICS].write([row])
        for logger in self.loggers:
            logger.log(row)

    def write_episodes(self) -> None:
        """Write the episodes that ended since the last call.

        Raises:
            UserError: the run's folder was moved or removed.
        """
        seconds = round(self.seconds, 3)
        self._files[EPISODES].write(
            [
                dict(zip(EPISODE_COLUMNS, values, strict=True))
                for e in self.stream.finished_episodes()
                for values in [(e.env_steps, e.number, e.episode_return, e.length, seconds)]
            ]
        )

    def sync(self) -> None:
        """Bring all rows to the disk."""
        for file in self._files.values():
            file.sync()

    def write_evaluation(self, result: EvaluationResult) -> None:
        """Write the episodes of an evaluation and tell the loggers its mean and deviation."""
        steps = self.stream.env_steps
        self.last_evaluation, self.evaluated_at = result, steps
        pairs = zip(result.returns, result.lengths, strict=True)
        self._files[EVALUATIONS].write(
            [
                {"env_steps": steps, "episode": i, "return": value, "length": length}
                for i, (value, length) in enumerate(pairs, start=1)
            ]
        )
        row = {
            "env_steps": steps,
            "eval_return_mean": result.mean,
            "eval_return_std": result.std,
            **({} if result.successes is None else {"eval_success_rate": result.success_rate}),
        }
        for logger in self.loggers:
            logger.log(row)

    def _progress(self, agent: Any) -> dict[str, Any]:
        stream, seconds = self.stream, self.seconds
        elapsed = max(seconds - self._last_seconds, 1e-9)
        steps = stream.env_steps - self._last_steps
        updates = agent.grad_steps - self._last_grad_steps
        self._last_steps, self._last_seconds = stream.env_steps, seconds
        self._last_grad_steps = agent.grad_steps
        returns, lengths = stream.episodes.recent_returns, stream.episodes.recent_lengths
        return {
            "env_steps": stream.env_steps,
            "frames": stream.frames,
            "grad_steps": agent.grad_steps,
            "episodes": stream.episodes.count,
            "seconds": round(seconds, 3),
            "env_steps_per_second": steps / elapsed if steps else None,
            "train_return_mean": float(np.mean(returns)) if returns else None,
            "train_length_mean": float(np.mean(lengths)) if lengths else None,
            "epsilon": agent.epsilon(stream.env_steps),
            **self._microseconds(steps, updates),
        }

    def _microseconds(self, steps: int, updates: int) -> dict[str, float | None]:
        """What the first process took for each of its own env steps and for each minibatch since
        the last row; None where there was none, or nobody takes the time. Nor has the first row of
        a run that goes on any: code is compiled in it, which would count in the run's means."""
        total = self.stream.seconds
        spent = {name: value - self._last_parts[name] for name, value in total.items()}
        self._last_parts = dict(total)
        own = steps / distributed.size
        counts = {"act": own, "env": own, "insert": own, "sample": updates}
        if self._compiles:
            self._compiles, counts = False, dict.fromkeys(counts, 0)
        return {
            f"{name}_us": 1e6 * spent[name] / count if count and name in spent else None
            for name, count in counts.items()
        }

    def _learning(self, outputs: dict[str, Any]) -> dict[str, Any]:
        """What the newest minibatch was like; empty cells before learning starts."""
        own: dict[str, Any] = self.stream.metrics()
        for transform in self.stream.memory.transforms:
            own |= transform.metrics()
        if self.diagnostics:
            return self.diagnostics.columns() | own
        return {"loss": float(outputs["loss"][-1]) if outputs else None, **own}

    def _memory(self) -> dict[str, Any]:
        self.stream.gather()
        held = self.stream.held
        self.bytes_peak = max(self.bytes_peak, held.bytes)
        return {
            "memory_bytes": held.bytes,
            "memory_entries": held.entries,
            "bytes_per_transition": held.bytes / held.represented if held.represented else None,
            **{f"memory/{name}": size for name, size in held.components.items()},
        }

    def close(self) -> None:
        """Write what is left and close the files."""
        try:
            self.write_episodes()
        finally:
            for file in self._files.values():
                file.close()
