"""Compressed frames that take more than all before them: compiled code writes nowhere else."""

from typing import Any

import numpy as np
import pytest

from rlmem.memories import CompressedFrameStorage, ReplayMemory, RingWriter, UniformSampler
from rlmem.memories.compression.arena import Arena
from rlmem.memories.compression.segments import SEGMENT

FRAME = (1, 84, 84)


def memory_of(storage: CompressedFrameStorage) -> ReplayMemory:
    return ReplayMemory(storage, UniformSampler(), RingWriter(), seed=0)


def block(frames: np.ndarray, env: int = 0) -> dict[str, Any]:
    n = len(frames) - 1
    no = np.zeros((n, 1), bool)
    return {
        "observation": frames[:-1],
        "action": np.zeros(n, np.int64),
        "env_id": np.full(n, env),
        "next": {
            "observation": frames[1:],
            "reward": np.ones((n, 1), np.float32),
            "terminated": no,
            "truncated": no,
        },
    }


@pytest.mark.parametrize("mebibytes", [1, 4])
def test_noise_behind_frames_that_hardly_change_stays_within_the_budget(mebibytes: int) -> None:
    rng = np.random.default_rng(0)
    storage = CompressedFrameStorage(1_000_000, FRAME, budget=mebibytes * 2**20)
    memory = memory_of(storage)
    still = np.zeros((1001, *FRAME), np.uint8)
    still[:, 0, 0, 0] = np.arange(1001) % 251
    memory.extend(block(still))
    noise = rng.integers(0, 256, (1001, *FRAME), np.uint8)
    memory.extend(block(noise))
    memory.check_valid()
    assert 0 < len(storage) < 1000
    assert storage.nbytes <= mebibytes * 2**20
    newest = storage.read(storage.newest(1).numpy())
    assert np.array_equal(newest["observation"].numpy()[0], noise[-2])


@pytest.mark.parametrize(("num_envs", "capacity", "rows"), [(128, 256, 250), (64, 512, 500)])
def test_environments_that_are_long_idle_hold_a_segment_each(
    num_envs: int, capacity: int, rows: int
) -> None:
    rng = np.random.default_rng(0)
    storage = CompressedFrameStorage(capacity, (4,), np.float32, num_envs=num_envs)
    memory = memory_of(storage)
    for env in range(num_envs):
        memory.extend(block(rng.normal(size=(rows + 1, 4)).astype(np.float32), env))
    memory.check_valid()
    assert len(storage) == capacity


def test_a_full_arena_refuses() -> None:
    arena = Arena(2 * SEGMENT)
    data = np.zeros(SEGMENT, np.uint8)
    for _ in range(5):
        arena.put(data)
    with pytest.raises(MemoryError, match="an arena of 32768 bytes is full"):
        arena.put(data)
