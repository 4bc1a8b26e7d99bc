"""The Blind Cliffwalk: a study of the samplers alone, which trains no run.

study.yaml has `title`, `sizes` (n, from 2 to 20), `samplers` and `seeds`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

from rlmem.errors import UserError
from rlmem.runs.study_code import call_in
from rlmem.runs.study_file import read_definition

from .page import write_cliffwalk
from .results import Result, read_results, write_results
from .simulation import LARGEST, SAMPLERS, updates_needed

__all__ = ["Definition", "read_cliffwalk", "run", "updates_needed"]


@dataclass(frozen=True)
class Definition:
    """What study.yaml says."""

    folder: Path
    title: str
    sizes: list[int]  # n
    samplers: list[str]
    seeds: int

    def missing(self, samplers: Sequence[str], done: Iterable[Result]) -> Iterator[tuple]:
        """(n, sampler, seed) of what was not run, the longest first."""
        known = {(r.n, r.sampler, r.seed) for r in done}
        for n in sorted(self.sizes, reverse=True):
            for sampler in samplers:
                for seed in range(self.seeds):
                    if (n, sampler, seed) not in known:
                        yield n, sampler, seed


def read_cliffwalk(folder: Path) -> Definition:
    """Read and check study.yaml.

    Raises:
        UserError: a key or a value is not understood.
    """
    content = read_definition(folder)
    given = {"title": folder.name, "sizes": [], "samplers": [], "seeds": 10} | content

    def refuse(what: str) -> None:
        raise UserError(f"{folder}/study.yaml: {what}")

    if unknown := content.keys() - {"title", "sizes", "samplers", "seeds"}:
        refuse(f"unknown key {min(map(str, unknown))}")
    sizes, samplers, seeds = given["sizes"], given["samplers"], given["seeds"]
    if not isinstance(given["title"], str):
        refuse(f"title={given['title']}; a line of text")
    if not _listed(sizes) or not all(type(n) is int and 2 <= n <= LARGEST for n in sizes):
        refuse(f"sizes={sizes}; a list of numbers of states, each from 2 to {LARGEST}")
    if not _listed(samplers) or not set(samplers) <= set(SAMPLERS):
        refuse(f"samplers={samplers}; a list of {', '.join(SAMPLERS)}")
    if type(seeds) is not int or seeds < 1:
        refuse(f"seeds={seeds}; a number of runs")
    return Definition(folder, given["title"], sizes, samplers, seeds)


def _listed(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def run(folder: Path, only: Sequence[str], workers: int) -> str:
    """Run what is missing, `workers` at once (0: nothing), and report on all of it.

    Args:
        only: samplers to run; empty: all.

    Returns:
        What was written, for people.

    Raises:
        UserError: a name or the definition is not understood.
    """
    study = read_cliffwalk(folder)
    if unknown := set(only) - set(study.samplers):
        known = ", ".join(study.samplers)
        raise UserError(f"--only {min(unknown)}: no such sampler; there are {known}")
    path = folder / "results.csv"
    results = read_results(path)
    jobs = list(study.missing(only or study.samplers, results)) if workers else []
    calls = (delayed(call_in)(folder, "updates_needed", *job) for job in jobs)
    found: Iterable[Any] = Parallel(max(1, workers), return_as="generator_unordered")(calls)
    for count, result in enumerate(found, start=1):
        results.append(result)
        write_results(results, path)
        print(f"{count}/{len(jobs)}: {result.sentence}", flush=True)
    if not results:
        return f"nothing to report: {folder} has no results.csv"
    write_cliffwalk(folder, study.title, results)
    return f"written: {folder}/results.csv, report/index.html, report/figures/"
