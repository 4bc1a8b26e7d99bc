"""What `evaluate.py` does, by mode. Each mode imports what it needs when it is asked for."""

from pathlib import Path
from typing import Any

from rlmem.config.schema import EvaluateSettings

SHOWN = 10  # lines of what a report left out


def evaluate(cfg: EvaluateSettings) -> None:
    """Do what `mode` names: score a run, draw its map, compare runs, or say how a sweep stands.

    Raises:
        UserError: there is no such run, checkpoint or sweep.
    """
    MODES[cfg.mode](cfg)


def plot(cfg: EvaluateSettings) -> None:
    """`mode=plot`: curves of several runs in one image."""
    from rlmem.analysis.curves import plot_runs

    out = Path(cfg.out or "curves.png")
    plot_runs([Path(run) for run in cfg.runs], out)
    print(f"written: {out}")


def report(cfg: EvaluateSettings) -> None:
    """`mode=report`: tables, figures and a page that compare all runs of some folders."""
    from rlmem.analysis.report import write_report

    sweeps, outsiders = paths(cfg.sweep), paths(cfg.outsiders)
    out = Path(cfg.out) if cfg.out else (sweeps[0] if len(sweeps) == 1 else Path()) / "report"
    written = write_report(sweeps, out, outsiders)
    print(f"runs: {len(written.collection.runs)}, settings: {len(written.cells)}")
    for note in written.collection.notes:
        print(f"note: {note}")
    for path, reason in written.collection.left_out[:SHOWN]:
        print(f"left out of the means: {path} ({reason})")
    if len(written.collection.left_out) > SHOWN:
        print(f"and {len(written.collection.left_out) - SHOWN} more, listed on the page")
    print(f"written: {out}/index.html, results.csv, summary.csv, figures/")


def status(cfg: EvaluateSettings) -> None:
    """`mode=status`: what of a sweep is done, running, failed and missing."""
    from rlmem.analysis.status import read_status, render_status

    for folder in paths(cfg.sweep):
        print(render_status(read_status(folder)))


def dashboard(cfg: EvaluateSettings) -> None:
    """`mode=dashboard`: a W&B workspace, or the file that defines it where there is no key."""
    from rlmem.integrations.wandb_dashboard import write_dashboard

    print(write_dashboard(cfg.entity, cfg.project, Path(cfg.out or "wandb_dashboard.json")))


def draw_map(cfg: EvaluateSettings) -> None:
    """`mode=map`: pictures and figures of the map that a run left."""
    from rlmem.runs.map import show_map

    show_map(cfg)


def paths(value: Any) -> list[Path]:
    """A path, or a list of them."""
    return [Path(part) for part in ([value] if isinstance(value, str) else value)]


def score(cfg: EvaluateSettings) -> None:
    """`mode=score`: episodes of a run's checkpoint."""
    from rlmem.runs.score import score as play

    play(cfg)


MODES = {
    "score": score,
    "map": draw_map,
    "plot": plot,
    "report": report,
    "status": status,
    "dashboard": dashboard,
}
