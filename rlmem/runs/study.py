"""Running a study: a table of settings by environments as resumable jobs, reported as one page.

`studies/<name>/study.yaml` names the rows (settings), the columns (environments), and the seeds.
Each job is one run of its own in `runs/<column>/<row>/seed<n>/`; a finished one is skipped, one
that was cut off goes on from its checkpoint. The report is made of what is there.
"""

import contextlib
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from rlmem.analysis.compare.settings import make_settings
from rlmem.analysis.read.collection import set_apart
from rlmem.analysis.read.record import write_record
from rlmem.analysis.read.runs import Run, read_run
from rlmem.analysis.show.report import Report, StudyPage, default_out, write_report
from rlmem.analysis.show.tables import results_table, write_study_table
from rlmem.config import check
from rlmem.errors import OccupiedError, UserError, one_line
from rlmem.run_files import plain_cells, write_small
from rlmem.runs.study_code import load_code
from rlmem.runs.study_file import FIFOS, RECORD, Study, StudyJob, slug
from rlmem.runs.study_job import composed, kept_for_a_job, run_job
from rlmem.units import number, readable_seconds, several


def run_study(study: Study, columns: Sequence[str], workers: int) -> list[tuple[StudyJob, str]]:
    """Run what is missing of some columns, `workers` jobs at once; the failed ones."""
    failed: list[tuple[StudyJob, str]] = []
    _check_jobs(study, columns)
    # Fresh processes: a fork of one that has used torch's threads can hang.
    context = multiprocessing.get_context("spawn")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with _ended_by_signals(), ProcessPoolExecutor(workers, mp_context=context) as pool:
        for kind in (study.jobs, study.fifo_jobs):  # a FIFO's size is what another run held
            # All columns at once, so that no worker waits for the end of one.
            all_jobs = [job for column in columns for job in kind(column)]
            jobs = [job for job in all_jobs if not job.done]
            if jobs:
                logs = study.folder / "runs/COLUMN/ROW/SEED/log.txt"
                print(
                    f"{len(jobs)} of {several(len(all_jobs), 'run')} to make, {workers} at once; "
                    f"what they print goes to {logs}",
                    flush=True,
                )
            try:
                failed += _run_all(pool, jobs, workers)
            except (KeyboardInterrupt, SystemExit):
                pool.shutdown(cancel_futures=True)
                raise
            except BrokenProcessPool:
                raise UserError(
                    "a job's process was killed, probably because memory ran out; give the same "
                    "command with fewer runs at once, such as --jobs 1: it goes on"
                ) from None
    return failed


def _check_jobs(study: Study, columns: Sequence[str]) -> None:
    """Compose every job that is missing, so that the last one's misspelt key shows at the start.

    Raises:
        UserError: the first job whose configuration cannot work.
    """
    for column in columns:
        for job in study.jobs(column):
            if job.seed == study.columns[column]["first_seed"] and not job.done:
                try:
                    check(composed(job))
                except UserError as error:
                    raise UserError(f"{job.name}: {error}") from None


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """A SIGTERM reaches this process alone, where Ctrl-C reaches the jobs as well: pass it on. A
    terminal that is closed ends it likewise, but for what nohup started."""

    def end(number: int, frame: Any) -> None:
        for worker in multiprocessing.active_children():
            worker.terminate()
        raise KeyboardInterrupt

    heard = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run_all(
    pool: ProcessPoolExecutor, jobs: list[StudyJob], workers: int
) -> list[tuple[StudyJob, str]]:
    started, failed = time.perf_counter(), []
    rows = Counter(job.row for job in jobs)  # whose memories are alike
    with kept_for_a_job():
        futures: dict[Future, StudyJob] = {
            pool.submit(run_job, job, min(workers, rows[job.row])): job for job in jobs
        }
    for count, future in enumerate(as_completed(futures), start=1):
        job, error, kept = futures[future], None, False
        try:
            if error := future.result():
                failed.append((job, error))
        except OccupiedError:
            kept = True
        elapsed = time.perf_counter() - started
        left = readable_seconds(elapsed / count * (len(jobs) - count))
        done = "another command runs it and keeps it" if kept else _result(job)
        result = f"failed: {error}" if error else done
        print(f"{count}/{len(jobs)}, {left} left: {job.name}: {result}", flush=True)
    return failed


