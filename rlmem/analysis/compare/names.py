"""What sets a run apart from others of its environment, and what its setting is called."""

import contextlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from rlmem.analysis.read.runs import Run
from rlmem.errors import one_line
from rlmem.registry import parts
from rlmem.units import parse_bytes, readable_bytes

# Keys that say how a run is computed, not what.
COMPUTED = ("trainer.threads", "trainer.rounds", "trainer.accelerator", "trainer.compile")
# Keys that make no other setting: where things go, what is shown, how a run is scored and saved.
NO_SETTING = (
    "seed",
    "label",
    "resume",
    "debug",
    "paths.",
    "plugins",
    "memory.storage.directory",
    "log.",
    "logger.",
    "evaluation.every",
    "evaluation.episodes",
    "evaluation.video",
    "checkpoint.every",
    "checkpoint.keep_memory_when_finished",
    *COMPUTED,
    "env.recommended.",
    "hparams_search",
    "objective",
)
SHARED = ("memory.capacity", "memory.budget", "memory.storage.kind")  # of all memories


def _decisive(run: Run, without_thresholds: set[str]) -> dict[str, Any]:
    """What decides a run's results, beside environment and seed."""
    void = ("threshold.",) if run.config.get("memory.name") in without_thresholds else ()
    found = {
        key: _plain(key, value)
        for key, value in run.config.items()
        if not key.startswith((*NO_SETTING, *void))
    }
    # Which callbacks there are: their keys are in the runs that have them alone.
    names = {key.split(".")[1] for key in run.config if key.startswith("callbacks.")}
    return found | {"callbacks": run.config.get("callbacks") or " ".join(sorted(names)) or None}


def _without_thresholds() -> set[str]:
    """Memories that are here and read no `threshold.*`; of one that is not here nobody knows."""
    return {
        name
        for part in parts("memory").values()
        if not getattr(part.cls, "thresholds", False)
        for name in getattr(part.cls, "colours", None) or (part.name,)
    }


def _plain(key: str, value: Any) -> Any:
    """A value however it was written: 1 and 1.0 are one, 1MiB and 1048576 are one budget."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if key == "memory.budget" and value is not None:
        with contextlib.suppress(ValueError):
            return parse_bytes(str(value))
    return value


def _size(size: int) -> str:
    """Bytes in a unit that tells them in whole, or as they are."""
    with contextlib.suppress(ValueError, OverflowError):  # no run's budget: of a damaged file
        shown = readable_bytes(size).replace(".0 ", " ")
        if parse_bytes(shown) == size:
            return shown
    return one_line(f"{size:,} B", 40)


def distinctions(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Of each run of one environment, the keys and values that other settings do not share.

    A key that belongs to one kind of memory counts among the runs of that memory only: that PER
    has an exponent and uniform replay has none is said by their names.
    """
    without_thresholds = _without_thresholds()
    flat = [_decisive(run, without_thresholds) if run.external is None else {} for run in runs]
    names = [s.get("memory.name") for s in flat]
    inside: dict[Any, set[str]] = {}
    for name in set(names):
        group = [s for s, n in zip(flat, names, strict=True) if n == name]
        inside[name] = _varying(group) | _added(
            [run for run, n in zip(runs, names, strict=True) if n == name and run.external is None]
        )
    ours = [s for s, run in zip(flat, runs, strict=True) if run.external is None]
    # Only keys that every memory has can tell memories apart.
    common = set.intersection(*(set(s) for s in ours)) if ours else set()
    between = {
        key
        for key in _varying([{k: s[k] for k in common} for s in ours])
        if not key.startswith("memory.") or key in SHARED
    }
    said = _said_by("agent.name", ours) if "agent.name" in between else set()
    if len({s["memory.storage.kind"] for s in ours if "memory.storage.kind" in s} - {"map"}) < 2:
        between.discard("memory.storage.kind")
    return [
        {
            key: s[key]
            for key in sorted(
                (inside[name] | between) - said, key=lambda key: (key != "agent.name", key)
            )
            if key in s and (key, s[key]) != ("memory.storage.kind", "map")
        }
        for s, name in zip(flat, names, strict=True)
    ]


def _said_by(known: str, configs: Sequence[dict[str, Any]]) -> set[str]:
    """Keys that have one value for each value of another, such as an agent's own defaults."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for config in configs:
        for key, value in config.items():
            found[key][str(config.get(known))].add(str(value))
    return {
        key
        for key, values in found.items()
        if key != known and all(len(of) == 1 for of in values.values())
    }


def _added(runs: Sequence[Run]) -> set[str]:
    """Keys that a run was given and that others lack, which were made before it was a key: what
    was given is seldom their default."""
    given = {o.lstrip("+").partition("=")[0] for run in runs for o in run.overrides}
    return {
        key
        for key in given
        if not key.startswith(NO_SETTING) and 0 < sum(key in run.config for run in runs) < len(runs)
    }


def mixed(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Keys in which runs that count as one setting differ, and their values: what a label that
    their user gave leaves out."""
    without_thresholds = _without_thresholds()
    configs = [_decisive(run, without_thresholds) for run in runs if run.external is None]
    return {
        key: sorted({str(config[key]) for config in configs if key in config})
        for key in sorted(_varying(configs))
    }


def _varying(configs: Sequence[dict[str, Any]]) -> set[str]:
    """Keys that have several values. A run that lacks one was made before it was a key: what the
    others have is its default."""
    values: dict[str, set[str]] = defaultdict(set)
    for config in configs:
        for key, value in config.items():
            values[key].add(str(value))
    return {key for key, found in values.items() if len(found) > 1}


def make_label(memory: str, distinct: dict[str, Any]) -> str:
    """`gwr, activation 0.7`: the memory and what sets it apart, with the keys' last parts."""
    last = [key.rpartition(".")[2] for key in distinct]
    parts = [memory]
    for key, value in distinct.items():
        short = key.rpartition(".")[2]
        # An evaluation's epsilon is not the agent's.
        apart = key.startswith("evaluation.") or last.count(short) > 1
        if short in ("kind", "name") or apart:
            short = " ".join(key.split(".")[-2:])
            short = short.removesuffix(" kind").removesuffix(" name")
        if key == "memory.budget" and value is not None:
            value = _size(value) if isinstance(value, int) else value
        parts.append(f"{short} {'none' if value is None else value}")
    return ", ".join(parts)
