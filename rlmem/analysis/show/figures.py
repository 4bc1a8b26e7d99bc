"""The figures of a report, drawn with matplotlib. Artists have their setting's number as SVG id."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlmem.analysis.compare.looks import Look
from rlmem.analysis.compare.settings import FEW_SEEDS, Setting
from rlmem.analysis.compare.statistics import (
    Estimate,
    pareto_frontier,
    performance_profile,
    probability_of_improvement,
)
from rlmem.analysis.read.curves import OVER_RUN
from rlmem.analysis.show.panels import (
    GREY,
    MOST,
    ON_DARK,
    ON_LIGHT,
    PANEL,
    Named,
    bytes_axis,
    bytes_upward,
    identity,
    name_beside,
    no_sign_change,
    panel,
    plain_thousands,
    short,
)
from rlmem.drawing import STYLE, figure

MOST_COMPARED, MOST_WITH_BOUNDS = 24, 12
MOST_BARS = 40
MOST_APART = 100  # settings; of more the grey ones are one artist, which takes a tenth of the bytes


def in_colour(settings: Sequence[Setting], marked: Sequence[str] = ()) -> list[Setting]:
    """Those that a figure shows in colour: all, or of many the marked labels and those with the
    highest returns for their bytes, MOST in all."""
    if len(settings) <= MOST:
        return list(settings)
    chosen = [setting for setting in settings if setting.label in marked]
    cost = [setting.mean("memory_bytes_peak") for setting in settings]
    gain = [setting.compared.value if setting.compared else np.nan for setting in settings]
    best = [settings[k] for k in pareto_frontier(cost, gain)[::-1]]
    rest = sorted(settings, key=lambda s: -s.compared.value if s.compared else np.inf)
    for setting in [*best, *rest]:
        if len(chosen) < MOST and setting not in chosen:
            chosen.append(setting)
    return chosen


@rc_context(PANEL)
def curves(
    settings: Sequence[Setting],
    column: str = "train_return_mean",
    over: str = "env_steps",
    chosen: Sequence[Setting] | None = None,
) -> Figure | None:
    """A column of the runs' curves over another: the mean over the seeds.

    The chosen settings are in colour, the others grey; None: those of `in_colour`. Around the
    mean the 95 % interval, or of few seeds each seed, which stand alone where they share no span.
    None where no run has both.
    """
    chosen = in_colour(settings) if chosen is None else chosen
    drawn, at = panel(chosen)
    of_bytes = column == "memory_bytes"
    named: list[Named] = []
    grey: list[tuple[str, np.ndarray, np.ndarray]] = []
    for setting in settings:
        x, value, low, high = setting.curve(column, over)
        style, colored = setting.look, setting in chosen
        if not len(x):  # no span that all its runs have, such as of seconds: no mean
            lines = setting.seed_lines(column, over)
            for k, (x, value) in enumerate(lines):
                gid = identity(setting, f"seed{k}", at)
                if colored:
                    at.plot(x, value, color=style.colour, linestyle=style.dash, linewidth=0.7,
                            clip_on=False, gid=gid)  # fmt: skip
                else:
                    grey.append((gid, x, value))
            if lines and colored:
                named.append(Named(setting, lines[-1][1][-1]))
            continue
        gid = identity(setting, "line", at)
        if not colored:
            grey.append((gid, x, value))
            continue
        every = max(1, len(x) // 5)
        at.plot(x, value, color=style.colour, linestyle=style.dash, marker=style.mark,
                markevery=(every // 2, every), markersize=5, linewidth=1.8, clip_on=False,
                gid=gid)  # fmt: skip
        named.append(Named(setting, value[-1]))
        seeds = setting.seed_curves(column, over)[1]
        if setting.few or len(seeds) < FEW_SEEDS:
            for k, seed in enumerate(seeds):
                at.plot(x, seed, color=style.colour, linewidth=0.7, alpha=0.6, clip_on=False,
                        gid=identity(setting, f"seed{k}", at))  # fmt: skip
        elif not of_bytes and np.isfinite(low).any():
            band = at.fill_between(x, low, high, color=style.colour, alpha=0.15,
                                   linewidth=0)  # fmt: skip
            band.set_gid(identity(setting, "band", at))
    for gid, x, value in _together(grey, len(settings) > MOST_APART):
        at.plot(x, value, color=GREY, linewidth=0.7, alpha=0.6, gid=gid, zorder=1, clip_on=False)
    if not at.lines:
        return None
    at.set_xlim(left=0)
    plain_thousands(at, "x")
    at.set(xlabel="env steps" if over == "evaluated_at" else over.replace("_", " "))
    if of_bytes:
        bytes_upward(at)  # whose unit says what it is, and leaves no room for a name
    else:
        at.set_ylabel("return")
        no_sign_change(at)
        plain_thousands(at, "y")
    name_beside(at, named)
    return drawn


def _together(
    grey: list[tuple[str, np.ndarray, np.ndarray]], many: bool
) -> list[tuple[str | None, np.ndarray, np.ndarray]]:
    """Grey lines as they are, or as one that is broken between them, ten points of each."""
    if not many or not grey:
        return list(grey)

    def thinned(line: np.ndarray) -> np.ndarray:
        return np.concatenate([line[:: max(1, len(line) // 9)], line[-1:], [np.nan]])

    x = np.concatenate([thinned(x) for _, x, _ in grey])
    return [(None, x, np.concatenate([thinned(y) for _, _, y in grey]))]


def placed(settings: Sequence[Setting], metric: str) -> list[tuple[Setting, Estimate]]:
    """Those whose bytes and return are known, with the return: the points of a figure."""
    held = [setting for setting in settings if np.isfinite(setting.mean("memory_bytes_peak"))]
    return [(setting, found) for setting in held if (found := setting.estimate(metric))]


@rc_context(PANEL)
def return_against_bytes(
    settings: Sequence[Setting], metric: str, chosen: Sequence[Setting] | None = None
) -> Figure | None:
    """A return over the peak bytes, with the frontier dotted; None without a point.

    The chosen settings are in colour, the others grey; None: those of `in_colour`.
    """
    points = placed(settings, metric)
    if not points:
        return None
    chosen = in_colour(settings) if chosen is None else chosen
    drawn, at = panel(chosen)
    cost = np.array([setting.mean("memory_bytes_peak") for setting, _ in points])
    gain = np.array([estimate.value for _, estimate in points])
    if len(points) > 1:
        best = pareto_frontier(cost, gain)
        edge = [*cost[best], cost.max()], [*gain[best], gain[best][-1]]
        at.step(*edge, where="post", color=GREY, linewidth=0.9, linestyle=(0, (1, 2)), zorder=0)
    many = len(settings) > MOST_APART
    for (setting, estimate), x in zip(points, cost, strict=True):
        if setting in chosen or not many:
            _point(at, setting, estimate, x, metric, setting in chosen)
    if many:
        at.plot(cost, gain, "o", color=GREY, markersize=3, zorder=0, clip_on=False)
    bytes_axis(at, np.array(at.dataLim.intervalx))  # of seeds' own marks as well
    at.margins(x=0.1)
    no_sign_change(at)
    plain_thousands(at, "y")
    name = "return over the run" if metric == OVER_RUN else _return_name(settings)
    at.set(xlabel="bytes held at most", ylabel=name)
    values = [Named(setting, e.value) for setting, e in points if setting in chosen]
    name_beside(at, values)
    return drawn


def _point(
    at: Axes, setting: Setting, estimate: Estimate, x: float, metric: str, colored: bool
) -> None:
    """A setting's mean with its interval, or, of few seeds, with the seeds' own values."""
    style = setting.look
    colour = style.colour if colored else GREY
    if colored and estimate.low is None:
        runs = [(r.number("memory_bytes_peak"), r.number(metric)) for r in setting.finished]
        if len(runs) > 1:
            at.plot(*zip(*runs, strict=True), style.mark, color=colour, markersize=4.5, mew=0.9,
                    mfc="none", clip_on=False, gid=identity(setting, "seeds", at))  # fmt: skip
    parts = at.errorbar(
        x,
        estimate.value,
        _errors(estimate) if colored else None,
        marker=style.mark,
        linestyle="none",
        markersize=8 if colored else 4,
        color=colour,
        capsize=2,
        label=short(setting.label),
    )
    for k, part in enumerate(parts.get_children()):  # the mark, and of an interval bar and caps
        part.set(gid=identity(setting, f"point{k}", at), clip_on=False)


def _return_name(settings: Sequence[Setting]) -> str:
    trained = settings[0].metric == "train_return_mean"
    return "return, last 100 episodes" if trained else "final return"


def _errors(estimate: Estimate) -> list[list[float]] | None:
    if estimate.low is None or estimate.high is None:
        return None
    return [[max(0.0, estimate.value - estimate.low)], [max(0.0, estimate.high - estimate.value)]]


@rc_context(STYLE)
def improvement(by_method: dict[str, dict[str, Setting]]) -> Figure | None:
    """Probability that the row's memory scores above the column's, over their common tasks.

    Where these are fewer than FEW_SEEDS runs, nothing is said: it would be 0 or 1 by chance. Bounds
    are given where each setting has FEW_SEEDS seeds on each task, none of them twice.
    """
    names = list(by_method)
    if not 2 <= len(names) <= MOST_COMPARED:
        return None
    table = np.full((len(names), len(names)), np.nan)
    texts = [["" for _ in names] for _ in names]
    for i, one in enumerate(names):
        for j, other in enumerate(names):
            tasks = [t for t in by_method[one] if t in by_method[other]]
            both = [(by_method[one][t], by_method[other][t]) for t in tasks]
            both = [(a, b) for a, b in both if len(a.returns) and len(b.returns)]
            pairs = [(a.returns, b.returns) for a, b in both]
            fewest = min((sum(map(_seeds, side)) for side in zip(*both, strict=True)), default=0)
            if i == j or fewest < FEW_SEEDS:
                continue
            p = probability_of_improvement([a for a, _ in pairs], [b for _, b in pairs])
            table[i, j] = p.value
            texts[i][j] = f"{p.value:.2f}"
            bounds = all(s.has_bounds(s.metric) for settings in both for s in settings)
            bounds = bounds and p.low is not None and p.high is not None and p.low < p.high
            if len(names) <= MOST_WITH_BOUNDS and bounds:
                texts[i][j] += f"\n{p.low:.2f}-{p.high:.2f}"
    known = np.flatnonzero(np.isfinite(table).any(axis=1))
    if not len(known):
        return None
    names, table = [names[k] for k in known], table[np.ix_(known, known)]
    texts = [[texts[i][j] for j in known] for i in known]
    drawn, axes = figure(3 + 0.8 * len(names), 1.8 + 0.5 * len(names))
    at = axes[0, 0]
    at.grid(False)
    at.imshow(table, cmap="RdBu", vmin=0, vmax=1, aspect="auto")
    shown = [short(name) for name in names]
    at.set_xticks(range(len(names)), shown, rotation=35, ha="right")
    at.set_yticks(range(len(names)), shown)
    for (i, j), p in np.ndenumerate(table):
        ink = ON_DARK if abs(p - 0.5) > 0.3 else ON_LIGHT
        at.text(j, i, texts[i][j], ha="center", va="center", size=9, color=ink)
    at.set_title("P(row above column), 95 % interval")
    return drawn


def _seeds(setting: Setting) -> int:
    """Of its returns."""
    return len(setting.seeds_of(setting.metric))


def common_games(scores: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Games that all methods with at least two games have: shares over other games would compare
    the games. None where these are fewer than two."""
    several = [set(games) for games in scores.values() if len(games) >= 2]
    common = set.intersection(*several) if several else set()
    return common if len(common) >= 2 else set()


