"""The maze: graphs that answer beside a table, a network and an episodic memory."""

import sys
from collections.abc import Sequence
from pathlib import Path

from rlmem.errors import UserError
from rlmem.runs.study import run_study
from rlmem.runs.study_file import Study

from .page import write_maze
from .results import as_run, collect, read_results, write_results

__all__ = ["run"]


def run(folder: Path, only: Sequence[str], workers: int) -> str:
    """Run what is missing, `workers` at once (0: nothing), and report on all of it.

    Args:
        only: columns of study.yaml to run; empty: all.

    Returns:
        What was written, for people.

    Raises:
        UserError: a name or the definition is not understood, or runs failed.
    """
    study, recorded = Study(folder), read_results(folder)
    if unknown := set(only) - set(study.columns):
        known = ", ".join(study.columns)
        raise UserError(f"--only {min(unknown)}: no such column; there are {known}")
    known = {(r.maze, r.row, r.seed): r for r in recorded}
    for job in list(study.all_jobs(study.columns)):
        if result := known.get((job.column, job.row, job.seed)):
            study.recorded[job.folder] = as_run(job, result)
    failed = run_study(study, only or list(study.columns), workers) if workers else []
    for job, error in failed:
        print(f"failed: {job.name}: {error} ({job.folder}/log.txt)", file=sys.stderr)
    results = collect(study, recorded)
    if not results:
        return f"nothing to report: {folder} has no results.csv"
    write_results(folder, results)
    write_maze(folder, study.title, results, list(study.rows))
    if failed:
        raise UserError(f"{len(failed)} runs failed; the same command goes on")
    return f"written: {folder}/results.csv, episodes.npz, report/index.html, report/figures/"
