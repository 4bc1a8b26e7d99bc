"""A run that is killed at any moment leaves a checkpoint that was saved, whole."""

import os
import random
import signal
import subprocess
import sys
import zlib
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from rlmem.callbacks.checkpoint import find_checkpoint
from tests.callbacks.test_checkpoint import Parts
from tests.torture.writes import Writes


def digest(parts: Parts) -> str:
    """What a run would go on with: its step, its weights, and all transitions that it holds."""
    storage = parts.stream.memory.storage
    tensors = storage.get(np.arange(len(storage))).values(True, True) if len(storage) else ()
    crc = 0
    for tensor in chain(tensors, parts.agent.state_dict().values()):
        crc = zlib.crc32(tensor.contiguous().numpy().tobytes(), crc)
    return f"{parts.stream.env_steps} {crc}\n"


def parts_of(run_dir: Path, storage: str) -> Parts:
    parts = Parts(run_dir, f"memory/storage={storage}", "memory.capacity=400")
    if checkpoint := find_checkpoint(run_dir):
        parts.load(checkpoint)
    return parts


def train_and_save(run_dir: Path, storage: str, last_write: int) -> None:
    """Go on from the last checkpoint and save after every seven steps, until a write, of which
    half is done if it is that of a file's content."""

    def end(number: int, name: str) -> None:
        if number == last_write:
            os.kill(os.getpid(), signal.SIGKILL)

    parts = parts_of(run_dir, storage)
    Writes(end).begin()
    while True:
        parts.train(7)
        with (run_dir / "saves").open("a") as saves:
            saves.write(digest(parts))
        parts.save(run_dir / "checkpoints" / "last")
        with (run_dir / "done").open("a") as done:
            done.write(digest(parts))


def kill_often(run_dir: Path, storage: str, kills: int) -> None:
    """Kill a run at one of its writes; what is loaded then must be the last complete save, or the
    one that was being made."""
    rng = random.Random(0)
    saved, whole, count = [], "", 0
    for number in range(kills):
        # At first after some saves, for one to be there; then within the next few.
        last_write = 500 if number == 0 else rng.randint(1, 300)
        child = os.fork()
        if child == 0:
            try:
                train_and_save(run_dir, storage, last_write)
            finally:
                os._exit(1)  # else it would go on here, as the one that looks
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        made, done = ((run_dir / n).read_text().splitlines(True) for n in ("saves", "done"))
        assert made[-1] != done[-1], "it was not killed while it saved"
        if len(done) > count:  # else what it began with is the last that was whole
            whole, count = done[-1], len(done)
        found = digest(parts_of(run_dir, storage))
        assert found in (made[-1], whole)
        saved.append(found == made[-1])
        whole = found
    print(sum(saved), len(saved) - sum(saved))


@pytest.mark.slow
def test_what_a_kill_leaves_is_one_of_the_saves(tmp_path: Path) -> None:
    script = (
        "import pathlib, tests.callbacks.test_kill as t\n"
        f"t.kill_often(pathlib.Path({str(tmp_path)!r}), 'compressed', 12)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    new, old = map(int, result.stdout.split())
    assert new > 0, "no kill came after a checkpoint was in its place"
    assert old > 0, "no kill came before that"
