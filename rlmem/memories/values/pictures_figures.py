"""The maze's figure, and what all figures of memories that answer share: scales, bars, titles.

Values are shades of viridis, marks are orange, which people who see no red or no green tell apart.
"""

import textwrap
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from rlmem.drawing import STYLE, figure
from rlmem.memories.values.pictures_data import Maze

SHADES = colormaps["viridis"].with_extremes(bad="0.7")
WHITE_BELOW = colormaps["viridis"].with_extremes(bad="w")
LOWEST = 1e-20  # of the highest value: lower ones share its colour on a logarithmic scale
MARK, BLOCKED = "#d95f02", "0.15"
MOST_NUMBERS = 12  # cells a side of a maze up to which values are written into them


def value_norm(*values: np.ndarray) -> Normalize:
    """A logarithmic scale where no value is below 0 and those above differ by more than fifty
    times, as they do at first along a way to a goal; else a linear one over all but a per cent at
    each end."""
    every = np.concatenate([v[np.isfinite(v)].ravel() for v in values])
    above = every[every > 0]
    if len(above) and every.min() >= 0:
        if above.max() > 50 * above.min():
            return LogNorm(max(above.min(), above.max() * LOWEST), above.max(), clip=True)
        return Normalize(0, above.max(), clip=True)
    low, high = np.percentile(every, (1, 99)) if len(every) else (0.0, 1.0)
    return Normalize(low, high if high > low else low + 1, clip=True)


def seen_colours(values: np.ndarray, norm: Normalize) -> np.ndarray:
    """Values as colours take them: what a logarithmic scale has no place for is grey."""
    return np.where(values > 0, values, np.nan) if isinstance(norm, LogNorm) else values


def colour_bar(drawn: Figure, shown: Any, axes: Any, label: str, **look: Any) -> None:
    """A colour bar whose ticks are plain numbers."""
    bar = drawn.colorbar(shown, ax=axes, location="bottom", **look)
    if isinstance(shown.norm, LogNorm):
        low, high = shown.get_clim()
        bar.set_ticks(np.geomspace(low, high, 5).tolist(), minor=False)
        bar.set_ticks([], minor=True)
        bar.ax.xaxis.set_major_formatter(lambda value, _: short(value))
        label += ", logarithmic"
    else:
        bar.ax.locator_params(nbins=6)
    bar.set_label(label)


def write_title(drawn: Figure, title: str) -> None:
    """A figure's title, in lines that it is wide enough for."""
    width = int(drawn.get_figwidth() * 13)
    drawn.suptitle("\n".join(textwrap.wrap(title, width)), size=10)


@rc_context(STYLE)
def maze_figure(maze: Maze, title: str) -> Figure:
    """The value of each cell, an arrow for its best action, the greedy way in orange."""
    height, width = maze.blocked.shape
    drawn, axes = figure(6.2, 6.2 * height / width + 0.9)
    at = axes[0, 0]
    norm = value_norm(np.maximum(maze.values, 0))
    shown = draw_maze(at, maze, norm)
    label = "value of the best action (white: 0 and less; without a number: unknown)"
    colour_bar(drawn, shown, at, label, shrink=0.7, aspect=35, pad=0.02)
    write_title(drawn, title)
    return drawn


def draw_maze(at: Axes, maze: Maze, norm: Normalize, numbers: bool = True) -> Any:
    """A maze on axes; what a colour bar is made of."""
    height, width = maze.blocked.shape
    values = np.where(maze.values > 0, maze.values, np.nan)
    shown = at.imshow(values, cmap=WHITE_BELOW, norm=norm)
    at.grid(visible=False)
    at.set(xticks=[], yticks=[])
    for side in at.spines.values():
        side.set_visible(True)
    for x in range(1, width):
        at.axvline(x - 0.5, color="0.85", linewidth=0.4)
    for y in range(1, height):
        at.axhline(y - 0.5, color="0.85", linewidth=0.4)
    on_way, halo = set(maze.way[:-1]), [withStroke(linewidth=3.4, foreground="w")]
    for y, x in np.argwhere(maze.best >= 0):
        dx, dy = maze.moves[maze.best[y, x]]
        passed = (x, y) in on_way
        light = np.isfinite(values[y, x]) and norm(values[y, x]) < 0.55
        colour = MARK if passed else "w" if light else "0.3"
        if not numbers and not passed:
            continue
        middle = (x, y) if not numbers or passed else (x, y + 0.12)
        length, size = (0.36, 1.7) if passed else (0.22, 0.7)
        at.annotate(
            "", (middle[0] + length * dx, middle[1] + length * dy),
            (middle[0] - length * dx, middle[1] - length * dy),
            arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": size,
                        "shrinkA": 0, "shrinkB": 0, "mutation_scale": 6 + 3 * size,
                        "path_effects": halo if passed else None},
        )  # fmt: skip
    _mark_cells(at, maze, values, norm, numbers and max(width, height) <= MOST_NUMBERS)
    return shown


def _mark_cells(at: Axes, maze: Maze, values: np.ndarray, norm: Normalize, numbers: bool) -> None:
    height, width = maze.blocked.shape
    for y, x in np.ndindex(height, width):
        if maze.blocked[y, x]:
            at.add_patch(square(x, y, facecolor=BLOCKED))
        elif numbers and np.isfinite(maze.values[y, x]) and (x, y) != (width - 1, height - 1):
            light = np.isfinite(values[y, x]) and norm(values[y, x]) < 0.55
            at.text(x - 0.46, y - 0.44, short(maze.values[y, x]), size=5.5, va="top",
                    color="w" if light else "0.15" if maze.values[y, x] else "0.6")  # fmt: skip
    at.add_patch(square(width - 1, height - 1, facecolor="#ffd700"))
    small = 7 if numbers else 6
    at.text(width - 1, height - 1, "goal", size=small, ha="center", va="center")
    if not numbers:
        return
    at.text(-0.46, 0.42, "start", size=6, va="bottom", color=MARK, weight="bold",
            bbox={"facecolor": "w", "edgecolor": "none", "pad": 0.6, "alpha": 0.8})  # fmt: skip


def square(x: float, y: float, **look: Any) -> Any:
    return Rectangle((x - 0.5, y - 0.5), 1, 1, linewidth=0, **look)


def short(value: Any) -> str:
    """A number in five characters or so."""
    size = abs(value)
    if size >= 100:
        return f"{value:.0f}"
    if size >= 0.1 or value == 0:
        return f"{value:.3g}"
    return f"{value:.0e}".replace("e-0", "e-")
