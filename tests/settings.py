"""Settings as the command line would make them."""

from functools import cache

from omegaconf import DictConfig

from rlmem.config import check, check_evaluate, compose
from rlmem.config.schema import EvaluateSettings, TrainSettings

# What a test's folders are in, set behind the composition: no other key follows them.
OUTPUT, RESUME = "paths.output_dir=", "resume=/"


def _compose(overrides: tuple[str, ...]) -> tuple[DictConfig, str | None]:
    """A configuration, and what it goes on with where nothing is set behind it."""
    config = compose("train", overrides)
    return config, config.resume


_composed = cache(_compose)


def settings(*overrides: str) -> TrainSettings:
    """What `python train.py <overrides>` trains with, checked.

    Most of the time goes into composing, so the same overrides are composed once; those that name
    plugins mean what is registered at the time.
    """
    given = tuple(o for o in overrides if not o.startswith((OUTPUT, RESUME)))
    fresh = any(o.startswith("plugins=") for o in overrides)
    config, resume = (_compose if fresh else _composed)(given)
    paths = dict(o.split("=", 1) for o in overrides if o not in given)
    config.paths.output_dir = paths.get("paths.output_dir", ".")
    config.resume = paths.get("resume", resume)
    return check(config)


def evaluate_settings(*overrides: str) -> EvaluateSettings:
    """What `python evaluate.py <overrides>` reads, checked."""
    return check_evaluate(compose("evaluate", overrides))
