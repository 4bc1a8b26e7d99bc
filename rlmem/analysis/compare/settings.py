"""Grouping runs into settings: one environment, one setting, several seeds."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from rlmem.analysis.compare.looks import Look, look, slots
from rlmem.analysis.compare.names import distinctions, make_label
from rlmem.analysis.compare.statistics import (
    Estimate,
    Statistic,
    are_alike,
    curve_estimate,
    row_iqm,
    row_mean,
    stratified_bootstrap,
)
from rlmem.analysis.read.collection import LATE
from rlmem.analysis.read.curves import OVER_RUN
from rlmem.analysis.read.runs import SUCCESS, Run
from rlmem.units import parse_bytes

THRESHOLDS = "threshold.activation", "threshold.habituation"
POINTS = 50  # of a mean curve
FEW_SEEDS = 5  # below it a figure shows the seeds: an interval of two can leave what is possible


@dataclass
class Setting:
    """The runs of one setting on one environment.

    Attributes:
        number: unique in a report.
        look: of its label: the colour is its memory's.
        distinct: key -> value of what sets it apart from the environment's other settings.
        metric: what a run's return is: `eval_return_mean`, the final evaluation's, or
            `train_return_mean`, of the last training episodes; one for an environment.
        peers: all settings of the environment.
    """

    number: int
    env_id: str
    memory: str
    label: str
    distinct: dict[str, Any]
    runs: list[Run]
    metric: str = "eval_return_mean"
    peers: list["Setting"] = field(default_factory=list, repr=False)
    look: Look = field(default_factory=lambda: look(0, 0))

    @property
    def colour(self) -> str:
        """Of its curves, as #rrggbb."""
        return self.look.colour

    @property
    def external(self) -> bool:
        """Whether its runs are of another program."""
        return self.runs[0].external is not None

    @cached_property
    def finished(self) -> list[Run]:
        """The runs that count."""
        return [run for run in self.runs if run.status == "finished"]

    def values(self, name: str) -> np.ndarray:
        """A number of the finished runs that have it, float64 [n]."""
        values = np.array([run.number(name) for run in self.finished], np.float64)
        return values[~np.isnan(values)]

    def by_seed(self, name: str) -> dict[int, float] | None:
        """A number of the finished runs that have it by seed; None where a seed is there twice."""
        known = [run for run in self.finished if np.isfinite(run.number(name))]
        found = {run.seed: run.number(name) for run in known}
        return found if len(found) == len(known) else None

    def has_bounds(self, name: str) -> bool:
        """Whether a number has an interval: FEW_SEEDS seeds have it, and none of them twice, as
        such runs may be one run, made again."""
        found = self.by_seed(name)
        return found is not None and len(found) >= FEW_SEEDS

    def seeds_of(self, name: str) -> set[int]:
        """Of the finished runs that have a number."""
        return {run.seed for run in self.finished if np.isfinite(run.number(name))}

    def reached(self, name: str) -> tuple[float, float]:
        """Lowest and highest value of a number in any finished run of the environment.

        Below the lowest nothing was seen, and it may be impossible: intervals end there.
        """
        values = np.concatenate([peer.values(name) for peer in self.peers or [self]])
        return float(values.min()), float(values.max())

    def mean(self, name: str) -> float:
        """Mean of a number over the finished runs, NaN if none has it."""
        values = self.values(name)
        return float(values.mean()) if len(values) else float("nan")

    def estimate(self, name: str, statistic: Statistic = row_mean) -> Estimate | None:
        """A number's mean over the finished runs with its interval, None if none has it; without
        bounds where it `has_bounds` not: cut at what was reached they would hold too little."""
        values = self.values(name)
        if not len(values):
            return None
        estimate = stratified_bootstrap([values], statistic, widen=True)
        # Of runs that are alike an interval would have no length, and look like certainty.
        if not self.has_bounds(name) or are_alike(values):
            return Estimate(estimate.value, None, None, estimate.n)
        return estimate.within(*self.reached(name))

    @cached_property
    def returns(self) -> np.ndarray:
        """Final return of each finished run, float64 [n]."""
        return self.values(self.metric)

    @cached_property
    def return_mean(self) -> Estimate | None:
        return self.estimate(self.metric)

    @cached_property
    def return_iqm(self) -> Estimate | None:
        return self.estimate(self.metric, row_iqm)

    @cached_property
    def return_over_run(self) -> Estimate | None:
        return self.estimate(OVER_RUN)

    @property
    def compared(self) -> Estimate | None:
        """The return that figures and sentences compare: over the run where all finished runs of
        the environment have it and no other program's curve begins late, which would leave out
        what it had not learned yet; elsewhere the final one."""
        return self.return_over_run if self.compares == OVER_RUN else self.return_mean

    @cached_property
    def compares(self) -> str:
        """The number that `compared` is the mean of."""
        ended = [peer for peer in self.peers or [self] if peer.finished]
        known = all(len(peer.values(OVER_RUN)) == len(peer.finished) for peer in ended)
        return OVER_RUN if ended and known and _begin_alike(ended) else self.metric

    @cached_property
    def success_mean(self) -> Estimate | None:
        """Share of the final evaluation's episodes that came to their goal, if there are goals."""
        return self.estimate(SUCCESS)

    @property
    def few(self) -> bool:
        """Whether it has so few seeds that a figure shows them, and no interval."""
        return len(self.seeds) < FEW_SEEDS

    @property
    def seeds(self) -> set[int]:
        """Of its finished runs; a setting without any has those of the others."""
        return {run.seed for run in self.finished or self.runs}

    def curve(
        self, column: str, over: str = "env_steps"
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Mean curve over the seeds: x, value, and the bounds of the 95 % interval, each [POINTS].

        Below FEW_SEEDS curves, or where a seed is there twice, the bounds are NaN.
        """
        x, table = self.seed_curves(column, over)
        if not len(x):
            return x, x, x, x
        value, low, high = curve_estimate(table, row_mean, widen=True)
        if len(table) < FEW_SEEDS or len(self.seeds) < len(self.finished or self.runs):
            low, high = np.full_like(value, np.nan), np.full_like(value, np.nan)
        known = [run.curves[column] for peer in self.peers or [self] for run in peer.runs]
        least, most = np.nanmin(np.concatenate(known)), np.nanmax(np.concatenate(known))
        return x, value, np.clip(low, least, most), np.clip(high, least, most)

    def seed_curves(self, column: str, over: str = "env_steps") -> tuple[np.ndarray, np.ndarray]:
        """The curve of each seed: x [POINTS], value [seeds, POINTS]; both empty without one.

        They span what all its runs have, so that no run's end makes a step.
        """
        lines = self.seed_lines(column, over)
        first = max((x[0] for x, _ in lines), default=0.0)
        last = min((x[-1] for x, _ in lines), default=-1.0)
        if first > last:
            return np.empty(0), np.empty((0, 0))
        x = np.linspace(first, last, POINTS)
        return x, np.stack([np.interp(x, a, b) for a, b in lines])

    def seed_lines(self, column: str, over: str) -> list[tuple[np.ndarray, np.ndarray]]:
        """The curve of each seed as it was recorded, x and value, of those that have one.

        They are of the finished runs; a setting without any shows the others.
        """
        lines = []
        for run in self.finished or self.runs:
            known = np.isfinite(run.curves[column]) & np.isfinite(run.curves[over])
            if known.any():
                lines.append((run.curves[over][known], run.curves[column][known]))
        return lines


def _begin_alike(settings: Sequence[Setting]) -> bool:
    """Whether no curve of another program begins later than a run's, by more than LATE of it."""
    runs = [run for setting in settings for run in setting.finished if run.begins == run.begins]
    late = [run.begins for run in runs if run.external is not None]
    return not late or max(late) - min(run.begins for run in runs) <= LATE


def any_goals(settings: Sequence[Setting]) -> bool:
    """Whether an environment of theirs has goals, so that a report shows how many were reached."""
    return any(setting.success_mean for setting in settings)


def on_one_device(settings: Sequence[Setting]) -> bool:
    """Whether the runs that count learned on one device: times of several do not compare."""
    return len({run.device for setting in settings for run in setting.finished}) < 2


def make_settings(runs: Sequence[Run]) -> list[Setting]:
    """Settings of all environments, in the order of their names; each run is in one."""
    settings: list[Setting] = []
    for env_id in sorted({run.env_id for run in runs}, key=_by_number):
        settings += _settings_of([run for run in runs if run.env_id == env_id], len(settings))
    slot = slots(setting.memory for setting in settings)
    turns: dict[str, dict[str, int]] = defaultdict(dict)  # of a memory: label -> number
    for setting in settings:
        labels = turns[setting.memory]
        turn = labels.setdefault(setting.label, len(labels))
        setting.look = look(slot[setting.memory], turn)
    return settings


def _settings_of(runs: Sequence[Run], number: int) -> list[Setting]:
    """The settings of one environment."""
    groups: dict[tuple, list[tuple[Run, dict[str, Any]]]] = defaultdict(list)
    for run, distinct in zip(runs, distinctions(runs), strict=True):
        # A label that was given says by itself which runs belong together.
        values = [f"{key}={value}" for key, value in distinct.items()]
        parts = [run.label] if run.label else [run.memory, *values]
        groups[(run.external is not None, bool(run.label), *parts)].append((run, distinct))
    settings: list[Setting] = []
    for members in sorted(groups.values(), key=_order):
        first = members[0][1]
        distinct = {k: v for k, v in first.items() if all(d.get(k) == v for _, d in members)}
        here = sorted((run for run, _ in members), key=lambda run: run.seed)
        label = here[0].label or make_label(here[0].memory, distinct)
        taken = {setting.label for setting in settings}
        more = (f"{label} #{k}" for k in range(2, len(groups) + 2))
        names = chain([label, f"{label} ({here[0].folder.name})"], more)
        unique = next(name for name in names if name not in taken)
        place = number + len(settings)
        settings.append(Setting(place, runs[0].env_id, here[0].memory, unique, distinct, here))
    for setting in settings:
        setting.peers = settings
    # One measure for all: an evaluation is not set against the episodes of training.
    ended = [setting for setting in settings if setting.finished]
    if not all(len(setting.values("eval_return_mean")) for setting in ended):
        for setting in settings:
            setting.metric = "train_return_mean"
    return settings


def _order(members: list[tuple[Run, dict[str, Any]]]) -> tuple:
    run, distinct = members[0]
    values = [_natural(value) for _, value in sorted(distinct.items())]
    return (run.external is not None, run.memory, run.label or "", len(values), values)


def _natural(value: Any) -> tuple[int, float, str]:
    """Numbers and sizes by their size, then the rest by name."""
    if isinstance(value, int | float):
        return 0, value, ""
    try:
        return 0, parse_bytes(value), ""
    except ValueError:
        return 1, 0, str(value)


def _by_number(name: str) -> list[tuple[str, int]]:
    """A key that sorts names with numbers in them: `bits=5` before `bits=15`."""
    return [(text, int(part or 0)) for text, part in re.findall(r"(\D*)(\d*)", name)]
