"""The constants of GWR-R and the ranges in which it is defined."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rlmem.errors import UserError

_GIVEN = {
    **dict.fromkeys(("activation_threshold", "habituation_threshold", "eps_b", "eps_n"), float),
    **dict.fromkeys(("tau_b", "tau_n", "kappa", "context_beta", "phi", "gamma"), float),
    **dict.fromkeys(("max_age", "n_step"), int),
    "links": bool,
}


class Rule(NamedTuple):
    """The constants of GWR-R as the kernels take them."""

    activation_threshold: float
    habituation_threshold: float
    eps_b: float
    eps_n: float
    tau_b: float
    tau_n: float
    kappa: float
    max_age: int
    context_beta: float
    phi: float
    n_step: int
    gamma: float
    seed: int
    alphas: np.ndarray  # float64 [K + 1], weights of the observation and of the contexts
    scale: float  # divisor of distances
    moving: bool  # prototypes are moving averages; else the first observation stays
    links: bool  # nodes are linked: neighbours adapt, old links and lonely nodes go
    node_terminals: bool  # terminations are kept with nodes, actions of one edge merged
    joined: bool  # time limits join episodes, contexts go on over resets
    evict: bool  # a full map lets go of the node that has gone longest without a visit


def make_rule(values: Mapping[str, Any]) -> Rule:
    """The rule of a writer that has no storage yet.

    Args:
        values: the arguments of `GWRWriter` by name.
    """
    given = {name: kind(values[name]) for name, kind in _GIVEN.items()}
    return Rule(
        **given,
        seed=int(values["seed"]) & 0xFFFFFFFF,
        alphas=np.ones(1),
        scale=1.0,
        moving=True,
        node_terminals=False,
        joined=bool(values["joined"]),
        evict=False,
    )


def check_constants(values: Mapping[str, Any]) -> None:
    """Refuse settings with which GWR-R is not defined.

    Args:
        values: the arguments of `GWRWriter` by name.

    Raises:
        UserError: one is out of its range.
    """
    for name in ("activation_threshold", "habituation_threshold"):
        if not 0.0 < values[name] <= 1.0:
            key = f"threshold.{name.removesuffix('_threshold')}"
            raise UserError(f"{key}={values[name]}: give a number above 0 and up to 1")
    for name in ("eps_b", "eps_n", "context_beta", "phi", "gamma"):
        if not 0.0 <= values[name] <= 1.0:
            raise UserError(f"memory.{name}={values[name]}: give a number from 0 to 1")
    for name in ("tau_b", "tau_n"):
        if not 0.0 < values[name] * values["kappa"] <= 1.0 or values["kappa"] <= 1.0:
            raise UserError(
                f"memory.{name}={values[name]}, memory.kappa={values['kappa']}: habituation falls "
                "to 1 - 1 / kappa for kappa above 1 and tau * kappa above 0 and up to 1"
            )
    for name, most in (("max_age", None), ("stack", None), ("num_envs", None), ("n_step", 255)):
        if values[name] < 1 or (most and values[name] > most):
            key = {"n_step": "agent.n_step", "num_envs": "env.num_envs"}.get(name, f"memory.{name}")
            raise UserError(f"{key}={values[name]}: give 1 to {most or 'any number'}")
    if values["scale_samples"] < 2:
        raise UserError(f"memory.metric.scale_samples={values['scale_samples']}: give at least 2")
    scale = values["metric_scale"]
    if scale != "auto" and (isinstance(scale, str) or not scale > 0.0):
        raise UserError(f"memory.metric.scale={scale}: give auto or a number above 0")
