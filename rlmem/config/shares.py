"""A run of several processes: whether it can be shared, and what each process's share of it is."""

import copy
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from rlmem.config.schema import TrainSettings
from rlmem.errors import UserError
from rlmem.registry import marked
from rlmem.settings import Settings
from rlmem.units import parse_bytes


def processes_of(trainer: Any) -> int:
    """Processes that train together."""
    return trainer.devices * trainer.num_nodes


def check_shares(run: TrainSettings) -> None:
    """Raise a UserError if the processes of a run cannot share it."""
    size, devices = processes_of(run.trainer), f"trainer.devices={run.trainer.devices}"
    if size == 1:
        return
    if not getattr(run.agent.part.cls, "data_parallel", False):
        raise UserError(
            f"{devices}: agent={run.agent.name} learns in one process, as it has no gradients of a "
            "replay to average (data_parallel); use trainer.devices=1 trainer.num_nodes=1, or an "
            f"agent such as {marked('agent', 'data_parallel')}"
        )
    if run.trainer.compile is True:
        raise UserError(
            f"trainer.compile=true: a compiled update does not average its gradients over "
            f"{size} processes; leave the key out, or use trainer.devices=1"
        )
    _divide("trainer.max_env_steps", run.trainer.max_env_steps, size)
    for settings, name, key in _divided(run):
        _divide(key, getattr(settings, name), size)


def share_of(run: TrainSettings, size: int, seed: int) -> TrainSettings:
    """The settings that one of the processes builds its parts with: of all that is divided an equal
    share, and a seed of its own. Lengths and intervals stay in env steps of the whole."""
    share = copy.deepcopy(run)
    share.seed = seed
    for settings, name, key in _divided(share):
        setattr(settings, name, _divide(key, getattr(settings, name), size))
    return share


def _divided(settings: Any, key: str = "") -> Iterator[tuple[Any, str, str]]:
    """Where the keys stand that are `divided`: settings, name, dotted key."""
    for f in fields(settings):
        value, full = getattr(settings, f.name), f"{key}{f.name}"
        if f.metadata.get("divided"):
            yield settings, f.name, full
        for below in value.values() if isinstance(value, dict) else [value]:
            if isinstance(below, Settings):
                yield from _divided(below, f"{full}.")


def _divide(key: str, value: Any, size: int) -> Any:
    """A process's share; of bytes, which are a text, rounded down."""
    if value is None:
        return None
    if not isinstance(value, int):
        return parse_bytes(value) // size
    if value % size:
        nearest = max(1, round(value / size)) * size
        raise UserError(
            f"{key}={value}: cannot be shared evenly by {size} processes (trainer.devices times "
            f"trainer.num_nodes); use {key}={nearest} or another multiple of {size}"
        )
    return value // size
