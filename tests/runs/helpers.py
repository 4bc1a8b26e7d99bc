"""Tiny runs, and what to compare of two of them."""

import csv
import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from safetensors.numpy import load_file

from rlmem.collect.collector import Collector
from rlmem.memories.base.serialize import load_state
from rlmem.memories.ring.checkpoint import pieces
from rlmem.runs.train import train
from tests.settings import settings

# Whatever a recommendation may say is set here: the tests count steps and updates.
TINY = [
    "trainer.max_env_steps=300",
    "trainer.accelerator=cpu",
    "agent.learning_starts=100",
    "agent.target_update_every=100",
    "agent.train_every=1",
    "agent.updates_per_step=1",
    "agent.batch_size=32",
    "agent.network.hidden=[64]",
    "agent.lr=0.00025",
    "memory.capacity=10000",
    "log.every=100",
    "log.progress=false",
    "evaluation.episodes=1",
]
TINY_CONTINUOUS = [
    "agent=ddpg",
    "env=reacher",
    *(
        s
        for s in TINY
        if not s.startswith(("agent.lr", "agent.target", "agent.batch", "agent.net"))
    ),
    "agent.batch_size=16",
    "agent.network.hidden=[32,32]",
]
TINY_ATARI = [
    "env.protocol.max_frames=400",
    "agent.learning_starts=200",
    "agent.target_update_every=40",
    "agent.train_every=4",
]
TINY_GWR = ["memory=gwr", "memory.metric.scale_samples=100"]
KEEP = "checkpoint.keep_memory_when_finished=true"
CARTPOLE = ["memory=per", "checkpoint.every=120", "evaluation.every=100", KEEP]
TIMINGS = {"seconds", "env_steps_per_second", "act_us", "env_us", "insert_us", "sample_us"}


def run(folder: Path, *overrides: str, tiny: Sequence[str] = TINY) -> dict[str, Any]:
    """Train in this process and return the summary."""
    train(settings(*tiny, *overrides, f"paths.output_dir={folder}"))
    return summary_of(folder)


def summary_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def rows_of(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def signal_at(monkeypatch: pytest.MonkeyPatch, env_steps: int) -> None:
    """SIGTERM to this process when a stream comes to so many env steps."""
    draw = Collector._draw

    def draw_or_signal(stream: Collector) -> Any:
        if stream.env_steps == env_steps:
            signal.raise_signal(signal.SIGTERM)
        return draw(stream)

    monkeypatch.setattr(Collector, "_draw", draw_or_signal)


def stopped(
    monkeypatch: pytest.MonkeyPatch,
    env_steps: int,
    folder: Path,
    *overrides: str,
    tiny: Sequence[str] = TINY,
) -> None:
    """A run that SIGTERM stops."""
    with monkeypatch.context() as patch:
        signal_at(patch, env_steps)
        with pytest.raises(SystemExit) as end:
            run(folder, *overrides, tiny=tiny)
    assert end.value.code == 128 + signal.SIGTERM


OF_A_SAVE = ("token", "parts")  # what tells one save of a memory from another


def assert_same_run(left: Path, right: Path) -> None:
    """Two runs left the same rows and, bit for bit, the same checkpoint with its memory."""
    for name in ("metrics.csv", "episodes.csv", "evaluations.csv"):
        a, b = (
            [{k: v for k, v in row.items() if k not in TIMINGS} for row in rows_of(folder / name)]
            for folder in (left, right)
        )
        assert a == b, name
    files = [
        sorted(p.relative_to(folder) for p in (folder / "checkpoints/last").rglob("*.safetensors"))
        for folder in (left, right)
    ]
    assert files[0] == files[1]
    for file in files[0]:
        a, b = load_file(left / file), load_file(right / file)
        assert a.keys() == b.keys()
        assert all(np.array_equal(a[k], b[k]) for k in a), file
    states = [
        sorted(p.parent.relative_to(folder) for p in (folder / "checkpoints/last").rglob("state.*"))
        for folder in (left, right)
    ]
    assert states[0] == states[1]
    for state in states[0]:
        assert_same_state(left / state, right / state)


def assert_same_state(left: Path, right: Path) -> None:
    """Two folders hold the same state, in however many pieces each was written."""
    a, b = (whole_state(folder) for folder in (left, right))
    assert a.keys() == b.keys(), left
    for name, value in a.items():
        assert np.array_equal(value, b[name]), f"{left}/{name}"


def whole_state(folder: Path) -> dict[str, Any]:
    """A saved state with the pieces of a ring storage put together, as far as they are alive."""
    state = load_state(folder)
    whole = {name: state[name] for name in state if "-" not in name and name not in OF_A_SAVE}
    for kind in sorted({name.split("-")[0] for name in state if "-" in name}):
        ranges = pieces(state, kind)
        joined = np.concatenate([state[f"{kind}-{first}-{end}"] for first, end in ranges])
        if kind not in ("chunks", "data"):
            joined = joined[max(0, state["written"] - state["window"] - ranges[0][0]) :]
        whole[kind] = joined
    return whole


def gone(processes: list[psutil.Process]) -> bool:
    """Whether none of them runs any more."""

    def runs(process: psutil.Process) -> bool:
        try:
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return not any(map(runs, processes))
