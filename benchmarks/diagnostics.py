"""What the replay diagnostics of metrics.csv cost: a run switches them on and off at each row.

python benchmarks/diagnostics.py            # prints the table, writes results/diagnostics.md
python benchmarks/diagnostics.py --segments 20 --only uniform

Every `log.every` env steps (1,000, the default) make a segment, with its row of metrics.csv;
segments with and without diagnostics take turns in one process, so that whatever else the machine
does falls on both. Times are CPU seconds of the process (one torch thread) over the segments after
learning has started and epsilon has stopped falling; what is added is the median over pairs of
neighbours.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import lightning
import torch
from common import machine, versions

HERE = Path(__file__).resolve().parent
WARM_UP = 10  # segments that do not count
SETTINGS = {
    "uniform": ["memory=uniform", "env=cartpole"],
    "uniform, updates_per_step=1": ["memory=uniform", "env=cartpole", "agent.updates_per_step=1"],
    "per": ["memory=per", "env=cartpole"],
    "gwr": ["memory=gwr", "env=cartpole"],
    "none": ["memory=none", "env=cartpole"],
}


class Switch(lightning.Callback):
    """Turns a run's diagnostics on and off at each row; the last of the callbacks."""

    def __init__(self, run: Any) -> None:
        self.run, self.on = run, True
        self.times: list[tuple[bool, float]] = []  # whether a segment had them, us an env step
        self.started, self.steps = time.process_time(), 0

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """At the end of a segment, whose row has been written."""
        if not self.run.stream.crossed(self.run.cfg.log.every):
            return
        seconds, diagnostics = time.process_time() - self.started, self.run.diagnostics
        steps = self.run.stream.env_steps
        self.times.append((self.on, 1e6 * seconds / (steps - self.steps)))
        self.on = not self.on
        self.run.recorder.diagnostics = diagnostics if self.on else None
        self.run.stream.memory.observers = [diagnostics] if self.on else []
        self.started, self.steps = time.process_time(), steps


def measure(overrides: list[str], segments: int) -> tuple[float, float, float]:
    """Microseconds an env step without diagnostics, and those that they add to an env step and to
    a round."""
    from rlmem.config import check, compose
    from rlmem.runs.train import Run, _quiet

    _quiet()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        steps = 1000 * (WARM_UP + segments)
        fixed = [f"trainer.max_env_steps={steps}", "trainer.accelerator=cpu", "log.progress=false"]
        fixed += ["checkpoint.every=1000000000", f"paths.output_dir={folder}"]
        run = Run(check(compose("train", [*overrides, *fixed])), Path(folder))
        run.restore()
        switch = Switch(run)
        run.trainer.callbacks.append(switch)
        run.trainer.fit(run.agent, datamodule=run.data)
        run.close(run.summary("finished", None))
    counted = switch.times[WARM_UP:]
    off, on = ([us for had, us in counted if had == which] for which in (False, True))
    added = statistics.median(b - a for a, b in zip(off, on, strict=False))
    return statistics.median(off), added, added * run.stream.steps_a_round


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--segments", type=int, default=100, help="of 1,000 env steps, half of them with"
    )
    parser.add_argument("--only", default="", help="settings whose name contains this")
    parser.add_argument("--results", type=Path, default=HERE / "results/diagnostics.md")
    args = parser.parse_args()
    about = machine()
    named = ", ".join(f"{k} {v}" for k, v in versions(["torch", "numpy", "lightning"]).items())
    lines = [
        "# diagnostics",
        "",
        f"CartPole, DQN: {args.segments // 2} pairs of segments of 1,000 env steps, with and "
        "without diagnostics; medians, CPU time.",
        f"Machine: {about['cpu']}, {about['cores']} cores, {about['memory_gib']} GiB. "
        f"Versions: {named}.",
        "",
        "| setting | us an env step without | added | share | added to a round, us |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, overrides in SETTINGS.items():
        if args.only in name:
            bare, added, a_trainer_step = measure(overrides, args.segments)
            share = f"{added:+,.1f} | {added / bare:+.1%} | {a_trainer_step:+,.0f}"
            lines.append(f"| {name} | {bare:,.0f} | {share} |")
            print(lines[-1], flush=True)
    args.results.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
