"""Each frame once: a ring of single observations from which stacks are rebuilt at sampling.

A transition costs one frame and 22 bytes of columns. The next observation is the successor's; only
where there is none (an episode's last transition, or the newest of an environment) is a frame kept
for it in a side pool. Stacks are rebuilt exactly as the environment would stack them, zero-padded
at an episode's start, and n-step returns are summed at sampling by following the successors, so
that one storage serves any n. Works for vectors as well (stack=1): each observation once instead of
twice.

Terms: `seq` counts transitions since the start; slot = seq % capacity. The frame ring is longer
than the capacity by (stack - 1) frames an environment, so that the oldest transition's stack is
whole.
"""

from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from rlmem.memories.serialize import State
from rlmem.memories.storages import frame_kernels as kernels
from rlmem.memories.storages.base import ReplayStorage, as_block, lazy_empty, make_sample


class FrameStorage(ReplayStorage):
    """A TorchRL storage that holds each observation once.

    Args:
        capacity: transitions held; the oldest is overwritten first.
        frame_shape: shape of one observation as the environment gives it: (1, 84, 84) for Atari,
            (C, H, W) for other images, (D,) for vectors.
        dtype: of an observation.
        stack: frames in a sampled observation, concatenated along the first axis; 1 for vectors.
        num_envs: environments that write in turn, told apart by the block's `env_id`.
        action_shape, action_dtype: of one action.
        n_step: steps of the sampled return; 1 is the plain transition.
        gamma: discount inside the n-step return.

    Written in order only (TorchRL's `RoundRobinWriter` or rlmem's `RingWriter`).

    Example:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from torchrl.data import TensorDictReplayBuffer
        >>> storage = FrameStorage(1000, frame_shape=(1, 84, 84), stack=4)
        >>> buffer = TensorDictReplayBuffer(storage=storage, batch_size=32, collate_fn=lambda x: x)
        >>> done = torch.zeros(64, 1, dtype=torch.bool)
        >>> frames = torch.randint(255, (65, 1, 84, 84), dtype=torch.uint8)
        >>> _ = buffer.extend(TensorDict({
        ...     "observation": frames[:-1],
        ...     "action": torch.zeros(64, dtype=torch.int64),
        ...     "next": {"observation": frames[1:], "reward": torch.ones(64, 1),
        ...              "terminated": done, "truncated": done}}, batch_size=[64]))
        >>> buffer.sample()["observation"].shape
        torch.Size([32, 4, 84, 84])
        >>> sum(storage.footprint().values()) // 64  # bytes a transition; two stacks are 56448
        7298
    """

    def __init__(
        self,
        capacity: int,
        frame_shape: tuple[int, ...],
        dtype: Any = np.uint8,
        *,
        stack: int = 1,
        num_envs: int = 1,
        action_shape: tuple[int, ...] = (),
        action_dtype: Any = np.int64,
        n_step: int = 1,
        gamma: float = 0.99,
    ) -> None:
        if capacity < num_envs or min(capacity, stack, num_envs, n_step) < 1:
            raise ValueError(
                f"capacity={capacity}, stack={stack}, num_envs={num_envs}, n_step={n_step}: each "
                "must be at least 1, and the capacity at least num_envs"
            )
        super().__init__(capacity)
        self.frame_shape, self.dtype = tuple(frame_shape), np.dtype(dtype)
        self.stack, self.num_envs = stack, num_envs
        self.n_step, self.gamma = n_step, gamma
        self._written = 0
        self._ring = capacity + (stack - 1) * num_envs
        row = int(np.prod(frame_shape))
        # Row 0 is zeros, then the ring, then the pool of next observations without successor: one
        # a transition at most.
        self._frames = lazy_empty((kernels.RING + self._ring + capacity, row), dtype)
        self._frames[0] = 0
        self._back = np.empty(self._ring, np.int32)  # seq distance to the frame before; 0: none
        self._link = np.empty(capacity, np.int32)  # > 0: distance to successor; < 0: -1 - pool row
        self._action = np.empty((capacity, *action_shape), action_dtype)
        self._reward = np.empty(capacity, np.float32)
        self._terminated = np.empty(capacity, np.bool_)
        self._truncated = np.empty(capacity, np.bool_)
        self._open = np.full(num_envs, -1, np.int64)  # seq of each env's newest, if not done
        self._pool_free = np.empty(capacity, np.int32)  # stack of freed pool rows
        self._pool_size = np.zeros(2, np.int64)  # pool rows touched so far, rows on the free stack

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of a sampled observation."""
        return (self.stack * self.frame_shape[0], *self.frame_shape[1:])

    def __len__(self) -> int:
        return min(self._written, self.max_size)

    def set(self, cursor: Any, data: Any, *, set_cursor: bool = True) -> None:
        """Write a block at the slots `cursor`, which must follow the last written ones.

        Args:
            cursor: int or int64 [N].
            data: the block (see `rlmem.memories.storages.base`).

        Raises:
            ValueError: slots out of order, or a block of other shapes.
        """
        block = as_block(data, self.frame_shape, self.dtype, self.num_envs)
        first = int(cursor) if isinstance(cursor, int) else int(cursor[0])
        if first != self._written % self.max_size:
            raise ValueError(
                f"slot {first} was written, {self._written % self.max_size} comes next: "
                "FrameStorage is written in order, use RoundRobinWriter or RingWriter"
            )
        for start in range(0, len(block), self.max_size):
            self._write(block, slice(start, start + self.max_size))

    def _write(self, block: Any, rows: slice) -> None:
        done = block.terminated[rows] | block.truncated[rows]
        n = len(done)
        first = self._written % self.max_size
        if first + n <= self.max_size:  # a slice is written in half the time of a list of slots
            slots: Any = slice(first, first + n)
        else:
            slots = (first + np.arange(n)) % self.max_size
        self._action[slots] = block.action[rows]
        self._reward[slots] = block.reward[rows]
        self._terminated[slots] = block.terminated[rows]
        self._truncated[slots] = block.truncated[rows]
        current, final = kernels.plan_write(
            self._written,
            done,
            block.env_id[rows],
            self._back,
            self._link,
            self._open,
            self._pool_free,
            self._pool_size,
        )
        self._frames[current] = block.observation[rows].reshape(n, -1)
        own = final >= 0
        self._frames[final[own]] = block.next_observation[rows].reshape(n, -1)[own]
        self._written += n

    def get(self, index: Any) -> TensorDict:
        """Read transitions.

        Args:
            index: int64 [B] or [U, B] slots (an int gives one transition without batch dimension).

        Returns:
            TensorDict of the index's shape: `observation` and `("next", "observation")`
            [B, *observation_shape], `action`, `steps_to_next` and `("next", ...)` reward,
            terminated, truncated, done [B, 1].
        """
        if isinstance(index, (int, np.integer)):
            return self.get(np.array([index]))[0]
        if isinstance(index, slice):
            index = np.arange(*index.indices(len(self)))
        if isinstance(index, torch.Tensor):
            index = index.cpu().numpy()
        shape = np.shape(index)
        index = np.asarray(index, np.int64).reshape(-1)
        n, channels = len(index), self.frame_shape[0]
        # With one step, the stack and its successor overlap: both are views of stack + 1 frames.
        count = self.stack + 1 if self.n_step == 1 else 2 * self.stack
        rows = np.empty((n, count), np.int64)
        reward = np.empty(n, np.float32)
        steps = np.empty(n, np.int64)
        last = np.empty(n, np.int64)
        kernels.plan_read(
            self._written,
            index,
            self.stack,
            self.n_step,
            self.gamma,
            self._back,
            self._link,
            self._reward,
            rows,
            reward,
            steps,
            last,
        )
        frames = torch.from_numpy(self._frames.take(rows, axis=0))
        frames = frames.view(*shape, count * channels, *self.frame_shape[1:])
        batch, own = len(shape), self.stack * channels
        return make_sample(
            shape,
            frames.narrow(batch, 0, own),
            torch.from_numpy(self._action[index]),
            frames.narrow(batch, count * channels - own, own),
            reward,
            self._terminated[last],
            self._truncated[last],
            steps,
        )

    def _ring_rows(self) -> np.ndarray:
        return self._frames[kernels.RING : kernels.RING + self._ring]

    def _pool_rows(self) -> np.ndarray:
        return self._frames[kernels.RING + self._ring :]

    def _columns(self) -> dict[str, np.ndarray]:
        """The arrays with one row a transition, without the frames."""
        return {
            "action": self._action,
            "reward": self._reward,
            "terminated": self._terminated,
            "truncated": self._truncated,
            "link": self._link,
        }

    def _bytes(self, transitions: int, frames: int, pool: int, free: int) -> dict[str, int]:
        columns = self._columns()
        return {
            "frames": (kernels.RING + frames) * self._frames[0].nbytes,
            "final_frames": pool * self._frames[0].nbytes,
            "actions": transitions * columns.pop("action")[0].nbytes,
            "rewards": transitions * columns.pop("reward").itemsize,
            "index": transitions * sum(c.itemsize for c in columns.values())
            + frames * self._back.itemsize
            + free * self._pool_free.itemsize
            + self._open.nbytes,
        }

    def footprint(self) -> dict[str, int]:
        pool = int(self._pool_size[0])
        return self._bytes(len(self), min(self._written, self._ring), pool, pool)

    def projected_footprint(self) -> dict[str, int]:
        """Bytes when full, with as many final frames as there are now (at least one an env)."""
        pool = max(self.num_envs, int(self._pool_size[0]))
        return self._bytes(self.max_size, self._ring, pool, pool)

    def _empty(self) -> None:
        self._written = 0
        self._open[:] = -1
        self._pool_size[:] = 0

    def state_dict(self) -> State:
        n, frames, (pool, free) = len(self), min(self._written, self._ring), self._pool_size
        return {
            **{name: column[:n] for name, column in self._columns().items()},
            "frames": self._ring_rows()[:frames],
            "back": self._back[:frames],
            "open": self._open,
            "pool": self._pool_rows()[:pool],
            "pool_free": self._pool_free[:free],
            "written": self._written,
        }

    def load_state_dict(self, state_dict: State) -> None:
        """Take over a state in place.

        Raises:
            ValueError: the state is of another capacity, frame shape or number of environments.
        """
        n, row, own = (
            len(state_dict["reward"]),
            state_dict["frames"].shape[1],
            self._frames.shape[1],
        )
        if n > self.max_size or row != own:
            raise ValueError(
                f"the saved memory holds {n} transitions of {row} values, this one "
                f"{self.max_size} of {own}"
            )
        if len(state_dict["open"]) != self.num_envs:
            raise ValueError(
                f"the saved memory was written by {len(state_dict['open'])} environments, "
                f"this one by {self.num_envs}"
            )
        self._written = int(state_dict["written"])
        for name, column in self._columns().items():
            column[:n] = state_dict[name]
        self._ring_rows()[: len(state_dict["frames"])] = state_dict["frames"]
        self._back[: len(state_dict["back"])] = state_dict["back"]
        self._open[:] = state_dict["open"]
        pool, free = state_dict["pool"], state_dict["pool_free"]
        self._pool_rows()[: len(pool)] = pool
        self._pool_free[: len(free)] = free
        self._pool_size[:] = len(pool), len(free)

    def check_valid(self) -> None:
        """Every transition has exactly one next observation; no pool row is used twice."""
        n = len(self)
        slots = np.arange(n)
        seq = self._written - 1 - (self._written - 1 - slots) % self.max_size
        link = self._link[:n]
        linked = link > 0
        assert (link != 0).all(), "a transition without next observation"
        done = self._terminated[:n] | self._truncated[:n]
        assert not (linked & done).any(), "a transition leads across the end of an episode"
        assert (seq[linked] + link[linked] < self._written).all(), "a successor that never came"
        touched, free = self._pool_size
        used = np.concatenate([-1 - link[~linked], self._pool_free[:free]])
        assert np.array_equal(np.sort(used), np.arange(touched)), "pool rows lost or used twice"
        open_seq = self._open[self._open >= 0]
        open_seq = open_seq[open_seq >= self._written - n]
        pending = np.sort(seq[~linked & ~done])
        assert np.array_equal(pending, np.sort(open_seq)), "an open end is not an env's newest"
