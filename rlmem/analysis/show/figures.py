"""The figures of a report, drawn with matplotlib. Artists have their setting's number as SVG id."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from rlmem.analysis.compare.settings import FEW_SEEDS, Setting
from rlmem.analysis.compare.statistics import (
    Estimate,
    pareto_frontier,
    performance_profile,
    probability_of_improvement,
)
from rlmem.analysis.read.runs import OVER_RUN
from rlmem.drawing import STYLE, figure
from rlmem.units import readable_bytes

MIB = 2**20
MOST_IN_LEGEND = 12  # settings; with more, neither legend nor bands could be read
LONGEST = 60  # characters of a label
MOST_COMPARED, MOST_WITH_BOUNDS = 24, 12


def legend(drawn: Figure, axes: Axes) -> None:
    """Below the figure, in as many columns as there is room for; none for one or too many."""
    handles: list[Any] = list(axes.containers) or [
        line for line in axes.lines if not str(line.get_label()).startswith("_")
    ]
    labels = [str(handle.get_label()) for handle in handles]
    if 1 < len(labels) <= MOST_IN_LEGEND:
        room = int(drawn.get_figwidth() * 16 / (max(map(len, labels)) + 7))
        drawn.legend(handles, labels, loc="outside lower center", ncols=max(1, min(4, room)))


def short(label: str) -> str:
    """A label as figures show it. matplotlib leaves out what begins with an underscore."""
    label = label if len(label) <= LONGEST else f"{label[: LONGEST - 3]}..."
    return f" {label}" if label.startswith("_") else label


def _uncounted(settings: Sequence[Setting]) -> str:
    """For the title of a figure without a legend."""
    return (
        ""
        if len(settings) <= MOST_IN_LEGEND
        else f"; {len(settings)} settings, colours as on the page"
    )


@rc_context(STYLE)
def curves(settings: Sequence[Setting]) -> Figure | None:
    """Return over env steps, seconds and, if they are others, frames; bytes over env steps.

    None where no run has a curve.
    """
    if not any(len(run.curves["env_steps"]) for setting in settings for run in setting.runs):
        return None
    panels = [
        ("train_return_mean", "env_steps", "env steps", 1),
        ("train_return_mean", "seconds", "seconds", 1),
        ("memory_bytes", "env_steps", "env steps", MIB),
    ]
    if several := _several_frames_a_step(settings):
        panels.insert(2, ("train_return_mean", "frames", "frames", 1))
    drawn, axes = figure(11, 6.4, 2, 2) if several else figure(13, 3.7, 1, 3)
    for at, (column, over, xlabel, unit) in zip(axes.flat, panels, strict=True):
        for setting in settings:
            x, value, low, high = setting.curve(column, over)
            if not len(x):
                continue
            at.plot(
                x,
                value / unit,
                color=setting.colour,
                label=short(setting.label),
                gid=identity(setting, "line", at),
            )
            if len(settings) > MOST_IN_LEGEND:
                continue
            if setting.few:
                for k, seed in enumerate(setting.seed_curves(column, over)[1]):
                    at.plot(x, seed / unit, color=setting.colour, linewidth=0.6, alpha=0.6,
                            gid=identity(setting, f"seed{k}", at))  # fmt: skip
            elif np.isfinite(low).any():
                band = at.fill_between(x, low / unit, high / unit, color=setting.colour, alpha=0.18,
                                       linewidth=0)  # fmt: skip
                band.set_gid(identity(setting, "band", at))
        at.locator_params(axis="x", nbins=6)  # long numbers beside each other
        at.set(xlabel=xlabel, ylabel="return" if unit == 1 else "memory [MiB]")
        if unit != 1:
            at.set_ylim(0, None)
        if at is axes[0, 0]:
            at.set_title(
                f"last 100 training episodes; mean over seeds{_spread(settings)}"
                f"{_uncounted(settings)}"
            )
    legend(drawn, axes[0, 0])
    return drawn


def _spread(settings: Sequence[Setting]) -> str:
    """What stands around the means, for the title."""
    if len(settings) > MOST_IN_LEGEND:
        return ""
    few = {setting.few for setting in settings if len(setting.runs) > 1}
    bands = f"95 % intervals{f' (from {FEW_SEEDS} seeds on)' if len(few) > 1 else ''}"
    return "" if not few else ", each thin" if few == {True} else f", {bands}"


def _several_frames_a_step(settings: Sequence[Setting]) -> bool:
    """Whether a run's frames are not its env steps."""
    found = [run.curves for setting in settings for run in setting.runs]
    return any((curve["frames"] > curve["env_steps"]).any() for curve in found)


