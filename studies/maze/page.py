"""The page of the maze: tables and figures below what findings.md says."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from rlmem.analysis.compare.statistics import Estimate
from rlmem.analysis.show.drawings import drawing
from rlmem.analysis.show.page import write_page
from rlmem.analysis.show.section import Section
from rlmem.drawing import save
from rlmem.errors import need
from rlmem.units import number

from .compare import BASE, RELEASED, mean_of, of_mazes, paired, random_mazes, released, rows_of
from .results import IN_A_ROW, Result, frame

WHOLE = "{:,.0f}"
FIRST = f"first of {IN_A_ROW}"
# What is asked of the graphs beside the table: (memory, the one that it is held against).
PAIRS = (
    ("GQ, released", "GQ"),
    ("GCMR, released", "GCMR"),
    ("GBMR, released", "GBMR"),
    ("GCMR", "GQ"),
    ("GBMR", "GQ"),
    ("GBMR", "GCMR"),
    ("GCMR", "DQN"),
    ("GCMR", "NEC"),
)
ABOUT_COSTS = (
    f"{FIRST}: the episode, from 1, that begins the first {IN_A_ROW} successes in a row, median "
    "over runs; a run without any counts as later than all others. Failed: episodes of 100 that "
    "did not come to the goal, mean.",
    "Bytes: the most that the memory held, mean; networks do not count. CPU seconds of a run are "
    "without its start, medians, and so are microseconds: of the memory's learning, an env step "
    "(wall time, beside other work).",
)
COSTS = "Bytes, CPU time an env step and CPU time a run: medians over random mazes"
ABOUT_PAIRS = (
    "A maze's ratio is of the env steps summed over the seeds that both have there. Mean: the "
    "geometric one over mazes; its interval is a bootstrap over mazes; p: Wilcoxon's signed-rank "
    "test of the ratios' logarithms."
)


def write_maze(folder: Path, title: str, results: Sequence[Result], order: Sequence[str]) -> None:
    """Write report/: index.html with findings.md at its top, and figures/ as PNG and SVG.

    Args:
        order: of the memories, those of the study.

    Raises:
        UserError: a package is missing.
    """
    need("matplotlib", "the page of a study", "plot")
    from .figures import headline

    table = frame(results)
    sections, out = sections_of(table, results, rows_of(table, order)), folder / "report"
    (out / "figures").mkdir(parents=True, exist_ok=True)
    spoken = {"shares": headline(table, rows_of(table, order))}
    figures = [
        drawing("", name, caption, save(drawn, out / "figures", name), alt=spoken.get(name, ""))
        for section in sections
        for name, (caption, drawn) in section.figures.items()
    ]
    write_page(out / "index.html", title, folder / "findings.md", sections, figures)


def sections_of(
    table: pd.DataFrame, results: Sequence[Result], rows: Sequence[str]
) -> list[Section]:
    """All of the page below the findings."""
    from . import figures

    both = Section("Env steps of 100 episodes")
    signs = (
        "Bar and line: mean and 95 % interval. Filled: the sound form, hollow: the released one."
    )
    said = f"Random mazes, as shares of the {BASE}'s: a point a maze. {signs}"
    both.figures["shares"] = said, figures.shares(table, rows)
    said = f"The released maze: a point a seed. {signs}"
    both.figures["steps"] = said, figures.steps(table, rows)
    one = Section("The released maze", table=in_one_maze(released(table), rows), words=("memory",))
    one.remarks = [*ABOUT_COSTS]
    many = Section("Random mazes", table=in_random_mazes(table, rows), words=("memory",))
    many.remarks = [ABOUT_PAIRS]
    others = Section("Against each other, in random mazes", table=against(table))
    others.words = ("memory", "against")
    money = Section("What it costs")
    caption = (
        "Env steps of each episode, {}: thin a run, thick the median, dashed the released form's"
    )
    parts = (
        (one, "episodes-released", caption.format("released maze"),
         figures.episodes(results, rows, RELEASED)),
        (many, "episodes-random", caption.format("random mazes"),
         figures.episodes(results, rows, "random")),
        (many, "mazes", "Number, shortest way, and GCMR's share of the Q table's env steps",
         figures.mazes(table, "GCMR")),
        (money, "cost", COSTS, figures.cost(table, rows)),
    )  # fmt: skip
    for section, name, text, drawn in parts:
        if drawn is not None:
            section.figures[name] = (text, drawn)
    return [both, one, many, others, money]


def in_one_maze(table: pd.DataFrame, rows: Sequence[str]) -> pd.DataFrame:
    """A line a memory, over its seeds."""
    lines = []
    for row in rows:
        runs = table[table["row"] == row]
        if len(runs):
            steps = mean_of(runs["env_steps"])
            first = {"memory": row, "seeds": str(len(runs))}
            lines.append(first | _steps(steps, runs["env_steps"].std(ddof=1)) | _costs(runs))
    return pd.DataFrame(lines)


def in_random_mazes(table: pd.DataFrame, rows: Sequence[str]) -> pd.DataFrame:
    """A line a memory, over random mazes, with its share of the table's env steps."""
    lines, mazes = [], random_mazes(table)
    for row in rows:
        runs = mazes[mazes["row"] == row]
        if len(runs):
            here = runs.groupby("maze")["env_steps"].mean()
            line = {"memory": row, "mazes": str(len(here)), "runs": str(len(runs))}
            line |= _steps(of_mazes(runs, "env_steps"), here.std(ddof=1))
            share = {} if row == BASE else _pairs(table, row, BASE)
            line |= {f"share of {BASE}'s [95 %]": share.get("ratio [95 %]", "1")}
            line |= {name: share.get(name, "") for name in ("sd", "below in", "equal in", "p")}
            lines.append(line | _costs(runs))
    return pd.DataFrame(lines)


