"""Settings as the command line would make them."""

from rlmem.config import check, check_evaluate, compose
from rlmem.config.schema import EvaluateSettings, TrainSettings


def settings(*overrides: str) -> TrainSettings:
    """What `python train.py <overrides>` trains with, checked."""
    return check(compose("train", overrides))


def evaluate_settings(*overrides: str) -> EvaluateSettings:
    """What `python evaluate.py <overrides>` reads, checked."""
    return check_evaluate(compose("evaluate", overrides))
