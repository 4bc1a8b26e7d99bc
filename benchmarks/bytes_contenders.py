"""The memories that bytes.py measures: each library's buffer and the form of its transitions.

A package is imported when its contender is made, so that the others need not be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from common import SCREEN, STACK
from recording import Recording, blocks

BATCH = 32
BLOCK = 64  # transitions a write


@dataclass
class Store:
    """A buffer under test: `write` takes what the contender's source yields."""

    write: Callable[[Any], Any]
    sample: Callable[[], Any]  # BATCH transitions
    packages: tuple[str, ...] = ()
    counted: Callable[[], int] | None = None  # bytes, by the library's own count


@dataclass(frozen=True)
class Contender:
    """How to make a store for (transitions, envs), and in which form it takes transitions."""

    make: Callable[[int, int], Store]
    source: Callable[[Recording], Iterator[Any]]


def stacks(recording: Recording) -> Iterator[dict[str, np.ndarray]]:
    """Blocks [T, E, ...] of what an env with frame stacking gives: zeros before an episode."""
    times, envs = recording.action.shape
    age = np.zeros((times + 1, envs), np.int64)  # frames before this one in its episode
    for t, done in enumerate(recording.done):
        age[t + 1] = np.where(done, 0, age[t] + 1)
    length = max(1, BLOCK // envs)
    for first in range(0, times, length):
        t = np.arange(first, min(first + length, times))
        stack = np.zeros((len(t), envs, STACK, *recording.observation.shape[2:]), np.uint8)
        for k in range(STACK):
            there = age[t] >= k
            stack[:, :, STACK - 1 - k][there] = recording.observation[np.maximum(t - k, 0)][there]
        following = recording.observation[t + 1]
        row = recording.final_row[t]
        following[row >= 0] = recording.final[row[row >= 0]]
        yield {
            "stack": stack,
            "next_stack": np.concatenate([stack[:, :, 1:], following[:, :, None]], 2),
            "action": recording.action[t],
            "reward": recording.reward[t],
            "terminated": recording.terminated[t],
            "truncated": recording.truncated[t],
        }


def float_stacks(recording: Recording) -> Iterator[dict[str, np.ndarray]]:
    """`stacks` after the usual image transform: float32 in [0, 1]."""
    for block in stacks(recording):
        scaled = {n: block[n].astype(np.float32) / 255 for n in ("stack", "next_stack")}
        yield {**block, **scaled}


def one_env_stacks(recording: Recording) -> Iterator[dict[str, Any]]:
    """Blocks [N, ...] of one env after the other, channels last, cut where an episode ends."""
    for e in range(recording.num_envs):
        alone = Recording(
            recording.observation[:, e : e + 1],
            recording.final[recording.final_row[:, e][recording.done[:, e]]],
            *(
                getattr(recording, name)[:, e : e + 1]
                for name in ("action", "reward", "terminated", "truncated")
            ),
            recording.about,
        )
        written = 0
        for block in stacks(alone):
            flat = {name: column[:, 0] for name, column in block.items()}
            for name in ("stack", "next_stack"):
                flat[name] = np.ascontiguousarray(flat[name].transpose(0, 2, 3, 1))
            n = len(flat["action"])
            written += n
            ends = 1 + np.flatnonzero(flat["terminated"] | flat["truncated"])
            last = written == len(alone)
            cuts = sorted({0, *ends.tolist(), n})
            yield {
                "pieces": [
                    {name: column[a:b] for name, column in flat.items()} for a, b in pairwise(cuts)
                ],
                "ends": [b in ends or (last and b == n) for b in cuts[1:]],
            }


def frames(recording: Recording) -> Iterator[Any]:
    """Blocks of single frames, as rlmem's storages take them."""
    return blocks(recording, BLOCK)


def rlmem(storage: str) -> Callable[[int, int], Store]:
    """A storage of rlmem, by its class."""

    def make(capacity: int, envs: int) -> Store:
        from rlmem import memories

        if not hasattr(memories, storage):
            raise ImportError(f"this rlmem has no {storage}")
        memory = memories.ReplayMemory(
            getattr(memories, storage)(
                capacity,
                (1, SCREEN, SCREEN),
                np.uint8,
                stack=STACK,
                num_envs=envs,
                action_dtype=np.uint8,  # as a run's memory has it
            ),
            memories.UniformSampler(),
            memories.RingWriter(),
            seed=0,
        )
        return Store(
            memory.extend,
            lambda: memory.sample(BATCH),
            ("rlmem", "tensordict", "torchrl"),
            lambda: sum(memory.footprint().values()),
        )

    return make


def torchrl_write(buffer: Any) -> Callable[[dict[str, np.ndarray]], Any]:
    """Extend with TorchRL's nested keys."""
    import torch
    from tensordict import TensorDict

    def write(block: dict[str, np.ndarray]) -> Any:
        flat = {n: torch.from_numpy(c.reshape(-1, *c.shape[2:])) for n, c in block.items()}
        size = len(flat["action"])
        following = {
            "observation": flat["next_stack"],
            "reward": flat["reward"][:, None],
            "terminated": flat["terminated"][:, None],
            "truncated": flat["truncated"][:, None],
            "done": (flat["terminated"] | flat["truncated"])[:, None],
        }
        data = {"observation": flat["stack"], "action": flat["action"], "next": following}
        return buffer.extend(TensorDict(data, batch_size=[size]))

    return write


def torchrl(capacity: int, envs: int) -> Store:
    """LazyTensorStorage with observation and next observation."""
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(capacity), batch_size=BATCH)
    return Store(
        torchrl_write(buffer),
        buffer.sample,
        ("torchrl", "tensordict"),
        lambda: buffer.storage._storage.bytes(),
    )


