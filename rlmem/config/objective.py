"""What a run is worth to a search over hyper-parameters."""

import math
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from rlmem.errors import UserError
from rlmem.units import parse_bytes

OBJECTIVES = ("eval_return", "return_at_budget", "return_and_bytes")


def check_objective(objective: Mapping[str, Any]) -> None:
    """Check that the budget is a size, where the objective has one.

    Raises:
        UserError: it is none.
    """
    budget = objective["budget"]
    if objective["kind"] != "return_at_budget":
        if budget is not None:
            raise UserError(
                f"objective.budget={budget}: only objective=return_at_budget reads it; to hold a "
                f"memory at so many bytes use memory.budget={budget}"
            )
        return
    if budget is None:
        raise UserError("objective.budget is not set; give it, such as objective.budget=64MiB")
    try:
        parse_bytes(budget)
    except ValueError as error:
        raise UserError(f"objective.budget={error}") from None


def objective_value(cfg: DictConfig, summary: Mapping[str, Any]) -> Any:
    """The number, or the pair of numbers, that a finished run returns to a sweeper."""
    score, size = summary["eval_return_mean"], summary["memory_bytes_peak"]
    if cfg.objective.kind == "return_and_bytes":
        return score, size
    if cfg.objective.kind == "return_at_budget" and size > parse_bytes(cfg.objective.budget):
        return -math.inf
    return score


def directions(kind: str) -> Any:
    """Which way a sweeper is to go; the resolver `rlmem.directions`."""
    return ["maximize", "minimize"] if kind == "return_and_bytes" else "maximize"


def register() -> None:
    """Make the resolver known."""
    OmegaConf.register_new_resolver("rlmem.directions", directions, replace=True)
