"""What is being compiled, for whoever shows a run: the first call of a loop can take a minute."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event

Listener = Callable[[str | None], None]  # told what begins to be compiled, then None
_listeners: list[Listener] = []


def tell(what: str | None) -> None:
    """Something begins to be compiled, or (None) is."""
    for listener in _listeners:
        listener(what)


@contextmanager
def compiling(what: str) -> Iterator[None]:
    """Around what compiles."""
    tell(what)
    try:
        yield
    finally:
        tell(None)


class _Numba(event.Listener):
    """Numba's compilations, one of which can begin within another; not what its cache has."""

    depth = 0

    def on_start(self, event: Any) -> None:
        self.depth += 1
        if self.depth == 1:
            tell("the memory's loops (kept for later runs)")

    def on_end(self, event: Any) -> None:
        self.depth -= 1
        if self.depth == 0:
            tell(None)


@contextmanager
def watched(listener: Listener) -> Iterator[None]:
    """Tell a listener of all compilations."""
    numba = _Numba()
    _listeners.append(listener)
    event.register("numba:compile", numba)
    try:
        yield
    finally:
        event.unregister("numba:compile", numba)
        _listeners.remove(listener)
