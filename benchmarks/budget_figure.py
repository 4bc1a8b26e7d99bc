"""The figure of return against bytes in docs/bytes.md, from docs/results/budgets.csv.

python benchmarks/budget_figure.py [--rows FILE] [--out IMAGE]
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from pathlib import Path

from matplotlib.figure import Figure

DOCS = Path(__file__).parents[1] / "docs"
COLOURS = {"frames": "C7", "compressed": "C0"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=Path, default=DOCS / "results" / "budgets.csv")
    parser.add_argument("--out", type=Path, default=DOCS / "img" / "budgets.png")
    args = parser.parse_args()
    cells: dict[str, dict[str, dict[float, list[dict[str, str]]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    with args.rows.open(newline="") as file:
        for row in csv.DictReader(file):
            cells[row["env_id"]][row["storage"]][float(row["budget_mib"])].append(row)
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    for axes, (env_id, storages) in zip(figure.subplots(1, 2), sorted(cells.items()), strict=True):
        seeds = {len(rows) for budgets in storages.values() for rows in budgets.values()}
        for storage, budgets in storages.items():
            points = []
            for _, rows in sorted(budgets.items()):
                held = [float(row["memory_bytes_peak"]) / 2**20 for row in rows]
                returns = [float(row["train_return_mean"]) for row in rows]
                entries = [int(row["memory_entries"]) for row in rows]
                n = len(rows)
                points.append(
                    (sum(held) / n, sum(returns) / n, min(returns), max(returns), sum(entries) // n)
                )
            x, y, low, high, entries = zip(*points, strict=True)
            errors = [
                [a - b for a, b in zip(y, low, strict=True)],
                [a - b for a, b in zip(high, y, strict=True)],
            ]
            axes.errorbar(
                x, y, errors, marker="o", capsize=3, color=COLOURS[storage], label=storage
            )
            for at in zip(x, y, entries, strict=True):
                axes.annotate(
                    f"{at[2] / 1000:,.1f}k",
                    at[:2],
                    xytext=(4, 5),
                    textcoords="offset points",
                    size=7,
                    color=COLOURS[storage],
                )
        count = f"{min(seeds)} seeds: mean and range" if min(seeds) > 1 else "one seed"
        axes.set_title(f"{env_id}, {count}; labels: transitions held", size=9)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set(xlabel="memory held at most [MiB]", ylabel="return, last 100 training episodes")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.out, dpi=150)
    print(f"written: {args.out}")


if __name__ == "__main__":
    main()
