"""Settings against named baselines: what each gains in return, saves in bytes, costs in time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlmem.analysis.compare.settings import Setting
from rlmem.analysis.compare.statistics import Estimate, difference_estimate, row_mean
from rlmem.analysis.read.runs import OVER_RUN

RATIOS = {"bytes": "memory_bytes_peak", "entries": "memory_entries", "cpu_seconds": "cpu_seconds"}


@dataclass(frozen=True)
class Comparison:
    """A setting against a baseline of the same environment."""

    setting: Setting
    baseline: Setting

    @property
    def differences(self) -> dict[str, Estimate | None]:
        """How much higher its mean return is: final, of the last 100 training episodes, over the
        run."""
        names = {
            "return": self.setting.metric,
            "last_training": "train_return_mean",
            "over_run": OVER_RUN,
        }
        return {kind: above(self.setting, self.baseline, name) for kind, name in names.items()}

    @property
    def ratios(self) -> dict[str, float]:
        """Its bytes, entries and CPU seconds over the baseline's; NaN where runs lack them."""
        return {kind: self._ratio(name) for kind, name in RATIOS.items()}

    def _ratio(self, name: str) -> float:
        both = self.setting, self.baseline
        if any(len(setting.values(name)) < len(setting.finished) for setting in both):
            return float("nan")
        ours, theirs = (setting.mean(name) for setting in both)
        return ours / theirs if theirs else float("nan")


def above(ours: Setting, theirs: Setting, name: str) -> Estimate | None:
    """How much higher a number's mean is in one setting than in another; None without runs."""
    one, other = ours.values(name), theirs.values(name)
    if not len(one) or not len(other):
        return None
    return difference_estimate([one], [other], row_mean, widen=True)


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
