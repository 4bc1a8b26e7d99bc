"""What a run is worth to a search over hyper-parameters: one class an objective."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf

from rlmem import registry
from rlmem.errors import UserError
from rlmem.registry import part
from rlmem.settings import Settings, setting
from rlmem.units import parse_bytes


@dataclass
class ObjectiveSettings(Settings):
    """The keys of every objective."""

    budget: Any = setting(None, free=True)


@part("objective", "eval_return", settings=ObjectiveSettings)
class EvalReturn:
    """The final evaluation's mean return."""

    directions: Any = "maximize"

    def __init__(self, settings: ObjectiveSettings) -> None:
        self.settings = settings

    @classmethod
    def check(cls, settings: ObjectiveSettings, run: Any) -> None:
        """Only one objective reads a budget.

        Raises:
            UserError: there is one.
        """
        if settings.budget is not None:
            raise UserError(
                f"objective.budget={settings.budget}: only objective=return_at_budget reads it; to "
                f"hold a memory at so many bytes use memory.budget={settings.budget}"
            )

    def value(self, summary: Mapping[str, Any]) -> Any:
        """The number, or the pair of numbers, of a finished run's summary."""
        return summary.get("eval_return_mean")


@part("objective", "return_and_bytes", settings=ObjectiveSettings)
class ReturnAndBytes(EvalReturn):
    """A high final evaluation return and a small peak of the memory's bytes."""

    directions: Any = ("maximize", "minimize")

    def value(self, summary: Mapping[str, Any]) -> Any:
        return summary.get("eval_return_mean"), summary.get("memory_bytes_peak")


@part("objective", "return_at_budget", settings=ObjectiveSettings)
class ReturnAtBudget(EvalReturn):
    """The final evaluation's mean return, -inf for a run whose memory peaked above the budget."""

    @classmethod
    def check(cls, settings: ObjectiveSettings, run: Any) -> None:
        """The budget is a size.

        Raises:
            UserError: it is none.
        """
        if settings.budget is None:
            raise UserError("objective.budget is not set; give it, such as objective.budget=64MiB")
        try:
            parse_bytes(settings.budget)
        except ValueError as error:
            raise UserError(f"objective.budget={error}") from None

    def value(self, summary: Mapping[str, Any]) -> Any:
        over = summary.get("memory_bytes_peak", math.inf) > parse_bytes(self.settings.budget)
        return -math.inf if over else summary.get("eval_return_mean")


def _directions(kind: str) -> Any:
    """Which way a sweeper is to go; the resolver `rlmem.directions`."""
    asked = registry.find("objective", kind, "objective.kind").cls.directions
    return asked if isinstance(asked, str) else list(asked)


def register() -> None:
    """Make the resolver known."""
    OmegaConf.register_new_resolver("rlmem.directions", _directions, replace=True)