def torchrl_compressed(nested: bool) -> Callable[[int, int], Store]:
    """CompressedListStorage. Its compression leaves nested TensorDicts, so also `next`, as they
    are; with flat keys it reaches all of them."""

    def make(capacity: int, envs: int) -> Store:
        from torchrl.data import CompressedListStorage, ReplayBuffer

        storage = CompressedListStorage(capacity)
        buffer = ReplayBuffer(storage=storage, batch_size=BATCH)
        write = torchrl_write(buffer if nested else Flattened(buffer))
        return Store(write, buffer.sample, ("torchrl", "tensordict"), storage.bytes)

    return make


@dataclass(frozen=True)
class Flattened:
    """A buffer that is given ("next", "x") as "next.x"."""

    buffer: Any

    def extend(self, data: Any) -> Any:
        return self.buffer.extend(data.flatten_keys("."))


def sb3(shared: bool) -> Callable[[int, int], Store]:
    """SB3's buffer; `shared` is optimize_memory_usage, as CleanRL's dqn_atari.py has it."""

    def make(capacity: int, envs: int) -> Store:
        import gymnasium
        from stable_baselines3.common.buffers import ReplayBuffer

        buffer = ReplayBuffer(
            capacity,
            gymnasium.spaces.Box(0, 255, (STACK, SCREEN, SCREEN), np.uint8),
            gymnasium.spaces.Discrete(18),
            n_envs=envs,
            optimize_memory_usage=shared,
            handle_timeout_termination=not shared,
        )

        def write(block: dict[str, np.ndarray]) -> None:
            done = block["terminated"] | block["truncated"]
            columns = [block[n] for n in ("stack", "next_stack", "action", "reward")]
            for t in range(len(done)):
                infos = [{"TimeLimit.truncated": bool(cut)} for cut in block["truncated"][t]]
                buffer.add(*(column[t] for column in columns), done[t], infos)

        def counted() -> int:
            return sum(v.nbytes for v in vars(buffer).values() if isinstance(v, np.ndarray))

        return Store(write, lambda: buffer.sample(BATCH), ("stable-baselines3",), counted)

    return make


def tianshou(**options: Any) -> Callable[[int, int], Store]:
    """VectorReplayBuffer, a part an env."""

    def make(capacity: int, envs: int) -> Store:
        from tianshou.data import Batch, VectorReplayBuffer

        buffer = VectorReplayBuffer(capacity, envs, **options)

        def write(block: dict[str, np.ndarray]) -> None:
            for t in range(len(block["action"])):
                buffer.add(
                    Batch(
                        obs=block["stack"][t],
                        act=block["action"][t],
                        rew=block["reward"][t],
                        terminated=block["terminated"][t],
                        truncated=block["truncated"][t],
                        obs_next=block["next_stack"][t],
                        info=Batch(),
                    )
                )

        return Store(write, lambda: buffer.sample(BATCH), ("tianshou",))

    return make


def cpprb(capacity: int, envs: int) -> Store:
    """Stacks overlap in its memory, so it takes one env after the other."""
    from cpprb import ReplayBuffer

    buffer = ReplayBuffer(
        capacity,
        {
            "obs": {"shape": (SCREEN, SCREEN, STACK), "dtype": np.uint8},
            "act": {"dtype": np.int64},
            "rew": {},
            "done": {"dtype": np.bool_},
        },
        next_of="obs",
        stack_compress="obs",
    )

    def write(block: dict[str, Any]) -> None:
        for piece, end in zip(block["pieces"], block["ends"], strict=True):
            buffer.add(
                obs=piece["stack"],
                act=piece["action"],
                rew=piece["reward"],
                next_obs=piece["next_stack"],
                done=piece["terminated"],
            )
            if end:
                buffer.on_episode_end()

    return Store(write, lambda: buffer.sample(BATCH), ("cpprb",))


FRAMES_ONCE = {"stack_num": STACK, "ignore_obs_next": True, "save_only_last_obs": True}
CONTENDERS = {
    "torchrl float32 stacks": Contender(torchrl, float_stacks),
    "torchrl uint8 stacks": Contender(torchrl, stacks),
    "torchrl compressed list": Contender(torchrl_compressed(nested=True), stacks),
    "torchrl compressed list, flat keys": Contender(torchrl_compressed(nested=False), stacks),
    "sb3": Contender(sb3(shared=False), stacks),
    "sb3 optimize_memory_usage": Contender(sb3(shared=True), stacks),
    "tianshou stacks": Contender(tianshou(), stacks),
    "tianshou frames once": Contender(tianshou(**FRAMES_ONCE), stacks),
    "cpprb stack_compress": Contender(cpprb, one_env_stacks),
    "rlmem dense": Contender(rlmem("DenseStorage"), frames),
    "rlmem frames": Contender(rlmem("FrameStorage"), frames),
    "rlmem compressed": Contender(rlmem("CompressedFrameStorage"), frames),
}
