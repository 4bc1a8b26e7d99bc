"""What is refused before it comes into a dictionary, in one line."""

import numpy as np

from rlmem.errors import UserError
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import array_of, count_of

_LARGEST = 1e15  # of a key's numbers: sums of their squares must be float32 numbers


class LostKeys(ValueError):
    """Keys that no distance can be made of."""


def no_key() -> UserError:
    """What is said of an observation that is a key itself, or goes through an untrained network."""
    return UserError(
        "an observation has values that are not finite or too large to be a key: look at what the "
        "environment gives"
    )


def checked_keys(keys: np.ndarray, size: int) -> np.ndarray:
    """Keys float32 [n, size], contiguous.

    Raises:
        ValueError: they are of another shape.
        LostKeys: they have numbers that no distance can be made of.
    """
    keys = np.ascontiguousarray(keys, np.float32)
    if keys.ndim != 2 or keys.shape[1] != size:
        raise ValueError(f"keys of shape {keys.shape} were given, not [n, {size}]")
    if keys.size and not np.abs(keys).max() <= _LARGEST:
        raise LostKeys("a key has numbers that are not finite or too large")
    return keys


def checked_actions(actions: np.ndarray, n: int, num_actions: int) -> np.ndarray:
    """Actions int64 [n] in [0, num_actions).

    Raises:
        ValueError: they are not.
    """
    actions = np.ascontiguousarray(actions, np.int64)
    if actions.shape != (n,):
        raise ValueError(f"actions of shape {actions.shape} were given for {n} keys")
    if n and not (actions.min() >= 0 and actions.max() < num_actions):
        raise ValueError(f"actions must lie in [0, {num_actions})")
    return actions


def check_entries(state: State, actions: int, capacity: int, key_size: int) -> None:
    """Refuse a saved dictionary that does not fit.

    Raises:
        UserError: it has other actions or keys, more entries than there is room for, or is damaged.
    """
    of = "dictionary"
    count = array_of(state, "count", np.int64, (actions,), of)
    if count.min() < 0 or count.max() > capacity:
        raise UserError(
            f"the saved {of} has {count.max()} entries of an action, this one room for {capacity}; "
            f"use memory.entries={count.max()} and, where memory.budget is given, a larger one"
        )
    n = int(count.sum())
    hint = "; give the same agent.key_size"
    key = array_of(state, "key", np.float32, (n, key_size), of, hint)
    value = array_of(state, "value", np.float32, (n,), of)
    array_of(state, "hash", np.int64, (n,), of)
    used = array_of(state, "used", np.int64, (n,), of)
    clock = count_of(state, "clock", of)
    finite = np.isfinite(value).all() and (not n or np.abs(key).max() <= _LARGEST)
    if not finite or (n and not (used.min() >= 0 and used.max() <= clock)):
        raise UserError(f"the saved {of} is damaged: a number is out of its range")
