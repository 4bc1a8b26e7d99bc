"""Hydra's and OmegaConf's exceptions as one line that a user can act on."""

import re
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.errors import (
    CompactHydraException,
    ConfigCompositionException,
    HydraException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)

from rlmem import registry
from rlmem.config.groups import asking, chooses, config_groups, config_options, goes_with
from rlmem.config.plugins import MANY
from rlmem.config.unread import unread
from rlmem.errors import choose_from, did_you_mean
from rlmem.settings import Settings

_EXAMPLES = {"memory": "memory=gwr", "env": "env=road_runner", "run": "run=outputs/..."}


def explain(exc: BaseException, overrides: list[str]) -> str | None:
    """One line that says which override is wrong, why, and what would work.

    Args:
        exc: what Hydra or OmegaConf raised while composing, or making the output directory.
        overrides: the command line's overrides, as given.

    Returns:
        The line, or None where the exception is no mistake of the user's.
    """
    # MissingConfigException is an OSError too, so it goes first.
    if isinstance(exc, MissingConfigException):
        return _missing_option(exc, overrides)
    if isinstance(exc, OverrideParseException):
        return unread(exc.override)
    if isinstance(exc, OSError):
        return _output_dir(exc, overrides)
    if isinstance(exc, ConfigCompositionException):
        return _composition(exc, overrides)
    if isinstance(exc, OmegaConfBaseException):
        return _value(exc, overrides)
    nameless = "Config group override must be", "argument of type"  # of a group, and in a list
    if isinstance(exc, ValueError | TypeError) and str(exc).startswith(nameless):
        if keyless := next((o for o in overrides if o.startswith("=")), None):
            return unread(keyless)
        given = next((o for o in overrides if _names_no_option(o)), None)
        return _nameless(given) if given else None
    if isinstance(exc, ValueError) and str(exc).startswith(("The --resolve flag", "Only one of")):
        return str(exc)
    if kind := re.search(r"BasicSweeper does not support sweep type : (\w+)_SWEEP", str(exc)):
        name = kind[1].lower()
        given = next((o for o in overrides if f"{name}(" in o), name)
        return f"{given}: is for a search, hydra/sweeper=optuna; a sweep takes values, such as 1,2"
    if isinstance(exc, CompactHydraException | HydraException):
        return _first_line(exc)
    for told, (key, mend) in _OF_A_SEARCH.items():
        if told in str(exc) and (given := _given(f"hydra.sweeper.{key}", overrides)).count("="):
            return f"{given}: {mend}"
    return None


_OF_A_SEARCH = {  # what Optuna's sweeper raises of a key's value
    "division by zero": ("n_jobs", "must be at least 1"),
    "`directions` must be a list of": ("direction", "must be minimize or maximize"),
    "Could not parse SQLAlchemy URL": (
        "storage",
        "is no address of a database; leave it out, or write sqlite:///FILE",
    ),
}


def _first_line(exc: BaseException) -> str:
    return str(exc).strip().split("\n")[0] or type(exc).__name__


def _given(key: str, overrides: list[str]) -> str:
    """The override that sets `key`, as it was typed, or the key where no override does."""
    for override in overrides:
        if override.lstrip("+~").split("=")[0].split("@")[0] == key:
            return override
    return key


def _names_no_option(override: str) -> bool:
    """Whether it gives a config group a number or nothing in a name's place."""
    key, _, value = override.lstrip("+").partition("=")
    no_name = r"\s*(null|none|true|false|[+-]?(inf|nan)|[-.\d[{].*)\s*"
    items = value[1:-1].split(",") if value[:1] == "[" else [value]
    in_place = any(re.fullmatch(no_name, item.lower()) for item in items)
    return in_place and key.split("@")[0] in config_groups()


def _nameless(override: str) -> str:
    """What is said of an override for which `_names_no_option`."""
    key = override.lstrip("+").partition("=")[0]
    group = key.split("@")[0]
    none = ", or [] for none" if group in MANY else ""
    return f"{override}: give a name of the group, such as {key}={min(config_options(group))}{none}"


