"""The config groups and their options, as the files of `conf` have them."""

from typing import Any

import yaml

from rlmem.config.schema import CONF_DIR


def config_groups() -> list[str]:
    """The names of the config groups, as overrides write them."""
    folders = (d.relative_to(CONF_DIR).as_posix() for d in CONF_DIR.rglob("*") if d.is_dir())
    return [f for f in folders if not f.startswith(("hydra", "_"))]


def config_options(group: str) -> list[str]:
    """The names of a group's options, without those of plugins."""
    return [file.stem for file in (CONF_DIR / group).glob("*.yaml")]


def plain_values(config_name: str) -> dict[str, Any]:
    """The values of conf/<config_name>.yaml, which are there without overrides."""
    return yaml.safe_load((CONF_DIR / f"{config_name}.yaml").read_text())


def goes_with(key: str) -> str:
    """`; it goes with memory=her`: the options of a group that have a key, or nothing."""
    path = key.split(".")
    found: list[str] = []
    for depth in range(1, len(path)):
        group = "/".join(path[:depth])
        nodes = {name: _content(group, name) for name in config_options(group)}
        owners = {name for name, node in nodes.items() if _holds(node, path, depth)}
        # Not those that have it from another one, by their defaults list.
        found += [
            f"{group}={name}"
            for name in sorted(owners)
            if not owners & {str(base) for base in nodes[name].get("defaults", [])}
        ]
    return f"; it goes with {' or '.join(found)}" if found else ""


def chooses(group: str, option: str, name: str) -> bool:
    """Whether an option's defaults list has a group below its own."""
    defaults = _content(group, option).get("defaults", [])
    return any(isinstance(entry, dict) and name in entry for entry in defaults)


def asking(group: str) -> list[tuple[str, str]]:
    """The options that take any name for a key, and the key."""
    contents = ((option, _content(group, option)) for option in sorted(config_options(group)))
    return [(o, key) for o, content in contents for key, value in content.items() if value == "???"]


def _content(group: str, name: str) -> dict[str, Any]:
    text = (CONF_DIR / group / f"{name}.yaml").read_text()
    content = yaml.safe_load(text) or {}
    if text.startswith("# @package _global_"):
        content = {**content.get(group, {}), "defaults": content.get("defaults", [])}
    return content


def _holds(node: Any, path: list[str], depth: int) -> bool:
    """Whether the content of an option has the key of a dotted path below its group."""
    for name in path[depth:]:
        if not isinstance(node, dict) or name not in node:
            return False
        node = node[name]
    return True
