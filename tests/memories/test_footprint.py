"""Counted bytes against what the system gave to the process."""

import json

import numpy as np
import pytest

from rlmem.memories import CompressedFrameStorage, FrameStorage
from tests.memories.helpers import RandomEnvs, run_measured

RING = """
import json
import numpy as np, psutil, torch
from rlmem.memories import CompressedFrameStorage, FrameStorage, PrioritizedSampler
from rlmem.memories import ReplayMemory, RingWriter

STORAGE, ROWS, FRAMES = {storage}, 250, 20_000
rng = np.random.default_rng(0)

def make(capacity):
    storage = STORAGE(capacity, (1, 84, 84), stack=4, num_envs=2)
    return ReplayMemory(storage, PrioritizedSampler(capacity), RingWriter(), seed=0)

def fill(memory, transitions):
    for _ in range(transitions // ROWS):
        # Drawn anew: a dictionary would hold frames that come again.
        frames = rng.integers(0, 256, (ROWS + 2, 1, 84, 84), dtype=np.uint8)
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
@pytest.mark.parametrize("storage", ["FrameStorage", "CompressedFrameStorage"])
def test_the_bytes_of_20000_frames_of_noise_are_what_the_process_grew_by(storage: str) -> None:
    for grown, counted in json.loads(run_measured(RING.replace("{storage}", storage))):
        assert counted == pytest.approx(grown, rel=0.02)
        assert counted > 20_000 * 7056


def test_noise_takes_no_more_than_two_per_cent_above_frames_as_they_are() -> None:
    block = RandomEnvs(np.random.default_rng(0), (1, 84, 84), np.uint8, end=0.01).block(1000)
    held = []
    for kind in (FrameStorage, CompressedFrameStorage):
        storage = kind(1000, (1, 84, 84), stack=4)
        storage.append(block)
        held.append(sum(storage.footprint().values()))
    assert held[1] < 1.02 * held[0]
