"""Rows and memories as a user makes them."""

from typing import Any

import numpy as np

from rlmem.memories import ReplayMemory, RingWriter, UniformSampler


def block(rows: int, **columns: Any) -> dict[str, Any]:
    states = np.arange(4.0 * (rows + 1), dtype=np.float32).reshape(-1, 4)
    no = np.zeros((rows, 1), bool)
    following = {"observation": states[1:], "reward": np.ones((rows, 1), np.float32)}
    following |= {"terminated": no, "truncated": no}
    action = np.zeros(rows, np.int64)
    return {"observation": states[:-1], "action": action, "next": following, **columns}


def memory_of(storage: Any, sampler: Any = None, **options: Any) -> ReplayMemory:
    return ReplayMemory(storage, sampler or UniformSampler(), RingWriter(), seed=0, **options)
