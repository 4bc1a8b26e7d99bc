"""What stands beside the game in a film: where the memory's entries lie, the present state among
them, what it looked up, and the values that it read.

What does not change while an episode is played is drawn once; a frame costs a lookup, a copy of
that picture and some lines. matplotlib is not needed.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from rlmem.memories.base.pictures import Overlay, PictureContext
from rlmem.memories.values.pictures_data import (
    Maze,
    entries_of,
    kept_plane,
    keys_of,
    look_up,
    newest_frame,
    placed,
    read_maze,
)

WIDTH, PLOT, HEIGHT = 400, 330, 420  # pixels: of the panel, of what lies above the bars, of all
MOST_POINTS, MOST_EDGES, LIT = 3000, 4000, 11  # drawn; neighbours that are lit
MARK, INK, PALE, BLOCKED = "#d95f02", "#222222", "#dddddd", "#262626"
# viridis at nine evenly spaced places
_SHADES = np.array(
    [
        *((68, 1, 84), (71, 44, 122), (59, 81, 139), (44, 113, 142), (33, 144, 141)),
        *((39, 173, 129), (92, 200, 99), (170, 220, 50), (253, 231, 37)),
    ],
    float,
)
_FONT = ImageFont.load_default(12)


def table_overlay(memory: Any, context: PictureContext) -> Overlay | None:
    """The maze; None without one."""
    maze = read_maze(memory, context) if memory.values.entries else None
    return _maze_overlay(maze, memory, context) if maze else None


def graph_overlay(memory: Any, context: PictureContext) -> Overlay | None:
    """The maze where the run is in one; else nodes and edges in a plane."""
    values = memory.values
    if not values.entries:
        return None
    if maze := read_maze(memory, context):
        return _maze_overlay(maze, memory, context)
    drawn = np.linspace(0, values.entries - 1, min(values.entries, MOST_POINTS)).astype(int)
    row = np.full(values.entries, -1)
    row[drawn] = np.arange(len(drawn))
    edges = values.edge_table()
    pairs = row[np.stack([edges["source"], edges["target"]], 1)]
    pairs = pairs[(pairs >= 0).all(1)]
    pairs = pairs[np.linspace(0, len(pairs) - 1, min(len(pairs), MOST_EDGES)).astype(int)]
    keys, shown = values.node_keys()[drawn], values.node_values()[drawn]
    return _plane_overlay(keys, shown, pairs, f"{values.entries:,} nodes", memory, context)


def dictionary_overlay(memory: Any, context: PictureContext) -> Overlay | None:
    """Entries in a plane."""
    values = memory.values
    if not values.entries:
        return None
    _, _, entries = entries_of(values, MOST_POINTS)
    none = np.zeros((0, 2), int)
    what = f"{values.entries:,} entries"
    return _plane_overlay(entries.key, entries.value, none, what, memory, context)


def _plane_overlay(
    keys: np.ndarray,
    values: np.ndarray,
    pairs: np.ndarray,
    what: str,
    memory: Any,
    context: PictureContext,
) -> Overlay:
    plane = kept_plane(keys, context.folder)
    points = placed(keys, plane)
    low, high = np.quantile(points, (0.005, 0.995), axis=0)
    room = np.maximum(high - low, 1e-9)

    def pixels(rows: np.ndarray) -> np.ndarray:
        """Places on the panel; what lies outside is at its edge."""
        part = np.clip((placed(rows, plane) - low) / room, -0.04, 1.04)
        return np.stack([20 + part[:, 0] * (WIDTH - 40), PLOT - 20 - part[:, 1] * (PLOT - 60)], 1)

    at, colours = pixels(keys), _shades(values)
    empty, draw = _empty(f"{what}, by value; lit: nearest of the best action")
    for source, target in pairs:
        draw.line([*at[source], *at[target]], fill=PALE)
    for place, colour in zip(at, colours, strict=True):
        _dot(draw, place, 2, colour)

    def lit(observation: np.ndarray, draw: Any) -> np.ndarray:
        key = keys_of(memory, context, observation[None])[0]
        looked = look_up(memory.values, key, newest_frame(observation, context.spec.frame_shape))
        best = int(looked.values.argmax())
        held = looked.slot[best] >= 0
        near, weight = pixels(looked.key[best][held]), looked.weight[best][held]
        here = pixels(key[None])[0]
        for place, share in list(zip(near, weight, strict=True))[:LIT][::-1]:
            draw.line([*here, *place], fill=MARK, width=1)
            _dot(draw, place, 3 + 6 * float(np.sqrt(share)), MARK, "white")
        _dot(draw, here, 6, "white", MARK, 3)
        return looked.values

    return _shown_on(empty, lit)


def _maze_overlay(maze: Maze, memory: Any, context: PictureContext) -> Overlay:
    height, width = maze.blocked.shape
    cell = min((WIDTH - 20) / width, (PLOT - 40) / height)
    left, top = (WIDTH - cell * width) / 2, 30
    known = np.where(np.isfinite(maze.values), maze.values, 0)
    colours = _shades(known.ravel())
    empty, draw = _empty("the value of each cell; the action that is best there")
    for number, (y, x) in enumerate(np.ndindex(height, width)):
        corner = left + x * cell, top + y * cell
        colour = colours[number] if known[y, x] > 0 else "white"
        colour = BLOCKED if maze.blocked[y, x] else colour
        draw.rectangle([*corner, corner[0] + cell, corner[1] + cell], fill=colour, outline=PALE)
        if maze.best[y, x] >= 0:
            dx, dy = maze.moves[maze.best[y, x]]
            middle = np.array(corner) + cell / 2
            _arrow(draw, middle, np.array([dx, dy]) * cell * 0.3, _ink_on(colour))
    goal = left + (width - 1) * cell, top + (height - 1) * cell
    draw.rectangle([*goal, goal[0] + cell, goal[1] + cell], fill="#ffd700", outline=PALE)

    def lit(observation: np.ndarray, draw: Any) -> np.ndarray:
        key = keys_of(memory, context, observation[None])
        number = maze.cells_of(key)
        if number is not None:
            y, x = divmod(int(number[0]), width)
            corner = left + x * cell, top + y * cell
            draw.rectangle([*corner, corner[0] + cell, corner[1] + cell], outline=MARK, width=4)
        return memory.values.read(key, touch=False)[0][0]

    return _shown_on(empty, lit)


def _shown_on(empty: Image.Image, lit: Callable[[np.ndarray, Any], np.ndarray]) -> Overlay:
    """A copy of a picture with what `lit` draws for an observation, and the values that it gives
    as bars below."""

    def panel(observation: np.ndarray) -> np.ndarray:
        drawn = empty.copy()
        draw = ImageDraw.Draw(drawn)
        values = lit(observation, draw)
        _bars(draw, values)
        return np.asarray(drawn)

    return panel


def _empty(title: str) -> tuple[Image.Image, Any]:
    drawn = Image.new("RGB", (WIDTH, HEIGHT), "white")
    draw = ImageDraw.Draw(drawn)
    draw.text((8, 8), title, fill=INK, font=_FONT)
    return drawn, draw


def _bars(draw: Any, values: np.ndarray) -> None:
    """A bar for each action, from 0; the best is marked, and named with its value."""
    best = int(values.argmax())
    draw.text((8, PLOT), f"action {best}: value {values[best]:.3g}", fill=MARK, font=_FONT)
    top, bottom = PLOT + 20, HEIGHT - 20
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    room = max(high - low, 1e-12)
    zero = bottom + low / room * (bottom - top)
    each = (WIDTH - 16) / len(values)
    for action, value in enumerate(values):
        x = 8 + action * each
        y = zero - float(value) / room * (bottom - top)
        colour = MARK if action == best else "#999999"
        draw.rectangle([x + 2, min(y, zero), x + each - 2, max(y, zero)], fill=colour)
        draw.text((x + each / 2, HEIGHT - 16), str(action), fill=INK, font=_FONT, anchor="ma")
    draw.line([8, zero, WIDTH - 8, zero], fill=INK)


def _shades(values: np.ndarray) -> list[tuple[int, ...]]:
    """A colour for each value, by its rank among all: no few large ones make the others equal."""
    ordered = np.sort(values)
    rank = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right") - 1
    place = rank / max(1, 2 * (len(values) - 1)) * (len(_SHADES) - 1)
    low = np.minimum(place.astype(int), len(_SHADES) - 2)
    part = (place - low)[:, None]
    colours = _SHADES[low] * (1 - part) + _SHADES[low + 1] * part
    return [tuple(int(c) for c in row) for row in colours.round()]


def _ink_on(colour: Any) -> str:
    return "white" if isinstance(colour, tuple) and sum(colour) < 380 else INK


def _dot(draw: Any, at: Any, radius: float, fill: Any, edge: Any = None, width: int = 1) -> None:
    x, y = at
    box = [x - radius, y - radius, x + radius, y + radius]
    draw.ellipse(box, fill=fill, outline=edge, width=width)


def _arrow(draw: Any, middle: np.ndarray, along: np.ndarray, colour: str) -> None:
    tip, aside = middle + along, np.array([-along[1], along[0]]) * 0.5
    draw.line([*(middle - along), *tip], fill=colour)
    draw.polygon([*tip, *(middle + 0.2 * along + aside), *(middle + 0.2 * along - aside)],
                 fill=colour)  # fmt: skip
