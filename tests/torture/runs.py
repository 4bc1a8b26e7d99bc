# ruff: noqa: E501
"""Tiny runs of many kinds, as they are tortured."""

import io
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import rlmem.cli
from rlmem.errors import UserError
from rlmem.runs.train import train
from tests.settings import settings
from tests.torture.runner import forked

BASE = [
    "trainer.max_env_steps=240", "trainer.accelerator=cpu", "log.every=40", "log.progress=false",
    "evaluation.every=80", "evaluation.episodes=1", "checkpoint.every=60",
    "checkpoint.keep_memory_when_finished=true",
]  # fmt: skip
SMALL = ["agent.learning_starts=40", "agent.batch_size=8", "agent.network.hidden=[16]", "agent.train_every=1",
         "agent.updates_per_step=1", "agent.target_update_every=40"]  # fmt: skip
DQN = [*SMALL, "memory.capacity=300"]
KINDS: dict[str, list[str]] = {
    "dqn, uniform, cartpole": ["memory=uniform", *DQN],
    "dqn, per, cartpole": ["memory=per", *DQN],
    "dqn, cer, cartpole": ["memory=cer", *DQN],
    "dqn, medqn_u, cartpole": ["memory=medqn_u", *SMALL],
    "dqn, gwr, cartpole": ["memory=gwr", *SMALL, "memory.metric.scale_samples=50"],
    "dqn, her, bit_flip": ["memory=her", "env=bit_flip", *DQN],
    "dqn, compressed, minatar": ["env=minatar_breakout", "memory=uniform", "memory.capacity=300",
                                 "memory/storage=compressed", "agent.learning_starts=40",
                                 "agent.batch_size=8"],
    "rainbow, cartpole": ["agent=rainbow", "agent.noisy=true", "agent.learning_starts=40", "memory.capacity=300",
                          "agent.batch_size=8"],
    "td3, reacher": ["agent=td3", "env=reacher", "memory=uniform", "memory.capacity=300",
                     "agent.learning_starts=40", "agent.batch_size=8", "agent.network.hidden=[16,16]"],
    "nec, dnd, cartpole": ["agent=nec", "memory=dnd", "agent.learning_starts=40", "agent.batch_size=8"],
    "tabular, gbmr, mini_maze": ["agent=tabular", "memory=gbmr", "env=mini_maze"],
    "nec, gbmr, mini_maze": ["agent=nec", "memory=gbmr", "env=mini_maze", "agent.learning_starts=40",
                             "agent.batch_size=8"],
    "dqn, per, pong": ["agent=dqn", "memory=per", "env=pong", "memory.capacity=300", "agent.batch_size=8",
                       "agent.learning_starts=60", "agent.train_every=20", "trainer.max_env_steps=160",
                       "env.protocol.max_frames=400", "agent.network.hidden=[16]"],
    "dqn, per_rank, cartpole": ["memory=per_rank", *DQN],
    "dqn, dense in a budget, cartpole": ["memory=uniform", "memory/storage=dense", *SMALL, "memory.budget=6KiB"],
    "dqn, per in a budget, minatar": ["env=minatar_breakout", "memory=per", "memory/storage=compressed",
                                      "memory.budget=48KiB", "agent.learning_starts=40", "agent.batch_size=8"],
    "dqn, memmap, minatar": ["env=minatar_breakout", "memory=uniform", "memory/storage=memmap",
                             f"memory.storage.directory={tempfile.gettempdir()}", "memory.capacity=300",
                             "agent.learning_starts=40", "agent.batch_size=8"],
    "dqn, newest, cartpole": ["memory=newest", *DQN],
    "dqn, none, cartpole": ["memory=none", "agent=dqn", "agent.learning_starts=40"],
    "dqn, random_eviction, cartpole": ["memory=random_eviction", *SMALL, "memory.capacity=100"],
    "dqn, medqn_r, cartpole": ["memory=medqn_r", *SMALL],
    "dqn, gwr_plain, cartpole": ["memory=gwr_plain", *SMALL, "memory.metric.scale_samples=50"],
    "dqn, gwr_released, cartpole": ["memory=gwr_released", *SMALL],
    "rainbow, per_rainbow over 3 steps, cartpole": ["agent=rainbow", "memory=per_rainbow", "agent.n_step=3",
                                                    "agent.learning_starts=40", "memory.capacity=100",
                                                    "agent.batch_size=8"],
    "stream_q, trace, cartpole": ["agent=stream_q"],
    "nec, mfec, cartpole": ["agent=nec", "memory=mfec", "agent.learning_starts=40", "agent.batch_size=8"],
    "tabular, q_table, mini_maze": ["agent=tabular", "memory=q_table", "env=mini_maze"],
    "tabular, gcmr, mini_maze": ["agent=tabular", "memory=gcmr", "env=mini_maze"],
    "pqn, cartpole": ["agent=pqn", "memory.capacity=64", "agent.batch_size=16"],
    "a3c, cartpole": ["agent=a3c", "trainer.max_env_steps=2000"],
}  # fmt: skip
UNLIKE = {"seconds", "env_steps_per_second", "act_us", "env_us", "insert_us", "sample_us",
          "cpu_seconds", "wall_seconds", "peak_rss_bytes", "git_commit", "summary"}  # fmt: skip


