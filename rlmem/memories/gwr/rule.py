"""The constants of GWR-R, the ranges in which it is defined, and how its kernels take them."""

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rlmem.errors import UserError
from rlmem.settings import Range, Settings, beside, fill, setting

_RANGES = {
    "activation_threshold": ("threshold.activation", Range(0, 1, above=True)),
    "habituation_threshold": ("threshold.habituation", Range(0, 1, above=True)),
    "num_envs": ("env.num_envs", Range(1)),
    "n_step": ("agent.n_step", Range(1, 255)),
    "gamma": ("agent.gamma", Range(0, 1)),
}


def _scale(value: Any) -> str | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = value == "auto" or (number and value in Range(0, above=True))
    return None if fits else "auto or a number above 0"


@dataclass(kw_only=True)
class MetricSettings(Settings):
    """The distance of the activity exp(-distance / scale).

    Attributes:
        scale: "auto": for images the median distance of random pairs among the first
            `scale_samples` observations, then frozen; 1 for vectors. Until it is known, the
            observations are kept as they are and their rows get the index -1.
        scale_samples: observations that "auto" looks at.
    """

    scale: Any = setting("auto", check=_scale)
    scale_samples: int = setting(
        1000, at_least=2, at_most=10**9, idle=lambda s: () if s.scale == "auto" else ("scale",)
    )


@dataclass(kw_only=True)
class RuleSettings(Settings):
    """The constants of GWR-R beside its two thresholds; the defaults are the paper's.

    Attributes:
        eps_b, eps_n: learning rates of the best-matching unit and its neighbours.
        tau_b, tau_n, kappa: how fast the two habituate, and how far: to 1 - 1 / kappa.
        max_age: links older than this go [steps of one of their nodes].
        context_beta: how far the contexts look back, in [0, 1].
        phi: share of the newest reward in an edge's reward, in [0, 1].
        links: False: nodes are not linked, so that neighbours do not adapt and nothing is pruned.
        episodes: "joined": time limits join two episodes and contexts go on over resets.
        metric: the scale of distances.
    """

    eps_b: float = setting(0.1, at_least=0, at_most=1)
    eps_n: float = setting(0.001, at_least=0, at_most=1)
    tau_b: float = setting(0.3, at_least=0, at_most=1)
    tau_n: float = setting(0.1, at_least=0, at_most=1, idle=beside(links=False))
    kappa: float = setting(1.05, at_least=1)
    max_age: int = setting(10, at_least=1, idle=beside(links=False))
    context_beta: float = setting(0.7, at_least=0, at_most=1)
    phi: float = setting(0.7, at_least=0, at_most=1)
    links: bool = setting(True)
    episodes: str = setting("apart", choices=("apart", "joined"))
    metric: MetricSettings = field(default_factory=MetricSettings)


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


def make_rule(settings: RuleSettings, seed: int, **given: float) -> Rule:
    """The rule of a writer that has no storage yet.

    Args:
        given: the two thresholds, n_step and gamma.
    """
    own: dict[str, Any] = {name: float(value) for name, value in given.items()}
    own["n_step"] = int(given["n_step"])
    own |= {name: getattr(settings, name) for name in Rule._fields if hasattr(settings, name)}
    return Rule(
        **own,
        seed=int(seed) & 0xFFFFFFFF,
        alphas=np.ones(1),
        scale=1.0,
        moving=True,
        node_terminals=False,
        joined=settings.episodes == "joined",
        evict=False,
    )


def checked(settings: RuleSettings, **given: float) -> RuleSettings:
    """A copy of the settings, checked.

    Args:
        given: what a writer is given beside them, by name.

    Raises:
        UserError: with one of them GWR-R is not defined.
    """
    for name, value in given.items():
        key, allowed = _RANGES[name]
        if value not in allowed:
            raise UserError(f"{key}={value}: must be {allowed}")
    own = fill(RuleSettings, asdict(settings), "memory", lenient=True)
    for name, tau in (("tau_b", own.tau_b), ("tau_n", own.tau_n)):
        if not 0.0 < tau * own.kappa <= 1.0 or own.kappa <= 1.0:
            raise UserError(
                f"memory.{name}={tau} memory.kappa={own.kappa}: memory.kappa must be above 1, and "
                f"memory.{name} * memory.kappa above 0 and at most 1; leave both out for the "
                "published ones"
            )
    return own