def against(table: pd.DataFrame) -> pd.DataFrame:
    """A line for each of PAIRS that has runs."""
    lines = [
        {"memory": row, "against": other} | found
        for row, other in PAIRS
        if (found := _pairs(table, row, other))
    ]
    return pd.DataFrame(lines)


def _pairs(table: pd.DataFrame, row: str, other: str) -> dict[str, str]:
    pairs = paired(table, row, other)
    if pairs is None:
        return {}
    return {
        "ratio [95 %]": _bounds(pairs.mean, "{:.3f}"),
        "sd": f"{pairs.sd:.2f}",
        "below in": f"{pairs.below} of {len(pairs.ratio)}",
        "equal in": str(pairs.equal),
        "p": f"{pairs.p:.2g}",
        "runs of each": str(pairs.runs),
    }


def _steps(steps: Estimate, sd: float) -> dict[str, str]:
    return {"env steps, mean [95 %]": _bounds(steps, WHOLE), "sd ": number(sd, WHOLE)}


def _bounds(estimate: Estimate, form: str) -> str:
    """`480 [455, 500]`; without bounds where there are none."""
    value = form.format(estimate.value)
    if estimate.low is None or estimate.high is None:
        return value
    return f"{value} [{form.format(estimate.low)}, {form.format(estimate.high)}]"


def _costs(runs: pd.DataFrame) -> dict[str, str]:
    first = runs["first_of_ten"].fillna(float("inf")).median()
    return {
        FIRST: number(first, "{:.3g}") if first < float("inf") else "never",
        "failed": number(runs["failed"].mean(), "{:.1f}"),
        "bytes": number(runs["memory_bytes"].mean(), WHOLE),
        "entries": number(runs["memory_entries"].mean(), WHOLE),
        "us a step": number(runs["learn_us"].median(), "{:,.1f}"),
        "CPU s": number(runs["cpu_seconds"].median(), "{:.2f}"),
    }
