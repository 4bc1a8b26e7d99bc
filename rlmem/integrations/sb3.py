"""Replay buffers for Stable-Baselines3 that hold each frame once: `replay_buffer_class=...`.

SB3's own buffer holds every frame eight times (a stack of four, and its next stack). These hold it
once, compressed or as it is, and give bit for bit the same samples: with the same seed a run is the
same run.
"""

import warnings
from typing import Any

import numpy as np
import psutil
import torch
from gymnasium import spaces

from rlmem.errors import UserError
from rlmem.memories.base.storage import check_whole
from rlmem.memories.compression.compressed import CompressedFrameStorage
from rlmem.memories.ring.budget import BudgetError
from rlmem.memories.ring.frames import FrameStorage
from rlmem.memories.ring.records import ends_of
from rlmem.memories.ring.ring import RingStorage
from rlmem.units import parse_bytes, readable_bytes

try:
    from stable_baselines3.common.buffers import ReplayBuffer
    from stable_baselines3.common.type_aliases import ReplayBufferSamples
    from stable_baselines3.common.vec_env import VecNormalize

    from rlmem.integrations.sb3_stacks import Stacks
except ModuleNotFoundError as error:
    if error.name != "stable_baselines3":
        raise
    raise ImportError(
        "rlmem.integrations.sb3 needs Stable-Baselines3: pip install 'rlmem[sb3]'"
    ) from None


