"""Frame stores: time to read 32 stacks with their next stacks, to write, and RSS a transition.

python benchmarks/storage.py --contender rlmem        # one JSON line
python benchmarks/storage.py --list
"""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
from common import SCREEN, STACK, command_line, exit_not_installed, versions

CAPACITY = 20_000  # transitions; every store is filled once and a half
BATCH = 32
BLOCK = 64  # transitions a write
EPISODE = 512  # transitions, a multiple of BLOCK


@dataclass
class Store:
    """A store under test: `write` takes one block, `read` gives 32 transitions."""

    write: Callable[[dict[str, np.ndarray]], Any]
    read: Callable[[np.ndarray], Any]
    packages: tuple[str, ...] = ()


def blocks(count: int) -> Iterator[dict[str, np.ndarray]]:
    """Blocks of one env's random frames in time order; an episode ends every `EPISODE` steps."""
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (BLOCK + STACK, SCREEN, SCREEN), np.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(frames, STACK, axis=0)  # [.., 84, 84, 4]
    stacks = np.ascontiguousarray(windows.transpose(0, 3, 1, 2))
    block = {
        "frame": frames[STACK - 1 : -1, None].copy(),
        "next_frame": frames[STACK:, None].copy(),
        "stack": stacks[:-1],
        "next_stack": stacks[1:],
        "action": rng.integers(0, 18, BLOCK),
        "reward": rng.random(BLOCK, np.float32),
        "truncated": np.zeros(BLOCK, np.bool_),
    }
    for i in range(count):
        terminated = np.zeros(BLOCK, np.bool_)
        terminated[-1] = (i + 1) * BLOCK % EPISODE == 0
        yield {**block, "terminated": terminated}


def bare_ring(capacity: int) -> Store:
    from frame_ring import FrameRing

    envs = 4
    ring = FrameRing(capacity, envs)
    ring.start(np.zeros((envs, SCREEN, SCREEN), np.uint8))
    column = np.zeros(BATCH, np.int64)

    def write(block: dict[str, np.ndarray]) -> None:
        columns = ("action", "reward", "terminated", "truncated", "next_frame")
        for i in range(0, BLOCK, envs):
            ring.add(*(block[name][i : i + envs] for name in columns))

    def read(index: np.ndarray) -> Any:
        time = (ring.cursor + STACK + index // envs) % ring.rows
        return ring.get(time, index % envs if envs > 1 else column)

    return Store(write, read, ("numba",))


def rlmem_frames(capacity: int) -> Store:
    from rlmem.memories.ring.frames import FrameStorage

    storage = FrameStorage(capacity, (1, SCREEN, SCREEN), np.uint8, stack=STACK)
    written = 0

    def write(block: dict[str, np.ndarray]) -> None:
        nonlocal written
        data = {
            "observation": block["frame"],
            "action": block["action"],
            "next": {
                "observation": block["next_frame"],
                "reward": block["reward"][:, None],
                "terminated": block["terminated"][:, None],
                "truncated": block["truncated"][:, None],
            },
        }
        storage.set((written + np.arange(BLOCK)) % capacity, data)
        written += BLOCK

    return Store(write, storage.get, ("rlmem", "tensordict"))


def sb3(capacity: int, shared: bool) -> Store:
    import gymnasium
    from stable_baselines3.common.buffers import ReplayBuffer

    buffer = ReplayBuffer(
        capacity,
        gymnasium.spaces.Box(0, 255, (STACK, SCREEN, SCREEN), np.uint8),
        gymnasium.spaces.Discrete(18),
        optimize_memory_usage=shared,
        handle_timeout_termination=not shared,
    )

    def write(block: dict[str, np.ndarray]) -> None:
        columns = ("stack", "next_stack", "action", "reward", "terminated")
        for i in range(BLOCK):
            buffer.add(*(block[name][i : i + 1] for name in columns), [{}])

    return Store(write, buffer._get_samples, ("stable-baselines3",))


def tianshou(capacity: int) -> Store:
    from tianshou.data import Batch, ReplayBuffer

    buffer = ReplayBuffer(capacity, stack_num=STACK, ignore_obs_next=True, save_only_last_obs=True)

    def write(block: dict[str, np.ndarray]) -> None:
        for i in range(BLOCK):
            buffer.add(
                Batch(
                    obs=block["stack"][i],
                    act=block["action"][i],
                    rew=block["reward"][i],
                    terminated=block["terminated"][i],
                    truncated=block["truncated"][i],
                    obs_next=block["next_stack"][i],
                    info={},
                )
            )

    return Store(write, buffer.__getitem__, ("tianshou",))


def torchrl(capacity: int) -> Store:
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(capacity), batch_size=BATCH)

    def write(block: dict[str, np.ndarray]) -> None:
        tensors = {name: torch.from_numpy(column) for name, column in block.items()}
        buffer.extend(
            TensorDict(
                {
                    "observation": tensors["stack"],
                    "action": tensors["action"],
                    "next": {
                        "observation": tensors["next_stack"],
                        "reward": tensors["reward"][:, None],
                        "terminated": tensors["terminated"][:, None],
                        "truncated": tensors["truncated"][:, None],
                    },
                },
                batch_size=[BLOCK],
            )
        )

    def read(index: np.ndarray) -> Any:
        return buffer.storage.get(torch.from_numpy(index))

    return Store(write, read, ("torchrl", "tensordict"))


