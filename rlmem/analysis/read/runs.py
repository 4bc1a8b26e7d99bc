"""What a run left: configuration, summary, curves. What is damaged does not count, and is named."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from rlmem.analysis.read.curves import (
    OVER_RUN,
    TIMES,
    curves_of,
    means_of,
    read_table,
    table_of,
    text_of,
)
from rlmem.errors import one_line
from rlmem.run_files import (
    RUN_FILE,
    UNREADABLE,
    parse_json,
    parse_yaml,
    read_json,
    read_small,
)
from rlmem.units import several

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

ENV_ARGUMENTS = "env.kwargs."  # before the names of an environment's own arguments
MOST_BYTES = 2**24  # of a configuration or a summary
MOST = 1e300  # of a number
NUMBERS = (  # of a run, in every table of runs
    "env_steps",
    "grad_steps",
    "eval_return_mean",
    "train_return_mean",
    "return_over_run",
    "human_normalized_score",
    "memory_bytes",
    "memory_bytes_peak",
    "memory_entries",
    "transitions_seen",
    "bytes_per_transition",
    "peak_rss_bytes",
    "env_steps_per_second",
    "wall_seconds",
    "cpu_seconds",
)
SUCCESS = "eval_success_rate"  # of environments with goals
WANDB = "wandb"  # a folder of that name keeps a config.yaml of its own kind for each run


@dataclass
class Run:
    """One run as it lies on disk, or as a study's record has it.

    Attributes:
        config: resolved configuration, flat: `memory.capacity`; lists as text.
        summary: content of summary.json, {} if the run has not ended.
        curves: column of metrics.csv -> float32 [points], at most POINTS, NaN where a cell is
            empty; always with all of CURVES, and with all of EVALUATED, of points of their own.
        means: over the run, of all rows of metrics.csv: each column's mean, TIMES weighted by what
            they are of, and `return_over_run`.
        external: label of a curve that comes from a CSV file of somebody else.
        column: of a study, where several of its columns have this environment.
        started: content of run.json, which a run writes first.
        faults: what of its files is damaged, and does not count.
    """

    folder: Path
    config: dict[str, Any]
    summary: dict[str, Any]
    curves: dict[str, "np.ndarray"]
    means: dict[str, float] = field(default_factory=dict)
    overrides: list[str] = field(default_factory=list)
    external: str | None = None
    column: str = ""
    started: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        """finished, failed, interrupted, or `no summary` (running, or killed)."""
        return str(self.summary.get("status", "no summary"))

    @property
    def env_id(self) -> str:
        """What it is compared within: the task, and a study's column where that alone tells."""
        return f"{self.task}, {self.column}" if self.column else self.task

    @property
    def task(self) -> str:
        """The environment's name, and its own arguments: with others it is another task."""
        get, own = self.config.get, ENV_ARGUMENTS
        known = self.summary.get("env_id") or self.started.get("env_id")
        name = str(known or get("env.id") or get("env.name"))
        given = {
            key[len(own) :]: value for key, value in self.config.items() if key.startswith(own)
        }
        return ", ".join([name, *(f"{key}={value}" for key, value in given.items())])

    @property
    def seed(self) -> int:
        return int(self.config["seed"])

    @property
    def label(self) -> str | None:
        """Name that its user gave the setting."""
        label = self.config.get("label")
        return None if label is None else str(label)

    @property
    def device(self) -> str:
        """What it learned on: a GPU's name, or cpu, of which a summary without a device is; ''
        of other programs, and without a summary."""
        known = self.external is None and self.summary
        return str(self.summary.get("device") or "cpu") if known else ""

    @property
    def memory(self) -> str:
        """Name of its memory."""
        return str(self.config.get("memory.name"))

    @property
    def begins(self) -> float:
        """Where in the run its learning curve begins, as a share of its length; NaN without one."""
        steps, returns = self.curves["env_steps"], self.curves["train_return_mean"]
        known = steps[returns == returns]
        return float(known[0] / known[-1]) if len(known) and known[-1] > 0 else float("nan")

    def number(self, name: str) -> float:
        """A number of the summary, `return_over_run` or one of TIMES; NaN if there is none."""
        values = self.means if name == OVER_RUN or name in TIMES else self.summary
        value = values.get(name)
        return float(value) if _is_figure(value) else float("nan")


