"""The run's files: metrics.csv, episodes.csv, evaluations.csv, and whoever else wants the rows.

CSV and JSON on disk are the source of truth; other loggers show the same numbers. Everything is
counted in env steps. Rows are made at intervals from what the training step returned: a log call
a step would halve the speed of a small network.
"""

import csv
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import lightning
import numpy as np
import torch

from rlmem.callbacks.diagnostics import ReplayDiagnostics
from rlmem.collect.collector import EnvStepStream
from rlmem.collect.rollout import EvaluationResult
from rlmem.registry import part

EPISODE_COLUMNS = ["env_steps", "episode", "return", "length", "seconds"]
EVALUATION_COLUMNS = ["env_steps", "episode", "return", "length"]
TIMED = ("_us", "_per_second")


class MetricsLogger(Protocol):
    """Where rows go besides the files."""

    def log(self, row: dict[str, Any]) -> None:
        """Take one row; it holds `env_steps`."""

    def image(self, env_steps: int, name: str, path: Path) -> None:
        """Take a picture, a file that stays where it is."""

    def close(self, status: str, summary: dict[str, Any]) -> None:
        """The run is over."""


@part("logger", "csv")
def files_only(settings: Any, run: Any, run_dir: Path, name: str) -> None:
    """No logger: the run's files are written whatever loggers are chosen."""