SHARED = "TORTURE_SHARED"  # environment: a folder for what several trials begin with


def made(name: str, folder: Path, make: Callable[[Path], int]) -> Path:
    """What trials begin with or compare with, made once a session by a function of its folder.

    Read it, do not write.
    """
    place = Path(os.environ.get(SHARED, folder)) / "".join(c if c.isalnum() else "-" for c in name)
    if not place.exists():
        fresh = Path(tempfile.mkdtemp(dir=place.parent, prefix="fresh-"))
        code = forked(lambda: make(fresh / "run"), 200, fresh / "log.txt")
        assert code == 0, (name, code, (fresh / "log.txt").read_text()[-800:])
        fresh.rename(place)
    return place / "run"


def whole(name: str, folder: Path, *more: str) -> Path:
    """A run of a kind that was let alone."""
    title = " ".join(["run", name, *more])
    return made(title, folder, lambda place: start(place, [*KINDS[name], *more]))


def warm() -> None:
    """Import what runs need, so that each trial's process has it."""
    folder = Path(tempfile.mkdtemp(prefix="torture-warm-"))
    with redirect_stdout(io.StringIO()):
        for name in ("dqn, per, cartpole", "dqn, gwr, cartpole"):
            start(folder / name, KINDS[name])
    shutil.rmtree(folder)


def start(folder: Path, overrides: Sequence[str]) -> int:
    """Train in this process, or go on."""
    from rlmem.callbacks.checkpoint_files import find_checkpoint

    given = [*BASE, *overrides, f"paths.output_dir={folder}"]
    again = [f"resume={folder}"] if find_checkpoint(folder) else []
    try:
        train(settings(*given, *again))
    except UserError as error:
        print(f"rlmem: {error}", file=sys.stderr)
        return 2
    return 0


def refusal(folder: Path, overrides: Sequence[str]) -> str | None:
    """What going on with a run says, None where it goes on."""
    try:
        train(settings(*BASE, *overrides, f"paths.output_dir={folder}", f"resume={folder}"))
    except UserError as error:
        return str(error)
    return None


def command(argv: Sequence[str], script: str = "train") -> tuple[int, str]:
    """Exit code and stderr of `train.py`, or of another script."""
    before, sys.argv = sys.argv, [f"{script}.py", *argv]
    try:
        with redirect_stderr(io.StringIO()) as said:
            try:
                getattr(rlmem.cli, f"{script}_main")()
            except SystemExit as end:
                return int(end.code or 0), said.getvalue()
        return 0, said.getvalue()
    finally:
        sys.argv = before


def numbers(path: Path, but: Collection[str] = UNLIKE) -> dict[str, Any]:
    """What a run's JSON holds, but for times."""
    content = json.loads(path.read_text())
    return {key: value for key, value in content.items() if key not in but}


def pick(rng: random.Random) -> tuple[str, list[str]]:
    """A kind of run."""
    name = rng.choice(sorted(KINDS))
    return name, KINDS[name]
