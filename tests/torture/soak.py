"""Long runs: the resident memory grows by what the run reports, and no descriptor is left open."""

import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

from tests.runs.helpers import rows_of
from tests.torture.runner import Told, begun, waited
from tests.torture.runs import start

SECONDS = "TORTURE_SOAK_SECONDS"  # environment: how long both together may take
MOST = 0.02  # of the first tenth's resident memory
EVERY = 0.2  # seconds between looks
COMMON = [
    "memory=per", "agent.batch_size=32", "trainer.accelerator=cpu",
    "trainer.threads=1", "agent=dqn", "agent.learning_starts=500", "log.every=250",
    "log.progress=false", "checkpoint.every=2000", "evaluation.every=2000", "evaluation.episodes=1",
]  # fmt: skip
RUNS = {
    "MinAtar": [*COMMON, "env=minatar_breakout", "trainer.max_env_steps=2000000",
                "agent.train_every=4", "memory.capacity=8000"],
    "Pong": [*COMMON, "env=pong", "trainer.max_env_steps=200000", "agent.train_every=16",
             "env.protocol.max_frames=4000", "agent.network.hidden=[64]", "memory.capacity=2000"],
}  # fmt: skip
# Env steps from which a run is looked at: its memory was filled twice, and what a process takes
# once for all (a compressor's dictionary, a checkpoint, an evaluation) is taken.
SINCE = {"MinAtar": 20_000, "Pong": 5_000}


class Look(NamedTuple):
    """A running process at a moment: env steps, resident bytes, bytes that its memory reports."""

    env_steps: int
    resident: int
    reported: int
    descriptors: int


def trial(rng: random.Random, folder: Path) -> Told:
    """A run of MinAtar and one of Pong, as long as there is time for."""
    seconds, told, notes = float(os.environ.get(SECONDS, 90)) / len(RUNS), [], []
    for name, overrides in RUNS.items():
        given = [*overrides, f"seed={rng.randrange(2**16)}"]
        looks = watched(folder / name, given, seconds, SINCE[name])
        assert len(looks) >= 20, f"{name}: {len(looks)} looks in {seconds:.0f} s are too few"
        grown = check_constant(looks, name)
        steps, mib = looks[-1].env_steps, 2**20
        notes.append(f"{name} {steps:,} env steps, {grown / mib:+.1f} MiB beyond what is reported")
        told.append(name)
    return Told(", ".join(notes), len(told), (), "; ".join(notes))


def watched(run: Path, overrides: Sequence[str], seconds: float, since: int) -> list[Look]:
    """Looks at a run from some env steps on, until the time or the run is over."""
    child = begun(lambda: start(run, overrides), run.with_suffix(".txt"))
    process, looks, end = psutil.Process(child), [], time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(EVERY)
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                break
            resident, open_now = process.memory_info().rss, process.num_fds()
        except psutil.Error:  # it ended meanwhile: what it holds open is nobody's to see
            break
        if (run / "metrics.csv").exists() and (rows := rows_of(run / "metrics.csv")):
            steps, held = int(rows[-1]["env_steps"]), int(float(rows[-1]["memory_bytes"] or 0))
            if steps > since:
                looks.append(Look(steps, resident, held, open_now))
    process.send_signal(signal.SIGTERM)
    code = waited(child, 120)
    assert code in (0, 128 + signal.SIGTERM), f"code {code}: {run.with_suffix('.txt').read_text()}"
    return looks


def check_constant(looks: Sequence[Look], name: str) -> int:
    """Compare the last tenth of the steps with the first; bytes that are not accounted for.

    Raises:
        AssertionError: the process has grown by more than it reports, or keeps descriptors.
    """
    first, last = looks[0].env_steps, looks[-1].env_steps
    tenth = (last - first) / 10
    early = [look for look in looks if look.env_steps <= first + tenth]
    late = [look for look in looks if look.env_steps >= last - tenth]
    # The lower quartile: above it are the peaks of checkpoints and evaluations, below it the last
    # looks at a process that ended by itself and had given its memory back.
    resident, reported = (
        [int(np.quantile([getattr(look, key) for look in part], 0.25)) for part in (early, late)]
        for key in ("resident", "reported")
    )
    grown = resident[1] - resident[0] - max(0, reported[1] - reported[0])
    allowed = int(MOST * resident[0])
    assert grown <= allowed, (
        f"{name}: {grown:,} bytes more than reported from {first:,} to {last:,} env steps; "
        f"{allowed:,} are allowed"
    )
    # What is kept open is open at every look. What a checkpoint or an evaluation opens is closed
    # again, but on a busy machine most looks may fall into it: so the fewest count.
    before, after = (min(look.descriptors for look in part) for part in (early, late))
    assert after <= before, f"{name}: {after} descriptors are open, {before} were"
    return grown
