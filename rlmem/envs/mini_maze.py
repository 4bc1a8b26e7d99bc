"""MiniMaze: a grid with pits, the yardstick of the graph memories (Kang et al., IEEE TAI 2024,
doi 10.1109/TAI.2023.3268612).

From the first cell, (0, 0), to the last: +200 there, which ends the episode. A step into a pit is
answered with -1, one into a wall with 0, and both leave the agent where it is. An episode has 200
steps at most, the time limit of `gymnasium.make`.
"""

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlmem.envs.gym import GymSettings, GymSuite
from rlmem.envs.observations import FramesOf
from rlmem.envs.spec import Board
from rlmem.errors import UserError
from rlmem.registry import part
from rlmem.settings import beside, setting

ENV_ID = "rlmem/MiniMaze-v0"
GOAL_REWARD = 200.0
# (x, y), y downwards. The released code draws twelve on a grid of 11 x 11, one too many a side: of
# these, nine lie in the maze.
RELEASED_PITS = ((0, 9), (2, 5), (3, 7), (3, 8), (4, 5), (4, 7), (7, 0), (8, 2), (9, 5))
MOVES = ((0, -1), (0, 1), (1, 0), (-1, 0))  # up, down, right, left: (x, y) of each action
GROUND, PIT, GOAL, AGENT = (255, 255, 255), (0, 0, 0), (255, 215, 0), (220, 20, 20)
_TRIES = 1000  # random mazes until one leads to the goal


def maze_pits(size: int, maze: str | int, pits: int) -> np.ndarray:
    """Where the pits are, bool [size, size], at [y, x].

    Args:
        size: cells a side.
        maze: "released", or the seed of a random maze.
        pits: cells of a random maze that are pits; neither the first nor the last cell is one.

    Raises:
        ValueError: the released maze has 10 cells a side, or no maze of so many pits leads to the
            goal.
    """
    grid = np.zeros((size, size), np.bool_)
    if maze == "released":
        if size != 10:
            raise ValueError(f"size={size}: the released maze has 10; use maze=0 for a random one")
        x, y = np.transpose(RELEASED_PITS)
        grid[y, x] = True
        return grid
    rng, cells = np.random.default_rng(int(maze)), size * size
    for _ in range(_TRIES if pits <= cells - 2 else 0):
        grid[:] = False
        grid.flat[1 + rng.choice(cells - 2, pits, replace=False)] = True
        if steps_to_goal(grid)[0, 0] >= 0:
            return grid
    raise ValueError(f"pits={pits}: no maze of size={size} leads to the goal; use fewer")


def steps_to_goal(grid: np.ndarray) -> np.ndarray:
    """Steps of the shortest way from each cell, int64 as `grid` [size, size]; -1: there is none."""
    steps = np.full(grid.shape, -1)
    steps[-1, -1], here, distance = 0, {(len(grid) - 1, len(grid) - 1)}, 0
    while here:
        distance += 1
        near = {(x + dx, y + dy) for x, y in here for dx, dy in MOVES}
        near = {c for c in near if 0 <= min(c) <= max(c) < len(grid)}
        here = {(x, y) for x, y in near if steps[y, x] < 0 and not grid[y, x]}
        for x, y in here:
            steps[y, x] = distance
    return steps


