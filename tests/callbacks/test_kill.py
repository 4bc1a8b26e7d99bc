"""A run that is killed at any moment leaves a checkpoint that was saved, whole."""

import os
import random
import signal
import subprocess
import sys
import time
import zlib
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from rlmem.callbacks.checkpoint import find_checkpoint
from tests.callbacks.test_checkpoint import Parts


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


def train_and_save(run_dir: Path, storage: str) -> None:
    """Go on from the last checkpoint and save after every seven steps, for ever."""
    parts = parts_of(run_dir, storage)
    while True:
        parts.train(7)
        with (run_dir / "saves").open("a") as saves:
            saves.write(digest(parts))
        parts.save(run_dir / "checkpoints" / "last")
        with (run_dir / "done").open("a") as done:
            done.write(digest(parts))


def kill_often(run_dir: Path, storage: str, kills: int) -> None:
    """Kill a run at random moments; what is loaded then must be the last complete save, or the
    one that was being made."""
    rng = random.Random(0)
    done = run_dir / "done"
    done.touch()
    inside = 0
    for _ in range(kills):
        size = done.stat().st_size
        child = os.fork()
        if child == 0:
            try:
                train_and_save(run_dir, storage)
            finally:
                os._exit(1)  # else it would go on here, as the one that kills
        while done.stat().st_size == size:
            assert os.waitpid(child, os.WNOHANG) == (0, 0), "the child ended"
            time.sleep(0.001)
        time.sleep(0.1 * rng.random())
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        ends = [(run_dir / name).read_text().splitlines(True)[-1] for name in ("saves", "done")]
        inside += ends[0] != ends[1]
        assert digest(parts_of(run_dir, storage)) in ends
    print(inside)


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
    assert int(result.stdout) > 0, "the kills came at no interesting moment"
