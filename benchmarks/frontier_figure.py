"""What a byte of memory buys on Reacher: the README's first figure, from the study's recorded runs.

python -m benchmarks.frontier_figure --out docs/img/frontier.png
"""

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib import rc_context

from rlmem.analysis.compare.looks import look, slots
from rlmem.drawing import DPI, STYLE, figure

RESULTS = Path(__file__).parents[1] / "studies/reacher_frontier/results.csv"
# Row of the study -> its words, its memory, marker, and where the words stand beside the mean: x as
# a factor, y. A memory has the colour that it has on all pages.
SHOWN = {
    "uniform": ("replay of all\ntransitions", "uniform", "s", (1.05, -2.6)),
    "reservoir, 250 kB": (
        "random sample of all that was seen,\n14 % of the bytes",
        "random_eviction",
        "D",
        (1.03, 1.9),
    ),
    "a_T .05": ("map of states, as few bytes", "gwr_plain", "o", (1.12, -0.9)),
    "FIFO of the bytes of a_T .05": (
        "the newest transitions,\nas few bytes",
        "uniform",
        "^",
        (1.15, 0.0),
    ),
    "FIFO of the bytes of a_T .2": ("the newest,\n38 %", "uniform", "^", (1.12, -1.0)),
}
_MEMORIES = {memory for _, memory, _, _ in SHOWN.values()}
COLOURS = {memory: look(slot, 0).colour for memory, slot in slots(_MEMORIES).items()}


def runs(row: str) -> Iterator[tuple[float, float]]:
    """KiB held at most, and the mean of the learning curve, of each seed."""
    with RESULTS.open() as file:
        for line in csv.DictReader(file):
            if line["label"] == row:
                yield float(line["memory_bytes_peak"]) / 1024, float(line["return_over_run"])


def main() -> None:
    """Draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/img/frontier.png"))
    out = parser.parse_args().out
    with rc_context(STYLE):
        drawn, axes = figure(7.2, 3.6)
        plot = axes[0, 0]
        for row, (words, memory, marker, (factor, rise)) in SHOWN.items():
            colour = COLOURS[memory]
            points = np.array(list(runs(row)))
            kib, returns = points.T
            plot.plot(kib, returns, marker, color=colour, alpha=0.45, markersize=5, mew=0)
            x, y = np.exp(np.log(kib).mean()), returns.mean()
            plot.plot(x, y, marker, color=colour, markersize=10)
            side = "right" if words.startswith("replay") else "left"
            beyond = kib.max() * factor
            plot.text(beyond, y + rise, words, color=colour, ha=side, va="center", fontsize=9)
        plot.set_xscale("log")
        plot.set_xticks([256, 512, 1024, 2048], ["256 KiB", "512 KiB", "1 MiB", "2 MiB"])
        plot.minorticks_off()
        plot.set_xlim(180, 2600)
        plot.set_ylim(top=-19)
        plot.set_xlabel("memory held at most")
        plot.set_ylabel("return over the run\n(mean of the learning curve)")
        plot.set_title(
            "A seventh of the bytes is enough if some of what is old is kept; the newest forget\n"
            "(DDPG, Reacher, 5 seeds: small; their mean: large)",
            loc="left",
        )
        drawn.savefig(out, dpi=DPI)
    print(out)


if __name__ == "__main__":
    main()