class MiniMazeEnv(gymnasium.Env):
    """The maze, with actions up, down, right and left.

    Args:
        size: cells a side, at least 2.
        maze: "released" (10 cells a side), or the seed of a random maze.
        pits: of a random maze.
        observation: "position": float32 [2], x and y in cells; "one_hot": the cell's number, which
            agents of rlmem see as a one-hot vector; "pixels": uint8 [size * cell, size * cell, 3].
        cell: pixels a side of a cell, where pixels are observed.
        render_mode: None or "rgb_array".

    Raises:
        ValueError: there is no such maze or observation.

    Examples:
        >>> import gymnasium
        >>> import rlmem.envs.mini_maze
        >>> env = gymnasium.make("rlmem/MiniMaze-v0", maze=7, size=5, pits=4)
        >>> env.reset(seed=0)[0].tolist()
        [0.0, 0.0]
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self,
        size: int = 10,
        maze: str | int = "released",
        pits: int = 12,
        observation: str = "position",
        cell: int = 4,
        render_mode: str | None = None,
    ) -> None:
        if size < 2:
            raise ValueError(f"size={size}: at least 2 are needed")
        self.size, self.cell, self.render_mode = size, cell, render_mode
        self.pits = maze_pits(size, maze, pits)
        self.observation, last, side = observation, np.float32(size - 1), size * cell
        choices: dict[str, spaces.Space] = {
            "position": spaces.Box(np.float32(0), last, (2,), np.float32),
            "one_hot": spaces.Discrete(size * size),
            "pixels": spaces.Box(0, 255, (side, side, 3), np.uint8),
        }
        if observation not in choices:
            raise ValueError(f"observation={observation}: use {', '.join(choices)}")
        self.observation_space = choices[observation]
        self.action_space = spaces.Discrete(len(MOVES))
        self._x = self._y = 0

    def _observe(self) -> Any:
        if self.observation == "position":
            return np.array((self._x, self._y), np.float32)
        if self.observation == "one_hot":
            return self._y * self.size + self._x
        return self.picture(self.cell)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        """To the first cell; nothing is drawn, and options are not used."""
        super().reset(seed=seed)
        self._x = self._y = 0
        return self._observe(), {"is_success": False}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        """Move, or stay where a pit or a wall is."""
        (dx, dy), last = MOVES[action], self.size - 1
        x, y = min(max(self._x + dx, 0), last), min(max(self._y + dy, 0), last)
        fell = bool(self.pits[y, x])
        if not fell:
            self._x, self._y = x, y
        there = x == y == last
        reward = GOAL_REWARD if there else -1.0 if fell else 0.0
        return self._observe(), reward, there, False, {"is_success": there}

    def seen_from(self, x: int, y: int) -> Any:
        """What is observed in a cell; the agent stays where it is."""
        here = self._x, self._y
        self._x, self._y = x, y
        observed = self._observe()
        self._x, self._y = here
        return observed

    def picture(self, cell: int) -> np.ndarray:
        """The maze and the agent, uint8 [size * cell, size * cell, 3]."""
        colours = np.array((GROUND, PIT), np.uint8)
        image = colours[self.pits.astype(np.int64)]
        image[-1, -1] = GOAL
        image[self._y, self._x] = AGENT
        return image.repeat(cell, 0).repeat(cell, 1)

    def render(self) -> np.ndarray:
        """As `picture`, with 32 pixels a side of a cell."""
        return self.picture(32)


gymnasium.register(ENV_ID, entry_point="rlmem.envs.mini_maze:MiniMazeEnv", max_episode_steps=200)


def _maze(value: Any) -> str | None:
    fits = value == "released" or (type(value) is int and value >= 0)
    return None if fits else "released, or a whole number from 0, the seed of a random maze"


@dataclass
class MiniMazeSettings(GymSettings):
    """Which maze, and what is seen of it."""

    extends = "mini_maze"

    size: int = setting(at_least=2, at_most=100)
    maze: Any = setting(check=_maze)
    pits: int = setting(at_least=0, at_most=10_000, idle=beside(maze="released"))
    observation: str = setting(choices=("position", "one_hot", "pixels"))
    cell: int = setting(
        at_least=1, at_most=32, idle=lambda s: () if s.observation == "pixels" else ("observation",)
    )


@part("env", "mini_maze", settings=MiniMazeSettings)
class MiniMazeSuite(GymSuite):
    """Gymnasium's suite, with a maze among its keys."""

    discrete = True

    @classmethod
    def check(cls, settings: MiniMazeSettings, run: Any) -> None:
        """Raise a UserError if there is no such maze."""
        try:
            maze_pits(settings.size, settings.maze, settings.pits)
        except ValueError as error:
            raise UserError(f"env.{str(error).replace('use maze', 'use env.maze')}") from None

    @staticmethod
    def board(settings: MiniMazeSettings) -> Board:
        """The maze, for pictures."""
        env = MiniMazeEnv(**settings.kwargs)
        seen = FramesOf(settings.id, env.observation_space)
        frames = np.zeros((env.size**2, *seen.shape), seen.dtype)
        for number, row in enumerate(frames):
            seen.write(row, env.seen_from(number % env.size, number // env.size))
        return Board(env.pits, frames, MOVES)
