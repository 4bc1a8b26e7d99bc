"""Hydra's and OmegaConf's exceptions as one line that a user can act on."""

import re
from collections.abc import Iterable
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from hydra.errors import (
    CompactHydraException,
    ConfigCompositionException,
    HydraException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import DictConfig
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    ValidationError,
)

from rlmem.config.agents import (
    ActorCriticNetworkConfig,
    DDPGConfig,
    DQNConfig,
    QNetworkConfig,
)
from rlmem.config.memories import (
    GwrMemoryConfig,
    HerMemoryConfig,
    MemmapStorageConfig,
    PrioritizedSamplerConfig,
    RankSamplerConfig,
)
from rlmem.config.schema import (
    CONF_DIR,
    AtariEnvConfig,
    BitFlipEnvConfig,
    GymEnvConfig,
    MinatarEnvConfig,
    MujocoEnvConfig,
)

_EXAMPLES = {
    "env.game": "env.game=seaquest",
    "env.id": "env.id=CartPole-v1",
    "env.task": "env.task=Hopper",
    "memory": "memory=gwr",
    "env": "env=road_runner",
    "memory.storage.directory": "memory.storage.directory=/scratch",
    "run": "run=outputs/...",
}
# Which choices have keys of their own: (where the keys stand, schema, how it is chosen).
_VARIANTS = (
    ("env", AtariEnvConfig, "an Atari game, such as env=pong"),
    ("env", MinatarEnvConfig, "a MinAtar game, such as env=minatar_breakout"),
    ("env", GymEnvConfig, "a Gymnasium env, such as env=gym"),
    ("env", MujocoEnvConfig, "a MuJoCo env, such as env=reacher"),
    ("env", BitFlipEnvConfig, "env=bit_flip"),
    ("agent", DQNConfig, "agent=dqn"),
    ("agent", DDPGConfig, "agent=ddpg or agent=td3"),
    ("agent.network", QNetworkConfig, "agent=dqn"),
    ("agent.network", ActorCriticNetworkConfig, "agent=ddpg or agent=td3"),
    ("memory", GwrMemoryConfig, "memory=gwr"),
    ("memory", HerMemoryConfig, "memory=her"),
    ("memory.storage", MemmapStorageConfig, "memory/storage=memmap"),
    ("memory.sampler", RankSamplerConfig, "memory/sampler=rank"),
    ("memory.sampler", PrioritizedSamplerConfig, "memory/sampler=prioritized"),
)
_TYPES = {"Integer": "a whole number", "Float": "a number", "Boolean": "true or false"}


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """`; did you mean X?` for the name nearest to `word`, or nothing if none is near."""
    near = get_close_matches(word, list(names), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def choose_from(word: str, names: Iterable[str]) -> str:
    """`; did you mean X? Available: X, Y, Z`: the ending of a message about an unknown name."""
    names = sorted(names)
    near = did_you_mean(word, names)
    return f"{near or ';'} {'Available' if near else 'available'}: {', '.join(names)}"


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
        return _syntax(exc.override)
    if isinstance(exc, OSError):
        return _output_dir(exc, overrides)
    if isinstance(exc, ConfigCompositionException):
        return _composition(exc, overrides)
    if isinstance(exc, OmegaConfBaseException):
        return _value(exc, overrides)
    if isinstance(exc, ValueError) and str(exc).startswith("Config group override must be"):
        given = next((o for o in overrides if o.endswith(("=null", "=None"))), None)
        return f"{given}: a group takes a name, or [] for none" if given else None
    if isinstance(exc, ValueError) and str(exc).startswith(("The --resolve flag", "Only one of")):
        return str(exc)
    if isinstance(exc, CompactHydraException | HydraException):
        return _first_line(exc)
    return None


def _first_line(exc: BaseException) -> str:
    return str(exc).strip().split("\n")[0] or type(exc).__name__


def _given(key: str, overrides: list[str]) -> str:
    """The override that sets `key`, as it was typed, or the key where no override does."""
    for override in overrides:
        if override.lstrip("+~").split("=")[0].split("@")[0] == key:
            return override
    return key


def config_groups() -> list[str]:
    """The names of the config groups, as overrides write them."""
    folders = (d.relative_to(CONF_DIR).as_posix() for d in CONF_DIR.rglob("*") if d.is_dir())
    return [f for f in folders if not f.startswith(("hydra", "_"))]


def _options(group: str) -> list[str]:
    return [file.stem for file in (CONF_DIR / group).glob("*.yaml")]


def _missing_option(exc: MissingConfigException, overrides: list[str]) -> str:
    group, _, name = (exc.missing_cfg_file or "").rpartition("/")
    options = list(exc.options or _options(group))
    if not group or not options:
        return _first_line(exc)
    given = _given(group, overrides)
    # In a sweep or a list the override holds several names: the wrong one is named beside it.
    label = given if given == f"{group}={name}" else f"{group}={name} (in {given})"
    what = group.split("/")[-1] if name else f"name for {group}"
    line = f"{label}: no such {what}{choose_from(name, options)}"
    if group in ("hydra/launcher", "hydra/sweeper"):
        line += '; more with pip install -e ".[sweep]"'
    if group == "env":
        line += (
            f"; any other: env=atari env.game={name}, env=gym env.id=..., env=minatar env.game=..."
        )
    return line


def _output_dir(exc: OSError, overrides: list[str]) -> str:
    keys = ("hydra.run.dir", "hydra.sweep.dir")
    given = next((o for o in overrides if o.startswith(keys)), keys[0])
    why = exc.strerror or type(exc).__name__
    return f"{given}: cannot write to {exc.filename} ({why}); give a folder that you may write to"


def _syntax(override: str) -> str:
    key, equals, value = override.partition("=")
    if not equals:
        return f"{override}: not an override; write key=value, such as memory=gwr"
    if not re.fullmatch(r"[+~]{0,2}[\w./@:]+", key):
        return f"{override}: '{key}' is not the name of a key; write key=value, such as memory=gwr"
    return f"{override}: cannot read the value; quote it twice: '{key}=\"{value}\"'"


def _composition(exc: ConfigCompositionException, overrides: list[str]) -> str:
    message = str(exc)
    cause = exc.__cause__ or exc.__context__
    merged = re.match(r"Error merging override (.*)", message)
    if merged and isinstance(cause, OmegaConfBaseException):
        return _value(cause, [merged[1]])
    if isinstance(cause, OmegaConfBaseException):
        source = re.match(r"In '(.+?)'", message)
        return (f"{source[1]}.yaml: " if source else "") + _value(cause, overrides)
    if sweep := re.match(r"Ambiguous value for argument '(.*)'", message):
        return f"{sweep[1]}: several values are a sweep; add -m, or write a list as key=[a,b]"
    if unused := re.search(r"Could not override '(.+?)'", message):
        return _unused_group(unused[1], overrides)
    if twice := re.match(r"Multiple values for (\S+)\.", message):
        given = _given(twice[1], overrides)
        return f"{given}: {twice[1]} is chosen already; write it without the +"
    if twice := re.match(r"(\S+) appears more than once", message):
        return f"{twice[1]} is chosen twice: this group takes one name, only logger takes a list"
    return _first_line(exc)


def _unused_group(group: str, overrides: list[str]) -> str:
    given = _given(group, overrides)
    parent, _, name = group.rpartition("/")
    if group == "env/protocol":
        return f"{given}: only Atari games have a protocol, such as env=pong; leave it out here"
    if parent in config_groups() and group in config_groups():
        return f"{given}: the chosen {parent} has no {name}; leave it out"
    return f"{given}: no such group{did_you_mean(group, config_groups())}"


def _value(exc: OmegaConfBaseException, overrides: list[str]) -> str:
    """A key that does not exist, or a value that its key cannot take."""
    key = exc.full_key or str(exc.key or "")
    given = _given(key.split("[")[0], overrides)
    if given == key and len(overrides) == 1:
        given = overrides[0]
    if isinstance(exc, ConfigAttributeError | ConfigKeyError):
        return _unknown_key(given, key, exc.parent_node)
    missing = re.search(r"Missing mandatory value: (\S+)", str(exc))
    if isinstance(exc, MissingMandatoryValue) or missing:
        # An interpolation names the key that is missing in whole, a node itself only its last part.
        if missing and not key.endswith(f".{missing[1]}"):
            key = missing[1]
        return f"{key} is not set; give it, such as {_EXAMPLES.get(key, f'{key}=...')}"
    if isinstance(exc, InterpolationResolutionError):
        return f"{given}: {_first_line(exc)}"
    if isinstance(exc, ValidationError):
        return f"{given}: {_wrong_type(key, _first_line(exc), given)}"
    return f"{given}: {_first_line(exc)}"


def _wrong_type(key: str, message: str, given: str) -> str:
    value = given.partition("=")[2]
    if converted := re.search(r"could not be converted to (\w+)", message):
        number = re.fullmatch(r"[\d.]+e?\+?\d*", value)
        whole = f"; write {int(float(value))}" if number and float(value).is_integer() else ""
        return f"must be {_TYPES.get(converted[1], converted[1])}{whole}"
    if "is not a valid bool" in message:
        return f"must be {_TYPES['Boolean']}"
    if "is not Optional" in message:
        return "must have a value, null is none"
    if "is not a ListConfig" in message:
        return f"must be a list, such as {key}=[{value}]"
    if "is not a subclass" in message:
        group = key.replace(".", "/")
        if group in config_groups():
            return f"{key} is a group; write {group}={value}"
        return f"{key} is a set of keys; write {key}.<key>=..."
    if "to string" in message:
        return "must be a text"
    return message


def _unknown_key(given: str, key: str, parent: DictConfig | None) -> str:
    prefix, _, name = key.rpartition(".")
    if prefix == "env.kwargs":
        return f"{given}: the env's own arguments take a plus: +{key}=..."
    if "/" in key:
        return f"{given}: no such group{did_you_mean(key, config_groups())}"
    where = f"no such key in {prefix}" if prefix else "no such key"
    owners = [who for at, cls, who in _VARIANTS if at == prefix and _has(cls, name)]
    if prefix == "logger" and name in _options("logger"):
        owners = [f"logger={name}"]
    if owners:
        return f"{given}: {where} as chosen; it goes with {' or '.join(owners)}"
    siblings = [] if parent is None else [str(k) for k in parent]
    dotted = {s: f"{prefix}.{s}" if prefix else s for s in siblings}
    if near := get_close_matches(name, siblings, n=1, cutoff=0.6):
        return f"{given}: {where}; did you mean {dotted[near[0]]}?"
    known = _all_keys(parent._get_root()) if parent is not None else []
    same_name = [k for k in known if k.split(".")[-1] == name]
    if same_name:
        return f"{given}: {where}; did you mean {' or '.join(same_name[:3])}?"
    ending = did_you_mean(
        key, [k for k in (*known, *config_groups()) if not key.startswith(f"{k}.")]
    )
    if not ending and prefix:
        ending = f"; its keys: {', '.join(sorted(siblings))}"
    return f"{given}: {where}{ending or '; --help lists the groups, --cfg job every key'}"


def _has(schema: type, name: str) -> bool:
    return name in {f.name for f in fields(schema)}


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
