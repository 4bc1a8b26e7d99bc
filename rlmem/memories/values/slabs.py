"""Making the arrays of a dictionary, and their bytes."""

from typing import Any

import numpy as np

from rlmem.memories.base.lazy import lazy_zeros
from rlmem.memories.values.screen import HEAD, HEAD_STEPS, TAIL_STEPS, TILE, Slabs
from rlmem.memories.values.search import Work


def table_size(entries: int) -> int:
    """Places of a table for so many entries: a power of two, at most half in use."""
    return 1 << max(6, (2 * entries - 1).bit_length())


def make_slabs(actions: int, key_size: int, capacity: int) -> Slabs:
    tiles, tail = -(-capacity // TILE), max(0, key_size - HEAD)
    width = HEAD + tail
    return Slabs(
        key=lazy_zeros((actions, capacity, key_size), np.float32),
        value=lazy_zeros((actions, capacity), np.float32),
        hash=lazy_zeros((actions, capacity), np.int64),
        used=lazy_zeros((actions, capacity), np.int64),
        count=np.zeros(actions, np.int64),
        head=lazy_zeros((actions, tiles, HEAD, TILE), np.int16),
        tail=lazy_zeros((actions, capacity, tail), np.int8),
        rest=lazy_zeros((actions, tiles, 2, TILE), np.float32),
        axes=np.eye(key_size, width),
        step=np.full(width, 1 / 127),
        centre=np.zeros(key_size),
        reach=np.zeros(1),
        hidden=np.zeros(actions, np.int64),
    )


def make_work(s: Slabs, neighbours: int) -> Work:
    actions, capacity, width = *s.value.shape, len(s.step)

    whole = -(-capacity // TILE) * TILE  # the first look is at whole tiles

    def lazy(dtype: Any) -> np.ndarray:
        return lazy_zeros((whole,), dtype)

    return Work(
        row=np.zeros(width),
        query=np.zeros(width, np.float32),
        step=np.zeros(width, np.float32),
        squared=lazy(np.float32),
        bound=lazy(np.float32),
        least=np.zeros(-(-capacity // TILE), np.float32),
        low=np.zeros(16, np.float32),
        left=lazy(np.int64),
        near=lazy(np.float32),
        most=lazy(np.float32),
        picked=lazy(np.int64),
        gap=lazy(np.float64),
        guess=np.zeros(neighbours, np.float32),
        hint=np.full(actions, np.inf, np.float32),
    )


def turn(s: Slabs, keys: np.ndarray) -> None:
    """Turn the screen to the principal axes of some keys, float64 [n, d], which are overwritten.
    Entries must be given their places anew."""
    s.centre[:] = keys.mean(0)
    keys -= s.centre
    s.axes[:, : keys.shape[1]] = np.linalg.eigh(keys.T @ keys)[1][:, ::-1]
    furthest = np.abs(keys @ s.axes).max(0)
    # An axis along which keys hardly differ must not make steps of nothing.
    s.step[:] = np.maximum(furthest, max(1e-9 * furthest.max(), 1e-30))
    s.step[:HEAD] /= HEAD_STEPS
    s.step[HEAD:] /= TAIL_STEPS


def bytes_of(
    count: np.ndarray, key_size: int, neighbours: int, table: int, oldest: int
) -> dict[str, int]:
    """Component -> bytes of so many entries of each action, int64 [A].

    Args:
        table: places of the table.
        oldest: entries that are noted as the least recently used.
    """
    entries, width = int(count.sum()), max(HEAD, key_size)
    of_each = -(-count // TILE)
    tiles, most = int(of_each.sum()), int(of_each.max())
    axes = 8 * (width * (key_size + 1) + key_size)
    # A search works on arrays as long as an action's slab, 40 bytes a slot, and on single rows.
    work = most * (40 * TILE + 4) + 16 * (width + 4) + 4 * (neighbours + len(count))
    return {
        "keys": 4 * key_size * entries,
        "values": 4 * entries,
        "screen": tiles * TILE * (2 * HEAD + 8) + entries * (width - HEAD) + axes + work,
        "lookup": 16 * (entries + oldest + len(count)) + 4 * table,
    }


def bytes_when_full(actions: int, capacity: int, key_size: int, neighbours: int) -> dict[str, int]:
    """The same of slabs that are full."""
    table, oldest = table_size(actions * capacity), actions * oldest_noted(capacity)
    return bytes_of(np.full(actions, capacity), key_size, neighbours, table, oldest)


def oldest_noted(capacity: int) -> int:
    """How many entries of a full slab are noted as the least recently used at once: finding them
    takes a sort of all."""
    return max(1, capacity // 16)


def entries_an_action_within(budget: int, actions: int, key_size: int, neighbours: int) -> int:
    """The most entries an action that a budget holds; 0: none."""
    low, high = 0, budget // (4 * key_size * actions) + 1
    while high - low > 1:
        middle = (low + high) // 2
        fits = sum(bytes_when_full(actions, middle, key_size, neighbours).values()) <= budget
        low, high = (middle, high) if fits else (low, middle)
    return low
