"""What a run directory says of its run, read as data: a stranger may have written it.

overrides.yaml  what `resume=<run directory>` repeats: plain values of a run's own keys, no more
config.yaml     the configuration, resolved: text in it is text, never a reference or a resolver
"""

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from rlmem.config import quote_paths
from rlmem.config.errors import config_groups
from rlmem.config.schema import CONF_DIR, TrainSettings
from rlmem.config.validate import read_settings
from rlmem.errors import UserError
from rlmem.small_files import read_small

# What a run directory may set: these groups, and these keys with all below them. A key that makes
# code run (Hydra's own, or one that names something to import) must never stand here; it takes
# effect only when the user types it.
KEYS = frozenset(
    {
        *("seed", "label", "debug", "experiment"),
        *("agent", "memory", "threshold", "env"),
        *("trainer", "evaluation", "checkpoint", "objective", "log", "logger", "callbacks"),
    }
)
# What a run was started with that is not its own: which run, where, as a part of which search; and
# plugins, which are code: whoever resumes the run names them again.
NOT_REPEATED = frozenset({"resume", "paths.output_dir", "hparams_search", "plugins"})
MOST_OVERRIDES, MOST_CONFIG = 2**14, 2**18  # bytes; Hydra's parser is slow on long lines

_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*")  # of a group's option: no way out of its folder
_UNREADABLE = (OSError, ValueError, RecursionError, yaml.YAMLError)
_PARSER = OverridesParser.create()


class _Loader(yaml.SafeLoader):
    """YAML without aliases: a few of them in each other stand for more nodes than memory holds."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it holds an alias")
        return super().compose_node(parent, index)


def override_key(override: str) -> str:
    """The key or group that an override is about."""
    return override.partition("=")[0].lstrip("+~")


def saved_overrides(run_dir: Path, given: Collection[str]) -> list[str] | None:
    """The overrides that a run had last, checked; None where none are saved.

    Args:
        given: keys that the user gives anew, whose saved values do not count.

    Raises:
        UserError: the file cannot be read, or holds what no run needs.
    """
    path = run_dir / "overrides.yaml"
    try:
        lines = yaml.load(read_small(path, MOST_OVERRIDES), _Loader)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except _UNREADABLE as error:
        raise UserError(f"{path}: cannot be read ({_reason(error)})") from None
    if not (isinstance(lines, list) and all(isinstance(line, str) for line in lines)):
        raise UserError(f"{path}: must be a list of overrides, each a text")
    if "plugins" not in given and any(override_key(line) == "plugins" for line in lines):
        raise UserError(
            f"{path}: the run was made with plugins, which are code: give plugins=[...] again, as "
            "the run was started, if you trust them"
        )
    repeated = [quote_paths(line) for line in lines if override_key(line) not in NOT_REPEATED]
    kept = [line for line in repeated if override_key(line) not in given]
    for line in kept:
        if why := _refusal(line):
            shown = repr(line if len(line) <= 120 else f"{line[:120]}...")
            raise UserError(f"{path}: {shown} {why}; only plain values of a run are repeated")
    return kept


def _refusal(line: str) -> str | None:
    """Why a run directory may not say this, None where it may."""
    if not line.isprintable():
        return "holds control characters"
    try:
        override = _PARSER.parse_override(line)
    except (HydraException, ValueError, RecursionError):
        return "is not an override"
    key, value, groups = override.key_or_group, override.value(), config_groups()
    if re.split(r"[./]", key)[0] not in KEYS or ("/" in key and key not in groups):
        return f"sets no key of a run ({', '.join(sorted(KEYS))})"
    if override.is_delete() or override.package is not None or override.is_sweep_override():
        return "is no single key=value"
    if key in groups:
        names = value if isinstance(value, list) else [value]
        if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
            return f"names no file of conf/{key}"
    elif any(map(_means_more, _texts(value))):
        return "holds an interpolation"
    return None


def saved_config(run_dir: Path) -> dict[str, Any] | None:
    """The content of a run's config.yaml, None where there is none or a damaged one."""
    try:
        config = yaml.load(read_small(run_dir / "config.yaml", MOST_CONFIG), _Loader)
    except _UNREADABLE:
        return None
    return config if isinstance(config, dict) else None


def run_settings(run_dir: Path, given: str) -> TrainSettings:
    """The settings that a run was made with.

    Args:
        given: how the user named the run, such as `run=outputs/...`.

    Raises:
        UserError: there is no run, or its configuration is none that a run saves, or it has parts
            of plugins that were not named.
    """
    saved = saved_config(run_dir)
    if saved is None:
        raise UserError(f"{given}: no run there (a run directory has a config.yaml)")
    for text in _texts(saved):
        if _means_more(text):
            shown = repr(text if len(text) <= 120 else f"{text[:120]}...")
            raise UserError(f"{run_dir}/config.yaml: {shown} is no value; runs save resolved ones")
    try:
        return read_settings(_of_today(saved), lenient=True)
    except UserError as error:
        plugins = saved.get("plugins") or []
        more = f"; the run was made with plugins={plugins}: name them again" if plugins else ""
        raise UserError(f"{run_dir}/config.yaml: {error}{more}") from None
    except (AttributeError, TypeError) as error:
        raise UserError(f"{run_dir}/config.yaml: cannot be read ({_reason(error)})") from None


def _of_today(saved: dict[str, Any]) -> dict[str, Any]:
    """A configuration of a version that did not name a memory's kind yet: conf/ says it."""
    memory = saved.get("memory")
    if not isinstance(memory, dict) or "kind" in memory:
        return saved
    name = str(memory.get("name"))
    while _NAME.fullmatch(name) and (file := CONF_DIR / "memory" / f"{name}.yaml").is_file():
        content = yaml.safe_load(file.read_text())
        if "kind" in content:
            return {**saved, "memory": {**memory, "kind": content["kind"]}}
        name = str(content["defaults"][0])
    return saved


def _texts(node: Any) -> Iterator[str]:
    """Every text in nested lists and dicts, keys included."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, list | dict):
        for part in [*node, *(node.values() if isinstance(node, dict) else ())]:
            yield from _texts(part)


def _means_more(text: str) -> bool:
    """Whether OmegaConf reads a text as a reference, a resolver's call or a missing value."""
    return "${" in text or text == "???"


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
