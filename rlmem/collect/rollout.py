"""Scoring a policy: episodes on a fresh environment, without memory and without learning."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from rlmem.collect.collector import Policy
from rlmem.collect.finite import check_first, check_step, first_no_number
from rlmem.envs import EnvStepper, FrameStack, Step
from rlmem.errors import UserError, need
from rlmem.units import several

LONGEST = 108_000  # env steps of an episode that is scored, at most; no game of Atari has more


@dataclass(frozen=True)
class EvaluationResult:
    """Scores of one evaluation."""

    returns: list[float]  # sum of unclipped rewards of each episode
    lengths: list[int]  # env steps of each episode
    # Whether each episode's last step reached its goal; None where the env does not say it of all.
    successes: list[bool] | None = None
    unended: int = 0  # of them, that were scored after `LONGEST` steps, without having ended

    @property
    def remark(self) -> str | None:
        """What a reader of the scores must know, in one line."""
        if not self.unended:
            return None
        return (
            f"evaluation: {several(self.unended, 'episode')} did not end within {LONGEST:,} env "
            "steps and are scored as they stood there; set env.max_episode_steps"
        )

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """Standard deviation of the returns over the episodes."""
        return float(np.std(self.returns))

    @property
    def success_rate(self) -> float | None:
        """Share of the episodes that ended at their goal; None where the env does not say it of
        all."""
        return None if self.successes is None else float(np.mean(self.successes))


def evaluation_envs(episodes: int) -> int:
    """Environments to step in parallel for `episodes` episodes."""
    return min(episodes, 8)


def shares(episodes: int, num_envs: int) -> np.ndarray:
    """How many of the episodes each environment plays, int64 [num_envs]."""
    return episodes // num_envs + (np.arange(num_envs) < episodes % num_envs)


class Stopped(Exception):
    """Episodes were left off before there was a score."""


def evaluate_policy(
    env: EnvStepper,
    policy: Policy,
    *,
    episodes: int,
    epsilon: float,
    seed: int,
    on_frame: Callable[[np.ndarray, np.ndarray], None] | None = None,
    on_step: Callable[[np.ndarray, Step], None] | None = None,
    restart: Callable[[np.ndarray], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> EvaluationResult:
    """Play whole episodes.

    Each environment plays a fixed share of the episodes, so that short episodes are not
    over-represented among the first to finish. An episode that does not end is scored after
    `LONGEST` steps as it stands; what is played on from there is the next one.

    Args:
        env: a vector environment, reset here.
        policy: (observation, epsilon, rng) -> actions.
        episodes: how many are scored.
        epsilon: probability of a random action.
        seed: of environments and exploration.
        on_frame: called with each RGB frame of env 0's first episode and the observation there,
            [*observation_shape], the stack's own array; env must render.
        on_step: called with what actions were chosen from, [E, *observation_shape], the stack's
            own array, and with what followed.
        restart: called with which environments' episodes begin anew, bool [E]: all of them first.
        stop: whether to leave off; asked before each step.

    Raises:
        Stopped: it was left off.
        UserError: a reward or an observation is no finite number, so that there is no score.
    """
    num_envs = env.spec.num_envs
    rng = np.random.default_rng(seed)
    quota = shares(episodes, num_envs)
    stack = FrameStack(env.spec)
    frames = env.reset(seed)
    check_first(frames)
    stack.reset(frames)
    total, length = np.zeros(num_envs), np.zeros(num_envs, np.int64)
    returns: list[list[float]] = [[] for _ in range(num_envs)]
    lengths: list[list[int]] = [[] for _ in range(num_envs)]
    successes: list[list[bool]] = [[] for _ in range(num_envs)]
    unended = 0
    filming = on_frame is not None
    if restart is not None:
        restart(np.ones(num_envs, np.bool_))
    while any(len(done) < q for done, q in zip(returns, quota, strict=True)):
        if stop is not None and stop():
            raise Stopped
        if filming and on_frame is not None:
            on_frame(env.render(), stack.observation[0])
        step = env.step(policy(stack.observation, epsilon, rng))
        if on_step is not None:
            on_step(stack.observation, step)
        done = step.terminated | step.truncated
        stack.push(step.observation, done)
        if restart is not None and done.any():
            restart(done)
        total += step.reward
        length += 1
        if not np.isfinite(total).all():
            raise UserError(f"evaluation: {first_no_number(total, step.reward, length)}")
        check_step(step, length)
        filming = filming and not done[0]
        endless = ~done & (length >= LONGEST)
        for i in np.flatnonzero(done | endless):
            if len(returns[i]) < quota[i]:
                returns[i].append(float(total[i]))
                lengths[i].append(int(length[i]))
                unended += int(endless[i])
                if step.success is not None and not np.isnan(step.success[i]):
                    successes[i].append(bool(step.success[i]))
            total[i], length[i] = 0.0, 0
    reached = [*chain(*successes)]
    told = reached if len(reached) == episodes else None  # a rate over some would be another one
    return EvaluationResult([*chain(*returns)], [*chain(*lengths)], told, unended)


def need_video(what: str) -> Any:
    """The package `imageio`, which needs another one to write films.

    Args:
        what: the user's input that asks for one.

    Raises:
        UserError: one of them is missing.
    """
    need("imageio_ffmpeg", what, "video")
    return need("imageio", what, "video")


class Video:
    """An mp4 file that frames are appended to.

    Args:
        path: of the file; its folder is made.
        fps: frames a second.
        beside: makes a picture of an observation, uint8 [H, W, 3], that stands to the right of the
            game; always of one size.

    Attributes:
        failed: whether it could not be written.

    Raises:
        UserError: the optional packages are missing.
    """

    def __init__(
        self,
        path: Path,
        fps: int,
        beside: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        imageio = need_video("video=true")
        self.path, self.beside = path, beside
        self._writer: Any = None
        self.failed = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)  # it may be a link to a file elsewhere
            self._writer = imageio.get_writer(path, fps=fps, macro_block_size=2)
        except OSError as error:
            self._fail(error.strerror or str(error))

    def append(self, frame: np.ndarray, observation: np.ndarray) -> None:
        """Add an RGB frame uint8 [H, W, 3]; small frames are enlarged by whole factors. If the file
        cannot be written, one line says so, and what is played goes on without it.

        Args:
            observation: of the agent there, [*observation_shape].
        """
        if self.failed:
            return
        panel = self.beside(observation) if self.beside else None
        height = 320 if panel is None else len(panel)
        factor = max(1, round(height / frame.shape[0]))
        frame = frame.repeat(factor, 0).repeat(factor, 1)
        if panel is not None:
            gap = np.full((1, 2, 3), 128, np.uint8).repeat(max(len(frame), len(panel)), 0)
            high = [_high(part, len(gap)) for part in (frame, panel)]
            frame = np.concatenate([high[0], gap, high[1]], 1)
        try:
            self._writer.append_data(frame)
        except OSError:  # the program that packs the frames has ended, and said why
            self._fail("is there room?")

    def _fail(self, why: str) -> None:
        self.failed = True
        print(f"video: {self.path} cannot be written ({why})", flush=True)

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()


def _high(picture: np.ndarray, height: int) -> np.ndarray:
    """A picture with white above and below it."""
    missing = height - len(picture)
    rows = (missing // 2, missing - missing // 2)
    return np.pad(picture, (rows, (0, 0), (0, 0)), constant_values=255)
