"""What a byte of memory buys: the README's two figures, from the studies' recorded runs.

python -m benchmarks.frontier_figure --out docs/img
"""

import argparse
import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context

from rlmem.analysis.compare.looks import look, slots
from rlmem.drawing import DPI, STYLE, figure

STUDIES = Path(__file__).parents[1] / "studies"
MIB = 2**20


@dataclass(frozen=True)
class Shown:
    """A row of a study: its words, its memory, marker, and where the words stand beside the mean.

    Attributes:
        beside: x as a factor of the largest of its seeds (below 1: the words end there), and y.
    """

    words: str
    memory: str
    marker: str
    beside: tuple[float, float]


@dataclass(frozen=True)
class Frontier:
    """One figure: runs of one environment of a study, against the bytes they held at most.

    Attributes:
        measure: column of results.csv that is drawn.
        ticks: MiB -> what the axis says of it.
        human: score of a human, drawn as a line.
    """

    study: str
    env_id: str
    measure: str
    title: str
    y_label: str
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    ticks: dict[float, str]
    rows: dict[str, Shown]
    human: float | None = None

    def runs(self, row: str) -> Iterator[tuple[float, float]]:
        """MiB held at most, and the measure, of each seed."""
        with (STUDIES / self.study / "results.csv").open() as file:
            for line in csv.DictReader(file):
                if (line["label"], line["env_id"]) == (row, self.env_id):
                    yield float(line["memory_bytes_peak"]) / MIB, float(line[self.measure])

    def draw(self, plot: Any) -> None:
        memories = {shown.memory for shown in self.rows.values()}
        colours = {memory: look(slot, 0).colour for memory, slot in slots(memories).items()}
        for row, shown in self.rows.items():
            colour, (factor, rise) = colours[shown.memory], shown.beside
            mib, values = np.array(list(self.runs(row))).T
            plot.plot(mib, values, shown.marker, color=colour, alpha=0.45, markersize=5, mew=0)
            x, y = np.exp(np.log(mib).mean()), values.mean()
            plot.plot(x, y, shown.marker, color=colour, markersize=10)
            side = "right" if factor < 1 else "left"
            place = (mib.min() if factor < 1 else mib.max()) * factor, y + rise
            plot.text(*place, shown.words, color=colour, ha=side, va="center", fontsize=9)
        if self.human is not None:
            plot.axhline(self.human, color="#808080", linewidth=1, linestyle="--")
            at = self.x_range[1] * 0.97, self.human
            plot.text(*at, "a human", color="#606060", ha="right", va="bottom", fontsize=9)
        plot.set_xscale("log")
        plot.set_xticks(list(self.ticks), list(self.ticks.values()))
        plot.minorticks_off()
        plot.yaxis.set_major_formatter("{x:,.0f}")
        plot.set_xlim(*self.x_range)
        plot.set_ylim(*self.y_range)
        plot.set_xlabel("memory held at most")
        plot.set_ylabel(self.y_label)
        plot.set_title(self.title, loc="left")


# File -> what it shows. A memory has the colour that it has on all pages.
FIGURES = {
    "frontier_road_runner.png": Frontier(
        study="atari_100k",
        env_id="ALE/RoadRunner",
        measure="eval_return_mean",
        title="On Road Runner 1 MiB of replay is too little; "
        "no difference seen between 4 MiB and all\n"
        "(DrQ(eps), 100,000 steps, 5 seeds: small; their mean: large)",
        y_label="score of 100 games",
        x_range=(0.7, 32),
        y_range=(0, 20_500),
        ticks={n: f"{n} MiB" for n in (1, 2, 4, 8, 16)},
        rows={
            "DrQ(eps), epsilon by 25,000": Shown(
                "all 100,000 transitions", "uniform", "s", (0.95, 900)
            ),
            "DrQ(eps), epsilon by 25,000, newest 4 MiB": Shown(
                "the newest 22,000 to 24,500", "uniform", "^", (1.1, -300)
            ),
            "DrQ(eps), epsilon by 25,000, newest 1 MiB": Shown(
                "the newest 4,300 to 5,500", "uniform", "^", (1.1, 0)
            ),
        },
        human=7_845,
    ),
    "frontier.png": Frontier(
        study="reacher_frontier",
        env_id="Reacher-v5",
        measure="return_over_run",
        title="A random sample learns as a full replay does, in a seventh of its bytes; "
        "the newest forget\n"
        "(DDPG, Reacher, 5 seeds: small; their mean: large)",
        y_label="return over the run\n(mean of the learning curve)",
        x_range=(180 / 1024, 2600 / 1024),
        y_range=(-34, -19),
        ticks={0.25: "256 KiB", 0.5: "512 KiB", 1: "1 MiB", 2: "2 MiB"},
        rows={
            "uniform": Shown("replay of all\ntransitions", "uniform", "s", (0.95, -2.6)),
            "reservoir, 250 kB": Shown(
                "random sample of all that was seen,\n14 % of the bytes",
                "random_eviction",
                "D",
                (1.03, 1.9),
            ),
            "a_T .05": Shown("map of states,\nas few bytes", "gwr_plain", "o", (1.12, -1.1)),
            "FIFO of the bytes of a_T .05": Shown(
                "the newest transitions,\nas few bytes", "uniform", "^", (1.15, 0.0)
            ),
            "FIFO of the bytes of a_T .2": Shown("the newest,\n38 %", "uniform", "^", (1.12, -1.0)),
        },
    ),
}


def main() -> None:
    """Draw them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/img"), help="folder")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    with rc_context(STYLE):
        for name, frontier in FIGURES.items():
            drawn, axes = figure(7.2, 3.6)
            frontier.draw(axes[0, 0])
            drawn.savefig(folder / name, dpi=DPI)
            print(folder / name)


if __name__ == "__main__":
    main()
