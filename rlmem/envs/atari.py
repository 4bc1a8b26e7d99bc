"""Atari through ale-py's AtariVectorEnv: emulation, resizing and threads all in C++.

Frames come out singly (uint8 [1, 84, 84]); `FrameStack` and the memories stack them. Every option
of AtariVectorEnv is set here, because its defaults are not those of the `ALE/*-v5` environments
(sticky actions off, rewards clipped). Protocols: Machado et al. 2018 ("machado") and the older
NoFrameskip-v4 rules of Mnih et al. 2015.

What ale-py 0.12 does, and what is done about it here:
- It cuts an episode at its frame limit before it has captured the last screens, so its final
  observation is the previous frame, mixed with a part of the last one. Truncation bootstraps from
  that observation. So the limit is kept here, and the frame is the true one.
- At game over the same happens (as in gymnasium's AtariPreprocessing). That frame is left as it is:
  nothing bootstraps from a terminal observation, and ale-py gives no other.
- Its `episodic_life` restarts the whole game at each lost life. Its `life_loss_info` does what the
  studies mean: a lost life terminates, the game goes on; then no final observation is written.
- The frame limit counts the agent's frames, not the no-ops before them.
"""

from __future__ import annotations

import difflib
import os
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from ale_py import ALEInterface, roms
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from rlmem.envs.screens import ScreenPart
from rlmem.envs.spec import EnvSettings, EnvSpec, Step, env_seeds
from rlmem.errors import UserError
from rlmem.machine import usable_cores
from rlmem.registry import part
from rlmem.settings import Settings, setting

SCREEN_HEIGHT, SCREEN_WIDTH = 210, 160
NO_LIMIT = 2**30  # emulator frames; ale-py adds to it in 32 bits
NO_SINGLE_PLAYER = frozenset({"combat", "joust", "maze_craze", "warlords"})


@dataclass
class ProtocolSettings(Settings):
    """Rules of an Atari evaluation."""

    name: str = setting()
    sticky: float = setting(at_least=0, at_most=1)
    noop_max: int = setting(at_least=0, at_most=10_000)
    fire_reset: bool = setting()
    episodic_life: bool = setting()
    max_frames: int = setting(at_least=1)


def _rows(value: Any) -> str | None:
    fits = value is None or (len(value) == 2 and 0 <= value[0] < value[1] <= SCREEN_HEIGHT)
    return None if fits else f"two rising numbers up to {SCREEN_HEIGHT} such as [34,194], or null"


@dataclass
class AtariSettings(EnvSettings):
    """An Arcade Learning Environment game."""

    game: str = setting(example="seaquest")
    stack: int = setting(at_least=1, at_most=64)
    frame_skip: int = setting(at_least=1, at_most=1000)
    # The smallest screen that the Nature CNN's three layers take is 36.
    screen_size: int = setting(at_least=36, at_most=1000)
    protocol: ProtocolSettings = setting()
    rows: list[int] | None = setting(None, check=_rows)


def make_atari(
    cfg: Any, num_envs: int, *, render: bool = False, scoring: bool = False
) -> AtariStepper:
    """Make an Atari game; see `rlmem.envs.make_env`.

    Args:
        scoring: whole games, whatever the protocol does in training at the loss of a life.
    """
    _check(cfg)
    return AtariStepper(cfg, num_envs, cfg.protocol.episodic_life and not scoring, render)


@part("env", "atari", settings=AtariSettings)
class AtariSuite:
    """Games of the Arcade Learning Environment, played from their screens."""

    discrete = screens = images = True
    build = staticmethod(make_atari)


