"""The page of the Blind Cliffwalk: a figure and a table of updates."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from rlmem.analysis.compare.looks import look, slots
from rlmem.analysis.show.drawings import drawing
from rlmem.analysis.show.page import write_page
from rlmem.analysis.show.section import Section
from rlmem.drawing import STYLE, figure, save

from .results import BASE, Result, ratios, summarize, transitions

# Whose colour a sampler has.
MEMORIES = {"prioritized": "per", "rank": "per_rank"}


def write_cliffwalk(folder: Path, title: str, results: Sequence[Result]) -> None:
    """Write report/: index.html with findings.md at its top, figures/updates.png and .svg.

    Raises:
        UserError: a package is missing.
    """
    found, out = summarize(results), folder / "report"
    samplers = _in_order(found)
    (out / "figures").mkdir(parents=True, exist_ok=True)
    drawn = draw(found, samplers)
    caption = "Updates over the size of the memory"
    section = Section(
        "Updates until the values are learned, medians over the seeds",
        table=table(found, samplers),
        figures={"updates": (caption, drawn)},
    )
    svg = save(drawn, out / "figures", "updates")
    figures = [drawing("", "updates", caption, svg)]
    write_page(out / "index.html", title, folder / "findings.md", [section], figures)


def _in_order(found: pd.DataFrame) -> list[str]:
    """Samplers, uniform replay first and the lower bound last."""
    names = found.index.get_level_values("sampler").unique()
    return sorted(names, key=lambda name: (name != BASE, name == "oracle", name))


@rc_context(STYLE)
def draw(found: pd.DataFrame, samplers: Sequence[str]) -> Figure:
    """Updates over transitions, and uniform replay's over the others' by n."""
    drawn, axes = figure(10, 4.2, 1, 2)
    left, right = axes[0]
    slot = slots(MEMORIES.get(name, name) for name in samplers)
    for name in samplers:
        updates, style = found.loc[name], look(slot[MEMORIES.get(name, name)], 0)
        line = {"color": style.colour, "ls": style.dash, "marker": style.mark, "ms": 4}
        memory = transitions(updates.index.to_numpy())
        left.plot(memory, updates["median"], label=name, **line)
        left.fill_between(
            memory, updates["low"], updates["high"], color=style.colour, alpha=0.18, lw=0
        )
        over = ratios(found, name)
        if name not in (BASE, "oracle") and len(over):
            right.plot(over.index, over, label=name, **line)
    left.set(xscale="log", yscale="log", xlabel="transitions in the memory", ylabel="updates")
    for axis in (left.xaxis, left.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    left.set_title("updates until learned: median, least and most over the seeds")
    left.legend()
    right.set(xlabel="states n", ylabel="updates, uniform / sampler", ylim=(0, None))
    right.set_title("what a sampler saves")
    if right.lines:
        right.legend()
    return drawn


def table(found: pd.DataFrame, samplers: Sequence[str]) -> pd.DataFrame:
    """Median updates as texts, a line for each n."""
    sizes = sorted(found.index.get_level_values("n").unique())
    columns = {"n": [str(n) for n in sizes], "transitions": [f"{transitions(n):,}" for n in sizes]}
    for name in samplers:
        columns[name] = [_updates(found, name, n) for n in sizes]
    for name in samplers:
        over = ratios(found, name)
        if name != BASE and len(over):
            texts = [f"{over[n]:,.1f}" if n in over.index else "-" for n in sizes]
            columns[f"{BASE} / {name}"] = texts
    return pd.DataFrame(columns)


def _updates(found: pd.DataFrame, sampler: str, n: int) -> str:
    """`1,234`, with what was given up."""
    if (sampler, n) not in found.index:
        return "missing"
    row = found.loc[(sampler, n)]
    more = f" ({row['given_up']:.0f} given up)" if row["given_up"] else ""
    return f"{row['median']:,.0f}{more}"
