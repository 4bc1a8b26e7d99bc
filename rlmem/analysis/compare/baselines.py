"""Settings against named baselines: what each gains in return, saves in bytes, costs in time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rlmem.analysis.compare.settings import FEW_SEEDS, Setting, on_one_device
from rlmem.analysis.compare.statistics import (
    Estimate,
    are_alike,
    difference_estimate,
    row_mean,
    stratified_bootstrap,
)
from rlmem.analysis.read.curves import OVER_RUN

RATIOS = {"bytes": "memory_bytes_peak", "entries": "memory_entries", "cpu_seconds": "cpu_seconds"}


@dataclass(frozen=True)
class Difference:
    """How much higher a number's mean is in one setting than in another.

    Attributes:
        estimate: without bounds below FEW_SEEDS seeds, and where all seeds differ by the same.
        seeds: the difference of each seed that has the number in both, in their order; empty where
            the runs of the two settings that ended do not have the same seeds, each once: then
            they are independent samples.
    """

    estimate: Estimate
    seeds: tuple[float, ...] = ()

    @property
    def paired(self) -> bool:
        return bool(self.seeds)


@dataclass(frozen=True)
class Comparison:
    """A setting against a baseline of the same environment."""

    setting: Setting
    baseline: Setting

    @cached_property
    def differences(self) -> dict[str, Difference | None]:
        """How much higher its mean return is: final, of the last 100 training episodes, over the
        run."""
        names = {
            "return": self.setting.metric,
            "last_training": "train_return_mean",
            "over_run": OVER_RUN,
        }
        return {kind: above(self.setting, self.baseline, name) for kind, name in names.items()}

    @property
    def paired(self) -> bool:
        """Whether its differences are of the same seeds."""
        found = self.differences["return"]
        return found is not None and found.paired

    @property
    def ratios(self) -> dict[str, float]:
        """Its bytes, entries and CPU seconds over the baseline's; NaN where runs lack them, and
        where seconds are of several devices."""
        return {kind: self._ratio(name) for kind, name in RATIOS.items()}

    def _ratio(self, name: str) -> float:
        both = self.setting, self.baseline
        if any(len(setting.values(name)) < len(setting.finished) for setting in both):
            return float("nan")
        if name == "cpu_seconds" and not on_one_device(both):
            return float("nan")
        ours, theirs = (setting.mean(name) for setting in both)
        return ours / theirs if theirs else float("nan")


def above(ours: Setting, theirs: Setting, name: str) -> Difference | None:
    """How much higher a number's mean is in one setting than in another; None without runs.

    Runs of the same seed share what the seed decides (first weights, the environment's chance), so
    where both settings have the same seeds the interval is that of the differences by seed, of the
    seeds that have the number in both. Runs of other programs share nothing with any.
    """
    one, other = ours.by_seed(name), theirs.by_seed(name)
    apart = ours.external or theirs.external
    if apart or one is None or other is None or ours.seeds != theirs.seeds:
        return _unpaired(ours, theirs, name)
    if not (common := sorted(one.keys() & other.keys())):
        return None
    found = np.array([one[seed] - other[seed] for seed in common])
    seeds = tuple(found.tolist())
    if len(found) < FEW_SEEDS or are_alike(found):
        return Difference(Estimate(float(found.mean()), None, None, len(found)), seeds)
    return Difference(_possible(stratified_bootstrap([found], row_mean, widen=True), ours, theirs,
                                name), seeds)  # fmt: skip


def between_means(ours: Setting, theirs: Setting, name: str) -> Difference | None:
    """The same for who names both means: not paired where a run lacks the number, as the means are
    then of other seeds than the pairs."""
    alike = ours.seeds_of(name) == theirs.seeds_of(name)
    return above(ours, theirs, name) if alike else _unpaired(ours, theirs, name)


def _unpaired(ours: Setting, theirs: Setting, name: str) -> Difference | None:
    one, other = ours.values(name), theirs.values(name)
    if not len(one) or not len(other):
        return None
    twice = None in (ours.by_seed(name), theirs.by_seed(name))
    alike = are_alike(one) and are_alike(
        other
    )  # an interval of no length would look like certainty
    if min(len(one), len(other)) < FEW_SEEDS or twice or alike:
        value = float(one.mean() - other.mean())
        return Difference(Estimate(value, None, None, len(one) + len(other)))
    estimate = difference_estimate([one], [other], row_mean, widen=True)
    return Difference(_possible(estimate, ours, theirs, name))


def _possible(estimate: Estimate, ours: Setting, theirs: Setting, name: str) -> Estimate:
    """The estimate with bounds between values that runs of the environment had."""
    lows, highs = zip(ours.reached(name), theirs.reached(name), strict=True)
    span = max(highs) - min(lows)
    return estimate.within(-span, span)


def compare(settings: Sequence[Setting], against: Mapping[str, Sequence[str]]) -> list[Comparison]:
    """Of each environment, the settings that were run against those of their baselines that were.

    Args:
        against: label of a setting -> labels of its baselines; the order of the lines.
    """
    by_name = {(setting.env_id, setting.label): setting for setting in settings if setting.finished}
    return [
        Comparison(by_name[env_id, label], by_name[env_id, baseline])
        for env_id in dict.fromkeys(setting.env_id for setting in settings)
        for label, baselines in against.items()
        for baseline in baselines
        if (env_id, label) in by_name and (env_id, baseline) in by_name
    ]