class AtariStepper:
    """EnvStepper over AtariVectorEnv with the minimal action set.

    Args:
        cfg: `AtariSettings`, but for `episodic_life`.
        num_envs: E; E > 1 are stepped by min(E, usable CPUs) threads.
        episodic_life: report a lost life as `terminated`; the game itself goes on.
        render: step a colour twin of environment 0 along, for `render`.
    """

    def __init__(self, cfg: Any, num_envs: int, episodic_life: bool, render: bool) -> None:
        game, size, frame_skip, rules = cfg.game, cfg.screen_size, cfg.frame_skip, cfg.protocol

        def make(envs: int, height: int, width: int, grayscale: bool) -> AtariVectorEnv:
            return AtariVectorEnv(
                game,
                envs,
                batch_size=0,
                num_threads=min(envs, usable_cores()),
                thread_affinity_offset=-1,
                max_num_frames_per_episode=NO_LIMIT,  # see the module's docstring
                repeat_action_probability=rules.sticky,
                full_action_space=False,
                continuous=False,
                continuous_action_threshold=0.5,
                autoreset_mode=AutoresetMode.SAME_STEP,
                img_height=height,
                img_width=width,
                grayscale=grayscale,
                stack_num=1,
                frameskip=frame_skip,
                maxpool=True,  # over the last two emulator frames of a step
                noop_max=rules.noop_max,  # fewer no-ops than this at an episode's start
                episodic_life=False,  # would restart the whole game at each lost life
                life_loss_info=episodic_life,
                reward_clipping=False,
                use_fire_reset=rules.fire_reset,
            )

        rows, screen = getattr(cfg, "rows", None), (SCREEN_HEIGHT, SCREEN_WIDTH)
        self._part = ScreenPart(rows, size, *screen) if rows else None
        height, width = screen if rows else (size, size)
        self._env = make(num_envs, height, width, grayscale=True)
        self._twin = make(1, SCREEN_HEIGHT, SCREEN_WIDTH, grayscale=False) if render else None
        self._picture: np.ndarray | None = None
        self._step_limit = -(-rules.max_frames // frame_skip)  # whole steps
        self._game_steps = np.zeros(num_envs, np.int64)
        self._lives = np.zeros(num_envs, np.int32)
        self.spec = EnvSpec(
            env_id=f"ALE/{game.title().replace('_', '')}",
            suite="atari",
            num_envs=num_envs,
            frame_shape=(1, size, size),
            dtype=np.dtype(np.uint8),
            stack=cfg.stack,
            num_actions=len(self._env.ale.get_action_set()),
            frames_per_step=frame_skip,
            video_fps=max(10, 60 // frame_skip),
        )

    def reset(self, seed: int) -> np.ndarray:
        """See `EnvStepper.reset`."""
        seeds = np.array(env_seeds(seed, self.spec.num_envs))
        if self._twin is not None:
            self._picture = self._twin.reset(seed=seeds[:1])[0][0, 0]
        observation, info = self._env.reset(seed=seeds)
        self._game_steps[:] = 0
        self._lives = info["lives"]
        return self._part(observation) if self._part else observation

    def step(self, action: np.ndarray) -> Step:
        """See `EnvStepper.step`."""
        observation, reward, terminated, _, info = self._env.step(action)
        next_observation = observation
        # A game over shows the lives of the game that follows; a lost life shows one less.
        over = terminated & (info["lives"] >= self._lives)
        self._lives = info["lives"]
        self._game_steps += 1
        expired = (self._game_steps >= self._step_limit) & ~over
        if self._twin is not None:
            self._step_twin(self._twin, action, reward[0], terminated[0], expired[0])
        if over.any() or expired.any():
            next_observation = observation.copy()
            self._game_steps[over | expired] = 0
        if over.any():
            next_observation[over] = info["final_obs"][over]
        if expired.any():
            fresh, info = self._env.reset(options={"reset_mask": expired})
            observation[expired] = fresh[expired]
            self._lives[expired] = info["lives"][expired]
        truncated = expired & ~terminated
        if self._part is not None:
            same = next_observation is observation
            observation = self._part(observation)
            next_observation = observation if same else self._part(next_observation)
        return Step(observation, next_observation, reward.astype(np.float32), terminated, truncated)

    def _step_twin(
        self,
        twin: AtariVectorEnv,
        action: np.ndarray,
        reward: int,
        terminated: bool,
        expired: bool,
    ) -> None:
        picture, twin_reward, twin_terminated, *_ = twin.step(action[:1])
        if (twin_reward[0], twin_terminated[0]) != (reward, terminated):
            raise RuntimeError(f"the colour twin of {self.spec.env_id} fell out of step")
        if expired:
            picture, _ = twin.reset()
        self._picture = picture[0, 0]

    def render(self) -> np.ndarray:
        """See `EnvStepper.render`: the emulator's own screen, uint8 [210, 160, 3]."""
        if self._twin is None:
            raise RuntimeError("this environment was made without render=True")
        if self._picture is None:
            raise RuntimeError("call reset before render")
        return self._picture

    def close(self) -> None:
        """See `EnvStepper.close`."""
        self._env.close()
        if self._twin is not None:
            self._twin.close()


def _check(cfg: Any) -> None:
    """Hold the options against what AtariVectorEnv survives: it aborts or hangs on bad ones."""
    _check_game(cfg.game)
    protocol = cfg.protocol
    for key, value, least in (
        ("stack", cfg.stack, 1),
        ("frame_skip", cfg.frame_skip, 1),
        ("screen_size", cfg.screen_size, 1),
        ("protocol.noop_max", protocol.noop_max, 0),
        ("protocol.max_frames", protocol.max_frames, cfg.frame_skip),
    ):
        if value < least:
            raise UserError(f"env.{key}={value}: must be at least {least}")
    if not 0 <= protocol.sticky < 1:
        raise UserError(f"env.protocol.sticky={protocol.sticky}: must lie in [0, 1)")


def _check_game(game: str | None) -> None:
    games = sorted(set(roms.get_all_rom_ids()) - NO_SINGLE_PLAYER)
    if game is None:
        raise UserError("env.game is not set; name an Atari game, e.g. env.game=road_runner")
    if game in NO_SINGLE_PLAYER:
        raise UserError(f"env.game={game}: this game has no single-player mode in ale-py")
    if game not in games:
        # "RoadRunner", "road-runner" and "ALE/RoadRunner-v5" should find road_runner as well.
        plain = {name.replace("_", ""): name for name in games}
        wanted = game.lower().removeprefix("ale/").split("-v")[0]
        wanted = "".join(filter(str.isalnum, wanted))
        nearest = [plain[name] for name in difflib.get_close_matches(wanted, plain, 3, 0.5)]
        hint = f"did you mean {', '.join(nearest)}?" if nearest else f"e.g. {', '.join(games[:3])}"
        raise UserError(
            f"env.game={game}: no such Atari game; {hint} ({len(games)} games, named as their ROMs)"
        )
    try:
        with warnings.catch_warnings(action="ignore"):
            path = roms.get_rom_path(game)
            usable = path is not None and ALEInterface.isSupportedROM(path) is not None
    except OSError as error:
        raise UserError(_rom_message(game, str(error))) from error
    if not usable:
        raise UserError(_rom_message(game, "ale-py does not support it"))


def _rom_message(game: str, reason: str) -> str:
    where = os.environ.get("ALE_ROMS_DIR")
    fix = f"unset ALE_ROMS_DIR ({where})" if where else "reinstall ale-py, its wheel holds the ROMs"
    return f"env.game={game}: its ROM cannot be used ({' '.join(reason.split())}); {fix}"
