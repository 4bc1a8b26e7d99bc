"""Entry points of the command line. What takes seconds to import is imported when it is needed."""

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


def train_main() -> None:
    """`python train.py` and `rlmem-train`."""
    sys.exit(run_hydra(_train, "train", repeat_overrides(sys.argv[1:])))


def evaluate_main() -> None:
    """`python evaluate.py` and `rlmem-evaluate`."""
    sys.exit(run_hydra(_evaluate, "evaluate"))
