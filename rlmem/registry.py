"""Parts by group and name. Each declares itself beside its class; nothing else knows its name.

    @part("memory/sampler", "uniform", settings=UniformSettings)
    class UniformSampler: ...

A group's first word says in which package its parts live; its modules are imported when the group
is first asked for. Parts from outside come from `plugins=[package.module]` or from the entry points
`rlmem.plugins` of installed packages.
"""

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rlmem.errors import UserError, choose_from

C = TypeVar("C")

# Where a group's parts live: a package, of which every module is imported, or a module.
ROOMS = {
    "agent": "rlmem.agents",
    "callbacks": "rlmem.callbacks",
    "env": "rlmem.envs",
    "logger": "rlmem.callbacks",
    "memory": "rlmem.memories",
    "network": "rlmem.networks",
    "objective": "rlmem.config.objective",
}
AUTO = "auto"  # for a name: the part that suits
_parts: dict[str, dict[str, "Part"]] = {}
_opened: set[str] = set()


@dataclass(frozen=True)
class Part:
    """What a name of a group stands for.

    Attributes:
        cls: a class with `build(settings, ...)`, and with `check(settings, run)` where it needs
            something of the other parts of a run.
        settings: the dataclass of its keys; None: it has none.
        module: that declares it.
    """

    group: str
    name: str
    cls: Any
    settings: Any
    module: str


def part(group: str, *names: str, settings: Any = None) -> Callable[[C], C]:
    """Declare a class as the part of a group with these names.

    Args:
        settings: the dataclass of its keys (`rlmem.settings`); None: it has none.

    Raises:
        UserError: another class has the name already, or the settings are no dataclass.
    """
    known = getattr(settings, "__dataclass_fields__", {})
    if any(key not in known for key in (settings and vars(settings).get("__annotations__")) or ()):
        raise UserError(
            f"{group}={'/'.join(names)}: {settings.__name__} is no dataclass of its own; decorate "
            "it with @dataclass(kw_only=True)"
        )

    def declare(cls: C) -> C:
        known = _parts.setdefault(group, {})
        for name in names:
            module = str(getattr(cls, "__module__", ""))
            if name in known and (known[name].module, _name(known[name].cls)) != (
                module,
                _name(cls),
            ):
                raise UserError(
                    f"{group}={name} is declared twice, by {known[name].module} and by {module}; "
                    "give yours another name"
                )
            known[name] = Part(group, name, cls, settings, module)
        return cls

    return declare


def _name(cls: Any) -> str:
    return str(getattr(cls, "__qualname__", cls))


def _open(group: str) -> None:
    """Import the modules in which a group's parts stand."""
    room = ROOMS.get(group.split("/")[0])
    if room is None or room in _opened:
        return
    _opened.add(room)
    module = importlib.import_module(room)
    for info in pkgutil.walk_packages(getattr(module, "__path__", []), f"{room}."):
        if not info.name.rpartition(".")[2].startswith("pictures"):  # they declare no parts
            importlib.import_module(info.name)


def _try_namesake(group: str, name: str) -> None:
    """Import the module of a room that is called like the part: most are, and the others, with
    all that they import, are then left alone."""
    room = ROOMS.get(group.split("/")[0])
    if room and room not in _opened and name.isidentifier():
        module = f"{room}.{name}"
        with contextlib.suppress(ModuleNotFoundError):  # a part of another module
            if importlib.util.find_spec(module) is not None:
                importlib.import_module(module)


def parts(group: str) -> dict[str, Part]:
    """All parts of a group by name."""
    _open(group)
    return dict(sorted(_parts.get(group, {}).items()))


def marked(group: str, mark: str) -> str:
    """The options of a group whose class has an attribute that is true, for messages: `gq, gcmr or
    gbmr`. A class that has several options names them in its `colours`."""
    names = [
        name
        for found in parts(group).values()
        if getattr(found.cls, mark, False)
        for name in getattr(found.cls, "colours", None) or (found.name,)
    ]
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def groups() -> list[str]:
    """The groups that have parts, also those below others and those that only a key names."""
    for room in ROOMS:
        _open(room)
    return sorted(_parts)


