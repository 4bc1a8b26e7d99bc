"""Results of the maze: a row a run in results.csv, the length of each episode in episodes.npz.

episodes.npz is numpy's archive without pickle, in the order of results.csv's rows:

    length     uint8 [runs, episodes]   env steps of each episode, 0 where a run has fewer episodes
    success    bool [runs, episodes]    whether it came to the goal
"""

import csv
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlmem.analysis.read.runs import Run, read_run
from rlmem.envs.mini_maze import GOAL_REWARD
from rlmem.errors import UserError
from rlmem.runs.study_file import Study, StudyJob

RESULTS, EPISODES = "results.csv", "episodes.npz"
IN_A_ROW = 10  # successes, after which a maze counts as learned


@dataclass(frozen=True)
class Result:
    """One run.

    Attributes:
        maze: the study's column: `released`, or `maze 7`.
        row: the study's row.
        env_steps: of all episodes.
        failed: episodes that did not come to the goal.
        first_of_ten: number, from 1, of the first episode of the first IN_A_ROW successes in a
            row; NaN if there were none.
        memory_bytes: most that the memory held.
        memory_entries: states, nodes, transitions or keys at the end.
        learn_us: microseconds of the memory an env step, wall time.
        cpu_seconds: of the run without its start.
        overrides: that made it, one line.
        length: uint8 [episodes], env steps of each.
        success: bool [episodes].
    """

    maze: str
    row: str
    seed: int
    env_steps: int
    failed: int
    first_of_ten: float
    memory_bytes: int
    memory_entries: int
    learn_us: float
    cpu_seconds: float
    overrides: str
    length: np.ndarray
    success: np.ndarray


COLUMNS = [field.name for field in fields(Result) if field.name not in ("length", "success")]


def first_of(success: np.ndarray, row: int = IN_A_ROW) -> float:
    """Number, from 1, of the episode with which the first `row` successes in a row begin.

    >>> first_of(np.array([False, True, True, False, True, True, True]), 3)
    5.0

    Args:
        success: bool [episodes].
    """
    ahead = np.convolve(success, np.ones(row, np.int64), "valid") == row
    return float(ahead.argmax()) + 1 if ahead.any() else float("nan")


def result_of(job: StudyJob) -> Result:
    """What a finished run in its folder came to.

    Raises:
        ValueError: a file of it is damaged.
        OSError: a file of it is missing.
    """
    run = read_run(job.folder)
    with (job.folder / "episodes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    length = np.array([row["length"] for row in rows], np.uint8)
    success = np.array([row["return"] for row in rows], np.float64) > GOAL_REWARD / 2
    return Result(
        maze=job.column,
        row=job.row,
        seed=job.seed,
        env_steps=int(run.number("env_steps")),
        failed=int((~success).sum()),
        first_of_ten=first_of(success),
        memory_bytes=int(run.number("memory_bytes_peak")),
        memory_entries=int(run.number("memory_entries")),
        learn_us=round(run.number("insert_us"), 1),
        cpu_seconds=round(run.number("cpu_seconds"), 2),
        overrides=" ".join(job.overrides),
        length=length,
        success=success,
    )


def collect(study: Study, recorded: Sequence[Result]) -> list[Result]:
    """All that is known of a study's jobs: runs in their folders, else recorded ones."""
    known = {(r.maze, r.row, r.seed): r for r in recorded}
    found = []
    for job in study.all_jobs(study.columns):
        if job.is_here and job.finished and not job.outdated:
            found.append(result_of(job))
        elif kept := known.get((job.column, job.row, job.seed)):
            found.append(kept)
    return found


def as_run(job: StudyJob, result: Result) -> Run:
    """A recorded result as the study's jobs look for it, so that it is not run again."""
    same = result.overrides == " ".join(job.overrides)
    overrides = [*job.overrides] if same else [result.overrides]
    return Run(job.folder, {}, {"status": "finished"}, {}, overrides=overrides)


def read_results(folder: Path) -> list[Result]:
    """The results of a study's folder, none if there are none.

    Raises:
        UserError: its files hold something else, or do not belong together.
    """
    path = folder / RESULTS
    if not path.exists():
        return []
    try:
        table = pd.read_csv(path)[COLUMNS]
        with np.load(folder / EPISODES, allow_pickle=False) as columns:
            length, success = columns["length"], columns["success"]
        if not len(length) == len(success) == len(table):
            raise ValueError(f"{len(table)} rows, but episodes of {len(length)} runs")
    except (OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{path} and {EPISODES}: cannot be read ({reason}); remove both to run all again"
        ) from None
    rows = table.itertuples(index=False, name=None)
    return [
        Result(*row, length=one[one > 0], success=came[one > 0])
        for row, one, came in zip(rows, length, success, strict=True)
    ]


def write_results(folder: Path, results: Sequence[Result]) -> None:
    """Write both files in place of those that are there."""
    most = max(len(result.length) for result in results)
    length = np.zeros((len(results), most), np.uint8)
    success = np.zeros((len(results), most), np.bool_)
    for place, result in enumerate(results):
        length[place, : len(result.length)] = result.length
        success[place, : len(result.success)] = result.success
    fresh = folder / "episodes.new"
    with fresh.open("wb") as file:
        np.savez_compressed(file, length=length, success=success)
    os.replace(fresh, folder / EPISODES)
    fresh = folder / "results.new"
    frame(results)[COLUMNS].to_csv(fresh, index=False)
    os.replace(fresh, folder / RESULTS)


def frame(results: Iterable[Result]) -> pd.DataFrame:
    """A row a run, with all of COLUMNS."""
    rows: list[Any] = [[getattr(result, name) for name in COLUMNS] for result in results]
    return pd.DataFrame(rows, columns=COLUMNS)