def cpprb(capacity: int) -> Store:
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
    cache: dict[int, np.ndarray] = {}

    def last_axis(stack: np.ndarray) -> np.ndarray:
        key = stack.__array_interface__["data"][0]
        if key not in cache:
            cache[key] = np.ascontiguousarray(stack.transpose(0, 2, 3, 1))
        return cache[key]

    def write(block: dict[str, np.ndarray]) -> None:
        buffer.add(
            obs=last_axis(block["stack"]),
            act=block["action"],
            rew=block["reward"],
            next_obs=last_axis(block["next_stack"]),
            done=block["terminated"],
        )
        if block["terminated"][-1]:
            buffer.on_episode_end()

    return Store(write, lambda index: buffer.sample(len(index)), ("cpprb",))


CONTENDERS: dict[str, Callable[[int], Store]] = {
    "bare ring": bare_ring,
    "rlmem": rlmem_frames,
    "sb3": lambda capacity: sb3(capacity, shared=False),
    "sb3 shared next": lambda capacity: sb3(capacity, shared=True),
    "tianshou": tianshou,
    "torchrl": torchrl,
    "cpprb": cpprb,
}


def rss() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss


def measure(make: Callable[[int], Store]) -> dict[str, Any]:
    """Fill a store once for its bytes, half again for the speed of a full ring, then read."""
    small = make(4 * BLOCK)  # compiles and imports, so that the bytes below are the store's
    for block in blocks(8):
        small.write(block)
    small.read(np.arange(BATCH))
    del small
    source = list(blocks(CAPACITY // BLOCK))
    before = rss()
    store = make(CAPACITY)
    for block in source:
        store.write(block)
    bytes_per_transition = (rss() - before) / (len(source) * BLOCK)
    started = time.perf_counter()
    for block in source[: len(source) // 2]:
        store.write(block)
    per_second = len(source) // 2 * BLOCK / (time.perf_counter() - started)
    rng = np.random.default_rng(1)
    seconds = []
    for index in rng.integers(0, CAPACITY - 8 * STACK, (2_000, BATCH)):
        started = time.perf_counter()
        store.read(index)
        seconds.append(time.perf_counter() - started)
    return {
        "metrics": {
            "get_32_ms": round(1e3 * statistics.median(seconds), 4),
            "written_per_second": round(per_second),
            "bytes_per_transition": round(bytes_per_transition),
        },
        "versions": versions(["numpy", "torch", *store.packages]),
    }


def main() -> None:
    args = command_line(CONTENDERS)
    try:
        result = measure(CONTENDERS[args.contender])
    except ImportError as error:
        exit_not_installed(error)
    print(json.dumps({"name": args.contender, **result}))


if __name__ == "__main__":
    main()
