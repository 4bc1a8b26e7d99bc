"""One panel of a page: as wide as a phone, its text 12 points, its settings labelled beside it."""

import re
import textwrap
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rlmem.analysis.compare.settings import Setting
from rlmem.drawing import STYLE
from rlmem.errors import printable
from rlmem.units import readable_bytes

TEXT = 12  # points; a panel is 360 of them wide, and a phone some 370 pixels
PANEL: Any = STYLE | dict.fromkeys(
    ("font.size", "axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize"), TEXT
)
WIDTH, LEFT, RIGHT = 5.0, 0.8, 1.9  # inches: of a panel, left of its axes, and for its labels
TOP, BOTTOM, LINE = 0.16, 0.6, 0.188  # inches; LINE: of text
MOST = 8  # settings in colour; the others are grey
GREY = "#999999"
# Ink of a text on a coloured ground: just beside white and black, which a page takes for its own.
ON_DARK, ON_LIGHT = "#fefefe", "#010101"
# Spaces between a short name and its number, and between a number and its short unit.
NAMED_NUMBER, UNIT = (
    re.compile(r"(\b\w{1,3}) (?=\.?\d)"),
    re.compile(r"(?<=\d) (?=[A-Za-z]{1,4}\b)"),
)
LONGEST, ACROSS = 60, 16  # characters of a label, and of its lines
APART = 0.345  # of an axis of bytes: from the middle of a label such as 512 KiB to the next


class Named(NamedTuple):
    """A setting, and the height in data that its label belongs to."""

    setting: Setting
    y: float


def short(label: str) -> str:
    """A label as figures show it. matplotlib leaves out what begins with an underscore, and no SVG
    may hold a control character."""
    label = printable(label)
    label = label if len(label) <= LONGEST else f"{label[: LONGEST - 3]}..."
    return f" {label}" if label.startswith("_") else label


def identity(setting: Setting, what: str, axes: Axes) -> str:
    """An SVG id that is unique in its figure; of it the page keeps the number."""
    return f"c{setting.number}-{what}-{list(axes.figure.axes).index(axes)}"


def lines_of(setting: Setting) -> list[str]:
    """A setting's label as it stands beside a panel; `a_T .9` and `4 MiB` stay in one line."""
    label = NAMED_NUMBER.sub("\\1\u00a0", short(setting.label))
    return textwrap.wrap(UNIT.sub("\u00a0", label), ACROSS)


def panel(settings: Sequence[Setting] = ()) -> tuple[Figure, Axes]:
    """A figure of one panel, high enough for the labels of settings at its right."""
    lines = sum(len(lines_of(setting)) for setting in settings)
    height = max(3.5, TOP + BOTTOM + LINE * max(lines, 2.1 * len(settings)))
    drawn = Figure(figsize=(WIDTH, height))
    across, up = (WIDTH - LEFT - RIGHT) / WIDTH, (height - TOP - BOTTOM) / height
    return drawn, drawn.add_axes((LEFT / WIDTH, BOTTOM / height, across, up))


def plain_thousands(at: Axes, axis: Literal["x", "y"]) -> None:
    """Large numbers as 10k and 2M, few of them."""
    at.locator_params(axis=axis, nbins=5)
    at_axis = at.xaxis if axis == "x" else at.yaxis
    at_axis.set_major_formatter(lambda value, _: thousands(value))


def no_sign_change(at: Axes) -> None:
    """End the y axis at 0 where all that is drawn lies on one side of it: beyond, nothing may be
    possible."""
    least, most = at.dataLim.intervaly
    if least >= 0:
        at.set_ylim(bottom=max(0.0, at.get_ylim()[0]))
    elif most <= 0:
        at.set_ylim(top=min(0.0, at.get_ylim()[1]))


