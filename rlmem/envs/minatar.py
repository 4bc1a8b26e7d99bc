"""MinAtar's five games (Young and Tian 2019): 10x10 boards, uint8 0/1 frames [C, 10, 10].

The games are loaded as files of the installed package: importing `minatar` itself would import
matplotlib and seaborn, which only its own drawing needs. `MinAtarGame` does what the package's
`Environment` does, and can be re-seeded completely.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from rlmem.envs.serial import SerialEnvStepper
from rlmem.envs.spec import EnvSettings, EnvSpec
from rlmem.errors import UserError, choose_from
from rlmem.registry import part
from rlmem.settings import setting

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
PIXELS_PER_CELL = 24


@dataclass
class MinatarSettings(EnvSettings):
    """A MinAtar game."""

    game: str = setting(example="breakout")
    sticky: float = setting(at_least=0, at_most=1)
    max_episode_steps: int | None = setting(at_least=1)


def make_minatar(
    cfg: Any, num_envs: int, *, render: bool = False, scoring: bool = False
) -> SerialEnvStepper:
    """Make a MinAtar game; see `rlmem.envs.make_env`. `scoring` changes nothing."""
    game = cfg.game
    if game not in GAMES:
        raise UserError(f"env.game={game}: no such MinAtar game{choose_from(str(game), GAMES)}")
    if not 0 <= cfg.sticky < 1:
        raise UserError(f"env.sticky={cfg.sticky}: must lie in [0, 1)")
    limit = cfg.max_episode_steps
    if limit is not None and limit < 1:
        raise UserError(f"env.max_episode_steps={limit}: must be at least 1, or null")
    envs = [MinAtarGame(game, cfg.sticky, limit) for _ in range(num_envs)]
    spec = EnvSpec(
        env_id=f"MinAtar/{game.title().replace('_', '')}",
        suite="minatar",
        num_envs=num_envs,
        frame_shape=envs[0].frame_shape,
        dtype=np.dtype(np.uint8),
        stack=1,
        num_actions=envs[0].num_actions,
        frames_per_step=1,
        highest=1,
    )
    return SerialEnvStepper(spec, envs, _write_board, can_render=render)


@part("env", "minatar", settings=MinatarSettings)
class MinatarSuite:
    """MinAtar's five games."""

    discrete, screens, images = True, False, True
    build = staticmethod(make_minatar)


class MinAtarGame:
    """One game with the minimal action set, sticky actions and difficulty ramping.

    As in the MinAtar paper's code, the action that may stick lives on across episodes.

    Args:
        game: one of `GAMES`.
        sticky: probability that the previous action is repeated, per step.
        max_episode_steps: truncate after this many steps; None for never.
    """

    def __init__(self, game: str, sticky: float, max_episode_steps: int | None = None) -> None:
        self._new_game = _game_module(game).Env
        self._sticky = sticky
        self._max_episode_steps = max_episode_steps
        self._random = np.random.RandomState(0)
        self._env = self._new_game(ramping=True)
        self._actions = self._env.minimal_action_set()
        self._last_action = 0
        self._episode_steps = 0
        height, width, channels = self._env.state_shape()
        self.frame_shape = (channels, height, width)
        self.num_actions = len(self._actions)

    def reset(self, *, seed: int | None = None) -> tuple[np.ndarray, dict]:
        """Start an episode; with a seed, as if the game had just been made."""
        if seed is not None:
            self._random = np.random.RandomState(seed)
            self._env = self._new_game(ramping=True)
            self._env.random = self._random
            self._last_action = 0
        self._env.reset()
        self._episode_steps = 0
        return self._env.state(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Take action 0 .. num_actions - 1; returns gymnasium's five values."""
        choice = self._actions[action]
        if self._random.rand() < self._sticky:
            choice = self._last_action
        self._last_action = choice
        reward, terminated = self._env.act(choice)
        self._episode_steps += 1
        truncated = self._episode_steps == self._max_episode_steps and not terminated
        return self._env.state(), reward, terminated, truncated, {}

    def render(self) -> np.ndarray:
        """The board as a picture, uint8 [240, 240, 3]: the highest channel of a cell colours it."""
        board = self._env.state()
        channels = board.shape[-1]
        cells = (board * np.arange(1, channels + 1)).max(axis=-1)
        return _palette(channels)[cells].repeat(PIXELS_PER_CELL, 0).repeat(PIXELS_PER_CELL, 1)

    def close(self) -> None:
        """Nothing to free."""


def _write_board(row: np.ndarray, board: np.ndarray) -> None:
    row[:] = board.transpose(2, 0, 1)


@cache
def _palette(channels: int) -> np.ndarray:
    """Black, then `channels` colours of rising brightness, uint8 [C+1, 3] (Green 2011)."""
    light = np.linspace(0, 1, channels + 2)[1:-1, None]
    angle = 2 * np.pi * (0.5 / 3 + 1 - 1.5 * light)
    turn = np.array([[-0.14861, 1.78277], [-0.29227, -0.90649], [1.97294, 0.0]])
    swing = np.hstack([np.cos(angle), np.sin(angle)]) @ turn.T
    colours = light + 0.5 * light * (1 - light) * swing
    return (np.vstack([np.zeros((1, 3)), colours]).clip(0, 1) * 255).round().astype(np.uint8)


@cache
def _game_module(game: str) -> ModuleType:
    package = find_spec("minatar")
    if package is None or not package.submodule_search_locations:
        raise UserError(
            f"env.game={game}: MinAtar's package is missing; pip install 'rlmem[minatar]'"
        )
    path = Path(package.submodule_search_locations[0]) / "environments" / f"{game}.py"
    spec = spec_from_file_location(f"rlmem_minatar_{game}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