def identity(setting: Setting, what: str, axes: Axes) -> str:
    """An SVG id that is unique in its figure; the page puts the figure's name before it."""
    return f"c{setting.number}-{what}-{list(axes.figure.axes).index(axes)}"


@rc_context(STYLE)
def return_against_bytes(settings: Sequence[Setting]) -> Figure | None:
    """Final return, and that over the run, over peak bytes with Pareto frontiers.

    None without a point; a panel where there are learning curves for the second. The shape of a
    point is its memory's; points of the frontier are larger.
    """
    held = [setting for setting in settings if np.isfinite(setting.mean("memory_bytes_peak"))]
    final = [(c, c.return_mean) for c in held if c.return_mean]
    over_run = [(c, c.return_over_run) for c in held if c.return_over_run]
    panels = [
        (_return_name(settings), settings[0].metric, final),
        ("return over the run", OVER_RUN, over_run),
    ]
    panels = [panel for panel in panels if panel[-1]]
    if not panels:
        return None
    drawn, axes = figure(3 + 4 * len(panels), 4.8, 1, len(panels))
    for at, (name, metric, points) in zip(axes[0], panels, strict=True):
        _frontier(at, points, metric)
        at.set(xlabel="memory held at most", ylabel=name)
    legend(drawn, axes[0, 0])
    note = f"grey: frontier (no other point has more return with fewer bytes){_uncounted(settings)}"
    drawn.suptitle(note, size=STYLE["axes.titlesize"])
    return drawn


def _frontier(at: Axes, points: Sequence[tuple[Setting, Estimate]], metric: str) -> None:
    """Points of settings over their bytes, and the line of those that no other beats; with their
    intervals, or, of few seeds, with the seeds' own values of the metric."""
    cost = np.array([setting.mean("memory_bytes_peak") for setting, _ in points])
    gain = np.array([estimate.value for _, estimate in points])
    best = pareto_frontier(cost, gain)
    edge = [*cost[best], cost.max()], [*gain[best], gain[best][-1]]
    at.step(*edge, where="post", color="0.6", linewidth=1, zorder=0)
    memories = dict.fromkeys(setting.memory for setting, _ in points)
    shapes = dict(zip(memories, itertools.cycle("osD^vPX*<>")))
    for k, (setting, estimate) in enumerate(points):
        if setting.few:
            held, gained = setting.values("memory_bytes_peak"), setting.values(metric)
            if len(held) == len(gained) > 1:
                at.plot(held, gained, shapes[setting.memory], color=setting.colour, markersize=3,
                        alpha=0.5, mew=0, gid=identity(setting, "seeds", at))  # fmt: skip
        at.errorbar(
            cost[k],
            estimate.value,
            None if setting.few else _errors(estimate),
            marker=shapes[setting.memory],
            markersize=9 if k in best else 5,
            color=setting.colour,
            capsize=2,
            gid=identity(setting, "point", at),
            label=short(setting.label),
        )
    if len(points) > MOST_IN_LEGEND:
        for k, up in zip(best, itertools.cycle((4, -10))):  # neighbours may be near
            side, away = ("left", 6) if cost[k] ** 2 < cost.min() * cost.max() else ("right", -6)
            at.annotate(short(points[k][0].label), (cost[k], gain[k]), xytext=(away, up), size=7,
                        ha=side, textcoords="offset points")  # fmt: skip
    if cost.min() > 0 and cost.max() / cost.min() > 4:
        at.set_xscale("log", base=2)
        at.xaxis.set_minor_formatter(NullFormatter())
    else:
        at.locator_params(axis="x", nbins=5)
    at.xaxis.set_major_formatter(lambda size, _: readable_bytes(size).replace(".0 ", " "))
    at.margins(x=0.08)


def _return_name(settings: Sequence[Setting]) -> str:
    trained = settings[0].metric == "train_return_mean"
    return "return, last 100 training episodes" if trained else "return of the final evaluation"


def _errors(estimate: Estimate) -> list[list[float]] | None:
    if estimate.low is None or estimate.high is None:
        return None
    return [[max(0.0, estimate.value - estimate.low)], [max(0.0, estimate.high - estimate.value)]]


