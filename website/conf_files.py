"""The keys of `conf/` as they stand there: each with its value and the comment beside it.

Hydra gives values without comments. So the yamls are read here, and laid over each other as their
defaults lists say; a test holds the result against what Hydra composes.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rlmem.config.schema import CONF_DIR

BUNDLES = ("experiment", "hparams_search")  # their options set keys of all groups
_PLAIN = yaml.SafeLoader("")


@dataclass(frozen=True)
class Key:
    """A key of a yaml.

    Attributes:
        name: dotted, below its group: `epsilon.end`.
        comment: what stands behind it, without `#`.
    """

    name: str
    value: Any
    comment: str


@dataclass
class Option:
    """An option of a group, with all that it begins with.

    Attributes:
        about: the comment at the top of its file.
        base: the option of the same group that it begins with; None: it begins with none.
        keys: by name, in the order of the files.
        sections: name -> comment of the keys that only hold others.
        own: names of the keys that its own file sets.
        chosen: group below -> option, such as `sampler: uniform`.
        overridden: other group -> option that it brings.
        elsewhere: keys of other groups that it sets.
    """

    name: str
    about: str = ""
    base: str | None = None
    keys: dict[str, Key] = field(default_factory=dict)
    sections: dict[str, str] = field(default_factory=dict)
    own: list[str] = field(default_factory=list)
    chosen: dict[str, str] = field(default_factory=dict)
    overridden: dict[str, str] = field(default_factory=dict)
    elsewhere: dict[str, Key] = field(default_factory=dict)

    def meaning(self, name: str) -> str:
        """The comment of a key, or of the keys that it stands among."""
        comment = self.keys[name].comment
        while not comment and (name := name.rpartition(".")[0]):
            comment = self.sections.get(name, "")
        return comment


def groups() -> list[str]:
    """The groups of the command line, by the folders that hold their options."""
    folders = {file.parent.relative_to(CONF_DIR).as_posix() for file in CONF_DIR.rglob("*.yaml")}
    return sorted(f for f in folders if f != "." and not f.startswith("hydra"))


def options(group: str) -> list[str]:
    """The options of a group."""
    return sorted(file.stem for file in (CONF_DIR / group).glob("*.yaml"))


@cache
def option(group: str, name: str) -> Option:
    """An option with the keys of all files that it begins with."""
    return _option(CONF_DIR / group / f"{name}.yaml", group)


@cache
def entry(name: str) -> Option:
    """The keys that a file of `conf/` itself has: `train`, `evaluate`, or what a group's begin
    with, such as `env`."""
    found = _option(CONF_DIR / f"{name}.yaml")
    for key in [key for key in found.keys if key.startswith("hydra.")]:
        del found.keys[key]
    return found


def plugins() -> dict[str, Option]:
    """Our defaults for Hydra's own launchers and sweepers: `hydra/launcher=joblib`, ..."""
    folder = CONF_DIR / "hydra" / "plugins"
    files = sorted(folder.glob("*/*.yaml"))
    return {f"hydra/{file.parent.name}={file.stem}": _option(file) for file in files}


def _option(file: Path, group: str = "") -> Option:
    text = file.read_text()
    found = Option(file.stem, about=_about(text))
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    for item in (_plain(node) or {}).get("defaults", []):
        _begin_with(found, item, group)
    for key, comment, value in _keys(node, text.splitlines()):
        if key.split(".")[0] == "defaults":
            continue
        name, is_own = _below(key, group, "@package _global_" in text)
        if value is None:  # it holds others
            _make_room(found, name)
            found.sections[name] = comment or found.sections.get(name, "")
            continue
        keys = found.keys if is_own else found.elsewhere
        comment = comment or (keys[name].comment if name in keys else "")
        keys[name] = Key(name, _plain(value), comment)
        if is_own:
            found.own.append(name)
    return found


