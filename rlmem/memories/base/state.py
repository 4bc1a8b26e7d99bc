"""The state of a part: given as a copy, taken over whole or refused.

A state is flat: name -> array or JSON value. `state_dict` copies, so that a state is never changed
by the part that it is of, and a part never by what becomes of its state. What is written out at
once needs no second copy: `state_views` is for that.
"""

import copy
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlmem.errors import UserError
from rlmem.memories.base.serialize import State, load_state, save_state


class Stateful:
    """Base of the parts that hold something.

    A subclass says what its state is (`state_views`), whether a state fits (`check_state`), and
    takes over one that does (`take_over`).
    """

    def state_views(self) -> State:
        """Flat state as it lies in memory: name -> array (perhaps a view), function that makes
        one, or JSON value. To be written out at once, as it changes with the part."""
        return {}

    def state_dict(self) -> State:
        """Flat state, a copy: name -> array or JSON value."""
        return snapshot(self.state_views())

    def check_state(self, state: State) -> None:
        """Refuse a state that does not fit; nothing is changed.

        Raises:
            ValueError: something is missing, of another shape or dtype, or out of its range.
        """

    def take_over(self, state: State) -> None:
        """Take over a state that `check_state` let pass, copying its arrays."""

    def load_state_dict(self, state_dict: State) -> None:
        """Take over a state; its arrays are copied.

        Raises:
            ValueError: it does not fit; the part stays as it was.
        """
        self.check_state(state_dict)
        self.take_over(state_dict)

    def dumps(self, path: Any) -> None:
        """Save into a folder (TorchRL's interface)."""
        save_state(Path(path), self.state_views())

    def loads(self, path: Any) -> None:
        """Load from a folder (TorchRL's interface)."""
        self.load_state_dict(load_state(Path(path)))


def snapshot(state: State) -> dict[str, Any]:
    """A copy of a state that shares nothing with it."""
    return {name: _copied(value) for name, value in state.items()}


def _copied(value: Any) -> Any:
    if callable(value):
        return value()
    return value.copy() if isinstance(value, np.ndarray) else copy.deepcopy(value)


def below(state: State, prefix: str) -> State:
    """The part of a state whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): state[name] for name in state if name.startswith(prefix)}


def entry(state: State, name: str, of: str = "memory") -> Any:
    """What a state has under a name.

    Raises:
        UserError: nothing.
    """
    try:
        return state[name]
    except KeyError:
        hint = "; load it into parts like those that it was saved from, with the same columns"
        raise UserError(f"the saved {of} lacks {name}{hint if of == 'memory' else ''}") from None


def array_of(
    state: State,
    name: str,
    dtype: Any,
    shape: Sequence[int],
    of: str = "memory",
    hint: str = "",
) -> np.ndarray:
    """An array of a state.

    Args:
        dtype, shape: what it must be; -1 in the shape: any length.
        of, hint: what the state is of, and what to do if it does not fit, for the error.

    Raises:
        UserError: it is missing or another.
    """
    array = entry(state, name, of)
    dtype = np.dtype(dtype)
    if (
        not isinstance(array, np.ndarray)
        or array.dtype != dtype
        or len(array.shape) != len(shape)
        or any(wanted not in (-1, size) for wanted, size in zip(shape, array.shape, strict=True))
    ):
        given = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else repr(array)
        wanted = str(tuple(shape)).replace("-1", "n")
        raise UserError(f"the saved {of}'s {name} is {given}, this one's {dtype} {wanted}{hint}")
    return array


def check_actions(actions: np.ndarray, num_actions: int, of: str = "memory") -> None:
    """Refuse discrete actions that networks and tables have no place for.

    Args:
        actions: of a state, of any shape.
        num_actions: 0 .. num_actions - 1 are right; 0: all are, as continuous ones.
        of: what the state is of, for the error.

    Raises:
        UserError: there is another one.
    """
    if num_actions > 0 and actions.size and not 0 <= actions.min() <= actions.max() < num_actions:
        raise UserError(
            f"the saved {of} has actions {actions.min()} .. {actions.max()}, this one 0 .. "
            f"{num_actions - 1}"
        )


def generator_of(state: State, name: str, own: torch.Generator) -> np.ndarray:
    """The state of a generator like `own`.

    Raises:
        UserError: it is missing, or none that torch takes.
    """
    array = array_of(state, name, np.uint8, (own.get_state().numel(),))
    try:
        torch.Generator(own.device).set_state(torch.from_numpy(np.array(array)))
    except RuntimeError:
        raise UserError(f"the saved memory's {name} is no state of a generator") from None
    return array


def count_of(state: State, name: str, of: str = "memory", low: int = 0) -> int:
    """A whole number of a state, at least `low`.

    Raises:
        UserError: it is missing or none.
    """
    value = entry(state, name, of)
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not low <= value < 2**62:
        raise UserError(f"the saved {of}'s {name} is {value!r:.80}: a count is wanted")
    return int(value)


def number_of(state: State, name: str, of: str = "memory") -> float:
    """A finite number of a state, truth values among them.

    Raises:
        UserError: it is missing or none.
    """
    value = entry(state, name, of)
    if not isinstance(value, int | float | np.number | np.bool_) or not math.isfinite(value):
        raise UserError(f"the saved {of}'s {name} is {value!r}: a number is wanted")
    return value  # pyright: ignore[reportReturnType]
