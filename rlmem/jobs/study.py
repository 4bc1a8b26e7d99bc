"""A study: a table of settings by environments, run as resumable jobs, reported as one page.

`studies/<name>/study.yaml` names the rows (settings), the columns (environments), and the seeds.
Each job is one run of its own in `runs/<column>/<row>/seed<n>/`; a finished one is skipped, one
that was cut off goes on from its checkpoint. The report is made of what is there.
"""

import contextlib
import multiprocessing
import os
import re
import shlex
import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rlmem.analysis.report import Report, write_report
from rlmem.analysis.study_table import write_table
from rlmem.callbacks.checkpoint import find_checkpoint
from rlmem.config import check, compose
from rlmem.config.sweep import clear_error, write_error
from rlmem.errors import UserError
from rlmem.jobs.summary import read_summary
from rlmem.units import readable_seconds

FIFO = "FIFO of the bytes of "


@dataclass(frozen=True)
class Job:
    """One run of a study."""

    column: str
    row: str
    seed: int
    overrides: tuple[str, ...]
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.column}: {self.row}, seed {self.seed}"

    @property
    def done(self) -> bool:
        return (read_summary(self.folder) or {}).get("status") == "finished"


class Study:
    """The definition of a study and its jobs.

    Args:
        folder: with the study.yaml.

    Raises:
        UserError: there is no such study, or its definition is not understood.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            content = yaml.safe_load((folder / "study.yaml").read_text())
        except FileNotFoundError:
            found = sorted(p.parent.name for p in folder.parent.glob("*/study.yaml"))
            raise UserError(
                f"NAME={folder.name}: no such study; there are {', '.join(found) or 'none'}"
            ) from None
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise UserError(f"{folder}/study.yaml cannot be read ({error})") from None
        if not isinstance(content, dict) or not {"rows", "columns"} <= content.keys():
            raise UserError(f"{folder}/study.yaml: needs rows and columns")
        if unknown := content.keys() - {"title", "common", "rows", "columns", "fifo"}:
            raise UserError(f"{folder}/study.yaml: unknown key {min(map(str, unknown))}")
        self.title = str(content.get("title", folder.name))
        self.common = self._overrides("common", content.get("common"))
        self.fifo = self._overrides("fifo", content.get("fifo"))
        self.rows = self._parts("rows", content["rows"], {"fifo", "seeds"})
        self.columns = self._parts("columns", content["columns"], {"seeds"})

    def _parts(self, name: str, parts: Any, more: set[str]) -> dict[str, dict[str, Any]]:
        if not isinstance(parts, dict):
            raise UserError(f"{self.folder}/study.yaml: {name} must be a mapping")
        folders = [slug(str(key)) for key in parts]
        if "" in folders or len(set(folders)) < len(folders):
            raise UserError(
                f"{self.folder}/study.yaml: {name} must differ in their letters and digits"
            )
        return {str(key): self._part(key, value, more) for key, value in parts.items()}

    def _overrides(self, name: Any, value: Any) -> list[str]:
        """Overrides as a command line or a list."""
        try:
            return [str(v) for v in value] if isinstance(value, list) else shlex.split(value or "")
        except (ValueError, AttributeError) as error:
            raise UserError(f"{self.folder}/study.yaml: {name}: {value}: {error}") from None

    def _part(self, name: Any, value: Any, more: set[str]) -> dict[str, Any]:
        """A row or a column: its overrides, alone or in a mapping with further keys."""
        part = value if isinstance(value, dict) else {"overrides": value}
        if unknown := part.keys() - {"overrides", *more}:
            raise UserError(
                f"{self.folder}/study.yaml: {name} has an unknown key {min(map(str, unknown))}"
            )
        seeds = part.get("seeds", 1)
        if type(seeds) is not int or seeds < 1:
            raise UserError(f"{self.folder}/study.yaml: {name} has seeds={seeds}; a number of runs")
        overrides = self._overrides(name, part.get("overrides"))
        return {**part, "overrides": overrides, "seeds": seeds}

    def seeds(self, column: str, row: str) -> range:
        """Those of a cell: as many as its row or its column asks for, whichever is more."""
        return range(max(self.columns[column]["seeds"], self.rows[row]["seeds"]))

    def jobs(self, column: str) -> list[Job]:
        """Those of a column that need no other job's result, seed by seed."""
        return [
            self._job(column, row, seed, self.rows[row]["overrides"])
            for row, seed in self._cells(column)
        ]

    def _cells(self, column: str) -> list[tuple[str, int]]:
        """Rows and seeds of a column, the first seed of all rows first."""
        cells = [(row, seed) for row in self.rows for seed in self.seeds(column, row)]
        return sorted(cells, key=lambda cell: cell[1])

    def fifo_jobs(self, column: str) -> Iterator[Job]:
        """A FIFO of the same bytes beside each finished run of the rows that ask for it."""
        for row, seed in self._cells(column):
            if not self.rows[row].get("fifo"):
                continue
            beside = read_summary(self._job(column, row, seed, ()).folder) or {}
            if beside.get("status") != "finished":
                continue
            budget = f"memory.budget={beside['memory_bytes_peak']}"
            yield self._job(column, FIFO + row, seed, (*self.fifo, budget))

    def finished(self, column: str, row: str) -> int:
        """How many runs of a row are done."""
        seeds = self.seeds(column, row.removeprefix(FIFO))
        return sum(self._job(column, row, seed, ()).done for seed in seeds)

    def labels(self) -> list[str]:
        """Rows of the table, each FIFO below its row."""
        return [
            label
            for row, part in self.rows.items()
            for label in ([row, FIFO + row] if part.get("fifo") else [row])
        ]

    def _job(self, column: str, row: str, seed: int, overrides: Sequence[str]) -> Job:
        folder = self.folder / "runs" / slug(column) / slug(row) / f"seed{seed}"
        label = "label='" + row.replace("\\", "\\\\").replace("'", "\\'") + "'"
        own = (*overrides, *self.columns[column]["overrides"], *self.common)
        return Job(column, row, seed, (*own, label, f"seed={seed}"), folder)