def _make_room(found: Option, name: str) -> None:
    """Let go of a value in whose place there are keys now, `kwargs: {}`; they are laid over those
    that it stands for, `rainbow: ${.dqn}`."""
    value = str(found.keys.pop(name).value) if name in found.keys else ""
    if same := re.fullmatch(r"\$\{\.([\w.]+)\}", value):
        beside = f"{name.rpartition('.')[0]}.{same[1]}.".removeprefix(".")
        for key in [key for key in found.keys if key.startswith(beside)]:
            own = f"{name}.{key.removeprefix(beside)}"
            found.keys[own] = Key(own, found.keys[key].value, found.keys[key].comment)


def _below(key: str, group: str, is_global: bool) -> tuple[str, bool]:
    """A key's name below its group, and whether it is of that group at all."""
    if not is_global or group in BUNDLES:
        return key, True
    inner = f"{group.replace('/', '.')}."
    return key.removeprefix(inner), f"{key}.".startswith(inner)


def _about(text: str) -> str:
    """The comment at the top of a file, its lines joined."""
    lines = re.match(r"(?:#.*\n)*", text)
    assert lines
    said = [line.lstrip("# ") for line in lines[0].splitlines()]
    return "\n".join(line for line in said if not line.startswith("@package"))


def _begin_with(found: Option, item: Any, group: str) -> None:
    """Take one line of a defaults list over."""
    if isinstance(item, dict):
        ((key, value),) = item.items()
        key = str(key)
        if key.startswith("override /"):
            other = key.removeprefix("override /").split("@")[0]
            found.overridden[other] = str(value)
        elif value is not None:
            found.chosen[key.removeprefix("override ")] = str(value)
        return
    if item == "_self_":
        return
    if item.startswith("/"):  # a group's common keys: /memory@_here_
        began = _option(CONF_DIR / f"{item.lstrip('/').split('@')[0]}.yaml", group)
    else:
        began = option(group, item)
        found.base = item
    found.keys |= began.keys
    found.sections |= began.sections
    found.chosen |= began.chosen
    found.overridden |= began.overridden
    found.elsewhere |= began.elsewhere


def _keys(
    node: yaml.Node, lines: list[str], above: str = ""
) -> Iterator[tuple[str, str, yaml.Node | None]]:
    """Key, comment and value of each leaf of a mapping; of a mapping below, None for the value."""
    pairs = list(node.value) if isinstance(node, yaml.MappingNode) else []
    for (name, value), comment in zip(pairs, _comments(node, pairs, lines), strict=True):
        key = f"{above}{name.value}"
        if isinstance(value, yaml.MappingNode) and value.value:
            yield key, comment, None
            yield from _keys(value, lines, f"{key}.")
        else:
            yield key, comment, value


def _comments(
    node: yaml.Node, pairs: list[tuple[yaml.Node, yaml.Node]], lines: list[str]
) -> list[str]:
    """What stands behind each key; of a mapping in one line, parts between semicolons."""
    if isinstance(node, yaml.MappingNode) and node.flow_style:
        parts = _comment_at(lines, node.end_mark).split(";")
        same = len(parts) == len(pairs)
        return [part.strip() for part in parts] if same else [""] * len(pairs)
    # The comment of what goes on below a key stands on the key's own line.
    return [
        ("" if _goes_on(value) else _comment_at(lines, value.end_mark))
        or _comment_at(lines, key.end_mark)
        for key, value in pairs
    ]


def _goes_on(node: yaml.Node) -> bool:
    return not isinstance(node, yaml.ScalarNode) and not node.flow_style and bool(node.value)


def _comment_at(lines: list[str], mark: yaml.Mark) -> str:
    """The comment of a line, behind a mark."""
    line = lines[mark.line] if mark.line < len(lines) else ""
    return line[mark.column :].partition("# ")[2].strip()


def _plain(node: yaml.Node) -> Any:
    return _PLAIN.construct_document(node)