class CsvFile:
    """A CSV file that rows are appended to, flushed at each write.

    Args:
        path: of the file.
        columns: None: those of the first row; a column that comes later is added to all rows.
        keep_until: rows with more env_steps are dropped (they came after the checkpoint that a
            resumed run starts from).
    """

    def __init__(self, path: Path, columns: Sequence[str] | None, keep_until: int) -> None:
        self.path, self.fixed = path, columns is not None
        self.columns = list(columns) if columns else None
        self._make_anew(keep_until)

    def _make_anew(self, keep_until: int = 2**63, more: Sequence[str] = ()) -> None:
        """Write the file again, with further columns that its rows have no values of."""
        kept: list[dict[str, str]] = []
        if self.path.exists():
            with self.path.open(newline="") as file:
                reader = csv.DictReader(file)
                self.columns = list(reader.fieldnames or []) or self.columns
                kept = [row for row in reader if _whole(row) and _steps(row) <= keep_until]
        if self.columns:
            self.columns += more
        # Written beside the old file and put in its place, so that no kill loses what was there.
        fresh = self.path.with_suffix(".new")
        with fresh.open("w", newline="") as file:
            if self.columns:
                writer = csv.DictWriter(file, self.columns, extrasaction="ignore")
                writer.writeheader()
                writer.writerows(kept)
        os.replace(fresh, self.path)
        self._file = self.path.open("a", newline="")

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Append rows."""
        if not rows:
            return
        first = not self.columns
        self.columns = self.columns or list(rows[0])
        if not self.fixed and (more := [name for name in rows[0] if name not in self.columns]):
            self._file.close()
            self._make_anew(more=more)
        writer = csv.DictWriter(self._file, self.columns, extrasaction="ignore")
        if first:
            writer.writeheader()
        writer.writerows(rows)
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _whole(row: dict[str, Any]) -> bool:
    """Whether a row has all its columns: a killed run can leave half a line."""
    return None not in row.values() and None not in row


def _shortened(value: Any, digits: int) -> Any:
    """A float with so many significant digits; anything else as it is."""
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def _steps(row: dict[str, str]) -> int:
    try:
        return int(row["env_steps"])
    except ValueError:
        return 2**63


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
        stream: EnvStepStream,
        every: int,
        loggers: Sequence[MetricsLogger],
        diagnostics: ReplayDiagnostics | None = None,
    ) -> None:
        self.stream, self.every, self.loggers = stream, every, loggers
        self.diagnostics = diagnostics
        stream.due_every(every)
        self.bytes_peak = 0
        self.seconds_before = self.cpu_seconds_before = 0.0
        self.last_evaluation: EvaluationResult | None = None
        self.best_return: float | None = None
        self._run_dir = run_dir
        self._started, self._cpu_started = time.perf_counter(), time.process_time()

    def open(
        self, keep_until: int, seconds_before: float, cpu_seconds_before: float, bytes_peak: int
    ) -> None:
        """Open the files, dropping rows past `keep_until` env steps; call once before training."""
        self.seconds_before, self.bytes_peak = seconds_before, bytes_peak
        self.cpu_seconds_before = cpu_seconds_before
        self._metrics = CsvFile(self._run_dir / "metrics.csv", None, keep_until)
        self._episodes = CsvFile(self._run_dir / "episodes.csv", EPISODE_COLUMNS, keep_until)
        self._evaluations = CsvFile(
            self._run_dir / "evaluations.csv", EVALUATION_COLUMNS, keep_until
        )
        self._started, self._cpu_started = time.perf_counter(), time.process_time()
        self._last_steps, self._last_seconds = self.stream.env_steps, self.seconds
        self._last_parts = dict(self.stream.seconds)
        self._last_grad_steps = 0

    @property
    def seconds(self) -> float:
        """Wall seconds of the run, earlier segments included."""
        return self.seconds_before + time.perf_counter() - self._started

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of the run's process over all its threads, earlier segments included."""
        return self.cpu_seconds_before + time.process_time() - self._cpu_started

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
        """Make a row at each interval."""
        if self.stream.crossed(self.every):
            self.write_row(pl_module, outputs, trainer.callback_metrics)

    def write_row(
        self, agent: Any, outputs: dict[str, Any], logged: Mapping[str, torch.Tensor]
    ) -> None:
        """Make one row of metrics and write the episodes that ended.

        What the agent logged (`self.log`) stands behind the columns that every run has, and does
        not replace them. Numbers have eight digits, times and speeds four: a clock repeats no more
        of them.
        """
        self.write_episodes()
        columns = {**self._progress(agent), **self._learning(outputs), **self._memory()}
        columns |= {n: float(value) for n, value in logged.items() if n not in columns}
        row = {
            name: _shortened(value, 4 if name.endswith(TIMED) else 8)
            for name, value in columns.items()
        }
        self._metrics.write([row])
        for logger in self.loggers:
            logger.log(row)

    def write_episodes(self) -> None:
        """Write the episodes that ended since the last call."""
        seconds = round(self.seconds, 3)
        self._episodes.write(
            [
                dict(zip(EPISODE_COLUMNS, values, strict=True))
                for e in self.stream.finished_episodes()
                for values in [(e.env_steps, e.number, e.episode_return, e.length, seconds)]
            ]
        )

    def write_evaluation(self, result: EvaluationResult) -> None:
        """Write the episodes of an evaluation and tell the loggers its mean and deviation."""
        self.last_evaluation = result
        steps = self.stream.env_steps
        pairs = zip(result.returns, result.lengths, strict=True)
        self._evaluations.write(
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
        spent = {k: v - self._last_parts[k] for k, v in stream.seconds.items()}
        self._last_steps, self._last_seconds = stream.env_steps, seconds
        self._last_grad_steps, self._last_parts = agent.grad_steps, dict(stream.seconds)
        returns, lengths = stream.episodes.recent_returns, stream.episodes.recent_lengths
        return {
            "env_steps": stream.env_steps,
            "frames": stream.frames,
            "grad_steps": agent.grad_steps,
            "episodes": stream.episodes.count,
            "seconds": round(seconds, 3),
            "env_steps_per_second": steps / elapsed,
            "train_return_mean": float(np.mean(returns)) if returns else None,
            "train_length_mean": float(np.mean(lengths)) if lengths else None,
            "epsilon": agent.epsilon(stream.env_steps),
            "act_us": 1e6 * spent["act"] / max(steps, 1),
            "env_us": 1e6 * spent["env"] / max(steps, 1),
            "insert_us": 1e6 * spent["insert"] / max(steps, 1),
            "sample_us": 1e6 * spent["sample"] / updates if updates else None,
        }

    def _learning(self, outputs: dict[str, Any]) -> dict[str, Any]:
        """What the newest minibatch was like; empty cells before learning starts."""
        own: dict[str, Any] = {}
        for transform in self.stream.memory.transforms:
            own |= transform.metrics()
        if self.diagnostics:
            return self.diagnostics.columns() | own
        return {"loss": float(outputs["loss"][-1]) if outputs else None, **own}

    def _memory(self) -> dict[str, Any]:
        memory = self.stream.memory
        components = memory.footprint()
        total = sum(components.values())
        self.bytes_peak = max(self.bytes_peak, total)
        represented = memory.storage.transitions_represented
        return {
            "memory_bytes": total,
            "memory_entries": memory.storage.entries,
            "bytes_per_transition": total / represented if represented else None,
            **{f"memory/{name}": size for name, size in components.items()},
        }

    def close(self) -> None:
        """Write what is left and close the files."""
        self.write_episodes()
        for file in (self._metrics, self._episodes, self._evaluations):
            file.close()
