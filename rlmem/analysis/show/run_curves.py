"""Curves of runs over env steps: return and memory bytes side by side. Reads files only."""

import csv
from pathlib import Path

import yaml

from rlmem.errors import UserError


def read_csv(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file, empty if there is none; half-written last lines are dropped."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [row for row in csv.DictReader(file) if None not in row.values()]


def _column(rows: list[dict[str, str]], name: str) -> tuple[list[float], list[float]]:
    pairs = [(float(r["env_steps"]), float(r[name])) for r in rows if r.get(name)]
    return [x for x, _ in pairs], [y for _, y in pairs]


def evaluation_means(rows: list[dict[str, str]]) -> tuple[list[float], list[float]]:
    """Mean return of each evaluation, by its env steps."""
    by_steps: dict[float, list[float]] = {}
    for row in rows:
        by_steps.setdefault(float(row["env_steps"]), []).append(float(row["return"]))
    steps = sorted(by_steps)
    return steps, [sum(by_steps[s]) / len(by_steps[s]) for s in steps]


def _label(run_dir: Path) -> tuple[str, str, int]:
    """Memory, environment and seed of a run."""
    try:
        config = yaml.safe_load((run_dir / "config.yaml").read_text())
        return config["memory"]["name"], config["env"]["name"], int(config["seed"])
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        raise UserError(f"runs: {run_dir} is no run directory (it has no config.yaml)") from None


def plot_runs(run_dirs: list[Path], out: Path) -> None:
    """Draw training return, evaluation return and memory bytes of runs into one figure.

    Args:
        run_dirs: one curve each.
        out: image file; its ending chooses the format.

    Raises:
        UserError: a directory holds no run, or matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("mode=plot needs matplotlib: pip install 'rlmem[plot]'") from None
    labels = [_label(run_dir) for run_dir in run_dirs]
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    scores, size = figure.subplots(1, 2)
    for number, (run_dir, (memory, _, seed)) in enumerate(zip(run_dirs, labels, strict=True)):
        metrics = read_csv(run_dir / "metrics.csv")
        colour = f"C{number}"
        scores.plot(
            *_column(metrics, "train_return_mean"), color=colour, label=f"{memory}, seed {seed}"
        )
        scores.plot(
            *evaluation_means(read_csv(run_dir / "evaluations.csv")),
            color=colour,
            linestyle="none",
            marker="o",
            markersize=4,
        )
        steps, held = _column(metrics, "memory_bytes")
        last = f", {held[-1] / 2**20:,.0f} MiB" if held else ""
        size.plot(steps, [b / 2**20 for b in held], color=colour, label=memory + last)
    scores.set(xlabel="env steps", ylabel="return")
    scores.set_title(
        f"{labels[0][1]}: last 100 training episodes (line), evaluations (dots)", size=9
    )
    scores.legend(frameon=False)
    size.set(xlabel="env steps", ylabel="memory [MiB]", ylim=(0, None))
    size.legend(frameon=False)
    size.set_title("bytes held by the memory", size=9)
    for axes in (scores, size):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150)
