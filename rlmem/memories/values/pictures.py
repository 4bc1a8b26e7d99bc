"""What is shown of the memories that answer, while a run trains and after it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from rlmem.memories.base.pictures import Picture, PictureContext
from rlmem.memories.values.asked import AskedMemory
from rlmem.memories.values.pictures_data import (
    Lookup,
    Maze,
    entries_of,
    held_frames,
    keys_of,
    lay_out,
    look_up,
    newest_first,
    newest_frame,
    read_maze,
)
from rlmem.memories.values.pictures_figures import maze_figure
from rlmem.memories.values.pictures_graph import Nodes, entries_figure, graph_figure
from rlmem.memories.values.pictures_lookup import NEIGHBOURS, lookup_figure

MOST_NODES, MOST_EDGES = 3000, 6000  # that are drawn; more could not be told apart
STATES = 3  # of a played episode, whose lookups are drawn
MOST_STEPS = 1000  # of an episode that they are chosen from


def table_pictures(memory: Any, context: PictureContext) -> Iterator[Picture]:
    """The maze, if the run is in one. Nothing before the first state."""
    if memory.values.entries:
        yield from _maze(memory, context, read_maze(memory, context))


def graph_pictures(memory: Any, context: PictureContext) -> Iterator[Picture]:
    """The graph; the maze, if the run is in one; what was looked up, where values are read from
    several nodes. Nothing before the first node."""
    values = memory.values
    if not values.entries:
        return
    maze = read_maze(memory, context)
    nodes = _nodes(values, maze, context)
    title = _title(context, f"{values.entries:,} nodes, {len(values.edge_table()):,} edges")
    if nodes.changed is not None:
        title += f"; the last reconstruction had {len(values.walker.last.key_nodes)} key nodes"
    picture = graph_figure(nodes, title, maze.blocked if maze else None)
    yield Picture("graph", picture, title)
    yield from _maze(memory, context, maze)
    if values.neighbours > 1:
        yield from _lookups(memory, context)


def dictionary_pictures(memory: Any, context: PictureContext) -> Iterator[Picture]:
    """The entries; the maze, if the run is in one; what was looked up. Nothing before the first
    entry."""
    values = memory.values
    if not values.entries:
        return
    action, _, entries = entries_of(values, MOST_NODES)
    layout = lay_out(entries.key, None, context.folder)
    drawn = "" if len(action) == values.entries else f", {len(action):,} of them drawn"
    title = _title(context, f"{values.entries:,} entries{drawn}")
    shown = entries_figure(layout, entries.value, action, values.num_actions, title)
    yield Picture("entries", shown, title)
    yield from _maze(memory, context, read_maze(memory, context))
    yield from _lookups(memory, context)


def _title(context: PictureContext, what: str) -> str:
    run = context.run
    return f"{run.env.name}, {run.memory.name}, {context.env_steps:,} env steps: {what}"


def _maze(memory: Any, context: PictureContext, maze: Maze | None) -> Iterator[Picture]:
    if maze:
        title = _title(context, f"the greedy way {maze.end}")
        yield Picture("maze", maze_figure(maze, title), title)


def _nodes(values: Any, maze: Maze | None, context: PictureContext) -> Nodes:
    """What is drawn of a graph: of many nodes the key nodes and those used last, of many edges
    those passed most."""
    last, edges = values.walker.last, values.edge_table()
    keys = last.key_nodes[last.key_nodes < values.entries]
    used = values.arrays.nodes["used"][: values.entries].astype(np.float64)
    used[keys] = np.inf
    chosen = np.sort(np.argsort(-used, kind="stable")[:MOST_NODES])
    row = np.full(values.entries, -1)
    row[chosen] = np.arange(len(chosen))
    pairs = row[np.stack([edges["source"], edges["target"]], 1)]
    between = (pairs >= 0).all(1) & (pairs[:, 0] != pairs[:, 1])
    order = np.argsort(-edges["visits"][between], kind="stable")[:MOST_EDGES]
    centre = last.clusters[: values.entries]
    own = np.flatnonzero((centre >= 0) & (centre < values.entries))
    own = own[centre[own] != own]
    spokes = row[np.stack([own, centre[own]], 1)]
    held = values.arrays.edges[last.edges]
    # What stands at a slot may have gone since: a full graph gives nodes up.
    there = (held["source"] >= 0) & (held["source"] < values.entries)
    there &= held["target"] < values.entries
    changed = np.full((len(held), 2), -1)
    changed[there] = row[np.stack([held["source"], held["target"]], 1)[there]]
    seen = (changed >= 0).all(1) & (changed[:, 0] != changed[:, 1])
    notes = []
    if len(chosen) < values.entries:
        notes.append(
            f"drawn: {len(chosen):,} of {values.entries:,} nodes, key nodes and those used last"
        )
    if len(order) < between.sum():
        notes.append(f"the {len(order):,} most passed of {between.sum():,} edges")
    loops = int((edges["source"] == edges["target"]).sum())
    if loops:
        notes.append(f"not drawn: {loops:,} edges from a node to itself")
    return Nodes(
        layout=lay_out(values.node_keys()[chosen], maze, context.folder),
        values=values.node_values()[chosen],
        key_nodes=row[keys],
        spokes=spokes[(spokes >= 0).all(1)],
        edges=pairs[between][order],
        changed=changed[seen] if len(last.key_nodes) else None,
        before=last.before[seen],
        after=last.after[seen],
        note="; ".join(notes),
    )


def _lookups(memory: Any, context: PictureContext) -> Iterator[Picture]:
    """What was looked up in a state: the present one of a run that trains, some of an episode that
    is played after it."""
    states = _states(memory, context)
    looked = [look_up(memory.values, key, frame) for key, frame, _ in states]
    if isinstance(memory, AskedMemory):  # keys are the observations themselves
        looked = [replace(rows, hash=rows.slot) for rows in looked]
        frames = {int(i): key for rows in looked for i, key in _pairs(rows)}
        wanted = []
    else:
        wanted = [rows.hash[rows.slot >= 0] for rows in looked if rows.hash is not None]
        frames = held_frames(memory.storage, np.concatenate(wanted)) if wanted else {}
    # A graph, and a memory whose keys no network makes, have no replay beside them.
    kept = len(memory.storage) and wanted
    missing = "frame no\nlonger held" if kept else "no frames\nare held"
    for number, (rows, (_, _, where)) in enumerate(zip(looked, states, strict=True), 1):
        name = "lookup" if context.play is None else f"lookup_{number}"
        p = rows.slot.shape[1]
        which = f"the {min(p, NEIGHBOURS)} nearest" + f" of {p}" * (p > NEIGHBOURS)
        about = f"what was looked up {where}; d: distance of keys, w: share in the value"
        title = _title(context, f"{about}; {which}")
        figure = lookup_figure(rows, frames, title, missing)
        yield Picture(name, figure, title, vector=False)


def _pairs(looked: Lookup) -> Iterator[tuple[int, np.ndarray]]:
    """Slots that were found and their keys."""
    held = looked.slot >= 0
    return zip(looked.slot[held], looked.key[held], strict=True)


def _states(memory: Any, context: PictureContext) -> list[tuple[np.ndarray, np.ndarray, str]]:
    """Key, newest frame and a description of the states whose lookups are drawn."""
    shape = context.spec.frame_shape
    if context.play is None and isinstance(memory, AskedMemory):
        values: Any = memory.values
        last = int(values.arrays.nodes["used"][: values.entries].argmax())
        key = values.node_keys()[last]
        return [(key, key, "at the node used last")]
    if context.play is None:
        now = memory.queue.newest()
        if now:
            return [(now[1], now[0], "in the present state")]
        for batch in newest_first(memory.storage):
            seen = batch["observation"].numpy()[-1:]
            frame = newest_frame(seen[0], shape)
            return [(keys_of(memory, context, seen)[0], frame, "in the newest state")]
        return []
    first: list[np.ndarray] = []  # observations, of the first environment and of ends
    calls = 0

    def number(observation: np.ndarray) -> np.ndarray:
        """The number of the call, a row each; the first row of the first calls is kept."""
        nonlocal calls
        if calls < MOST_STEPS:
            first.append(observation[0].copy())
        calls += 1
        return np.full((len(observation), 1), calls - 1)

    # A step is a call, and so are the ends of any environment between them: an episode of the
    # first one is what says in which call its steps were.
    call = next(iter(context.play(number).values()))[0][:-1, 0].astype(int)
    known = np.count_nonzero(call < len(first))
    steps = np.unique(np.linspace(0, known, STATES + 2)[1:-1].astype(int))
    rows = np.stack([first[call[step]] for step in steps])
    keys = keys_of(memory, context, rows)
    return [
        (key, newest_frame(row, shape), f"at step {step} of an episode")
        for key, row, step in zip(keys, rows, steps, strict=True)
    ]
