"""Settings as the command line would make them."""

from functools import cache

from omegaconf import DictConfig

from rlmem.config import check, check_evaluate, compose
from rlmem.config.schema import EvaluateSettings, TrainSettings

OUTPUT = "paths.output_dir="
_composed = cache(compose)


def settings(*overrides: str) -> TrainSettings:
    """What `python train.py <overrides>` trains with, checked.

    Most of the time goes into composing, so the same overrides are composed once; those that name
    plugins mean what is registered at the time.
    """
    given = tuple(o for o in overrides if not o.startswith(OUTPUT))
    fresh = any(o.startswith("plugins=") for o in overrides)
    config: DictConfig = (compose if fresh else _composed)("train", given)
    config.paths.output_dir = next((o[len(OUTPUT) :] for o in overrides if o not in given), ".")
    return check(config)


def evaluate_settings(*overrides: str) -> EvaluateSettings:
    """What `python evaluate.py <overrides>` reads, checked."""
    return check_evaluate(compose("evaluate", overrides))
