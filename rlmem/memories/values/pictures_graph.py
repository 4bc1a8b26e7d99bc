"""Figures of nodes and edges, and of a dictionary's entries."""

from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import BoundaryNorm, ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rlmem.drawing import PLANES, STYLE, figure
from rlmem.memories.values.pictures_data import Layout
from rlmem.memories.values.pictures_figures import (
    MARK,
    SHADES,
    colour_bar,
    seen_colours,
    square,
    value_norm,
    write_title,
)
from rlmem.units import several

PALE = "0.88"
ASIDE = 0.09  # of a cell: how far an edge lies from the one the other way
MOST_VECTORS = 1500  # points and lines of a panel; with more, an SVG holds them as an image


class Nodes(NamedTuple):
    """What is drawn of a graph.

    Attributes:
        layout: of the n nodes.
        values: float64 [n].
        key_nodes: rows of them, int64 [k].
        spokes: rows of a node and of the key node whose cluster it is in, int64 [s, 2].
        edges: rows of them that an edge joins, int64 [m, 2].
        changed: rows that a changed edge joins, int64 [c, 2], or None: nothing was ever walked.
        before, after: weights of these, float32 [c].
        note: what is drawn of all.
    """

    layout: Layout
    values: np.ndarray
    key_nodes: np.ndarray
    spokes: np.ndarray
    edges: np.ndarray
    changed: np.ndarray | None
    before: np.ndarray
    after: np.ndarray
    note: str


@rc_context(STYLE)
def graph_figure(nodes: Nodes, title: str, blocked: np.ndarray | None = None) -> Figure:
    """The graph; beside it, where it has walked paths, the edges on them before and after.

    Args:
        blocked: cells of the maze whose positions the nodes have, bool [H, W].
    """
    panels = 1 if nodes.changed is None else 3
    width = 4.6 if panels > 1 else 6.0
    drawn, axes = figure(width * panels, 1.5 + 0.9 * width * _flatness(nodes.layout), 1, panels)
    drawn.set_dpi(220)  # of what an SVG holds as an image
    norm = value_norm(nodes.values, nodes.before, nodes.after)
    bar = None
    for number, at in enumerate(axes[0]):
        _frame_of(at, nodes.layout, blocked)
        lines = _lines(nodes.layout.points, nodes.edges)
        pale = LineCollection(list(lines), colors="0.45" if number == 0 else PALE, linewidths=0.6)
        _add(at, pale, len(lines))
        if number:
            weights = nodes.before if number == 1 else nodes.after
            lines = _lines(nodes.layout.points, nodes.changed)
            shades = seen_colours(weights, norm)
            lit = LineCollection(list(lines), array=shades, cmap=SHADES, norm=norm, linewidths=2.2)
            _add(at, lit, len(lines))
            count = several(len(lines), "edge")
            when = "before" if number == 1 else "after"
            at.set_title(f"weights of the {count} on its paths, {when}")
        else:
            spokes = nodes.layout.points[nodes.spokes]
            lines = LineCollection(list(spokes), colors=MARK, linewidths=1.6, alpha=0.35)
            _add(at, lines, len(spokes))
            at.set_title("nodes by value of their best action" if panels == 3 else "")
        colour: dict[str, Any] = {"c": "0.8"}
        if not number:
            colour = {"c": seen_colours(nodes.values, norm), "cmap": SHADES, "norm": norm,
                      "plotnonfinite": True}  # fmt: skip
        points = at.scatter(*nodes.layout.points.T, s=_area(len(nodes.values), number),
                            linewidths=0.2, edgecolors="w", zorder=2, **colour)  # fmt: skip
        points.set_rasterized(len(nodes.values) > MOST_VECTORS)
        bar = bar or points
        at.scatter(*nodes.layout.points[nodes.key_nodes].T, s=_area(len(nodes.values), 0) * 2.6,
                   marker="s", facecolors="none", edgecolors=MARK, linewidths=1.4,
                   zorder=3)  # fmt: skip
    label = "value (grey: 0)" if isinstance(norm, LogNorm) else "value"
    colour_bar(drawn, bar, list(axes[0]), label, shrink=0.5, aspect=45, pad=0.03)
    handles = [Line2D([], [], linestyle="none", marker="o", color="0.5", label="node"),
               Line2D([], [], color="0.45", label="edge")]  # fmt: skip
    if len(nodes.key_nodes):
        handles.append(Line2D([], [], linestyle="none", marker="s", markerfacecolor="none",
                              markeredgecolor=MARK, label="key node"))  # fmt: skip
    if len(nodes.spokes):
        handles.append(Line2D([], [], color=MARK, linewidth=1.6, alpha=0.35,
                              label="to its cluster's key node"))  # fmt: skip
    drawn.legend(handles=handles, loc="outside lower center", ncols=4, title=nodes.note,
                 title_fontsize=8)  # fmt: skip
    write_title(drawn, title)
    return drawn


