"""What pictures of the memories that answer show, as plain arrays: where entries lie, the greedy
way through a maze, what was looked up for a state."""

import contextlib
import io
import os
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlmem.memories.base.pictures import PictureContext
from rlmem.memories.values.base import hashes
from rlmem.memories.values.dnd import DND
from rlmem.memories.values.graph import GraphMemory
from rlmem.memories.values.graph_kernels import values_of
from rlmem.run_files import UNREADABLE, new_file, read_bytes

FITTED = 2000  # keys that choose a plane, at most
ENOUGH = 50  # keys before a plane is kept for later pictures
BLOCK = 256  # observations that are read at once


def keys_of(memory: Any, context: PictureContext, observation: np.ndarray) -> np.ndarray:
    """Keys float32 [n, d] of observations, as the agent makes them when it acts."""
    make = getattr(context.agent, "keys", memory.values.embed)
    return np.concatenate([make(rows) for rows in blocks(observation)])


def blocks(rows: np.ndarray) -> Iterator[np.ndarray]:
    """`BLOCK` rows at a time; one empty block of none."""
    for begin in range(0, max(1, len(rows)), BLOCK):
        yield rows[begin : begin + BLOCK]


# Where things lie.


class Layout(NamedTuple):
    """Points float64 [n, 2], y upwards, and what the two axes are; "" where cells are the axes."""

    points: np.ndarray
    axes: str


class Plane(NamedTuple):
    """Keys lie at (key - centre) @ axes."""

    centre: np.ndarray  # float64 [d]
    axes: np.ndarray  # float64 [d, 2]


def fit_plane(keys: np.ndarray) -> Plane:
    """The first two principal axes of keys float32 [n, d], of `FITTED` evenly spaced ones if there
    are more. The largest number of each axis is positive, so that equal keys give equal planes."""
    rows = keys[np.linspace(0, len(keys) - 1, min(len(keys), FITTED)).astype(int)].astype(float)
    centre, axes = rows.mean(0), np.zeros((keys.shape[1], 2))
    found = np.linalg.svd(rows - centre, full_matrices=False)[2][:2]
    largest = found[np.arange(len(found)), np.abs(found).argmax(1)]
    axes[:, : len(found)] = (found * np.where(largest < 0, -1.0, 1.0)[:, None]).T
    return Plane(centre, axes)


def kept_plane(keys: np.ndarray, folder: Path | None) -> Plane:
    """The plane that the run's pictures share (layout.npz in `folder`), or one of these keys, which
    is kept once there are enough of them."""
    path = folder / "layout.npz" if folder else None
    if path and (kept := _read_plane(path, keys.shape[1])):
        return kept
    plane = fit_plane(keys)
    if path and len(keys) >= ENOUGH:
        fresh = path.with_suffix(".new")
        with contextlib.suppress(OSError):  # a run that may only be read: laid out anew each time
            path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(new_file(fresh), "wb") as file:
                np.savez(file, centre=plane.centre, axes=plane.axes)
            os.replace(fresh, path)
    return plane


def _read_plane(path: Path, dims: int) -> Plane | None:
    """The plane of keys of so many dims in a file; None where there is none such."""
    try:
        with np.load(io.BytesIO(read_bytes(path)), allow_pickle=False) as saved:
            plane = Plane(saved["centre"], saved["axes"])
    except (*UNREADABLE, EOFError, KeyError, zipfile.BadZipFile, zlib.error):
        return None
    numbers = all(part.dtype == np.float64 and np.isfinite(part).all() for part in plane)
    fits = numbers and plane.centre.shape == (dims,) and plane.axes.shape == (dims, 2)
    return plane if fits else None


def placed(keys: np.ndarray, plane: Plane) -> np.ndarray:
    """Where keys [n, d] lie, float64 [n, 2]."""
    return (keys - plane.centre) @ plane.axes