def _missing_option(exc: MissingConfigException, overrides: list[str]) -> str:
    group, _, name = (exc.missing_cfg_file or "").rpartition("/")
    options = list(exc.options or config_options(group))
    if re.search(r"\s\S+=", name):
        return f"{group}={name}: one argument; give each key=value as an argument of its own"
    if not group or not options:
        return _first_line(exc)
    given = _given(group, overrides)
    # In a sweep or a list the override holds several names: the wrong one is named beside it.
    label = given if given == f"{group}={name}" else f"{group}={name} (in {given})"
    what = group.split("/")[-1] if name else f"name for {group}"
    line = f"{label}: no such {what}{choose_from(name, options)}"
    if group in ("hydra/launcher", "hydra/sweeper"):
        line += "; more with pip install 'rlmem[sweep]'"
    if group == "env":
        others = [f"env={option} env.{key}={name}" for option, key in asking("env")]
        line += f"; any other: {', '.join(others)}"
    return line


def _output_dir(exc: OSError, overrides: list[str]) -> str:
    keys = ("hydra.run.dir", "hydra.sweep.dir")
    given = next((o for o in overrides if o.startswith(keys)), keys[0])
    why = exc.strerror or type(exc).__name__
    return f"{given}: cannot write to {exc.filename} ({why}); give a folder that you may write to"


def _composition(exc: ConfigCompositionException, overrides: list[str]) -> str:
    message = str(exc)
    cause = exc.__cause__ or exc.__context__
    merged = re.match(r"Error merging override (.*)", message)
    if merged and isinstance(cause, OmegaConfBaseException):
        return _value(cause, [merged[1]])
    if isinstance(cause, OmegaConfBaseException):
        source = re.match(r"In '(.+?)'", message)
        return (f"{source[1]}.yaml: " if source else "") + _value(cause, overrides)
    many = r"(?:Ambiguous value for argument|Sweep parameters) '(.*)'"
    if sweep := re.match(many, message):
        key, _, values = sweep[1].partition("=")
        listed = "" if "(" in values else f", or write a list as {key}=[{values}]"
        return f"{sweep[1]}: several values are a sweep; add -m{listed}"
    if gone := re.search(r"Could not delete from config. '(.+?)'", message):
        given = _given(gone[1], overrides)
        return f"{given}: no such key, or it has no value; a key is set back by {gone[1]}=null"
    if unused := re.search(r"Could not override '(.+?)'", message):
        return _unused_group(unused[1], overrides)
    if twice := re.match(r"Multiple values for (\S+)\.", message):
        given = _given(twice[1], overrides)
        return f"{given}: {twice[1]} is chosen already; write it without the +"
    if there := re.search(r"An item is already at '(.+?)'", message):
        given = _given(there[1], overrides)
        return f"{given}: {there[1]} is there already; write {given.lstrip('+')}"
    if twice := re.match(r"(\S+) appears more than once", message):
        many = " and ".join(MANY)
        return f"{twice[1]} is chosen twice: this group takes one name; only {many} take a list"
    return _first_line(exc)


def _unused_group(group: str, overrides: list[str]) -> str:
    given = _given(group, overrides)
    parent, _, name = group.rpartition("/")
    if parent in config_groups() and group in config_groups():
        owners = [f"{parent}={o}" for o in config_options(parent) if chooses(parent, o, name)]
        experiment = _given("experiment", overrides)
        if given == group and experiment != "experiment":  # nobody has typed it
            return (
                f"{experiment}: chooses {group}, which the chosen {parent} has not; it goes with "
                f"{' or '.join(sorted(owners))}"
            )
        return (
            f"{given}: the chosen {parent} has no {name}, leave it out; "
            f"it goes with {' or '.join(sorted(owners))}"
        )
    return (
        f"{given}: {_of_training(group) or 'no such group' + did_you_mean(group, config_groups())}"
    )


def _of_training(key: str) -> str:
    """What to say of a key that is there while training only; '' of one that nowhere is."""
    known = key.partition(".")[0] in config_groups()
    return "is of train.py; here the run's own configuration says it" if known else ""