def _area(count: int, number: int) -> float:
    """Of a node, square points; small in the panels of edges."""
    return float(np.clip(12_000 / max(1, count), 6, 90)) * (0.25 if number else 1.0)


def _frame_of(at: Axes, layout: Layout, blocked: np.ndarray | None) -> None:
    """Axes of a plane, or the maze below its nodes."""
    at.set_axisbelow(True)
    if blocked is None or layout.axes:
        at.set(xlabel=f"first {layout.axes}", ylabel=f"second {layout.axes}")
        at.set_aspect("equal", "datalim")
        at.set_box_aspect(_flatness(layout))
        return
    height, width = blocked.shape
    for y, x in np.argwhere(blocked):
        at.add_patch(square(x, -y, facecolor="0.85"))
    at.set(xlim=(-0.6, width - 0.4), ylim=(0.6 - height, 0.6), xticks=[], yticks=[])
    at.set_aspect("equal")
    at.grid(visible=False)
    at.spines[:].set_visible(False)
    at.text(0, 0.62, "start", size=7, ha="center", va="bottom")
    at.text(width - 1, 0.38 - height, "goal", size=7, ha="center", va="top")


def _flatness(layout: Layout) -> float:
    """Height of a panel over its width."""
    width, height = np.ptp(layout.points, axis=0)
    return float(np.clip(height / max(width, 1e-9), 0.5, 1)) if layout.axes else 1.0


def _lines(points: np.ndarray, edges: np.ndarray | None) -> np.ndarray:
    """Edges int64 [m, 2] as lines [m, 2, 2], each a little to the right of its direction, so that
    there and back are two lines."""
    if edges is None or not len(edges):
        return np.zeros((0, 2, 2))
    source, target = points[edges[:, 0]], points[edges[:, 1]]
    along = target - source
    length = np.maximum(np.linalg.norm(along, axis=1, keepdims=True), 1e-12)
    usual = np.median(length)
    aside = np.stack([along[:, 1], -along[:, 0]], 1) / length * ASIDE * min(usual, 1.0)
    return np.stack([source + aside, target + aside], 1)


def _add(at: Axes, lines: LineCollection, count: int) -> None:
    lines.set_zorder(1)
    lines.set_rasterized(count > MOST_VECTORS)
    at.add_collection(lines)


@rc_context(STYLE)
def entries_figure(
    layout: Layout, values: np.ndarray, action: np.ndarray, actions: int, title: str
) -> Figure:
    """Entries of a dictionary in a plane: by value, and by action where colours are enough."""
    panels = 2 if actions <= len(PLANES) else 1
    drawn, axes = figure(5.4 * panels, 1.5 + 5 * _flatness(layout), 1, panels)
    drawn.set_dpi(220)
    norm, colours = value_norm(values), ListedColormap(PLANES[:actions])
    by_action = BoundaryNorm(np.arange(actions + 1) - 0.5, actions)
    parts: list[Any] = [
        (seen_colours(values, norm), SHADES, norm, "value"),
        (action, colours, by_action, "action"),
    ]
    order = np.random.default_rng(0).permutation(len(values))  # no action lies on top of all
    for at, (colour, cmap, scale, what) in zip(axes[0], parts, strict=False):
        _frame_of(at, layout, None)
        points = at.scatter(*layout.points[order].T, s=9, c=colour[order], cmap=cmap, norm=scale,
                            linewidths=0, alpha=0.8, plotnonfinite=True)  # fmt: skip
        points.set_rasterized(len(values) > MOST_VECTORS)
        look = {"shrink": 0.7, "aspect": 35, "pad": 0.02}
        if what == "value":
            colour_bar(drawn, points, at, "value of an entry", **look)
        else:
            bar = drawn.colorbar(points, ax=at, location="bottom", ticks=range(actions), **look)
            bar.set_label("action of an entry")
    write_title(drawn, title)
    return drawn
