"""Entry points of the command line. What takes seconds to import is imported when it is needed."""

import sys
from typing import Any

from omegaconf import DictConfig

from rlmem.config import run_hydra


def _train(cfg: DictConfig) -> Any:
    from rlmem.jobs.train import train

    return train(cfg)


def _evaluate(cfg: DictConfig) -> None:
    from rlmem.jobs.evaluate import evaluate

    evaluate(cfg)


def train_main() -> None:
    """`python train.py` and `rlmem-train`."""
    sys.exit(run_hydra(_train, "train"))


def evaluate_main() -> None:
    """`python evaluate.py` and `rlmem-evaluate`."""
    sys.exit(run_hydra(_evaluate, "evaluate"))
