"""Observations of Stable-Baselines3 as stacks of frames, of which only the newest is to be held."""

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first

from rlmem.errors import UserError

ATARI_STACK = 4
ATARI_SHAPES = ((ATARI_STACK, 84, 84), (84, 84, ATARI_STACK))


class Stacks:
    """Takes observations apart into frames, and says whether they are the stacks they should be.

    Args:
        space: of the observations.
        shape: of one, as SB3 has it.
        num_envs: E.
        frame_stack: frames in an observation, or "auto".
        channels_order: axis of the stack, "first" or "last"; None: as `VecFrameStack` finds it.

    Attributes:
        count: frames in an observation, S.
        frame_shape: of one frame.

    Raises:
        UserError: no number of frames, no axis, or one that the frames do not divide.
    """

    def __init__(
        self,
        space: spaces.Space,
        shape: tuple[int, ...],
        num_envs: int,
        frame_stack: int | str,
        channels_order: str | None,
    ) -> None:
        self.shape, self.num_envs = shape, num_envs
        self.dtype = np.dtype(space.dtype)
        self.count = self._count(frame_stack)
        if channels_order not in (None, "first", "last"):
            raise UserError(f"channels_order={channels_order!r}: use 'first' or 'last'")
        order = channels_order or self._likely_order(space)
        self._channels_last = self.count > 1 and order == "last"
        *before, last = shape or (1,)
        channels, *rest = (last, *before) if self._channels_last else (*before, last)
        if channels % self.count:
            raise UserError(
                f"frame_stack={frame_stack}: the {channels} channels of the observations {shape} "
                "are no multiple of it; use frame_stack=1 if they are no stack, or "
                "channels_order='first' or 'last'"
            )
        self.frame_shape = (channels // self.count, *rest)
        # What each environment's next step must show, while an episode runs.
        self._newest = np.zeros(
            (num_envs, self.count, *self.frame_shape) if self.count > 1 else (0,), self.dtype
        )
        self._running = np.zeros(num_envs, np.bool_)

    def _count(self, frame_stack: int | str) -> int:
        if frame_stack == "auto":
            atari = self.shape in ATARI_SHAPES and self.dtype == np.uint8
            return ATARI_STACK if atari else 1
        whole = isinstance(frame_stack, int | np.integer) and not isinstance(frame_stack, bool)
        if whole and (count := int(frame_stack)) >= 1:
            return count
        raise UserError(f"frame_stack={frame_stack!r}: use 'auto', 1, 2, ...")

    def _likely_order(self, space: spaces.Space) -> str:
        """Axis of the stack, by the frames that it may be of, as `VecFrameStack` asks these."""
        if not is_image_space(space):
            return "last"
        first = is_image_space_channels_first(space)  # pyright: ignore[reportArgumentType]
        likely = {}
        for order, axis in (("first", 0), ("last", 2)):
            channels, left = divmod(self.shape[axis], self.count)
            frame = (channels, *self.shape[1:]) if axis == 0 else (*self.shape[:2], channels)
            if left == 0 and np.argmin(frame) == axis:
                likely[order] = channels in (1, 3, 4), first == (axis == 0)
        return max(likely, key=likely.__getitem__, default="first" if first else "last")

    def split(self, observation: np.ndarray) -> np.ndarray:
        """Observations [E, *shape] -> frames [E, S, *frame_shape], the newest last.

        Raises:
            UserError: they are of other environments, or another number of them.
        """
        given, shape = np.asarray(observation, self.dtype), (self.num_envs, *self.shape)
        if given.size != np.prod(shape):
            raise UserError(
                f"observations of shape {given.shape} were given, this buffer holds those of "
                f"n_envs={self.num_envs} environments, {shape}; make the model with as many"
            )
        whole = given.reshape(shape)
        if self._channels_last:
            whole = np.moveaxis(whole, -1, 1)
        return np.ascontiguousarray(whole.reshape(self.num_envs, self.count, *self.frame_shape))

    def join(self, stacked: np.ndarray) -> np.ndarray:
        """Frames as the storage stacks them [B, ...] -> observations [B, *shape], a view."""
        if self._channels_last:
            stacked = np.moveaxis(stacked, 1, -1)
        return stacked.reshape(len(stacked), *self.shape)

    def check(self, stacks: np.ndarray, following: np.ndarray) -> np.ndarray:
        """Whether each environment's stack is the next one of the step before, bool [E].

        Args:
            stacks, following: of this step and its next observation, from `split`, S at least 2.

        Raises:
            UserError: one is neither that nor the first of an episode, or the next stack is not
                this one moved by a frame.
        """
        now, ahead, before = (
            # Bytes: what the storage rebuilds has +0.0 as its padding.
            a.reshape(self.num_envs, self.count, -1).view(np.uint8)
            for a in (stacks, following, self._newest)
        )
        follows = self._running & (now == before).all((1, 2))
        starts = ~now[:, :-1].any((1, 2))
        moved = (now[:, 1:] == ahead[:, :-1]).all((1, 2))
        wrong = np.flatnonzero(~((follows | starts) & moved))
        if len(wrong):
            raise UserError(
                f"frame_stack={self.count}: the observations of environment {wrong[0]} are not its "
                f"{self.count} newest frames, the newest last and zeros before an episode, as "
                "VecFrameStack gives them, or frames are missing (after a callback stopped "
                "learn(): set model._last_obs = None before the next; VecNormalize changed them: "
                "norm_obs=False; the buffer was emptied in an episode); or pass "
                "replay_buffer_kwargs=dict(frame_stack=1) to hold each observation as it is"
            )
        return follows

    def passed(self, following: np.ndarray, ended: np.ndarray) -> None:
        """A step is held: its next stacks are to come, where its episode goes on.

        Args:
            following: from `split`.
            ended: bool [E].
        """
        if self.count > 1:
            self._newest[:] = following
        self._running = ~ended

    def forget(self) -> None:
        """Whatever comes next is the first of an episode."""
        self._running[:] = False

    @property
    def nbytes(self) -> int:
        """Bytes of the newest stacks."""
        return self._newest.nbytes
