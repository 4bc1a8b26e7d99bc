"""Counted bytes against what the system gave to the process."""

import json

import pytest

from tests.memories.helpers import run_measured

RING = """
import json
import numpy as np, psutil, torch
from rlmem.memories import FrameStorage, PrioritizedSampler, ReplayMemory, RingWriter

ROWS, FRAMES = 250, 20_000
rng = np.random.default_rng(0)

def make(capacity):
    storage = FrameStorage(capacity, (1, 84, 84), stack=4, num_envs=2)
    return ReplayMemory(storage, PrioritizedSampler(capacity), RingWriter(), seed=0)

frames = rng.integers(0, 256, (ROWS + 2, 1, 84, 84), dtype=np.uint8)

def fill(memory, transitions):
    for _ in range(transitions // ROWS):
        ends = rng.random((ROWS, 1)) < 0.05
        memory.extend({
            "observation": frames[:-2], "action": np.zeros(ROWS, np.int64),
            "env_id": np.arange(ROWS) % 2,
            "next": {"observation": frames[2:], "reward": np.ones((ROWS, 1), np.float32),
                     "terminated": ends, "truncated": np.zeros((ROWS, 1), bool)}})

def draw(memory):
    for _ in range(20):
        batch = memory.sample(32)
        memory.update_priority(batch["index"], batch["next", "reward"].squeeze(-1))

def rss():
    return psutil.Process().memory_info().rss

warm = make(1000)  # compiles, and lets the allocator grow to what a block needs
fill(warm, 1000)
draw(warm)
before = rss()
memory = make(FRAMES)
fill(memory, FRAMES)
filled = rss() - before, sum(memory.footprint().values())
draw(memory)
sampled = rss() - before, sum(memory.footprint().values())
print(json.dumps([filled, sampled]))
"""


@pytest.mark.slow
def test_the_bytes_of_20000_frames_are_what_the_process_grew_by() -> None:
    for grown, counted in json.loads(run_measured(RING)):
        assert counted == pytest.approx(grown, rel=0.02)
        assert counted > 20_000 * 7056