def thousands(value: float) -> str:
    """12,000 -> '12k', 7,500 -> '7.5k'."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def bytes_axis(at: Axes, values: np.ndarray) -> None:
    """Bytes as x, in equal ratios where they differ by much. Where they differ by a
    thousandth there are two ticks at least, from about the lowest to about the highest."""
    least, most = float(values.min()), float(values.max())
    unit = byte_unit(most)
    decimals = 1
    if least > 0 and most / least > 4:  # so that two powers of 2 lie between them
        at.set_xscale("log", base=2)
        low, high = int(np.ceil(np.log2(least))), int(np.floor(np.log2(most)))
        wide = int(np.ceil(APART * np.log2(most / least)))  # powers of 2 from label to label
        step = min(max(wide, 1), high - low)  # at least two ticks
        at.set_xticks([2.0**power for power in range(low, high + 1, step)])
        at.xaxis.minorticks_off()
    elif most > max(0.0, 1.001 * least):
        # The largest round step of which the axis, a little wider, has two ticks; of more
        # those that are far enough apart.
        margin = 0.05 * (most - least)
        low, high = (least - margin) / unit, (most + margin) / unit
        steps = np.array([1, 2, 5, 10, 20]) * 10.0 ** np.floor(np.log10((high - low) / 2))
        step = steps[high // steps - np.ceil(low / steps) >= 1].max()
        decimals = max(1, int(np.ceil(-np.log10(step) - 1e-9)))
        ticks = np.arange(np.ceil(low / step), high // step + 1)
        every = min(int(np.ceil(APART * (high - low) / step)), len(ticks) - 1)
        at.set_xticks(unit * step * ticks[:: max(1, every)])
    else:
        at.set_xticks(values[:1])

    def label(size: float, _: Any) -> str:
        if decimals == 1:
            return readable_bytes(size).replace(".0 ", " ")
        return f"{size / unit:.{decimals}f} {readable_bytes(unit).split()[1]}"

    at.xaxis.set_major_formatter(label)


def byte_unit(most: float) -> int:
    """Bytes of the unit that so many are told in."""
    return next((size for size in (2**30, 2**20, 2**10) if most >= size), 1)


def bytes_upward(at: Axes) -> None:
    """Bytes as y from 0, in the unit that fits the largest."""
    most = at.get_ylim()[1]
    unit = byte_unit(most)
    steps = np.array([1, 2, 2.5, 5, 10]) * 10.0 ** np.floor(np.log10(most / unit / 4))
    step = unit * next((s for s in steps if 4 * s >= most / unit), steps[-1])
    at.set_ylim(0, most)
    at.set_yticks(np.arange(0, most + step / 2, step)[: int(most // step) + 1])
    at.yaxis.set_major_formatter(lambda size, _: readable_bytes(size).replace(".0 ", " "))


def name_beside(at: Axes, points: Sequence[Named]) -> None:
    """Write each setting's label at the right, near its height, with its line and mark."""
    low, high = at.get_ylim()
    height = at.get_window_extent().height / at.figure.dpi  # inches
    texts = [lines_of(point.setting) for point in points]
    wanted = [float(np.clip((p.y - low) / (high - low), 0, 1)) * height for p in points]
    order = sorted(range(len(points)), key=lambda k: wanted[k])
    places = spread([wanted[k] for k in order], [LINE * len(texts[k]) for k in order], height)
    for k, place in zip(order, places, strict=True):
        point, at_height = points[k], place / height
        style = point.setting.look
        gid = identity(point.setting, "name", at)
        at.add_line(
            Line2D([1.03, 1.11], [at_height] * 2, transform=at.transAxes, clip_on=False,
                   color=style.colour, linestyle=style.dash, linewidth=1.8, gid=f"{gid}-sign")
        )  # fmt: skip
        at.plot([1.07], [at_height], style.mark, transform=at.transAxes, clip_on=False,
                color=style.colour, markersize=6, gid=f"{gid}-mark")  # fmt: skip
        at.text(1.125, at_height, "\n".join(texts[k]), transform=at.transAxes, va="center",
                linespacing=1.05, gid=gid)  # fmt: skip


def spread(wanted: Sequence[float], sizes: Sequence[float], height: float) -> list[float]:
    """Middles of boxes, lowest first, moved apart so that none lies on another, within a height."""
    places = list(wanted)
    for _ in range(200):
        moved = False
        for k in range(len(places) - 1):
            lack = (sizes[k] + sizes[k + 1]) / 2 - (places[k + 1] - places[k])
            if lack > 1e-6:
                places[k] -= lack / 2
                places[k + 1] += lack / 2
                moved = True
        if places:
            places[0] = max(places[0], min(sizes[0] / 2, height))
            places[-1] = min(places[-1], height - sizes[-1] / 2)
        if not moved:
            break
    return places
