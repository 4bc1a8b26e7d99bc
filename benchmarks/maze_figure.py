"""The values and the greedy way of a Q table and of GCMR in the maze, after some episodes.

    python -m benchmarks.maze_figure --out docs/img/maze.png [--episodes 2 3 10 30] [--seed 4]

A run of each memory for each number of episodes, of one seed, so that a longer one is the shorter
one and what came after it: half a minute on 2 cores.
"""

import argparse
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context

import rlmem
from rlmem.drawing import DPI, STYLE, figure
from rlmem.memories.base.pictures import PictureContext
from rlmem.memories.values.pictures_data import Maze, read_maze
from rlmem.memories.values.pictures_figures import colour_bar, draw_maze, value_norm
from rlmem.runs import build
from rlmem.runs.score import load_answers

MEMORIES = {"q_table": "Q table", "gcmr": "GCMR"}


def learned(memory: str, episodes: int, seed: int, folder: Path) -> tuple[Maze, int]:
    """What a memory says of the maze after so many episodes, and the env steps of these."""
    run = rlmem.train(
        [
            *("agent=tabular", f"memory={memory}", "env=mini_maze", f"seed={seed}"),
            *(f"trainer.max_episodes={episodes}", "trainer.threads=1", "log.progress=false"),
            "evaluation.episodes=1",
        ],
        run_dir=folder / f"{memory}_{episodes}",
    )
    env = build.build_evaluation_env(run.settings, 1, render=False)
    agent = build.build_agent(run.settings, env.spec)
    held = load_answers(run.path, "last", run.settings, env.spec, agent)
    assert run.summary is not None
    steps = int(run.summary["env_steps"])
    maze = read_maze(held, PictureContext(run.settings, agent, env.spec, steps))
    assert maze is not None
    return maze, steps


@rc_context(STYLE)
def draw(found: dict[str, dict[int, tuple[Maze, int]]], seed: int, out: Path) -> None:
    """A row a memory, a column a number of episodes."""
    columns = max(len(row) for row in found.values())
    drawn, axes = figure(2.35 * columns, 2.75 * len(found) + 0.9, len(found), columns)
    norm = value_norm(
        *(np.maximum(maze.values, 0) for row in found.values() for maze, _ in row.values())
    )
    shown: Any = None
    for line, (memory, row) in zip(axes, found.items(), strict=True):
        for at, (episodes, (maze, steps)) in zip(line, row.items(), strict=True):
            shown = draw_maze(at, maze, norm, numbers=False)
            end = "\n".join(textwrap.wrap(f"the greedy way {maze.end}", 34))
            at.set_title(f"{memory}, episode {episodes} ({steps:,} steps)", size=8)
            at.set_xlabel(end, size=7.5)
    label = "value of a cell's best action (white: 0 or unknown; black: pits)"
    colour_bar(drawn, shown, axes, label, shrink=0.5, aspect=40, pad=0.02)
    drawn.suptitle(f"What two memories know of the maze after some episodes (seed {seed})", size=10)
    drawn.savefig(out, dpi=DPI)


def main() -> None:
    """Train, draw."""
    parser = argparse.ArgumentParser(description="Draw docs/img/maze.png.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--episodes", type=int, nargs="+", default=[2, 3, 10, 30])
    parser.add_argument("--seed", type=int, default=4)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {
            title: {n: learned(memory, n, given.seed, Path(folder)) for n in given.episodes}
            for memory, title in MEMORIES.items()
        }
    draw(found, given.seed, given.out)


if __name__ == "__main__":
    main()