def slug(name: str) -> str:
    """A folder's name."""
    return re.sub(r"[^\w.=-]+", "-", name).strip("-").lower()


def run_job(job: Job) -> str | None:
    """Train one job to its end in this process; the error's line if it failed.

    What it prints goes to log.txt in its folder. A run that was cut off goes on.
    """
    from rlmem.jobs.train import train

    job.folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    clear_error(job.folder)
    (job.folder / "overrides.yaml").write_text(yaml.safe_dump(list(job.overrides)))
    given = [*job.overrides, f"paths.output_dir={job.folder}", "log.progress=false"]
    if find_checkpoint(job.folder):
        given.append(f"resume={job.folder}")
    with (
        (job.folder / "log.txt").open("a") as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        try:
            cfg = compose("train", given)
            check(cfg)
            train(cfg)
        except Exception as exc:
            what = str(exc) if isinstance(exc, UserError) else f"{type(exc).__name__}: {exc}"
            line = " ".join(what.split())
            traceback.print_exc()
            write_error(job.folder, line, 1)
            return line
    return None


def run_study(study: Study, columns: Sequence[str], workers: int) -> list[tuple[Job, str]]:
    """Run what is missing of some columns, `workers` jobs at once; the failed ones."""
    failed: list[tuple[Job, str]] = []
    # Fresh processes: a fork of one that has used torch's threads can hang.
    context = multiprocessing.get_context("spawn")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        for column in columns:
            for kind in (study.jobs, study.fifo_jobs):
                jobs = [job for job in kind(column) if not job.done]
                try:
                    failed += _run_all(pool, jobs, column)
                except KeyboardInterrupt:
                    pool.shutdown(cancel_futures=True)
                    raise
                except BrokenProcessPool:
                    raise UserError(
                        "a job's process was killed, probably for want of memory; the same "
                        "command goes on, with fewer at once: --jobs 1"
                    ) from None
    return failed


def _run_all(pool: ProcessPoolExecutor, jobs: list[Job], column: str) -> list[tuple[Job, str]]:
    started, failed = time.perf_counter(), []
    futures: dict[Future, Job] = {pool.submit(run_job, job): job for job in jobs}
    for count, future in enumerate(as_completed(futures), start=1):
        job, error = futures[future], future.result()
        if error:
            failed.append((job, error))
        elapsed = time.perf_counter() - started
        left = readable_seconds(elapsed / count * (len(jobs) - count))
        result = f"failed: {error}" if error else _result(job)
        print(f"{column} {count}/{len(jobs)}, {left} left: {job.row}, seed {job.seed}: {result}",
              flush=True)  # fmt: skip
    return failed


def _result(job: Job) -> str:
    summary = read_summary(job.folder) or {}
    score = summary.get("eval_return_mean")
    seconds = readable_seconds(summary.get("wall_seconds") or 0.0)
    return (
        f"{summary.get('status')}, return {score if score is None else f'{score:.4g}'}, {seconds}"
    )


def report_study(study: Study) -> Report | None:
    """Write results.csv, summary.csv, figures, index.html and table.md; None if nothing ran."""
    runs = study.folder / "runs"
    if not runs.is_dir():
        return None
    missing = [note for column in study.columns if (note := _missing(study, column))]
    report = write_report([runs], study.folder, notes=missing, title=study.title)
    columns = {slug(column): column for column in study.columns}
    fifos = {row: FIFO + row for row in study.rows}
    write_table(report.cells, columns, study.labels(), fifos, study.folder / "table.md")
    return report


def _missing(study: Study, column: str) -> str | None:
    """What of a column was not run, as a line of the page."""
    found = {label: study.finished(column, label) for label in study.labels()}
    if not any(found.values()):
        return f"{column}: not run"
    wanted = {label: len(study.seeds(column, label.removeprefix(FIFO))) for label in found}
    lacking = [f"{label} ({n} of {wanted[label]})" for label, n in found.items() if n < wanted[label]]
    return f"{column}: not all seeds were run: {', '.join(lacking)}" if lacking else None