class CompressedReplayBuffer(ReplayBuffer):
    """SB3's replay buffer over a `CompressedFrameStorage`: no loss, a few per cent of the bytes.

    Everything behind the two spaces is an SB3 argument or goes into `replay_buffer_kwargs`.

    Args:
        buffer_size: transitions held at most, over all environments.
        observation_space: Box (images, stacks of images, vectors), Discrete, MultiDiscrete or
            MultiBinary.
        action_space: as SB3 has it.
        device: of the sampled tensors.
        n_envs: environments that are added together, E.
        optimize_memory_usage: accepted, without effect: an observation and the next observation
            before it are always held once. Timeouts are handled all the same.
        handle_timeout_termination: sample `dones` of 0 where an episode was cut by a time limit.
        n_steps, gamma: of the sampled return and its `discounts`. SB3 does not pass them to a
            buffer class that it was given.
        frame_stack: frames in an observation, the newest last, zeros before an episode, as
            `VecFrameStack` gives them; only the newest is held. "auto" is 4 for uint8 images of
            4 x 84 x 84 or 84 x 84 x 4, else 1. Every stack is compared with the frames before.
        channels_order: axis of the stack, "first" or "last"; None: as `VecFrameStack` finds it.
        budget: bytes that the buffer may hold ("64MiB" or a number); `buffer_size` is then an upper
            bound, and the oldest transitions go when a new one would not fit.

    Raises:
        UserError: a Dict space, a `frame_stack` that does not divide the observations, or a size
            below 1.
        ValueError: a size that is no whole number.

    Examples:
        >>> import gymnasium
        >>> from stable_baselines3 import DQN
        >>> env = gymnasium.make("CartPole-v1")
        >>> model = DQN("MlpPolicy", env, replay_buffer_class=CompressedReplayBuffer, device="cpu")
        >>> _ = model.learn(200)
        >>> model.replay_buffer.size()
        200
    """

    storage_class: type[RingStorage] = CompressedFrameStorage

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        n_steps: int = 1,
        gamma: float = 0.99,
        frame_stack: int | str = "auto",
        channels_order: str | None = None,
        budget: int | str | None = None,
    ) -> None:
        if isinstance(observation_space, spaces.Dict):
            raise UserError(
                f"replay_buffer_class={type(self).__name__}: holds arrays, not Dict observations; "
                "use SB3's DictReplayBuffer for them"
            )
        check_whole(buffer_size=buffer_size, n_steps=n_steps)
        if min(buffer_size, n_steps) < 1:
            raise UserError(
                f"buffer_size={buffer_size}, n_steps={n_steps}: each must be at least 1"
            )
        # Past SB3's own constructor, which would make its arrays.
        super(ReplayBuffer, self).__init__(
            buffer_size, observation_space, action_space, device, n_envs=n_envs
        )
        self.buffer_size = max(buffer_size // n_envs, 1)
        self.optimize_memory_usage = optimize_memory_usage
        self.handle_timeout_termination = handle_timeout_termination
        self.n_steps, self.gamma = n_steps, gamma
        try:
            self.budget = None if budget is None else parse_bytes(budget)
        except ValueError as error:
            raise UserError(f"replay_buffer_kwargs=dict(budget={budget!r}): {error}") from None
        self._action_dtype = np.dtype(self._maybe_cast_dtype(action_space.dtype))
        self._stacks = Stacks(
            observation_space, self.obs_shape, n_envs, frame_stack, channels_order
        )
        self.frame_stack = self._stacks.count
        self.storage = self._make_storage()
        self._check_room()

    def _check_room(self) -> None:
        """Warn, as SB3 does, of a buffer that will take more memory than there is."""
        if self.budget is not None or self.storage.compresses:
            return  # bounded, or not known before it is full
        needed = sum(self.storage.projected_footprint().values())
        available = psutil.virtual_memory().available
        if needed > available:
            warnings.warn(
                f"buffer_size={self.buffer_size * self.n_envs}: this buffer takes "
                f"{readable_bytes(needed)} when full, and {readable_bytes(available)} are "
                "available; use replay_buffer_class=CompressedReplayBuffer, or "
                "replay_buffer_kwargs=dict(budget=...)",
                stacklevel=3,
            )

    def _make_storage(self) -> RingStorage:
        held = self._action_dtype
        if isinstance(self.action_space, spaces.Discrete):
            first, count = int(self.action_space.start), int(self.action_space.n)
            held = np.result_type(np.min_scalar_type(first), np.min_scalar_type(first + count - 1))
        if held == np.float16:  # which compiled loops lack; samples are of the space's own dtype
            held = np.float32
        # The newest stacks count as well.
        budget = None if self.budget is None else max(1, self.budget - self._stacks.nbytes)
        return self.storage_class(
            self.buffer_size * self.n_envs,
            self._stacks.frame_shape,
            self._stacks.dtype,
            stack=self.frame_stack,
            num_envs=self.n_envs,
            action_shape=(self.action_dim,),
            action_dtype=held,
            n_step=self.n_steps,
            gamma=self.gamma,
            budget=budget,
        )

    def add(
        self,
        obs: np.ndarray,
        next_obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        done: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        """Add one step of all environments.

        Args:
            obs, next_obs: [E, *obs_shape]; `next_obs` is the last one of an episode, not the first
                of the next.
            action: [E] or [E, action_dim].
            reward: [E].
            done: [E], ended by a termination or a time limit.
            infos: whether by a time limit: "TimeLimit.truncated".

        Raises:
            UserError: the observations are not stacks of `frame_stack` frames, or the budget is
                too small.
        """
        stacks, following = self._stacks.split(obs), self._stacks.split(next_obs)
        ended = np.asarray(done).reshape(self.n_envs).astype(np.bool_)
        if self.frame_stack > 1:
            follows = self._stacks.check(stacks, following)
            # A reset may show the very frame that the episode before it was left with.
            self.storage.arrays.chains["running"][~follows] = False
        timeout = np.zeros(self.n_envs, np.bool_)
        if self.handle_timeout_termination:
            timeout[:] = [info.get("TimeLimit.truncated", False) for info in infos]
        block = {
            "observation": stacks[:, -1],
            "action": np.asarray(action).reshape(self.n_envs, self.action_dim),
            "env_id": np.arange(self.n_envs),
            "next": {
                "observation": following[:, -1],
                "reward": np.asarray(reward),
                "terminated": ended & ~timeout,
                "truncated": ended & timeout,
            },
        }
        try:
            slots = self.storage.append(block)
        except BudgetError as error:  # it names keys of rlmem's configuration
            raise UserError(
                f"replay_buffer_kwargs=dict(budget={self.budget}): too small for this buffer, "
                f"{error.missing} bytes are missing for the newest step alone; use more, or fewer "
                "environments"
            ) from None
        self._stacks.passed(following, ended)
        self.pos = (int(slots[-1]) + 1) // self.n_envs % self.buffer_size
        evicted = self.storage.drain_evicted()
        self.full = self.full or self.pos == 0 or len(evicted) > 0

    def size(self) -> int:
        """Positions held; each is one transition an environment."""
        return len(self.storage) // self.n_envs

    def reset(self) -> None:
        """Empty the buffer."""
        super().reset()
        self.storage.clear()
        self._stacks.forget()

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> ReplayBufferSamples:
        """Draw transitions uniformly, by the same draws from numpy's generator as SB3's buffer.

        Args:
            batch_size: B.
            env: normalizes observations and rewards.

        Returns:
            `observations` and `next_observations` [B, *obs_shape] in the space's dtype (float32 if
            normalized), `actions` [B, action_dim], `dones` and `rewards` float32 [B, 1], and with
            n_steps > 1 `discounts` float32 [B, 1].
        """
        positions = np.random.randint(0, self.size(), size=batch_size)  # noqa: NPY002 (SB3's seed)
        return self._get_samples(positions, env)

    def _get_samples(
        self, batch_inds: np.ndarray, env: VecNormalize | None = None
    ) -> ReplayBufferSamples:
        n = len(batch_inds)
        env_ids = np.random.randint(0, high=self.n_envs, size=(n,))  # noqa: NPY002
        index = torch.from_numpy(batch_inds * self.n_envs + env_ids)
        slots = self.storage.locate(index).numpy()
        batch = self.storage.read(slots)
        if self.n_steps > 1:
            rewards, discounts = self._returns(slots, env)
        else:
            rewards = self._normalize_reward(batch["reward"].numpy(), env)
            discounts = None
        return ReplayBufferSamples(
            observations=self._observations(batch["observation"], env),
            actions=self.to_torch(batch["action"].numpy().astype(self._action_dtype, copy=False)),
            next_observations=self._observations(batch["next_observation"], env),
            dones=self.to_torch(batch["terminated"].numpy().astype(np.float32)),
            rewards=self.to_torch(rewards),
            discounts=None if discounts is None else self.to_torch(discounts),
        )

    def _observations(self, stacked: torch.Tensor, env: VecNormalize | None) -> torch.Tensor:
        whole = self._normalize_obs(self._stacks.join(stacked.numpy()), env)
        return self.to_torch(np.ascontiguousarray(whole), copy=False)

    def _returns(
        self, slots: np.ndarray, env: VecNormalize | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """n-step returns and the discounts behind them, float32 [B, 1], summed as SB3 sums them.

        The storage's own sum is more exact, but knows no `VecNormalize`, which clips each reward.
        """
        arrays = self.storage.arrays
        rows, size = arrays.rows, arrays.cursors()[0]
        path = np.repeat(slots[:, None], self.n_steps, 1)
        mask = np.ones(path.shape, np.bool_)
        for step in range(1, self.n_steps):
            link = arrays.links(path[:, step - 1])
            mask[:, step] = link > 0  # without a successor the path stays where it is
            path[:, step] = (path[:, step - 1] + link) % size
        rewards = self._normalize_reward(rows["reward"][path], env)
        powers = self.gamma ** np.arange(self.n_steps, dtype=np.float32)
        discounts = self.gamma ** mask.sum(1, keepdims=True).astype(np.float32)
        return (rewards * powers * mask).sum(1, keepdims=True), discounts

    @property
    def dones(self) -> np.ndarray:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Ends of episodes, float32 [buffer_size, E], a copy.

        With `optimize_memory_usage`, SB3 marks the newest step as done when `learn()` goes on: its
        own buffer would lose that step's next observation. Here nothing is lost.
        """
        held = self.storage.locate(torch.arange(len(self.storage))).numpy()
        rows = self.storage.arrays.rows[held]
        dones = np.zeros(self.buffer_size * self.n_envs, np.float32)
        dones[held] = np.logical_or(*ends_of(rows))
        return dones.reshape(self.buffer_size, self.n_envs)

    def footprint(self) -> dict[str, int]:
        """Component -> bytes held now."""
        return {**self.storage.footprint(), "newest_stacks": self._stacks.nbytes}


class FrameReplayBuffer(CompressedReplayBuffer):
    """`CompressedReplayBuffer` without the compression: each frame once, as it is."""

    storage_class = FrameStorage
