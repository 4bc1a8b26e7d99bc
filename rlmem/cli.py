"""Entry points of the command line. What takes seconds to import is imported when it is needed."""

import os
import re
import sys
from pathlib import Path
from typing import Any

from rlmem.config import run_hydra
from rlmem.config.arguments import MULTIRUN
from rlmem.config.quoting import override_key, override_of
from rlmem.config.run_directory import no_run, saved_config, saved_overrides
from rlmem.errors import UserError, file_error, printable
from rlmem.machine import usable_cores
from rlmem.terminal import outlive_the_reader
from rlmem.units import several
from rlmem.version import __version__


def _train(cfg: Any) -> Any:
    from rlmem.runs.train import train

    outlive_the_reader()  # in the process of a launcher too
    return train(cfg)


def _evaluate(cfg: Any) -> None:
    from rlmem.runs.evaluate import evaluate

    evaluate(cfg)


def spin_briefly() -> None:
    """Let OpenMP's threads sleep once they have waited some ten microseconds for each other, so
    that runs side by side do not spin each other's time away; before torch is imported. What the
    environment says already stands."""
    if "torch" not in sys.modules:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def repeat_overrides(argv: list[str]) -> list[str]:
    """Complete `resume=<run directory>` by the overrides that the run had last.

    Hydra then composes the run's own configuration, and its folder is the run's: it makes no
    other. Overrides given again replace the saved ones.

    Raises:
        UserError: there is no run, or the directory says more than what a run of its own would, or
            the command names several runs or another directory.
    """
    given = {override_key(a): a.partition("=")[2] for a in argv if not a.startswith("-")}
    resume = given.get("resume", "")
    if resume in ("", "null", "auto"):
        return argv
    name = resume.strip("'\"")
    if resume == name and re.search(r",|^(range|glob|choice)\(", name):
        raise UserError(
            f"resume={resume}: one run a command; a name with a comma is quoted: "
            f"resume='\"{name}\"'"
        )
    if any(a in MULTIRUN for a in argv):
        raise UserError(f"resume={resume}: goes on with one run; leave -m out")
    if "hydra.run.dir" in given:
        raise UserError(
            f"hydra.run.dir={given['hydra.run.dir']}: resume={resume} goes on in its own "
            "directory; leave hydra.run.dir out"
        )
    saved = saved_overrides(Path(name), given)
    if saved is None:
        if saved_config(Path(name)) is None:
            raise no_run(Path(name), f"resume={resume}")
        raise UserError(f"resume={resume}: its overrides.yaml is missing; put it back as it was")
    own = [override_of("hydra.run.dir", name), *saved]
    return own + [override_of("resume", name) if override_key(a) == "resume" else a for a in argv]


def study_main() -> None:
    """`python study.py NAME` and `rlmem-study`."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="study",
        description="Run the runs of a study that are missing, and report on all of them. If it is "
        "stopped, the same command goes on.",
    )
    parser.add_argument("name", help="a folder with a study.yaml, or its name in studies/")
    parser.add_argument("--version", action="version", version=f"rlmem {__version__}")
    parser.add_argument("--only", default="", help="columns to run, such as CartPole,Acrobot")
    parser.add_argument("--jobs", type=int, default=usable_cores(), help="runs at once")
    parser.add_argument("--report", action="store_true", help="run nothing, only report")
    args = parser.parse_args()
    if args.jobs < 1:
        parser.error(f"--jobs {args.jobs}: must be at least 1; --report runs nothing")
    sys.exit(_study(args.name, args.only, 0 if args.report else args.jobs))


def _study(name: str, only: str, workers: int) -> int:
    given = Path(name).parent if Path(name).name == "study.yaml" else Path(name)
    folder = given if given.is_dir() or len(given.parts) > 1 else Path("studies") / name
    chosen = [part for part in only.split(",") if part]
    try:
        from rlmem.runs.study import outdated, record, report_study, run_study
        from rlmem.runs.study_code import load_code
        from rlmem.runs.study_file import Study, read_definition

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
            again = f"; to run those in {folder}/runs again, remove them" if workers else ""
            print(f"warning: {line}{again}")
        failed = run_study(study, columns, workers) if workers else []
        for job, error in failed:
            print(printable(f"failed: {job.name}: {error} ({job.folder}/log.txt)"), file=sys.stderr)
        report = report_study(study)
        recorded, damaged = record(study)
    except UserError as error:
        print(f"rlmem: {printable(str(error))}", file=sys.stderr)
        return 2
    except OSError as error:  # of the report, or of what is recorded
        why = printable(file_error(error, folder))
        print(f"rlmem: {why}; the same command goes on", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, SystemExit):
        print("rlmem: interrupted; the same command goes on", file=sys.stderr)
        return 130
    if report:
        print(f"{several(recorded, 'finished run')}, recorded in {folder}/results.csv and runs.npz")
        print(f"written: {folder}/report/index.html, tables and figures/")
    else:
        print(f"nothing to report: {folder}/runs holds no run, and there is no runs.npz")
    return 1 if failed or damaged else 0


def train_main() -> None:
    """`python train.py` and `rlmem-train`."""
    spin_briefly()
    outlive_the_reader()
    try:
        argv = repeat_overrides(sys.argv[1:])
    except UserError as error:
        print(f"rlmem: {printable(str(error))}", file=sys.stderr)
        sys.exit(2)
    sys.exit(run_hydra(_train, "train", argv))


def evaluate_main() -> None:
    """`python evaluate.py` and `rlmem-evaluate`."""
    spin_briefly()
    outlive_the_reader()
    sys.exit(run_hydra(_evaluate, "evaluate"))