def _value(exc: OmegaConfBaseException, overrides: list[str]) -> str:
    """A key that does not exist, or a value that its key cannot take."""
    key = exc.full_key or str(exc.key or "")
    given = _given(key.split("[")[0], overrides)
    if given == key and len(overrides) == 1:
        given = overrides[0]
    if isinstance(exc, ConfigAttributeError | ConfigKeyError):
        return _unknown_key(given, key, exc.parent_node)
    if unset := re.search(r"Environment variable '(.+?)' not found", str(exc)):
        given = next((o for o in overrides if unset[1] in o), key)
        return f"{given}: the environment variable {unset[1]} is not set"
    if absent := re.search(r"Interpolation key '(.+?)' not found", str(exc)):
        taken = (o for o in overrides if f"{absent[1]}.".startswith(f"{o.lstrip('~')}."))
        if gone := next((o for o in taken if o.startswith("~")), None):
            return f"{gone}: {key} follows {absent[1]}; leave it out"
        given = next((o for o in overrides if f"{{{absent[1]}}}" in o), given)
        return f"{given}: no such key, {absent[1]}{did_you_mean(absent[1], _keys_of(exc))}"
    missing = re.search(r"Missing mandatory value: (\S+)", str(exc))
    if isinstance(exc, MissingMandatoryValue) or missing:
        # An interpolation names the key that is missing in whole, a node itself only its last part.
        if missing and not key.endswith(f".{missing[1]}"):
            key = missing[1]
        root = None if exc.parent_node is None else exc.parent_node._get_root()
        value = example(root, key) if isinstance(root, DictConfig) else "..."
        return f"{key} is not set; give it, such as {_EXAMPLES.get(key, f'{key}={value}')}"
    return f"{given}: {_first_line(exc)}"


def example(cfg: DictConfig, key: str) -> str:
    """A value of a key, as its part gives one."""
    group, _, name = key.rpartition(".")
    node = OmegaConf.select(cfg, group) if group else None
    chosen = [node.get(label) for label in ("kind", "suite")] if node else []
    known = registry.parts(group.replace(".", "/"))
    for kind in chosen:
        if kind in known:
            for f in fields(known[kind].settings or Settings):
                if f.name == name and f.metadata.get("example"):
                    return f.metadata["example"]
    return "..."


def _unknown_key(given: str, key: str, parent: DictConfig | None) -> str:
    prefix, _, name = key.rpartition(".")
    if prefix == "env.kwargs":
        return f"{given}: the env's own arguments take a plus: +{key}=..."
    if "/" in key:
        return f"{given}: no such group{did_you_mean(key, config_groups())}"
    if not prefix and (elsewhere := _of_training(key)):
        return f"{given}: {elsewhere}"
    where = f"no such key in {prefix}" if prefix else "no such key"
    known = _all_keys(parent._get_root()) if parent is not None else []
    same_name = [k for k in known if k.split(".")[-1] == name]
    if prefix and (below := [k for k in same_name if k.startswith(f"{prefix}.")]):
        return f"{given}: {where}; did you mean {' or '.join(below[:3])}?"
    if others := goes_with(key):
        return f"{given}: {where} as chosen{others}"
    siblings = [] if parent is None else [str(k) for k in parent]
    dotted = {s: f"{prefix}.{s}" if prefix else s for s in siblings}
    if near := get_close_matches(name, siblings, n=1, cutoff=0.6):
        return f"{given}: {where}; did you mean {dotted[near[0]]}?"
    if plugins := _of_plugins(prefix, name):
        return f"{given}: {where} as chosen; it goes with {' or '.join(plugins)}"
    if same_name:
        return f"{given}: {where}; did you mean {' or '.join(same_name[:3])}?"
    ending = did_you_mean(
        key, [k for k in (*known, *config_groups()) if not key.startswith(f"{k}.")]
    )
    if not ending and prefix:
        ending = f"; its keys: {', '.join(sorted(siblings))}" if siblings else ", which has none"
    return f"{given}: {where}{ending or '; --help lists the groups, --cfg job every key'}"


def _of_plugins(prefix: str, name: str) -> list[str]:
    """The launchers or sweepers, as Hydra's plugins declare them, that have a key."""
    group, store = prefix.replace(".", "/"), ConfigStore.instance()
    if group not in ("hydra/launcher", "hydra/sweeper"):
        return []
    names = sorted(Path(file).stem for file in store.list(group) if file.endswith(".yaml"))
    return [f"{group}={n}" for n in names if name in (store.load(f"{group}/{n}.yaml").node or ())]


def _keys_of(exc: OmegaConfBaseException) -> list[str]:
    """All keys of the configuration that an exception is about."""
    return [] if exc.parent_node is None else _all_keys(exc.parent_node._get_root())


def _all_keys(node: Any, prefix: str = "") -> list[str]:
    """Every dotted key below `node` but Hydra's own and the envs' recommendations."""
    keys: list[str] = []
    for name in node:
        key = f"{prefix}{name}"
        if key in ("hydra", "env.recommended"):
            continue
        keys.append(key)
        child = node._get_node(name)
        if isinstance(child, DictConfig) and not (child._is_missing() or child._is_none()):
            keys += _all_keys(child, f"{key}.")
    return keys