def find(group: str, name: str, key: str | None = None) -> Part:
    """The part of a group.

    Args:
        key: that names it in the configuration, for the message.

    Raises:
        UserError: there is none.
    """
    known = _parts.get(group, {})
    if name not in known:
        _try_namesake(group, name)
        known = _parts.get(group, {})
    if name not in known:
        known = parts(group)
    if name not in known:
        what = (key or group).replace("/", ".").removesuffix(".kind").removesuffix(".name")
        raise UserError(
            f"{key or group}={name}: no such {what.split('.')[-1]}{choose_from(name, known)}"
        )
    return known[name]


def find_suited(group: str, name: str, key: str, spec: Any) -> Part:
    """The part of a group; `auto` is the first that says it suits a spec (`cls.suits(spec)`).

    Raises:
        UserError: there is none.
    """
    if name != AUTO:
        return find(group, name, key)
    for known in parts(group).values():
        if known.cls.suits(spec):
            return known
    raise UserError(f"{key}={AUTO}: none suits {spec}; there are {', '.join(parts(group))}")


def check_name(group: str, name: str, key: str) -> None:
    """Raise a UserError unless a name is `auto` or one of a group's."""
    if name not in (names := [AUTO, *parts(group)]):
        what = group.split("/")[-1]
        raise UserError(f"{key}={name}: no such {what}{choose_from(name, names)}")


def is_elsewhere(group: str, name: str) -> bool:
    """Whether a name is none of a group's, but one of a group of the same kind of part, such as a
    map's sampler among a ring's."""
    if name in parts(group):
        return False
    ends = group.split("/")[0], group.split("/")[-1]
    return any(
        name in known and (other.split("/")[0], other.split("/")[-1]) == ends
        for other, known in _parts.items()
    )


def load_plugins(modules: Any) -> None:
    """Import what installed packages declare as their parts, and modules that declare parts, from
    the current folder or the Python path.

    Args:
        modules: a list of their names, as a user gave it; None: none.

    Raises:
        UserError: it is no list of names of modules, or one cannot be imported.
    """
    _load_installed()
    modules = [] if modules is None else modules
    if not isinstance(modules, list) or not all(_is_module_name(name) for name in modules):
        raise UserError(
            f"plugins={modules}: must be a list of modules, such as plugins=[my_package.my_memory]"
        )
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    for module in modules:
        _import(
            module,
            f"plugins=[{module}]:",
            "give a module of the current folder or an installed package, such as "
            "plugins=[my_package.my_memory]",
        )


def _import(module: str, given: str, works: str) -> None:
    """Import a module of somebody else's, whatever it does.

    Raises:
        UserError: it cannot be imported, which is said by who `given` it, or fails itself.
    """
    try:
        importlib.import_module(module)
    except UserError:  # such as a part that is there already
        raise
    except ImportError as error:
        raise UserError(f"{given} cannot be imported ({error}); {works}") from error
    except (Exception, SystemExit) as error:
        file, line = _where(error, module.split(".")[0])
        what = str(error)
        if isinstance(error, SyntaxError):
            file, line, what = error.filename or file, error.lineno, error.msg
        what = f"{type(error).__name__}: {what}".removesuffix(": ")
        raise UserError(
            f"{given} cannot be imported, {Path(file).name} ends with {what} in line {line}; "
            "correct it (debug=true shows the way there)"
        ) from error


def _where(error: BaseException, package: str) -> tuple[str, int]:
    """File and line of a package's own code that an error came from, not of what that called."""
    frames = list(traceback.walk_tb(error.__traceback__))
    own = [f for f in frames if f[0].f_globals.get("__name__", "").split(".")[0] == package]
    frame, line = (own or frames)[-1]
    return frame.f_code.co_filename, line


def _is_module_name(name: Any) -> bool:
    return isinstance(name, str) and all(part.isidentifier() for part in name.split("."))


def load_entry_points() -> None:
    """Import what installed packages declare as their parts.

    Raises:
        UserError: one cannot be imported.
    """
    for point in importlib.metadata.entry_points(group="rlmem.plugins"):
        _import(
            point.module,
            f"the entry point {point.name} of rlmem.plugins: {point.module}",
            "mend or remove the installed package that declares it",
        )


@functools.cache
def _load_installed() -> None:
    """`load_entry_points`, once in a process: a look at what is installed takes 10 ms."""
    load_entry_points()


def from_outside() -> list[Part]:
    """Parts that no module of rlmem declares."""
    return [p for known in _parts.values() for p in known.values() if not _is_own(p)]


def _is_own(part: Part) -> bool:
    return part.module.split(".")[0] == "rlmem"