def _is_figure(value: Any) -> TypeGuard[int | float]:
    """Whether it is a finite number, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MOST


def find_runs(folder: Path) -> Iterator[Path]:
    """Run directories (they hold a config.yaml) below a folder, or the folder itself; sorted. A
    link may lead to one, or to a sweep; what else a link leads to is not searched."""
    for path, folders, files in os.walk(folder):
        if "config.yaml" in files:
            folders.clear()
            yield Path(path)
        folders[:] = sorted(
            name
            for name in folders
            if name[0] != "." and (name != WANDB or Path(path, name, "config.yaml").exists())
        )
        links = (Path(path, name) for name in folders if Path(path, name).is_symlink())
        for link in links:
            if (link / "config.yaml").exists():
                yield link
            elif (link / "sweep.json").exists():  # its jobs; deeper, links may go in a circle
                jobs = sorted(link.iterdir())
                yield from (job for job in jobs if (job / "config.yaml").exists())


def read_run(folder: Path) -> Run:
    """Read one run directory.

    Raises:
        ValueError: the configuration or the summary cannot be read; says which and why.
    """
    config = _mapping(folder / "config.yaml", parse_yaml)
    if type(config.get("seed")) is not int or not all(
        isinstance(config.get(part), dict) for part in ("memory", "env")
    ):
        raise ValueError("config.yaml is no configuration of a run (seed, memory, env)")
    summary = {}
    if (folder / "summary.json").exists():
        summary = _mapping(folder / "summary.json", parse_json)
    overrides: Any = []
    with contextlib.suppress(*UNREADABLE):  # absent without command line
        overrides = parse_yaml(read_small(folder / "overrides.yaml"))
    callbacks = config.get("callbacks")
    text, config = text_of(folder / "metrics.csv"), flatten(config)
    started = read_json(folder / RUN_FILE) or {}
    if isinstance(callbacks, dict) and callbacks:  # some have no keys
        config["callbacks"] = " ".join(sorted(map(str, callbacks)))
    table, faults = table_of(text), _faults_of_summary(summary)
    every = config.get("log.every")
    if fault := _fault_of_rows(text, table, every, started.get("log_every", every), summary):
        faults.append(f"metrics.csv is damaged ({fault}): its curve and times do not count")
        table = table.iloc[:0]
    played = read_table(folder / "evaluations.csv")
    if lost := played.attrs.get("damaged"):
        rows = f"{several(lost, 'row')} of {len(played)}"
        faults.append(f"evaluations.csv is damaged ({rows}): its curve does not count")
        played = played.iloc[:0]
    return Run(
        folder,
        config,
        summary,
        curves_of(table, played),
        means_of(table),
        [str(o) for o in overrides] if isinstance(overrides, list) else [],
        started=started,
        faults=faults,
    )


def _faults_of_summary(summary: dict[str, Any]) -> list[str]:
    """Figures that are no numbers: without a word they would only be missing."""
    faults = []
    for name in NUMBERS:
        value = summary.get(name)
        if value is not None and not _is_figure(value):
            faults.append(f"summary.json: {name} is {one_line(str(value))}, no number")
    return faults


def _fault_of_rows(
    text: str, table: "pd.DataFrame", every: Any, begun: Any, summary: dict[str, Any]
) -> str:
    """What no run writes, or too few rows; '' where all is well. A mean of what is left would be
    another number.

    Args:
        every: log.every as it is; `begun`: as the run began, which may have gone on with another.
    """
    count, reached = len(table), summary.get("env_steps")
    if not count:
        return ""
    lost = text.count("\n") - 1 - count
    if damaged := max(0, lost) + table.attrs.get("damaged", 0):
        return f"{several(damaged, 'row')} of {count + max(0, lost)}"
    steps = table["env_steps"].to_numpy()
    gaps = steps[1:] - steps[:-1]
    if (gaps < 0).any():
        return "its env_steps fall"
    # The first row is due after so many steps, or a round of them.
    if _is_figure(begun) and count > 1 and steps[0] > 2 * max(begun, gaps.max()):
        return f"it begins at env step {steps[0]:.0f}"
    if summary.get("status") != "finished" or not (_is_figure(every) and _is_figure(reached)):
        return ""
    last = float(steps[-1])
    # The last row may be due almost `every` before the end, and a round of steps later.
    return f"it ends at env step {last:.0f} of {reached}" if last + 2 * every < reached else ""


def flatten(node: Any, prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, keys joined by dots; lists as text."""
    if not isinstance(node, dict):
        return {prefix[:-1]: node if isinstance(node, str | int | float | None) else str(node)}
    flat: dict[str, Any] = {}
    for key, value in node.items():
        flat |= flatten(value, f"{prefix}{key}.")
    return flat


def _mapping(path: Path, parse: Any) -> dict[str, Any]:
    try:
        content = parse(read_small(path, MOST_BYTES))
    except UNREADABLE as error:
        raise ValueError(f"{path.name} cannot be read ({one_line(error)})") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} holds no mapping")
    return content
