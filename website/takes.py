"""What a key takes, in words: its type, range and choices as its part declares them."""

import types
import typing
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from typing import Any

from rlmem import registry
from rlmem.config.schema import EvaluateSettings, TrainSettings
from rlmem.registry import Part

_WORDS = {int: "whole number", float: "number", bool: "true or false", str: "text"}
_NONE = type(None)


def part_of(group: str, values: dict[str, Any]) -> Part | None:
    """The part that an option builds; None: its keys belong to no part."""
    for owner, parts in _parts_of(group):
        if parts:
            names = [name for name in owner.metadata["by"] or () if name in values]
            name = str(values[names[0]]) if names else next(iter(values), "").split(".")[0]
            if name in parts:
                return parts[name]
    return None


def settings_of(group: str, values: dict[str, Any]) -> Any:
    """The dataclass that holds an option's keys; None: it has none."""
    if part := part_of(group, values):
        return part.settings
    for owner, parts in _parts_of(group):
        if parts is None:
            return owner.type
    return None


def _parts_of(group: str) -> Iterator[tuple[Field, dict[str, Part] | None]]:
    """The fields that a group's keys are read into, with the parts that may stand there (None:
    always the same dataclass): of the run, or of each part of the group above."""
    above, _, name = group.rpartition("/")
    owners = [p.settings for p in registry.parts(above).values()] if above else [TrainSettings]
    for owner in owners:
        for field in fields(owner) if owner else ():
            if field.name == name and (field.metadata.get("group") or is_dataclass(field.type)):
                known = field.metadata.get("group")
                yield field, registry.parts(known) if known else None


def field_of(settings: Any, name: str) -> tuple[Any, Field] | None:
    """Type and field of a dotted key; None: it is one of the caller's own, as in `env.kwargs`."""
    head, _, below = name.partition(".")
    known = {f.name: f for f in fields(settings)} if settings else {}
    if head not in known:
        return None
    hint = typing.get_type_hints(settings)[head]
    if not below:
        return hint, known[head]
    return field_of(hint, below) if is_dataclass(hint) else None


def of_run(name: str) -> tuple[Any, Field] | None:
    """The same, of a key of `train.yaml` itself."""
    return field_of(TrainSettings, name)


def of_evaluation(name: str) -> tuple[Any, Field] | None:
    """The same, of a key of `evaluate.yaml`."""
    return field_of(EvaluateSettings, name)


def takes(found: tuple[Any, Field] | None, value: Any) -> str:
    """The values that a key takes, in words."""
    if found is None:
        return _type(type(value)) if value is not None and "${" not in str(value) else ""
    hint, field = found
    said = field.metadata
    or_null = ", or null" if _NONE in typing.get_args(hint) else ""
    if said.get("check") and (words := said["check"]("?")):
        return words if "null" in words else f"{words}{or_null}"
    if said.get("choices"):
        return ", ".join(f"`{choice}`" for choice in said["choices"]) + or_null
    limits = f", {said['range']}" if said.get("range") else ""
    return f"{_type(hint)}{limits}{or_null}"


def _type(hint: Any) -> str:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return next(_type(part) for part in typing.get_args(hint) if part is not _NONE)
    if typing.get_origin(hint) is list or hint is list:
        inner = [_WORDS.get(part, "") for part in typing.get_args(hint)]
        plural = "values true or false" if inner == [_WORDS[bool]] else "".join(inner) + "s"
        return f"list of {plural}" if inner else "list"
    if typing.get_origin(hint) is dict or hint is dict:
        return "keys of your own"
    return _WORDS.get(hint, "")
