"""The figures of the maze. A memory has one colour; its released form is drawn hollow or dashed."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlmem.analysis.compare.looks import look, slots
from rlmem.analysis.show.panels import PANEL, plain_thousands, thousands
from rlmem.drawing import STYLE, figure
from rlmem.envs.mini_maze import maze_pits, steps_to_goal

from .compare import BASE, mean_of, paired, random_mazes, released
from .results import Result

MEMORIES = {"Q table": "q_table", "DQN": "uniform", "NEC": "dnd"}  # of a row; else its own name
FORM = ", released"  # end of the name of a released form's row
COARSE = 50  # dots an inch of an SVG's thin lines, which are a picture in it
SIZE, LIMIT = 10, 200  # cells a side; env steps an episode


def _colour(row: str) -> str:
    """Of a memory, the same in both of its forms."""
    name = row.removesuffix(FORM)
    memory = MEMORIES.get(name, name.lower())
    return look(slots([memory])[memory], 0).colour


def _dots(row: str) -> dict[str, Any]:
    """How a memory's points look."""
    colour = _colour(row)
    return {"mec": colour, "mfc": "white" if row.endswith(FORM) else colour}


def _labels(axes: Axes, texts: Sequence[str]) -> None:
    """The memories on the y axis, the first at the top."""
    axes.set_yticks(range(len(texts)), texts)
    axes.set_ylim(len(texts) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)


def _spread(count: int) -> np.ndarray:
    """Heights of points that would lie on each other, float64 [count]."""
    return 0.28 * (np.arange(count) * 0.618 % 1) - 0.14


@rc_context(PANEL)
def shares(table: pd.DataFrame, rows: Sequence[str]) -> Figure:
    """Env steps in random mazes as shares of BASE's, a point a maze."""
    drawn, at = _rows(rows)
    for place, row in enumerate(rows):
        pairs = None if row == BASE else paired(table, row, BASE)
        if pairs:
            style, height = _dots(row), place + _spread(len(pairs.ratio))
            at.plot(pairs.ratio, height, "o", ms=3.5, alpha=0.45, **style)
            _mean(at, place, pairs.mean, style["mec"])
    at.axvline(1, color="#4d4d4d", lw=1)
    at.set(xlabel=f"env steps / {BASE}'s in the same maze", xscale="log")
    ticks = [0.25, 0.5, 1, 2]
    at.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    at.minorticks_off()
    return drawn


@rc_context(PANEL)
def steps(table: pd.DataFrame, rows: Sequence[str]) -> Figure:
    """Env steps in the released maze, a point a seed."""
    drawn, at = _rows(rows)
    runs = released(table)
    for place, row in enumerate(rows):
        values = runs.loc[runs["row"] == row, "env_steps"]
        if len(values):
            style = _dots(row)
            at.plot(values, place + _spread(len(values)), "o", ms=3.5, alpha=0.45, **style)
            _mean(at, place, mean_of(values), style["mec"])
    at.set(xlabel="env steps of 100 episodes", xlim=(0, None))
    plain_thousands(at, "x")
    return drawn


def _rows(rows: Sequence[str]) -> tuple[Figure, Axes]:
    """A figure as wide as a phone, with a line for each memory."""
    drawn, axes = figure(5, 0.8 + 0.3 * len(rows))
    _labels(axes[0, 0], rows)
    return drawn, axes[0, 0]


def _mean(axes: Axes, at: int, estimate: Any, colour: str) -> None:
    """A mean as an upright bar and its interval as a line."""
    axes.plot([estimate.value], [at], "|", ms=15, mew=2.5, color=colour)
    if estimate.low is not None:
        axes.plot([estimate.low, estimate.high], [at, at], "-", lw=2, color=colour)


def headline(table: pd.DataFrame, rows: Sequence[str]) -> str:
    """What `shares` shows, in words: those of all sound forms."""
    found = {row: paired(table, row, BASE) for row in rows if row != BASE and FORM not in row}
    shares = ", ".join(f"{row} {pairs.mean.value:.2f}" for row, pairs in found.items() if pairs)
    return f"Shares in the mean: {shares}." if shares else ""


