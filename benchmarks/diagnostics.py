"""What the replay diagnostics of metrics.csv cost: a run switches them on and off at each row.

python benchmarks/diagnostics.py --contender uniform     # one JSON line
python benchmarks/diagnostics.py --list

Every `log.every` env steps (1,000, the default) make a segment, with its row of metrics.csv;
segments with and without diagnostics take turns in one process, so that whatever else the machine
does falls on both. Times are CPU seconds of the process (one torch thread) over the segments after
learning has started and epsilon has stopped falling; what is added to an env step is the median
over pairs of neighbours.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import lightning
import torch
from common import command_line, versions

WARM_UP = 10  # segments that do not count
SEGMENTS = 100  # of 1,000 env steps that do, half of them with diagnostics
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


def measure(overrides: list[str], segments: int) -> tuple[float, float]:
    """Microseconds an env step without diagnostics, and those that they add."""
    from rlmem.config import check, compose
    from rlmem.runs.run import Run
    from rlmem.runs.train import _quiet

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
    return statistics.median(off), added


def main() -> None:
    args = command_line(SETTINGS, short="10 segments: does it work?")
    without, added = measure(SETTINGS[args.contender], 10 if args.short else SEGMENTS)
    metrics = {"us_without": round(without, 1), "added_us": round(added, 2)}
    metrics["added_percent"] = round(100 * added / without, 2)
    named = versions(["rlmem", "torch", "numpy", "lightning"])
    print(json.dumps({"name": args.contender, "metrics": metrics, "versions": named}))


if __name__ == "__main__":
    main()
