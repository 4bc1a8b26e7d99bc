"""Pictures of a GWR map: its nodes in a plane, and a contact sheet of its prototypes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from mpl_toolkits.axes_grid1.anchored_artists import AnchoredSizeBar

from rlmem.drawing import STYLE, figure, image
from rlmem.memories.gwr.pictures_data import MapData
from rlmem.units import several

MOST_LINES, MOST_LINKS = 5000, 20_000  # that are drawn; more could not be told apart
MOST_VECTORS = 1500  # points and lines of a panel; with more, an SVG holds them as an image
SMALLEST, LARGEST, FEW = 7.0, 120.0, 250  # of a node, square points, in a map of few nodes
THIN, THICK, FAINT, STRONG = 0.35, 2.6, 0.2, 0.9  # of an edge: points, opacity
FLATTEST = 0.45  # height of a panel over its width, at least
OUTSIDE = 1.0  # per cent of the values at each end that share a colour


@rc_context(STYLE)
def map_figure(data: MapData, title: str, reach: float | None = None) -> Figure:
    """Left: temporal edges, nodes coloured by value; right: links, coloured by habituation.

    Args:
        title: of the figure.
        reach: distance at which the activity is the activation threshold, for the scale.
    """
    middle, half = _window(data.plane, data.core)
    outside = int((np.abs(data.plane - middle) > half).any(axis=1).sum())
    drawn, axes = figure(11, 2.0 + 4.9 * half[1] / half[0], 1, 2)
    left, right = axes[0]
    pairs, passes, note = _passed(data)
    drawn.set_dpi(220)  # of what an SVG holds as an image
    lines = _edges(left, data.plane, pairs, passes)
    if data.value is None:
        _nodes(left, data, "0.55", None)
        left.set_title("temporal edges")
    else:
        low, high = np.percentile(data.value, (OUTSIDE, 100 - OUTSIDE))
        norm = Normalize(low, max(high, low + 1e-9))
        nodes = _nodes(left, data, data.value, norm, cmap="viridis")
        _bar(drawn, nodes, left, f"value: {data.value_name}", extend="both")
        left.set_title("temporal edges and values")
    links = list(data.plane[data.links[:MOST_LINKS]])
    _add(right, LineCollection(links, colors="0.35", linewidths=0.4, alpha=0.5))
    nodes = _nodes(right, data, data.habituation, Normalize(0, 1), cmap="plasma_r")
    _bar(drawn, nodes, right, "habituation (1: never fired)")
    right.set_title("links and habituation")
    for at in (left, right):
        first, second = data.shares
        at.set(xlabel=f"component 1 ({first:.0%} of the variance)",
               ylabel=f"component 2 ({second:.0%})")  # fmt: skip
        at.set_axisbelow(True)
        at.set_xlim(middle[0] - half[0], middle[0] + half[0])
        at.set_ylim(middle[1] - half[1], middle[1] + half[1])
        at.set_box_aspect(half[1] / half[0])  # one scale for both axes
        if reach and reach < half[0]:
            _scale(at, reach)
    if outside:
        note += f"; outside the axes: {several(outside, 'node')}"
    if data.value is None:
        note += f"; no value: {data.value_name}"
    drawn.suptitle(title, size=10)
    _legend(drawn, data.firings, passes, lines, note)
    return drawn


def _bar(drawn: Figure, points: Any, at: Axes, label: str, **options: Any) -> None:
    bar = drawn.colorbar(
        points, ax=at, location="bottom", shrink=0.7, aspect=35, pad=0.02, **options
    )
    bar.ax.locator_params(nbins=5)
    bar.set_label(label)


def _window(plane: np.ndarray, core: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Middle and half size [2] of what is shown: the core, and not less high than FLATTEST.

    What is far off is not worth that all else becomes a dot.
    """
    low, high = plane[core].min(0), plane[core].max(0)
    width, height = np.maximum(1.1 * (high - low), 1e-3)
    height = np.clip(height, FLATTEST * width, None)
    return (low + high) / 2, np.array([max(width, height), height]) / 2


def _passed(data: MapData) -> tuple[np.ndarray, np.ndarray, str]:
    """The most passed pairs of nodes, least passed first, how often, and what is drawn of all."""
    stay = data.edges[:, 0] == data.edges[:, 1]
    size = max(1, len(data.nodes))
    keys = data.edges[~stay] @ np.array([size, 1])
    unique, inverse = np.unique(keys, return_inverse=True)
    passes = np.bincount(inverse, data.counts[~stay], len(unique)).astype(np.int64)
    order = np.argsort(passes, kind="stable")[-MOST_LINES:]
    pairs = np.stack(np.divmod(unique, size), axis=1)
    which = "all" if len(order) == len(unique) else f"the {len(order):,} most passed of"
    note = f"drawn: {which} {len(unique):,} pairs of nodes joined by temporal edges"
    if len(data.links) > MOST_LINKS:
        note += f", {MOST_LINKS:,} of {len(data.links):,} links"
    if stay.any():
        note += f"; not drawn: {several(stay.sum(), 'edge')} from a node to itself"
    return pairs[order], passes[order], note


