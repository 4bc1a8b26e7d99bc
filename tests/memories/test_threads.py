"""One memory in several threads, and sent to another process."""

import copy
import multiprocessing
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlmem.memories import (
    CompressedFrameStorage,
    FrameStorage,
    PrioritizedSampler,
    ReplayMemory,
    RingWriter,
    UniformSampler,
)
from tests.memories.helpers import vector_block

CAPACITY = 50
CALLS: dict[str, Callable[[ReplayMemory, Path], Any]] = {
    "sample": lambda memory, folder: memory.sample(8),
    "draw": lambda memory, folder: memory.draw(8, 2),
    "extend": lambda memory, folder: memory.extend(vector_block(5)),
    "learn": lambda memory, folder: memory.update_priority(torch.zeros(1, dtype=torch.int64), ONE),
    "save": lambda memory, folder: memory.save(folder),
}
ONE = torch.ones(1)


def memory_of(kind: Any = FrameStorage, sampler: Any = None) -> ReplayMemory:
    storage = kind(CAPACITY, (4,), np.float32)
    sampler = sampler or PrioritizedSampler(CAPACITY)
    memory = ReplayMemory(storage, sampler, RingWriter(), seed=0)
    memory.extend(vector_block(30))
    return memory


@pytest.mark.parametrize("name", CALLS)
def test_a_call_waits_until_a_block_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block is written before the sampler is told of it: between them nothing fits together."""
    memory = memory_of()
    within, go_on, done = threading.Event(), threading.Event(), threading.Event()
    tell = memory.sampler.extend

    def slow(index: Any) -> None:
        if not within.is_set():
            within.set()
            go_on.wait(60)
        tell(index)

    def call() -> None:
        CALLS[name](memory, tmp_path)
        done.set()

    monkeypatch.setattr(memory.sampler, "extend", slow)
    threads = [
        threading.Thread(target=memory.extend, args=(vector_block(10),)),
        threading.Thread(target=call),
    ]
    threads[0].start()
    assert within.wait(60)
    threads[1].start()
    assert not done.wait(0.3)
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert done.is_set()
    memory.check_valid()


def test_a_memory_that_is_saved_while_another_thread_writes_can_be_loaded(tmp_path: Path) -> None:
    memory, ended = memory_of(CompressedFrameStorage), threading.Event()

    def write() -> None:
        while not ended.is_set():
            memory.extend(vector_block(7))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for number in range(5):
            memory.save(tmp_path / str(number))
    finally:
        ended.set()
        thread.join(60)
    for number in range(5):
        loaded = memory_of(CompressedFrameStorage)
        loaded.load(tmp_path / str(number))
        loaded.check_valid()


def drawn(memory: ReplayMemory) -> list[int]:
    """The slots of the next minibatch."""
    return memory.sample(16)["index"].tolist()


def test_a_shallow_copy_takes_nothing_from_the_memory(tmp_path: Path) -> None:
    memory = memory_of()
    other = copy.copy(memory)
    assert drawn(other) != drawn(memory)  # one generator
    memory.save(tmp_path)
    loaded = memory_of()
    loaded.load(tmp_path)
    assert drawn(loaded) == drawn(memory)


def send_drawn(memory: ReplayMemory, to: Any) -> None:
    to.send(drawn(memory))


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [UniformSampler, lambda: PrioritizedSampler(CAPACITY)])
def test_another_process_draws_what_this_one_would(sampler: Any) -> None:
    memory = memory_of(sampler=sampler())
    memory.draw(8, 2)  # it has arrays of its own by then
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=send_drawn, args=(memory, theirs))
    process.start()
    process.join(300)
    assert process.exitcode == 0
    assert ours.recv() == drawn(copy.deepcopy(memory)) == drawn(memory)