@rc_context(STYLE)
def profiles(
    scores: dict[str, dict[str, np.ndarray]], looks: dict[str, Look], few: set[str]
) -> Figure | None:
    """Share of runs above a human-normalised score, over `common_games`; None where there are none.

    Args:
        scores: method -> game -> scores of its runs.
        looks: of each method.
        few: methods without a band, as their runs are too few (`Setting.has_bounds`) on some game.
    """
    if not (common := common_games(scores)):
        return None
    shown = {
        name: [games[game] for game in common]
        for name, games in scores.items()
        if games.keys() >= common
    }
    highest = max(float(task.max()) for tasks in shown.values() for task in tasks)
    lowest = min(0.0, *(float(task.min()) for tasks in shown.values() for task in tasks))
    taus = np.linspace(lowest, max(highest, 0.01) * 1.05, 101)
    drawn, axes = figure(7.2, 4)
    at = axes[0, 0]
    for name, tasks in shown.items():
        share, low, high = performance_profile(tasks, taus)
        look = looks[name]
        at.plot(taus, share, label=short(name), color=look.colour, linestyle=look.dash)
        if name not in few:
            at.fill_between(taus, low, high, color=looks[name].colour, alpha=0.15, linewidth=0)
    at.set(xlabel="human-normalised score", ylabel="share of runs above it", ylim=(0, 1.02))
    drawn.legend(loc="outside lower center", ncols=2)
    return drawn


@rc_context(PANEL)
def times(settings: Sequence[Setting], column: str) -> Figure | None:
    """Microseconds of the memory as bars, the labels above them; None where no run has them."""
    known = [setting for setting in settings if np.isfinite(setting.mean(column))][:MOST_BARS]
    if not known:
        return None
    drawn, axes = figure(5, 0.7 + 0.42 * len(known))
    at = axes[0, 0]
    for place, setting in enumerate(known):
        value = setting.mean(column)
        bar = at.barh(place + 0.22, value, height=0.36, color=setting.colour)
        bar.patches[0].set_gid(identity(setting, "bar", at))
        at.text(0, place - 0.2, f"{short(setting.label)}: {value:,.0f}", va="center")
    at.set_yticks([])
    at.set_ylim(len(known) - 0.5, -0.5)  # downwards, with room for the first one's label
    at.grid(axis="y", visible=False)
    at.set_xlabel("microseconds")
    return drawn