def _strength(counts: np.ndarray, most: float) -> np.ndarray:
    """0 for one pass to 1 for the most, logarithmic: a few edges have most of the passes."""
    return np.log(counts) / max(np.log(most), 1e-9)


def _edges(at: Axes, plane: np.ndarray, pairs: np.ndarray, passes: np.ndarray) -> Any:
    """Draw edges; a function from passes to the style of their line, for the legend."""
    most = max(2, int(passes.max(initial=1)))

    def look(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        strength = _strength(counts, most)
        return THIN + (THICK - THIN) * strength, FAINT + (STRONG - FAINT) * strength

    width, alpha = look(passes)
    colours = np.tile([0.15, 0.15, 0.2, 1.0], (len(pairs), 1))
    colours[:, 3] = alpha
    _add(at, LineCollection(list(plane[pairs]), colors=list(colours), linewidths=list(width)))
    return look


def _add(at: Axes, lines: LineCollection) -> None:
    lines.set_zorder(1)
    lines.set_rasterized(len(lines.get_segments()) > MOST_VECTORS)
    at.add_collection(lines)


def _areas(firings: np.ndarray, all_firings: np.ndarray) -> np.ndarray:
    """Area by the logarithm of the firings, as a few nodes have most of them; the more nodes there
    are, the smaller all of them."""
    share = np.log1p(firings) / np.log1p(max(1, all_firings.max(initial=1)))
    crowd = np.clip(np.sqrt(FEW / max(1, len(all_firings))), 0.1, 1.0)
    return crowd * (SMALLEST + (LARGEST - SMALLEST) * share)


def _nodes(at: Axes, data: MapData, colour: Any, norm: Normalize | None, **options: Any) -> Any:
    """Points, large ones below small ones."""
    order = np.argsort(-data.firings, kind="stable")
    areas = _areas(data.firings[order], data.firings)
    colour = colour[order] if isinstance(colour, np.ndarray) else colour
    points = at.scatter(*data.plane[order].T, s=areas, c=colour, norm=norm, linewidths=0.15,
                        edgecolors="w", zorder=2, **options)  # fmt: skip
    points.set_rasterized(len(order) > MOST_VECTORS)
    return points


def _scale(at: Axes, reach: float) -> None:
    label = f"a_T is reached within {reach:.2g}"
    bar = AnchoredSizeBar(at.transData, reach, label, "lower left", frameon=False, pad=0.4, sep=4)
    bar.set_zorder(3)
    at.add_artist(bar)


def _legend(drawn: Figure, firings: np.ndarray, passes: np.ndarray, look: Any, note: str) -> None:
    """What is drawn, and what three sizes of points and three widths of lines mean."""
    handles = [
        Line2D([], [], linestyle="none", marker="o", color="0.55", markeredgecolor="w",
               markersize=float(np.sqrt(area)), label=several(count, "firing"))
        for count in _steps(firings)
        for area in [_areas(np.array(count), firings)]
    ]  # fmt: skip
    for count in _steps(passes):
        width, alpha = look(np.array(count))
        colour = (0.15, 0.15, 0.2, float(alpha))
        handles.append(
            Line2D([], [], color=colour, linewidth=width, label=several(count, "passage"))
        )
    drawn.legend(
        handles=handles, loc="outside lower center", ncols=max(1, len(handles)), title=note,
        title_fontsize=8,
    )  # fmt: skip


def _steps(counts: np.ndarray) -> list[int]:
    """One, the largest, and the round number nearest to their geometric mean."""
    most = int(counts.max(initial=0))
    if most < 1:
        return []
    middle = float(np.sqrt(most))
    power = 10 ** int(np.log10(middle))
    return sorted({1, min(most, round(middle / power) * power), most})


@rc_context(STYLE)
def prototype_sheet(
    groups: Sequence[tuple[str, np.ndarray, Sequence[str]]], columns: int = 8
) -> Figure:
    """Pictures in rows under their group's title.

    Args:
        groups: title, frames [n, C, H, W] and a caption for each frame.
        columns: pictures side by side.
    """
    rows = [max(1, -(-len(frames) // columns)) for _, frames, _ in groups]
    drawn = Figure(figsize=(columns * 1.35, sum(rows) * 1.76 + 0.35 * len(groups)))
    drawn.set_layout_engine("constrained", h_pad=0.04, w_pad=0.02, hspace=0, wspace=0)
    parts = drawn.subfigures(len(groups), 1, squeeze=False, height_ratios=rows)[:, 0]
    for part, height, (title, frames, captions) in zip(parts, rows, groups, strict=True):
        part.suptitle(title, size=10)
        axes = part.subplots(height, columns, squeeze=False)
        for at in axes.flat:
            at.axis("off")
        for at, frame, caption in zip(axes.flat, frames, captions, strict=False):
            at.imshow(image(frame), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            at.set_title(caption, size=8, pad=3)
    return drawn
