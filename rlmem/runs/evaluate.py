"""What `evaluate.py` does, by mode. Each mode imports what it needs when it is asked for."""

import pkgutil
import sys
import time
from pathlib import Path
from typing import Any

from rlmem.config.schema import EvaluateSettings
from rlmem.errors import printable

SHOWN = 10  # lines of what a report left out


def evaluate(cfg: EvaluateSettings) -> None:
    """Do what `mode` names: score a run, draw its memory, compare runs, or say how a sweep stands.

    Raises:
        UserError: there is no such run, checkpoint or sweep.
    """
    pkgutil.resolve_name(MODES[cfg.mode])(cfg)


def say(text: str) -> None:
    """Print what may hold texts of a run directory."""
    print(printable(text))


def plot(cfg: EvaluateSettings) -> None:
    """`mode=plot`: curves of several runs in one image."""
    from rlmem.analysis.show.run_curves import plot_runs

    out = Path(cfg.out or "curves.png")
    faults = plot_runs([Path(run) for run in cfg.runs], out)
    say(f"written: {out}")
    for line in faults:
        say(f"note: {line}")


def report(cfg: EvaluateSettings) -> None:
    """`mode=report`: tables, figures and a page that compare all runs of some folders."""
    from rlmem.analysis.show.report import default_out, write_report

    sweeps, external = paths(cfg.sweep), paths(cfg.external) + paths(cfg.outsiders)
    if cfg.outsiders:
        say("outsiders= is now called external=; the old name works as well")
    out = Path(cfg.out) if cfg.out else default_out(sweeps[0] if len(sweeps) == 1 else Path())
    written = write_report(sweeps, out, external)
    say(f"runs: {len(written.collection.runs)}, settings: {len(written.settings)}")
    for note in written.collection.notes:
        say(f"note: {note}")
    for path, reason in written.collection.left_out[:SHOWN]:
        say(f"left out of the means: {path} ({reason})")
    if len(written.collection.left_out) > SHOWN:
        say(f"and {len(written.collection.left_out) - SHOWN} more, listed on the page")
    say(f"written: {out}/index.html, results.csv, summary.csv, figures/")


def status(cfg: EvaluateSettings) -> None:
    """`mode=status`: what of a sweep is done, running, failed and missing."""
    from rlmem.analysis.show.status import read_status, render_status, watch

    def read(width: int) -> tuple[str, bool]:
        found = [read_status(folder) for folder in paths(cfg.sweep)]
        text = "\n".join(render_status(each, width) for each in found)
        return printable(text), any(each.of("running") for each in found)

    watch(read, sys.stdout, time.sleep)


def dashboard(cfg: EvaluateSettings) -> None:
    """`mode=dashboard`: a W&B workspace, or the file that defines it where there is no key."""
    from rlmem.integrations.wandb_dashboard import write_dashboard

    print(write_dashboard(cfg.entity, cfg.project, Path(cfg.out or "wandb_dashboard.json")))


def paths(value: Any) -> list[Path]:
    """A path, or a list of them."""
    return [Path(part) for part in ([value] if isinstance(value, str) else value)]


MODES = {
    "score": "rlmem.runs.score:score",
    "map": "rlmem.runs.pictures:show_memory",
    **{mode: f"{__name__}:{mode}" for mode in ("plot", "report", "status", "dashboard")},
}
