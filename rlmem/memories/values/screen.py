"""The arrays of a dictionary, and its screen in numba: each key in one or two bytes a coordinate.

Keys are turned to the principal axes of the stored keys, so that the first coordinates say most of
a distance, and rounded to whole steps of an axis. How much rounding changed is kept: the distance
to a key differs from that to the rounded key by no more. The leading coordinates take two bytes
each: with one, keys of a trained network, which differ along a few axes, lie closer together than
what rounding changes, and many more would be measured. `search` says what it is for.

A key that moves is `set_screen` of its slot again. Axes and steps may be those of other keys: any
orthonormal axes are right, and a coordinate that is too long for its steps counts as rounded.

In the signatures `s` is a `Slabs`.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

HEAD = 32  # coordinates of the first look
HEAD_STEPS, TAIL_STEPS = 32767.0, 127.0  # the most of a coordinate: int16 and int8
TILE = 256  # keys whose heads lie by coordinate, so that the first look runs in vector lanes


class Slabs(NamedTuple):
    """The arrays of a dictionary: A actions, C entries each, of which the first `count` are held.

    Attributes:
        key: float32 [A, C, d].
        value: float32 [A, C].
        hash: int64 [A, C], of the state.
        used: int64 [A, C], the clock when the entry was found or written last.
        count: int64 [A].
        head: int16 [A, C / TILE, HEAD, TILE], the screen's first coordinates.
        tail: int8 [A, C, max(0, d - HEAD)], the others.
        rest: float32 [A, C / TILE, 2, TILE], the length of `tail`, and of what rounding changed.
        axes: float64 [d, HEAD + tail], orthonormal columns; zeros where HEAD is more than d.
        step: float64 [HEAD + tail], of a coordinate.
        centre: float64 [d], what keys are measured from on the screen.
        reach: float64 [1], no key is farther from the centre.
        hidden: int64 [A], entries among `count` that no search finds (`hide`).
    """

    key: np.ndarray
    value: np.ndarray
    hash: np.ndarray
    used: np.ndarray
    count: np.ndarray
    head: np.ndarray
    tail: np.ndarray
    rest: np.ndarray
    axes: np.ndarray
    step: np.ndarray
    centre: np.ndarray
    reach: np.ndarray
    hidden: np.ndarray


@njit(cache=True)
def project(s, key, row):
    """The coordinates float64 [HEAD + tail] of a key float32 [d]; its distance to the centre."""
    row[:] = 0.0
    length = 0.0
    for k in range(key.shape[0]):
        x = np.float64(key[k]) - s.centre[k]
        length += x * x
        for j in range(row.shape[0]):
            row[j] += s.axes[k, j] * x
    return np.sqrt(length)


@njit(cache=True)
def set_screen(s, action, slot, row):
    """Give an entry its place on the screen; `row` is overwritten."""
    s.reach[0] = max(s.reach[0], project(s, s.key[action, slot], row))
    tile, place, width = slot // TILE, slot % TILE, row.shape[0]
    lost = length = 0.0
    for j in range(width):
        most = HEAD_STEPS if j < HEAD else TAIL_STEPS
        steps = min(max(np.rint(row[j] / s.step[j]), -most), most)
        rounded = steps * s.step[j]
        lost += (row[j] - rounded) ** 2
        if j < HEAD:
            s.head[action, tile, j, place] = np.int16(steps)
        else:
            s.tail[action, slot, j - HEAD] = np.int8(steps)
            length += rounded * rounded
    s.rest[action, tile, 0, place] = np.sqrt(length)
    s.rest[action, tile, 1, place] = np.sqrt(lost)


@njit(cache=True)
def hide(s, action, slot):
    """Let no search find an entry, until `set_screen` gives it its place again: it is then farther
    away than anything. The caller counts it in `Slabs.hidden`."""
    s.rest[action, slot // TILE, 1, slot % TILE] = -np.inf
