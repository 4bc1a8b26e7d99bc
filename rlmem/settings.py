"""Settings: a dataclass of a part's keys with their types, ranges and units, and how it is filled.

A part (an agent, a memory, a sampler, ...) declares its keys beside its class:

    @dataclass
    class ReservoirSettings(Settings):
        share: float = setting(0.5, at_least=0, at_most=1, help="of new transitions that are kept")

`fill` makes the object from the plain values of a configuration. It is the one place where types,
ranges, names and unknown keys are checked, and each refusal is one line that names the key.
"""

import contextlib
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, TypeVar

from rlmem import registry
from rlmem.errors import UserError, choose_from, did_you_mean

S = TypeVar("S")
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


class UnknownKeyError(UserError):
    """A key that nothing reads.

    Attributes:
        key: dotted.
    """

    def __init__(self, key: str, ending: str) -> None:
        super().__init__(f"{key}: no such key, nothing reads it{ending}")
        self.key = key


@dataclass(frozen=True)
class Range:
    """The finite numbers that a key takes."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False  # True: `low` itself is too low

    def __contains__(self, value: float) -> bool:
        high_enough = value > self.low if self.above else value >= self.low
        return high_enough and value <= self.high and math.isfinite(value)

    def __str__(self) -> str:
        low = f"above {self.low:.12g}" if self.above else f"at least {self.low:.12g}"
        if self.low == -math.inf:
            return "finite" if self.high == math.inf else f"at most {self.high:.12g}"
        return low if self.high == math.inf else f"{low} and at most {self.high:.12g}"


_FINITE = Range()
_LARGEST = 2.0**128 - 2.0**104  # of the numbers that agents and memories compute with: float32
_MOST = 2**63 - 1  # the largest whole number that numpy, torch and the emulators take


@dataclass
class Settings:
    """Base of all settings.

    Attributes:
        part: what these are the settings of, where a name in the configuration chose it.
        extends: the option of the group that an option without a yaml of its own begins with.
    """

    part: ClassVar[Any] = None  # a `rlmem.registry.Part`; an instance's own, but no key
    extends: ClassVar[str | None] = None

    def build(self, *args: Any, **options: Any) -> Any:
        """Make the part: its class (or that one's `build`), given these settings and what
        follows."""
        assert self.part is not None, f"{type(self).__name__} belongs to no registered part"
        make = getattr(self.part.cls, "build", self.part.cls)
        return make(self, *args, **options)

    def as_arguments(self) -> dict[str, Any]:
        """Key -> value, for a constructor that takes them as they are."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}


def setting(
    default: Any = MISSING,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float = math.inf,
    choices: tuple[str, ...] = (),
    check: Callable[[Any], str | None] | None = None,
    example: str | None = None,
    free: bool = False,
    divided: bool = False,
    idle: Callable[[Any], tuple[str, ...]] | None = None,
    help: str = "",
) -> Any:
    """A key: its default (none: it must be given), what it takes and what it is, with its unit.

    Args:
        at_least, above, at_most: of a number, or of each number of a list.
        choices: of a text.
        check: for what these cannot say: value -> what it must be, or None where it is right.
        example: a value, for the message that it is missing.
        free: a run may be resumed with another value.
        divided: it is of the whole run, and each of its processes has an equal share of it.
        idle: settings -> the names of other keys of theirs whose values leave it without effect,
            () where it has one. A user who gives such a key is told (`beside`, `alike`).
        help: one line, with the unit; for a part without a yaml.
    """
    low = above if above is not None else at_least
    limits = low is not None or at_most < math.inf
    known = Range(-math.inf if low is None else low, at_most, above is not None) if limits else None
    metadata = {"range": known, "choices": choices, "check": check, "example": example}
    metadata |= {"free": free, "divided": divided, "idle": idle, "help": help}
    if isinstance(default, list | dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def beside(**values: Any) -> Callable[[Any], tuple[str, ...]]:
    """`idle` of a key that has no effect where other keys have all of these values."""

    def idle(settings: Any) -> tuple[str, ...]:
        off = all(getattr(settings, name) == value for name, value in values.items())
        return tuple(values) if off else ()

    return idle


def alike(first: str, second: str) -> Callable[[Any], tuple[str, ...]]:
    """`idle` of a key that says how one value becomes another, where the two are the same."""
    return lambda s: (first, second) if getattr(s, first) == getattr(s, second) else ()


def part_of(group: str, *, by: tuple[str, ...] = ("kind",), option: str | None = None) -> Any:
    """A key that holds a part's own keys; the first of `by` among them names it in its group.

    Args:
        option: the one of the group that is chosen where a user chooses none; for a part without a
            yaml, whose defaults list says it.
    """
    return field(metadata={"group": group, "by": by, "option": option})


def parts_of(group: str) -> Any:
    """A key that holds parts by their names in a group, each with its own keys."""
    return field(default_factory=dict, metadata={"group": group, "by": None})


def fill(cls: type[S], values: Any, key: str = "", *, part: Any = None, lenient: bool = False) -> S:
    """Make settings of the plain, resolved values of a configuration.

    Args:
        cls: a dataclass of settings.
        values: name -> value; lists and dicts below.
        key: where the values stand in the configuration, for messages: `memory.sampler`.
        part: what the settings are of; its name may stand among them, as `kind`.
        lenient: pass over keys that are unknown: the values are of a saved run, which another
            version may have written.

    Raises:
        UserError: a key is missing, unknown or has a value that cannot work.
    """
    if not isinstance(values, Mapping):
        raise UserError(f"{key}={values}: {key} is a set of keys; write {key}.<key>=...")
    known = {f.name: f for f in fields(cls) if f.init}  # type: ignore[arg-type]
    if not lenient:
        for name in values:
            if name not in known and not (name == "kind" and part):
                near = did_you_mean(str(name), known).replace("mean ", f"mean {_join(key, '')}")
                raise UnknownKeyError(_join(key, str(name)), near or "; leave it out")
    hints = typing.get_type_hints(cls)
    given = {}
    # A class's own keys before those that it inherits, which may be made of them: of `env.bits=0`
    # and the `env.max_episode_steps=0` that follows from it, the first is the user's mistake.
    for name in sorted(known, key=lambda name: _depth(cls, name)):
        f = known[name]
        full = _join(key, name)
        value = values.get(name, MISSING)
        if value is MISSING and has_default(f):
            continue
        if value is MISSING or value == "???":
            example = f.metadata.get("example") or "..."
            raise UserError(f"{full} is not set; give it, such as {full}={example}")
        given[name] = _convert(hints[name], f, value, full, f"{key}={values.get('name')}", lenient)
    filled = cls(**given)
    vars(filled)["part"] = part
    return filled


def _depth(cls: type, name: str) -> int:
    """How many classes above `cls` a field is declared."""
    return next(d for d, c in enumerate(cls.__mro__) if name in vars(c).get("__annotations__", {}))


def has_default(f: Field) -> bool:
    """Whether a key need not be given."""
    return f.default is not MISSING or f.default_factory is not MISSING


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _convert(hint: Any, f: Field, value: Any, key: str, owner: str, lenient: bool) -> Any:
    if (group := f.metadata.get("group")) is not None:
        if f.metadata["by"] is not None:
            return choose(group, value, key, f.metadata["by"], owner, lenient=lenient)
        return {
            name: _chosen(group, name, below or {}, f"{key}.{name}", key, owner, lenient)
            for name, below in (value or {}).items()
        }
    if is_dataclass(hint):
        return fill(hint, value, key, lenient=lenient)  # type: ignore[arg-type]
    value = _typed(hint, value, key)
    metadata = f.metadata
    allowed = metadata.get("range") or (_FINITE if hint in (float, float | None) else None)
    numbers = value if isinstance(value, list) else [value]
    for number in numbers:
        if isinstance(number, int | float) and allowed is not None and number not in allowed:
            raise UserError(f"{key}={value}: must be {allowed}")
    choices = metadata.get("choices")
    if choices and value is not None and value not in choices:
        what = key.split(".")[-1]
        raise UserError(f"{key}={value}: no such {what}{choose_from(str(value), choices)}")
    if metadata.get("check") and (wanted := metadata["check"](value)):
        raise UserError(f"{key}={value}: must be {wanted}")
    for number in numbers:  # last: what a key says of itself says more
        if isinstance(number, float) and hint is not Any and not abs(number) <= _LARGEST:
            raise UserError(f"{key}={value}: must be finite and of 32 bits, at most {_LARGEST:.8g}")
    return value


def _typed(hint: Any, value: Any, key: str, within: list[Any] | None = None) -> Any:
    """A value as its type, or the line that says what type it must have.

    Args:
        within: the list that the key has, where the value is an item of it.
    """
    if isinstance(value, int) and value.bit_length() > 1000:  # too long to show, and no float
        raise UserError(f"{key}: must be a number of at most 300 digits")
    origin = typing.get_origin(hint)
    shown = "null" if value is None else value
    shown = str(value).lower() if isinstance(value, bool) else shown
    shown = f"{key}={shown}:" if within is None else f"{key}={within}: {shown} in it"
    if hint is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        inner = [part for part in typing.get_args(hint) if part is not type(None)]
        if len(inner) > 1:
            raise TypeError(
                f"{key}: a setting is of one type, or null, or Any with a check: {hint}"
            )
        return _typed(inner[0], value, key, within)
    if value is None and within is None:
        raise UserError(f"{key}=null: must have a value, null is none")
    if origin is list:
        if not isinstance(value, list):
            raise UserError(f"{key}={value}: must be a list, such as {key}=[{value}]")
        return [_typed(typing.get_args(hint)[0], item, key, value) for item in value]
    if origin is dict:
        if not isinstance(value, Mapping):
            raise UserError(f"{key}={value}: {key} is a set of keys; write {key}.<key>=...")
        return dict(value)
    if hint is str and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if hint is float and isinstance(value, int | str) and not isinstance(value, bool):
        with contextlib.suppress(ValueError):  # a text that is no number is refused below
            value = float(value)
    if hint is int and type(value) is int and abs(value) > _MOST:
        raise UserError(f"{shown} must be a whole number of 64 bits")
    if not isinstance(hint, type):
        raise TypeError(f"{key}: a setting is of a plain type (choices= says which texts): {hint}")
    if isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    whole = hint is int and isinstance(value, float) and value.is_integer()
    raise UserError(f"{shown} must be {_WORDS[hint]}" + (f"; write {value:.0f}" if whole else ""))


def choose(
    group: str,
    values: Any,
    key: str,
    by: tuple[str, ...] = ("kind",),
    owner: str = "",
    *,
    lenient: bool = False,
) -> Any:
    """The settings of the part of a group that a node names.

    Args:
        by: keys of the node; the first that is there names the part.
        owner: what it is to be a part of, such as `memory=gwr`.

    Raises:
        UserError: there is no such part, or a key of it cannot work.
    """
    if not isinstance(values, Mapping):
        slashed = key.replace(".", "/")
        raise UserError(f"{key}={values}: {key} is a group; write {slashed}={values}")
    label = next((name for name in by if name in values), by[-1])
    name = str(values.get(label))
    return _chosen(group, name, values, key, _join(key, label), owner, lenient)


def _chosen(
    group: str, name: str, values: Any, key: str, named_by: str, owner: str, lenient: bool
) -> Any:
    option = f"{key.replace('.', '/')}={name}"
    if registry.is_elsewhere(group, name):
        works = " or ".join(registry.parts(group))
        raise UserError(
            f"{option}: does not go with {owner}; use {option.removesuffix(name)}{works}"
        )
    part = registry.find(group, name, named_by)
    keys = part.settings or Settings
    needed = [f.name for f in fields(keys) if f.init and not has_default(f)]
    if lacking := [name for name in needed if name not in values]:
        raise UserError(
            f"{named_by}={name}: it needs {', '.join(lacking)} too; choose the group, {option}"
        )
    return fill(keys, values, key, part=part, lenient=lenient)
