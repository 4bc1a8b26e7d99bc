"""The keys of settings and of the parts below them: those that a run may change, those that are
without effect."""

from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from typing import Any

from rlmem.settings import Settings


def _keys(settings: Any, key: str) -> Iterator[tuple[str, Field, Any]]:
    """Each key, dotted, with its field and the settings that have it; a set of keys before its
    own."""
    for f in fields(settings):
        value, full = getattr(settings, f.name), f"{key}.{f.name}" if key else f.name
        yield full, f, settings
        named = value if isinstance(value, dict) else {"": value}
        for name, below in named.items():
            if is_dataclass(below):
                yield from _keys(below, f"{full}.{name}" if name else full)


def all_parts(settings: Any) -> list[Settings]:
    """The settings of all parts below some settings, in the order of their keys."""
    found: list[Settings] = []
    for _, f, owner in _keys(settings, ""):
        value = getattr(owner, f.name)
        below = value.values() if isinstance(value, dict) else [value]
        found += [each for each in below if isinstance(each, Settings) and each.part]
    return found


def free_keys(settings: Any, key: str = "") -> list[str]:
    """Keys with which a run may be resumed although they differ: `free` ones, dotted."""
    return [full for full, f, _ in _keys(settings, key) if f.metadata.get("free")]


def idle_keys(settings: Any, key: str = "") -> dict[str, str]:
    """Keys without effect, dotted, and the keys with their values that make them so, such as
    `agent.noisy_std` and `agent.noisy=false`."""
    found = {}
    for full, f, owner in _keys(settings, key):
        idle = f.metadata.get("idle")
        if names := idle(owner) if idle else ():
            prefix = full.removesuffix(f.name)
            found[full] = " and ".join(f"{prefix}{n}={_shown(getattr(owner, n))}" for n in names)
    return found


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
