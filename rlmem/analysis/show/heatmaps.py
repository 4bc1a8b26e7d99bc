"""The figure of a grid of both thresholds: return, bytes, entries and seconds."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlmem.analysis.compare.settings import Setting
from rlmem.analysis.compare.thresholds import levels, pair, seconds_of
from rlmem.analysis.show.panels import ON_DARK, ON_LIGHT
from rlmem.drawing import STYLE, figure
from rlmem.units import number, readable_bytes


@rc_context(STYLE)
def heatmaps(settings: Sequence[Setting]) -> Figure | None:
    """Return, bytes, entries and, of one device, seconds over both thresholds; None unless both
    vary.

    Args:
        settings: that differ in their thresholds only.
    """
    rows, columns = levels([pair(setting) for setting in settings])
    if len(rows) < 2 or len(columns) < 2:
        return None
    drawn, axes = figure(2.2 + 1.9 * len(columns), 1.8 + 1.1 * len(rows), 2, 2)
    counts = {pair(setting): len(setting.finished) for setting in settings if setting.finished}
    runs = _runs(list(counts.values()))
    panels: list[tuple[str, Callable[[Setting], float], Callable[[float], str]]] = [
        ("return", lambda c: c.return_mean.value if c.return_mean else np.nan, number),
        ("memory", lambda c: c.mean("memory_bytes_peak"), readable_bytes),
        ("entries", lambda c: c.mean("memory_entries"), "{:,.0f}".format),
    ]
    if seconds := seconds_of(settings):
        panels.append((seconds[1], lambda c: c.mean(seconds[0]), "{:,.0f}".format))
    else:
        axes.flat[-1].set_axis_off()
    for at, (title, value, write) in zip(axes.flat[: len(panels)], panels, strict=True):
        table = np.full((len(rows), len(columns)), np.nan)
        texts = [["missing" for _ in columns] for _ in rows]
        for setting in settings:
            a, h = pair(setting)
            i, j = rows.index(a), columns.index(h)
            table[i, j] = value(setting)
            if np.isfinite(table[i, j]):
                texts[i][j] = write(table[i, j])
                if len(set(counts.values())) > 1:
                    texts[i][j] += f"\nn={counts[a, h]}"
        _panel(at, table, texts)
        at.set_xticks(range(len(columns)), [f"{v:g}" for v in columns])
        at.set_yticks(range(len(rows)), [f"{v:g}" for v in rows])
        at.set(xlabel="habituation threshold h_T", ylabel="activation threshold a_T")
        at.set_title(f"{title}{runs}")
    return drawn


def _runs(counts: Sequence[int]) -> str:
    """What a number in a panel is a mean of: one run has no spread to be read against."""
    if not counts:
        return ""
    if max(counts) == 1:
        return ", n=1 run a pair"
    fewest = min(counts)
    many = f"{fewest}" if fewest == max(counts) else f"{fewest} to {max(counts)}"
    return f", mean of n={many} runs"


def _panel(at: Axes, table: np.ndarray, texts: list[list[str]]) -> None:
    at.grid(False)
    at.imshow(table, cmap="viridis", aspect="auto", origin="lower")
    middle = np.nanmean([np.nanmin(table), np.nanmax(table)]) if np.isfinite(table).any() else 0
    for (i, j), value in np.ndenumerate(table):
        ink = "0.5" if not np.isfinite(value) else ON_DARK if value <= middle else ON_LIGHT
        at.text(j, i, texts[i][j], ha="center", va="center", size=8, color=ink)