@rc_context(STYLE)
def episodes(results: Sequence[Result], rows: Sequence[str], kind: str) -> Figure | None:
    """Env steps of each episode: a panel a memory, a line a run, the median thick.

    A released form is the dashed median beside its sound one.

    Args:
        kind: "released", the released maze; "random", all others.
    """
    here = [r for r in results if (r.maze == "released") == (kind == "released")]
    names = [row for row in rows if not row.endswith(FORM) and any(r.row == row for r in here)]
    if not names:
        return None
    drawn, axes = figure(10, 4.6, 2, -(-len(names) // 2))
    drawn.set_dpi(COARSE)
    for at in axes.flat[len(names) :]:
        at.set_visible(False)
    for at, name in zip(axes.flat, names, strict=False):
        colour = _colour(name)
        sound = [r.length for r in here if r.row == name]
        for length in sound:
            at.plot(np.arange(len(length)) + 1, length, lw=0.5, alpha=0.22, color=colour,
                    rasterized=True)  # fmt: skip
        at.plot(*_median(sound), lw=2.2, color=colour)
        if other := [r.length for r in here if r.row == name + FORM]:
            at.plot(*_median(other), lw=1.3, ls=(0, (4, 2)), color="black")
        failed = np.mean([r.failed for r in here if r.row == name])
        at.set_title(f"{name}: {failed:.1f} episodes failed", loc="left")
        at.set(xlim=(1, 100), ylim=(0, LIMIT + 5))
    for at in axes[:, 0]:
        at.set_ylabel("env steps of an episode")
    for at in axes[-1]:
        at.set_xlabel("episode")
    return drawn


def _median(lengths: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Episodes that all runs have, from 1, and the median of their lengths."""
    shared = min(map(len, lengths))
    return np.arange(shared) + 1, np.median([length[:shared] for length in lengths], axis=0)


@rc_context(STYLE)
def cost(table: pd.DataFrame, rows: Sequence[str]) -> Figure | None:
    """Bytes, and CPU milliseconds an env step and seconds a run: medians over random mazes."""
    runs = random_mazes(table)
    rows = [row for row in rows if (runs["row"] == row).any()]
    if not rows:
        return None
    runs = runs.assign(milliseconds=1000 * runs["cpu_seconds"] / runs["env_steps"])
    medians = runs.groupby("row")[["memory_bytes", "milliseconds", "cpu_seconds"]].median()
    drawn, axes = figure(10, 0.6 + 0.3 * len(rows), 1, 3)
    heads = ("bytes of the memory, most", "CPU milliseconds an env step", "CPU seconds a run")
    for at, name, head in zip(axes[0], medians, heads, strict=True):
        for height, row in enumerate(rows):
            value = float(medians.loc[row, name])
            at.plot([value], [height], "o", ms=6, **_dots(row))
            said = f"{value:,.3g}" if value < 100 else f"{value:,.0f}"
            at.annotate(said, (value, height), (7, -3), textcoords="offset points", fontsize=8)
        at.set(xscale="log", xlabel=head)
        at.margins(x=0.25)
        at.xaxis.set_major_formatter(lambda value, _: thousands(value))
        at.minorticks_off()
        _labels(at, rows if at is axes[0, 0] else [""] * len(rows))
    return drawn


@rc_context(STYLE)
def mazes(table: pd.DataFrame, row: str) -> Figure | None:
    """The random mazes, each with the length of its shortest way and a memory's share there."""
    pairs = paired(table, row, BASE)
    if not pairs:
        return None
    numbers = sorted(int(name.split()[1]) for name in pairs.ratio.index)
    lines = -(-len(numbers) // 10)
    drawn, axes = figure(10, 0.3 + 1.25 * lines, lines, 10)
    for at in axes.flat:
        at.set_axis_off()
    for at, number in zip(axes.flat, numbers, strict=False):
        pits = maze_pits(SIZE, number, 12)
        picture = np.full((SIZE, SIZE, 3), 242, np.uint8)
        picture[pits] = 40
        picture[0, 0], picture[-1, -1] = (220, 20, 20), (255, 190, 0)
        at.imshow(picture, interpolation="nearest")
        share = pairs.ratio[f"maze {number}"]
        at.set_title(f"{number}: {steps_to_goal(pits)[0, 0]}, {share:.2f}", fontsize=8)
    return drawn
