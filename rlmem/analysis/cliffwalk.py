"""The Blind Cliffwalk's results: their file, the figure and the page (`rlmem.jobs.cliffwalk`)."""

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rlmem.analysis.findings import findings_html
from rlmem.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADER = ("n", "transitions", "sampler", "seed", "updates", "converged")
BASE = "uniform"  # whose updates are divided by the others'


@dataclass(frozen=True)
class Result:
    """One run: how many updates n states took; given up at that number unless it converged."""

    n: int
    sampler: str
    seed: int
    updates: int
    converged: bool

    @property
    def transitions(self) -> int:
        """Of the memory."""
        return 2 ** (self.n + 1) - 2

    @property
    def sentence(self) -> str:
        """One line for people."""
        given_up = "" if self.converged else ", given up"
        return f"{self.sampler}, n={self.n}, seed {self.seed}: {self.updates:,} updates{given_up}"


def read_results(path: Path) -> list[Result]:
    """The results of a file, none if it is not there.

    Raises:
        UserError: it holds something else.
    """
    if not path.exists():
        return []
    try:
        with path.open(newline="") as file:
            return [
                Result(
                    int(row["n"]),
                    row["sampler"],
                    int(row["seed"]),
                    int(row["updates"]),
                    {"true": True, "false": False}[row["converged"]],
                )
                for row in csv.DictReader(file)
            ]
    except (OSError, ValueError, KeyError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read ({error}); remove it to run all again") from None


def write_results(results: Sequence[Result], path: Path) -> None:
    """Write all results, in order, in place of the file that is there."""
    fresh = path.with_suffix(".new")
    with fresh.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for r in sorted(results, key=lambda r: (r.n, r.sampler, r.seed)):
            writer.writerow(
                [r.n, r.transitions, r.sampler, r.seed, r.updates, str(r.converged).lower()]
            )
    os.replace(fresh, path)


@dataclass(frozen=True)
class Updates:
    """Those of the runs of one sampler on n states."""

    median: float
    low: int
    high: int
    given_up: int  # runs

    @property
    def text(self) -> str:
        """`1,234`, with what was given up."""
        more = f" ({self.given_up} given up)" if self.given_up else ""
        return f"{self.median:,.0f}{more}"


def summarize(results: Sequence[Result]) -> dict[str, dict[int, Updates]]:
    """Sampler -> n -> updates; a run that was given up counts with those that it made."""
    found: dict[str, dict[int, Updates]] = {}
    for name in dict.fromkeys(r.sampler for r in results):
        own = [r for r in results if r.sampler == name]
        found[name] = {}
        for n in sorted({r.n for r in own}):
            here = [r for r in own if r.n == n]
            updates = np.array([r.updates for r in here])
            given_up = sum(not r.converged for r in here)
            found[name][n] = Updates(
                float(np.median(updates)), int(updates.min()), int(updates.max()), given_up
            )
    return found


def ratios(found: dict[str, dict[int, Updates]], name: str) -> dict[int, float]:
    """n -> median updates of uniform replay over those of a sampler."""
    base = found.get(BASE, {})
    return {n: base[n].median / own.median for n, own in found[name].items() if n in base}


def write_cliffwalk(folder: Path, title: str, results: Sequence[Result]) -> None:
    """Write report/: index.html with findings.md at its top, figures/updates.png and .svg.

    Raises:
        UserError: a package is missing.
    """
    try:
        from rlmem.analysis.figures import save
    except ImportError:
        raise UserError("a study's page needs matplotlib: pip install 'rlmem[plot]'") from None
    from rlmem.analysis.page import document

    order = sorted(results, key=lambda r: (r.sampler != BASE, r.sampler == "oracle"))
    found = summarize(order)
    out = folder / "report"
    (out / "figures").mkdir(parents=True, exist_ok=True)
    svg = save(draw(found), out / "figures", "updates")
    body = [
        f"<h1>{escape(title)}</h1>",
        findings_html(folder / "findings.md"),
        f"<figure>{svg[svg.index('<svg') :]}</figure>",
        "<h2>Updates until the values are learned, medians over the seeds</h2>",
        table(found),
    ]
    page = document(escape(title), [part for part in body if part])
    (out / "index.html").write_text(page, encoding="utf-8")


def draw(found: dict[str, dict[int, Updates]]) -> "Figure":
    """Updates over transitions, and uniform replay's over the others' by n."""
    from matplotlib import rc_context

    from rlmem.analysis.figures import STYLE, figure

    with rc_context(STYLE):
        drawn, axes = figure(10, 4.2, 1, 2)
        left, right = axes[0]
        for number, (name, by_size) in enumerate(found.items()):
            n = np.array(list(by_size))
            low, middle, high = (
                [getattr(u, part) for u in by_size.values()] for part in ("low", "median", "high")
            )
            left.plot(2 ** (n + 1) - 2, middle, ".-", color=f"C{number}", label=name)
            left.fill_between(2 ** (n + 1) - 2, low, high, color=f"C{number}", alpha=0.18, lw=0)
            over = ratios(found, name)
            if name not in (BASE, "oracle") and over:
                right.plot(list(over), list(over.values()), ".-", color=f"C{number}", label=name)
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


def table(found: dict[str, dict[int, Updates]]) -> str:
    """A line for each n, as HTML."""
    others = [name for name in found if name != BASE]
    heads = ["n", "transitions", *found, *(f"{BASE} / {name}" for name in others if BASE in found)]
    lines = []
    for n in sorted({n for by_size in found.values() for n in by_size}):
        cells = [str(n), f"{2 ** (n + 1) - 2:,}"]
        cells += [own[n].text if n in own else "missing" for own in found.values()]
        if BASE in found:
            cells += [f"{r[n]:,.1f}" if n in (r := ratios(found, o)) else "-" for o in others]
        lines.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>\n")
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    return (
        f"<div class=wide><table><thead><tr>{head}</tr></thead>\n"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )
