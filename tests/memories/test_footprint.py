"""Counted bytes against what the system gave to the process."""

import json
import sys

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


USED_HEAP = """
import ctypes, gc, json, mmap, os, types
import numpy as np
from rlmem.allocator import keep_freed_memory
from rlmem.envs import EnvSpec
from tests.memories.helpers import RandomEnvs, configured

for name in [name for name in os.environ if name.startswith("MALLOC_")]:
    del os.environ[name]
keep_freed_memory()  # as while networks train
freed = [np.ones(2**16) for _ in range(64)]
del freed  # what is taken from here was written before, and so is held from the start

def arrays(root):
    seen, todo, found = set(), [root], {}
    while todo:
        part = todo.pop()
        passed_over = type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType
        if id(part) in seen or isinstance(part, passed_over):
            continue
        seen.add(id(part))
        while isinstance(part, np.ndarray) and isinstance(part.base, np.ndarray):
            part = part.base  # a view's
        if isinstance(part, np.ndarray):
            found[part.ctypes.data] = part.nbytes
        todo += gc.get_referents(part)
    return found

def held(address, size):
    first, last = address // mmap.PAGESIZE, (address + size - 1) // mmap.PAGESIZE
    pages = (ctypes.c_ubyte * (last - first + 1))()
    start = ctypes.c_void_p(first * mmap.PAGESIZE)
    assert not ctypes.CDLL(None).mincore(start, len(pages) * mmap.PAGESIZE, pages)
    return min(size, sum(page & 1 for page in pages) * mmap.PAGESIZE)

spec = EnvSpec("CartPole-v1", "gym", 2, (4,), np.dtype(np.float32), 1, 2, 1)
memory = configured(spec, *OVERRIDES)
envs = RandomEnvs(np.random.default_rng(0), (4,), np.float32, 2, 0.05, 1.0)
for _ in range(60):
    memory.extend(envs.block(250))
sizes = [held(*array) for array in arrays(memory).items() if array[1]]
print(json.dumps([sum(memory.footprint().values()), sum(sizes)]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="pages are given as they are written on Linux")
@pytest.mark.parametrize("overrides", [["memory=per"], ["memory=gwr_plain"]], ids=str)
def test_what_is_not_written_yet_takes_no_memory_from_a_heap_that_was_used(overrides) -> None:
    given = [*overrides, "memory.capacity=20000"]
    script = USED_HEAP.replace("OVERRIDES", json.dumps(given))
    counted, held = json.loads(run_measured(script))
    assert counted == pytest.approx(held, rel=0.1)


def test_noise_takes_no_more_than_two_per_cent_above_frames_as_they_are() -> None:
    block = RandomEnvs(np.random.default_rng(0), (1, 84, 84), np.uint8, end=0.01).block(1000)
    held = []
    for kind in (FrameStorage, CompressedFrameStorage):
        storage = kind(1000, (1, 84, 84), stack=4)
        storage.append(block)
        held.append(sum(storage.footprint().values()))
    assert held[1] < 1.02 * held[0]