@rc_context(STYLE)
def improvement(by_method: dict[str, dict[str, Setting]]) -> Figure | None:
    """Probability that the row's memory scores above the column's, over their common tasks."""
    names = list(by_method)
    if not 2 <= len(names) <= MOST_COMPARED:
        return None
    table = np.full((len(names), len(names)), np.nan)
    texts = [["" for _ in names] for _ in names]
    for i, one in enumerate(names):
        for j, other in enumerate(names):
            tasks = [t for t in by_method[one] if t in by_method[other]]
            pairs = [(by_method[one][t].returns, by_method[other][t].returns) for t in tasks]
            pairs = [(a, b) for a, b in pairs if len(a) and len(b)]
            if i == j or not pairs:
                continue
            p = probability_of_improvement([a for a, _ in pairs], [b for _, b in pairs])
            table[i, j] = p.value
            texts[i][j] = f"{p.value:.2f}"
            bounds = p.low is not None and p.high is not None and p.low < p.high
            if len(names) <= MOST_WITH_BOUNDS and bounds:
                texts[i][j] += f"\n{p.low:.2f}-{p.high:.2f}"
    if not np.isfinite(table).any():
        return None
    drawn, axes = figure(3 + 0.8 * len(names), 1.8 + 0.5 * len(names))
    at = axes[0, 0]
    at.grid(False)
    at.imshow(table, cmap="RdBu", vmin=0, vmax=1, aspect="auto")
    shown = [short(name) for name in names]
    at.set_xticks(range(len(names)), shown, rotation=35, ha="right")
    at.set_yticks(range(len(names)), shown)
    for (i, j), p in np.ndenumerate(table):
        ink = "w" if abs(p - 0.5) > 0.3 else "k"
        at.text(j, i, texts[i][j], ha="center", va="center", size=7, color=ink)
    at.set_title("P(row above column), 95 % interval")
    return drawn


@rc_context(STYLE)
def profiles(scores: dict[str, list[np.ndarray]]) -> Figure | None:
    """Share of runs above a human-normalised score, for methods with at least two games.

    Args:
        scores: method -> for each game the scores of its runs.
    """
    shown = {name: tasks for name, tasks in scores.items() if len(tasks) >= 2}
    if not shown:
        return None
    highest = max(float(task.max()) for tasks in shown.values() for task in tasks)
    lowest = min(0.0, *(float(task.min()) for tasks in shown.values() for task in tasks))
    taus = np.linspace(lowest, max(highest, 0.01) * 1.05, 101)
    drawn, axes = figure(7.2, 4)
    at = axes[0, 0]
    for number, (name, tasks) in enumerate(shown.items()):
        share, low, high = performance_profile(tasks, taus)
        at.plot(taus, share, label=f"{short(name)} ({len(tasks)} games)", color=f"C{number}")
        at.fill_between(taus, low, high, color=f"C{number}", alpha=0.18, linewidth=0)
    at.set(xlabel="human-normalised score", ylabel="share of runs above it", ylim=(0, 1.02))
    legend(drawn, at)
    return drawn


@rc_context(STYLE)
def times(settings: Sequence[Setting]) -> Figure | None:
    """Microseconds of the memory: to insert an env step, to draw a minibatch."""
    columns = ("insert_us", "insert, us an env step"), ("sample_us", "sample, us a minibatch")
    values = {name: [setting.mean(name) for setting in settings] for name, _ in columns}
    rows = [k for k in range(len(settings)) if any(np.isfinite(v[k]) for v in values.values())][:40]
    if not rows:
        return None
    drawn, axes = figure(9, 1.2 + 0.28 * len(rows), 1, 2)
    for at, (name, title) in zip(axes[0], columns, strict=True):
        for place, k in enumerate(rows):
            if np.isfinite(value := values[name][k]):
                bar = at.barh(place, value, color=settings[k].colour)
                bar.patches[0].set_gid(identity(settings[k], "bar", at))
                at.text(value, place, f" {value:,.0f}", va="center", size=7)
        first = at is axes[0, 0]
        at.set_yticks(range(len(rows)), [short(settings[k].label) for k in rows] if first else [])
        at.invert_yaxis()
        at.set_title(title)
        at.margins(x=0.15)
    return drawn