def _result(job: StudyJob) -> str:
    summary = job.summary
    score = summary.get("eval_return_mean")
    seconds = readable_seconds(summary.get("wall_seconds") or 0.0)
    return f"{summary.get('status')}, return {score if score is None else number(score)}, {seconds}"


def report_study(study: Study) -> Report | None:
    """Write the report's files and table.md into the study's report/; None if nothing ran.

    findings.md of the folder, if it is there, opens the page.
    """
    runs, out = study.folder / "runs", default_out(study.folder)
    jobs = [*study.all_jobs(study.columns)]
    recorded = [job.recorded for job in jobs if job.recorded and not job.is_here]
    made = {job.folder for job in jobs if job.is_here}  # not one that failed before it wrote files
    if not made and not recorded:
        return None
    notes = [note for column in study.columns if (note := _missing(study, column))]
    notes += outdated(study, [*study.columns])
    against = {row: [b for b in study.baselines if b != row] for row in study.rows}
    code = load_code(study.folder)
    fitted = {
        label: FIFOS[kind][0] for kind, rows in study.fifos().items() for label in rows.values()
    }
    report = write_report(
        [runs] if made else [],
        out,
        study=StudyPage(
            title=study.title,
            findings=study.folder / "findings.md",
            highlight=study.highlight,
            notes=notes,
            fitted=fitted,
            recorded=recorded,
            columns=_titles(study),
            asked=made,
            against=against if study.baselines else {},
            more=getattr(code, "section", None),
        ),
    )
    columns = {slug(column): (column, list(study.labels(column))) for column in study.columns}
    write_study_table(report.settings, columns, study.fifos(), out / "table.md")
    return report


def record(study: Study) -> tuple[int, int]:
    """Write results.csv and runs.npz, with the finished runs that the study asks for; how many, and
    how many were left out because their files are damaged.

    Left as they are if no run was made since. A run in its folder that has not finished, is damaged
    or was made with other overrides than study.yaml has now is not recorded: what was before stays.
    What was recorded and study.yaml no longer asks for goes, and is named.
    """
    runs, fresh, damaged = [], False, 0
    for job in study.all_jobs(study.columns):
        run = job.recorded
        if job.is_here and job.finished and not job.outdated:
            read, why = _read(job)
            if read is None:
                damaged += 1
                print(
                    f"warning: {job.name}: {why}, so it is not recorded; put the file back, or "
                    f"remove {job.folder} to run it anew"
                )
            elif len(read.curves["env_steps"]) or run is None:
                run, fresh = read, True
        if run is not None:
            runs.append(run)
    if fresh:
        if gone := len(study.recorded.keys() - {run.folder for run in runs}):
            print(
                f"warning: {several(gone, 'recorded run')} that study.yaml no longer asks for: not "
                f"in {RECORD} and results.csv any more"
            )
        write_record(study.folder / RECORD, runs)
        set_apart(runs, _titles(study))
        table = plain_cells(results_table(make_settings(runs)))
        write_small(study.folder / "results.csv", table.to_csv(index=False))
    return len(runs), damaged


def _read(job: StudyJob) -> tuple[Run | None, str]:
    """A run whose files are whole; None and why not."""
    try:
        run = read_run(job.folder)
    except ValueError as error:
        return None, one_line(error)
    return (None, one_line(run.faults[0])) if run.faults else (run, "")


def _titles(study: Study) -> dict[str, str]:
    """Folder of each column -> its title."""
    return {slug(column): column for column in study.columns}


def _missing(study: Study, column: str) -> str | None:
    """What of a column was not run, as a line of the page."""
    labels = study.labels(column)
    found = study.finished(column)
    if not found:
        return f"{column}: not run"
    wanted = {label: len(study.seeds(column, row)) for label, row in labels.items()}
    lacking = [
        f"{label} ({found[label]} of {n})" for label, n in wanted.items() if found[label] < n
    ]
    return f"{column}: not all seeds were run: {', '.join(lacking)}" if lacking else None


def outdated(study: Study, columns: Sequence[str]) -> list[str]:
    """A line for each column with runs that were made before its definition changed."""
    lines = []
    for column in columns:
        made = Counter(job.row for job in study.all_jobs([column]) if job.outdated)
        if made:
            rows = ", ".join(f"{row} ({count})" for row, count in made.items())
            lines.append(
                f"{column}: runs made with other overrides than study.yaml has now: {rows}"
            )
    return lines
