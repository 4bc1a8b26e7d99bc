"""What a run directory says of its run, read as data: a stranger may have written it.

overrides.yaml  what `resume=<run directory>` repeats: plain values of a run's own keys, no more
config.yaml     the configuration, resolved: text in it is text, never a reference or a resolver
"""

import re
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlmem.config import compose
from rlmem.config.groups import config_groups, config_options
from rlmem.config.plugins import MANY
from rlmem.config.quoting import override_key, quote_paths
from rlmem.config.schema import TrainSettings
from rlmem.config.validate import read_settings
from rlmem.errors import UserError, one_line, printable
from rlmem.run_files import UNREADABLE, check_links, parse_yaml, read_small

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
NAMED_BY = ("name", "kind", "suite")  # keys of a part that may be its option's name, nearest first
MOST_OVERRIDES, MOST_CONFIG = 2**14, 2**18  # bytes; Hydra's parser is slow on long lines

_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*")  # of a group's option: no way out of its folder
# Of an environment's id. Python imports a file of any name, such as one with a space in it.
_MODULE = re.compile(r"([^:/\\]+):")
_PARSER = OverridesParser.create()


def saved_overrides(run_dir: Path, given: Collection[str]) -> list[str] | None:
    """The overrides that a run had last, checked; None where none are saved.

    Args:
        given: keys that the user gives anew, whose saved values do not count; as a mapping, with
            their values.

    Raises:
        UserError: the file cannot be read, or holds what no run needs.
    """
    path = run_dir / "overrides.yaml"
    try:
        lines = parse_yaml(read_small(path, MOST_OVERRIDES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UNREADABLE as error:
        raise UserError(f"{path}: cannot be read ({_reason(error)})") from None
    if not (isinstance(lines, list) and all(isinstance(line, str) for line in lines)):
        raise UserError(f"{path}: must be a list of overrides, each a text")
    if "plugins" not in given and any(override_key(line) == "plugins" for line in lines):
        raise UserError(
            f"{path}: the run was made with plugins, which are code: give plugins=[...] again, as "
            "the run was started, if you trust them"
        )
    repeated = [quote_paths(line) for line in lines if override_key(line) not in NOT_REPEATED]
    kept = [
        line
        for line in repeated
        if override_key(line) not in given and not _of_another_option(override_key(line), given)
    ]
    for line in kept:
        if why := _refusal(line):
            shown = repr(line if len(line) <= 120 else f"{line[:120]}...")
            raise UserError(
                f"{path}: {shown} {why}; only plain values of a run are repeated: remove the line, "
                "or give the key on the command line"
            )
    return kept


def _of_another_option(key: str, given: Collection[str]) -> bool:
    """Whether a saved key is of an option of a group that is chosen anew, without it."""
    group, _, rest = key.partition(".")
    if group not in MANY or group not in given:
        return False
    chosen = given[group] if isinstance(given, Mapping) else ""
    return rest.partition(".")[0] not in re.findall(r"\w+", chosen)


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
    if override.is_delete() and key in MANY and value in (None, "") and not override.package:
        return None  # none of them, where there may be many
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
        config = parse_yaml(read_small(run_dir / "config.yaml", MOST_CONFIG))
    except UNREADABLE:
        return None
    return config if isinstance(config, dict) else None


def no_run(run_dir: Path, given: str) -> UserError:
    """What to say where `saved_config` has found none.

    Args:
        given: how the user named the run, such as `run=outputs/...`.
    """
    if (run_dir / "config.yaml").is_file():
        return UserError(f"{given}: its config.yaml is damaged; put it back as it was")
    return UserError(f"{given}: no run there (a run directory has a config.yaml)")


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
        raise no_run(run_dir, given)
    for text in _texts(saved):
        if _means_more(text):
            shown = repr(text if len(text) <= 120 else f"{text[:120]}...")
            raise UserError(
                f"{run_dir}/config.yaml: {shown} is no value, and a run saves values only; put the "
                "file back as it was"
            )
    check_folder(run_dir)
    try:
        try:
            settings = read_settings(saved, lenient=True)
        except UserError:  # composing takes a while, and most runs lack nothing
            settings = read_settings(_completed(saved), lenient=True)
        check_taken(settings)
        return settings
    except UserError as error:
        plugins = saved.get("plugins") or []
        more = f"; the run was made with plugins={plugins}: name them again" if plugins else ""
        raise UserError(f"{run_dir}/config.yaml: {error}{more}") from None
    except (AttributeError, TypeError) as error:
        raise UserError(f"{run_dir}/config.yaml: cannot be read ({_reason(error)})") from None


def check_folder(run_dir: Path) -> None:
    """Refuse a run directory that leads elsewhere.

    Raises:
        UserError: a link in it leads out of it.
    """
    try:
        check_links(run_dir)
    except OSError as error:
        raise UserError(printable(str(error))) from None


def check_taken(settings: TrainSettings) -> None:
    """Refuse what a run directory's configuration would import or make elsewhere.

    An environment's id may name a module, as `my_package:Mine-v0` does. That is code, so it is
    imported only where the user names it, by `plugins=[my_package]`, or conf/ does for this env.

    Raises:
        UserError: a module was not named, or a folder outside is not there.
    """
    for key in ("id", "kwargs"):
        for text in _texts(getattr(settings.env, key, None)):
            named = _MODULE.match(text)
            if named and named[1] not in sys.modules and not (key == "id" and _ours(settings.env)):
                shown, module = one_line(text), one_line(named[1])
                raise UserError(
                    f"env.{key}={shown}: a run directory names the module {module}, which is code: "
                    f"give plugins=[{module}] if you trust it"
                )
    storage = getattr(settings.memory, "storage", None)
    directory = getattr(storage, "directory", None)
    if directory is not None and not Path(directory).is_dir():
        raise UserError(
            f"memory.storage.directory={one_line(directory)}: a run directory names it and it is "
            "not there; make it, or give another"
        )


def _ours(env: Any) -> bool:
    """Whether an environment's file in conf/ has this id."""
    return env.name in config_options("env") and (
        compose("train", [f"env={env.name}"]).env.get("id") == env.id
    )


def _completed(saved: dict[str, Any]) -> dict[str, Any]:
    """A configuration of an earlier version, with what it lacks as conf/ has it for the same parts;
    a default that follows from another key follows from the saved one."""
    if not all(isinstance(saved.get(part), dict) for part in ("agent", "env", "memory")):
        return saved  # no run of any version
    try:
        today = compose("train", list(_choices(saved)))
        OmegaConf.set_struct(today, False)  # the saved one may have keys that have gone since
        values = OmegaConf.to_container(OmegaConf.merge(today, saved), resolve=True)
    except (OmegaConfBaseException, UserError):
        return saved
    return {str(key): value for key, value in values.items()} if isinstance(values, dict) else saved


def _choices(saved: dict[str, Any]) -> Iterator[str]:
    """Overrides that choose the parts of a saved configuration."""
    left_out: list[str] = []  # groups whose chosen part has no option, which others would fill
    for group in sorted(config_groups()):
        node: Any = saved
        for name in group.split("/"):
            node = node.get(name) if isinstance(node, dict) else None
        node, known = node if isinstance(node, dict) else {}, config_options(group)
        if group in MANY:
            yield f"{group}=[{','.join(name for name in node if name in known)}]"
        elif group.startswith(tuple(left_out)):
            continue
        elif names := [str(node[key]) for key in NAMED_BY if key in node]:
            option = next((name for name in names if name in known), None)
            yield f"{group}={option}" if option else f"~{group}"
            left_out += [] if option else [f"{group}/"]


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
    return one_line(error) or type(error).__name__
