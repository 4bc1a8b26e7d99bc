"""What was looked up for a state: the state, the values read, the nearest neighbours."""

from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlmem.drawing import STYLE, image
from rlmem.memories.values.pictures_data import Lookup
from rlmem.memories.values.pictures_figures import MARK, short, write_title

ROWS, NEIGHBOURS = 3, 6  # actions and neighbours of each on a sheet
MOST_BARS = 8  # actions whose values are written in a readable size


@rc_context(STYLE)
def lookup_figure(
    looked: Lookup, frames: dict[int, np.ndarray], title: str, missing: str
) -> Figure:
    """A state, the values read for it, and the nearest neighbours of the best actions.

    Args:
        frames: newest frame of the neighbours' states that are still held, by hash.
        missing: what stands in the place of others.
    """
    order = np.argsort(-looked.values, kind="stable")
    shown = np.sort(order[:ROWS])
    columns = min(NEIGHBOURS, looked.slot.shape[1])
    drawn = Figure(figsize=(2.6 + 1.45 * columns, 0.7 + 1.95 * max(2, len(shown))))
    drawn.set_layout_engine("constrained", h_pad=0.05, w_pad=0.03, hspace=0, wspace=0)
    sides: Any = drawn.subfigures(1, 2, width_ratios=[2.6, 1.45 * columns])
    left, right = sides
    state, bars = left.subplots(2, 1, height_ratios=[1.1, 1])
    _show(state, looked.frame, "the state")
    _value_bars(bars, looked.values, int(order[0]))
    # Frames are compared: bars of vectors have one scale.
    near = [] if looked.hash is None else looked.hash[shown, :columns].ravel().tolist()
    compared = (looked.frame, *(frames[state] for state in near if state in frames))
    reach = max(float(np.abs(frame).max(initial=0)) for frame in compared) or 1.0
    for part, action in zip(np.atleast_1d(right.subfigures(len(shown), 1)), shown, strict=True):
        best = ", the best" if action == order[0] else ""
        part.suptitle(f"action {action}{best}: {short(looked.values[action])}", size=9,
                      color=MARK if best else "k")  # fmt: skip
        for place, at in enumerate(np.atleast_1d(part.subplots(1, columns))):
            _neighbour(at, looked, int(action), place, frames, missing)
            if at.patches:  # bars of a vector
                _limit(at, reach)
    if looked.frame.ndim == 1:
        _limit(state, reach)
    write_title(drawn, title)
    return drawn


def _value_bars(at: Axes, values: np.ndarray, best: int) -> None:
    colours = [MARK if a == best else "0.6" for a in range(len(values))]
    at.bar(range(len(values)), values, color=colours)
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    margin = 0.15 * (high - low) + 1e-9
    at.set_ylim(low - margin * (low < 0), high + margin * (high > 0 or low == 0))
    for action, value in enumerate(values):
        at.annotate(short(value), (action, value), (0, 2 if value >= 0 else -2),
                    textcoords="offset points", ha="center", va="bottom" if value >= 0 else "top",
                    size=7 if len(values) <= MOST_BARS else 4.5)  # fmt: skip
    at.set(title="value read for each action", xticks=range(len(values)))
    at.grid(axis="x", visible=False)
    at.tick_params(labelsize=7)


def _neighbour(
    at: Axes, looked: Lookup, action: int, place: int,
    frames: dict[int, np.ndarray], missing: str,
) -> None:  # fmt: skip
    if looked.slot[action, place] < 0:
        at.axis("off")
        return
    distance, weight, value = (
        float(column[action, place]) for column in (looked.distance, looked.weight, looked.value)
    )
    caption = f"d {short(distance)}, w {weight:.0%}\nvalue {short(value)}"
    state = None if looked.hash is None else int(looked.hash[action, place])
    frame = None if state is None else frames.get(state)
    if frame is None:
        at.set(xticks=[], yticks=[])
        at.grid(visible=False)
        at.text(0.5, 0.5, missing, ha="center", va="center", size=7.5,
                transform=at.transAxes, color="0.4")  # fmt: skip
        at.set_title(caption, size=7.5, pad=3)
        at.set_box_aspect(1)
        return
    _show(at, frame, caption, size=7.5)


def _show(at: Axes, frame: np.ndarray, title: str, size: float = 9) -> None:
    """A frame as an image, a vector as bars."""
    at.set_title(title, size=size, pad=3)
    if frame.ndim == 3:
        at.axis("off")
        at.imshow(image(frame), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        return
    at.bar(range(len(frame)), frame, color="#4477aa")
    at.axhline(0, color="0.3", linewidth=0.6)
    at.set_xticks([])
    at.tick_params(labelsize=6)
    at.set_box_aspect(1)


def _limit(at: Axes, reach: float) -> None:
    at.set_ylim(-1.05 * reach, 1.05 * reach)
