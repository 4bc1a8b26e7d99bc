"""Entry points of the command line. What takes seconds to import is imported when it is needed."""

import os
import sys
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig

from rlmem.config import run_hydra


def _train(cfg: DictConfig) -> Any:
    from rlmem.jobs.train import train

    return train(cfg)


def _evaluate(cfg: DictConfig) -> None:
    from rlmem.jobs.evaluate import evaluate

    evaluate(cfg)


def repeat_overrides(argv: list[str]) -> list[str]:
    """Complete `resume=<run directory>` by the overrides that the run had last.

    Hydra then composes the run's own configuration. Overrides given again replace the saved ones;
    a directory without a run is left for the job to report.
    """
    given = {a.partition("=")[0].lstrip("+"): a.partition("=")[2] for a in argv if "=" in a}
    run_dir = Path(given.get("resume", "").strip("'\""))
    saved = run_dir / "overrides.yaml"
    if given.get("resume") in (None, "", "null", "auto") or not saved.is_file():
        return argv
    return [
        override
        for override in yaml.safe_load(saved.read_text()) or []
        if override.partition("=")[0].lstrip("+") not in {*given, "resume"}
    ] + argv


def study_main() -> None:
    """`python study.py NAME` and `rlmem-study`."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="study",
        description="Run what is missing of a study and report on all of it. Again to go on.",
    )
    parser.add_argument("name", help="a folder with a study.yaml, or its name in studies/")
    parser.add_argument("--only", default="", help="columns to run, such as CartPole,Acrobot")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at once")
    parser.add_argument("--report", action="store_true", help="run nothing, only report")
    args = parser.parse_args()
    sys.exit(_study(args.name, args.only, 0 if args.report else max(1, args.jobs)))


def _study(name: str, only: str, workers: int) -> int:
    from rlmem.errors import UserError
    from rlmem.jobs.study import outdated, record, report_study, run_study
    from rlmem.jobs.study_code import load_code
    from rlmem.jobs.study_file import Study, read_definition

    folder = Path(name) if Path(name).is_dir() else Path("studies") / name
    chosen = [part for part in only.split(",") if part]
    try:
        read_definition(folder)  # there is such a study
        if run := getattr(load_code(folder), "run", None):
            print(run(folder, chosen, workers))
            return 0
        study = Study(folder)
        columns = chosen or list(study.columns)
        if unknown := set(columns) - set(study.columns):
            known = ", ".join(study.columns)
            raise UserError(f"--only {min(unknown)}: no such column; there are {known}")
        for line in outdated(study, columns):
            print(f"warning: {line}; recorded ones are run anew, those in {folder}/runs if removed")
        failed = run_study(study, columns, workers) if workers else []
        for job, error in failed:
            print(f"failed: {job.name}: {error} ({job.folder}/log.txt)", file=sys.stderr)
        report = report_study(study)
        recorded = record(study)
    except UserError as error:
        print(f"rlmem: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, SystemExit):
        print("rlmem: interrupted; the same command goes on", file=sys.stderr)
        return 130
    if report:
        print(f"{recorded} finished runs, recorded in {folder}/results.csv and runs.npz")
        print(f"written: {folder}/report/index.html, tables and figures/")
    else:
        print(f"nothing to report: {folder}/runs holds no run, and there is no runs.npz")
    return 1 if failed else 0


def train_main() -> None:
    """`python train.py` and `rlmem-train`."""
    sys.exit(run_hydra(_train, "train", repeat_overrides(sys.argv[1:])))


def evaluate_main() -> None:
    """`python evaluate.py` and `rlmem-evaluate`."""
    sys.exit(run_hydra(_evaluate, "evaluate"))