def lay_out(keys: np.ndarray, maze: "Maze | None", folder: Path | None) -> Layout:
    """Keys that are all those of cells lie in their cells; others in the run's plane."""
    cells = maze.cells_of(keys) if maze else None
    if maze and cells is not None:
        return Layout(np.stack([cells % maze.width, -(cells // maze.width)], 1) * 1.0, "")
    return Layout(placed(keys, kept_plane(keys, folder)), "principal axis")


# The maze.


@dataclass(frozen=True)
class Maze:
    """A grid of cells (`Board` of the environment) and what a memory says of each.

    Attributes:
        blocked: bool [H, W].
        keys: float32 [H * W, d], of each cell.
        values: float64 [H, W], of the best action; NaN where the memory does not know the cell.
        best: int64 [H, W], that action; -1: several are as good, or the cell is not known.
        way: cells (x, y) from the start on, taking the best action each time.
        end: what became of that way.
    """

    blocked: np.ndarray
    moves: tuple[tuple[int, int], ...]
    keys: np.ndarray
    values: np.ndarray
    best: np.ndarray
    way: list[tuple[int, int]]
    end: str

    @property
    def width(self) -> int:
        """Cells side by side."""
        return self.blocked.shape[1]

    def cells_of(self, keys: np.ndarray) -> np.ndarray | None:
        """Numbers of the cells that keys [n, d] are of, int64 [n]; None: some are of no cell."""
        number = {key.tobytes(): i for i, key in enumerate(self.keys)}
        found = [number.get(key.tobytes(), -1) for key in keys]
        return None if -1 in found else np.array(found, np.int64)


def read_maze(memory: Any, context: PictureContext) -> Maze | None:
    """The maze that the run is in; None: it is in none."""
    settings = context.run.env
    board = getattr(settings.part.cls, "board", None)
    if board is None:
        return None
    board = board(settings)
    keys = keys_of(memory, context, board.frames)
    values, near = memory.values.read(keys, touch=False)
    shape, known = board.blocked.shape, (near.slot >= 0).any((1, 2))
    highest = values.max(1)
    only = known & ((values == highest[:, None]).sum(1) == 1)
    best = np.where(only, values.argmax(1), -1).reshape(shape)
    shown = np.where(known, highest, np.nan).reshape(shape)
    shown[board.blocked], best[-1, -1] = np.nan, -1
    way, end = _greedy_way(board, best)
    return Maze(board.blocked, board.moves, keys, shown, best, way, end)


def _greedy_way(board: Any, best: np.ndarray) -> tuple[list[tuple[int, int]], str]:
    """From the first cell to the last, as far as the best actions lead."""
    height, width = board.blocked.shape
    x = y = 0
    way = [(x, y)]
    while (x, y) != (width - 1, height - 1):
        action = best[y, x]
        if action < 0:
            where = "at the start" if len(way) == 1 else f"after {len(way) - 1} steps"
            return way, f"ends {where}: several actions are as good there"
        dx, dy = board.moves[action]
        to = x + dx, y + dy
        if not (0 <= to[0] < width and 0 <= to[1] < height) or board.blocked[to[1], to[0]]:
            return way, f"runs into a {_what(to, width, height)} after {len(way) - 1} steps"
        way.append(to)
        if to in way[:-1]:
            return way, f"goes round in a circle after {len(way) - 1} steps"
        x, y = to
    return way, f"reaches the goal in {len(way) - 1} steps"


def _what(cell: tuple[int, int], width: int, height: int) -> str:
    return "pit" if 0 <= cell[0] < width and 0 <= cell[1] < height else "wall"


# What was looked up.


@dataclass(frozen=True)
class Lookup:
    """What the memory found for one state.

    Attributes:
        frame: the newest frame of the state, [*frame_shape].
        values: float32 [A].
        slot: int64 [A, p], -1: there are fewer.
        distance: float64 [A, p], Euclidean, nearest first.
        weight: float64 [A, p], their shares in the action's value, which sum to 1.
        value: float64 [A, p], of each.
        hash: int64 [A, p], of the states that they were; None: it is not known.
        key: float32 [A, p, d].
    """

    frame: np.ndarray
    values: np.ndarray
    slot: np.ndarray
    distance: np.ndarray
    weight: np.ndarray
    value: np.ndarray
    hash: np.ndarray | None
    key: np.ndarray


def look_up(values: Any, key: np.ndarray, frame: np.ndarray) -> Lookup:
    """What a dictionary or graph finds for a key float32 [d]; nothing counts as used."""
    read, near = values.read(key[None], touch=False)
    slot, squared = near.slot[0], near.distance[0]
    held = slot >= 0
    if isinstance(values, GraphMemory):
        each, tried = values_of(values.arrays, values.rule, slot[0])
        value, held = each.T, held & tried.T
        keys, states, delta = values.arrays.keys[slot], None, values.delta
    else:
        found = values.look_at(np.arange(len(slot))[:, None], slot)
        keys, value, states, delta = *found, values.rule.delta
    weight = _weights(squared, held, delta)
    distance = np.sqrt(np.maximum(squared, 0))
    slot = np.where(held, slot, -1)
    return Lookup(frame, read[0], slot, distance, weight, value, states, keys)


def _weights(squared: np.ndarray, held: np.ndarray, delta: float | None) -> np.ndarray:
    """Shares [A, p] in the values: by 1 / (squared distance + delta), or, without delta, equal ones
    unless the state itself is there, which has its own value."""
    if delta is None:
        weight = held.astype(float)
        weight[:, 1:][squared[:, 0] == 0] = 0
    else:
        weight = held / (np.where(held, squared, 1.0) + delta)
    total = weight.sum(1, keepdims=True)
    return weight / np.where(total > 0, total, 1)


def held_frames(storage: Any, wanted: np.ndarray) -> dict[int, np.ndarray]:
    """Newest frames of the states with these hashes that a replay still holds.

    Args:
        storage: of the replay, read newest first until all are found.
        wanted: int64 [n].
    """
    missing, found = set(wanted.tolist()), {}
    for batch in newest_first(storage):
        observation = batch["observation"].numpy()
        for row, state in enumerate(hashes(observation).tolist()):
            if state in missing:
                found[state] = newest_frame(observation[row], storage.frame_shape)
                missing.discard(state)
        if not missing:
            break
    return found


def newest_first(storage: Any) -> Iterator[Any]:
    """Batches of all transitions of a ring, the newest first."""
    for end in range(0, len(storage), BLOCK):
        count = min(BLOCK, len(storage) - end)
        yield storage.read(storage.newest(end + count)[:count].numpy())


def newest_frame(observation: np.ndarray, frame_shape: tuple[int, ...]) -> np.ndarray:
    """The last frame of a stack, a copy."""
    return observation[-frame_shape[0] :].copy()


def entries_of(values: DND, most: int) -> tuple[np.ndarray, np.ndarray, Any]:
    """Evenly spaced entries of a dictionary: actions and slots int64 [n], and what they hold."""
    ends = np.cumsum(values.counts)
    numbers = np.linspace(0, ends[-1] - 1, min(most, ends[-1])).astype(np.int64)
    action = np.searchsorted(ends, numbers, side="right")
    slot = numbers - (ends - values.counts)[action]
    return action, slot, values.look_at(action, slot)
