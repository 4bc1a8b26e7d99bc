"""A memory that is saved where one lies: whatever interrupts it, one of both is there, whole."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlmem.memories import FrameStorage, PrioritizedSampler, ReplayMemory, RingWriter
from tests.memories.helpers import vector_block


def made(rows: int) -> ReplayMemory:
    storage = FrameStorage(50, (4,), np.float32)
    memory = ReplayMemory(storage, PrioritizedSampler(50), RingWriter(), seed=0)
    for row in range(rows):
        memory.extend(vector_block(1, seed=row))
    return memory


def held(memory: ReplayMemory) -> tuple[int, int, int]:
    """What three parts know of how much is there."""
    return len(memory), memory.transitions_seen, memory.sampler._tree.used


class KilledError(Exception):
    pass


def killed(*arguments: Any) -> None:
    raise KilledError


@pytest.mark.parametrize("call", range(40))
def test_a_save_that_is_killed_leaves_the_old_or_the_new_one(
    call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(10).save(tmp_path)
    calls = 0

    def counted(original: Any) -> Any:
        def step(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == call + 1:
                raise KilledError
            return original(*arguments, **options)

        return step

    with monkeypatch.context() as patched:
        for name in ("replace", "fsync", "unlink", "mkdir"):
            patched.setattr(os, name, counted(getattr(os, name)))
        try:
            made(20).save(tmp_path)
        except KilledError:
            done = False
        else:
            done = True
    again = made(0)
    again.load(tmp_path)
    assert held(again) in ([(20, 20, 20)] if done else [(10, 10, 10), (20, 20, 20)])
    again.check_valid()
    with monkeypatch.context() as patched:  # a second kill, in the next one's writing
        patched.setattr(FrameStorage, "save", killed)
        with pytest.raises(KilledError):
            made(25).save(tmp_path)
    left = made(0)
    left.load(tmp_path)
    assert held(left) == held(again)
    made(30).save(tmp_path)  # the next one is not disturbed by what was left
    again.load(tmp_path)
    assert held(again) == (30, 30, 30)
    assert {path.name for path in tmp_path.iterdir()} == {"storage", "sampler", "writer", "memory"}


def test_what_else_lies_in_the_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "results").mkdir()
    for rows in (5, 10):
        made(rows).save(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "results").is_dir()


def test_a_save_in_place_links_what_has_not_changed(tmp_path: Path) -> None:
    memory = made(40)
    memory.save(tmp_path)
    (piece,) = (tmp_path / "storage").glob("rows-*.npy")
    before = piece.stat().st_ino
    memory.extend(vector_block(1, seed=99))
    memory.save(tmp_path, tmp_path)
    assert piece.stat().st_ino == before
    again = made(0)
    again.load(tmp_path)
    assert held(again) == (41, 41, 41)
