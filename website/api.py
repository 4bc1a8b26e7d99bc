"""The reference of the Python API: a page a module, of the names that it makes public."""

import importlib
import inspect
from dataclasses import dataclass
from typing import Any

FOLDER = "docs/reference/api"
_MEMORY_KINDS = {
    "Storages": "torchrl.data.Storage",
    "Samplers": "torchrl.data.replay_buffers.samplers.Sampler",
    "Writers": "torchrl.data.replay_buffers.writers.Writer",
}


@dataclass(frozen=True)
class Page:
    """A page of the reference.

    Attributes:
        modules: whose public names it has: those of `__all__`, else all that the module defines.
    """

    title: str
    about: str
    modules: tuple[str, ...]


PAGES = {
    "rlmem": Page(
        "rlmem",
        "Train, score and load runs from Python, as the command line does. "
        "`import rlmem` alone imports nothing heavy.",
        ("rlmem",),
    ),
    "memories": Page(
        "rlmem.memories",
        "The memories as a library: TorchRL storages, samplers and writers that count their bytes. "
        "[The memories as a library](../../memories.md) has examples.",
        ("rlmem.memories",),
    ),
    "sb3": Page(
        "Stable-Baselines3",
        "Replay buffers for `replay_buffer_class=` ([how to](../../howto/sb3.md)).",
        ("rlmem.integrations.sb3",),
    ),
    "parts": Page(
        "Parts of your own",
        "What an agent, a memory, a sampler or an environment of your own is made of "
        "([how to](../../extending.md)).",
        (
            "rlmem.registry",
            "rlmem.settings",
            "rlmem.errors",
            "rlmem.agents.base",
            "rlmem.memories.base.build",
            "rlmem.memories.base.spec",
            "rlmem.envs.spec",
        ),
    ),
}


def pages() -> dict[str, str]:
    """Path below the repository -> markdown of each page."""
    return {f"{FOLDER}/{name}.md": _page(page) for name, page in PAGES.items()}


def page_of(path: str) -> str | None:
    """The page that stands for a module's file; None: none does."""
    for name, page in PAGES.items():
        file = page.modules[0].replace(".", "/")
        if path in (f"{file}.py", f"{file}/__init__.py"):
            return f"{FOLDER}/{name}.md"
    return None


def _page(page: Page) -> str:
    lines = [f"# {page.title}", "", page.about]
    for name in page.modules:
        module = importlib.import_module(name)
        for heading, members in _by_kind(module).items():
            title = heading or (f"`{name}`" if len(page.modules) > 1 else "")
            lines += ["", f"## {title}"] if title else []
            lines += [f"\n::: {member}" for member in members]
    return "\n".join(lines) + "\n"


def public_names(module: Any) -> list[str]:
    """Classes and functions that a module makes public."""
    known = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")
    ]
    return [
        name
        for name in known
        if inspect.isclass(getattr(module, name)) or inspect.isroutine(getattr(module, name))
    ]


def _by_kind(module: Any) -> dict[str, list[str]]:
    """Paths of a module's public names by what they are to TorchRL, and then of what they derive
    from, which says what they share; "" for all of another module."""
    names = public_names(module)
    if module.__name__ != "rlmem.memories":
        return {"": [f"{module.__name__}.{name}" for name in names]}
    found: dict[str, list[str]] = {title: [] for title in _MEMORY_KINDS}
    bases: dict[str, None] = {}
    for name in names:
        known = getattr(module, name)
        found.setdefault(_kind(known), []).append(f"{module.__name__}.{name}")
        for base in known.__mro__[1:]:
            public = base.__name__ in names or base.__name__.startswith("_")
            if base.__module__.startswith("rlmem.memories") and not public and base.__doc__:
                bases[f"{base.__module__}.{base.__name__}"] = None
    return {**found, "What they derive from": list(bases)}


def _kind(cls: Any) -> str:
    for title, path in _MEMORY_KINDS.items():
        module, _, name = path.rpartition(".")
        if inspect.isclass(cls) and issubclass(cls, getattr(importlib.import_module(module), name)):
            return title
    return "Whole memories, transforms and options"
