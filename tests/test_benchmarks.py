"""The harness of benchmarks/: what is run for a target, and when it is met."""

import argparse
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import frontier_figure
from rlmem.callbacks.checkpoint import load_memory
from rlmem.config.run_directory import run_settings
from rlmem.errors import UserError
from rlmem.runs.build import build_memory
from tests.analysis.helpers import unlike
from tests.memories.ring.test_ring_state import everything
from tests.runs.helpers import TINY_ATARI, run

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Any:
    """benchmarks/run.py, whose folder is no package."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("run")


def measured(harness: Any, *targets: Any) -> list[dict[str, Any]]:
    """Rows of targets for three contenders of which one is another library."""
    rlmem, bare = harness.Contender("rlmem", []), harness.Contender("bare", [])
    peer = harness.Contender("peer", [], peer=True)
    rlmem.runs = [{"speed": 20.0}, {"speed": 30.0}, {"speed": 40.0}]
    bare.runs = [{"speed": 10.0}, {"speed": 30.0}, {"speed": 10.0}]
    peer.runs = [{"speed": 40.0}]
    benchmark = harness.Benchmark([rlmem, bare, peer], "bare", {"speed": 0}, targets)
    return harness.target_rows(benchmark)


def test_a_ratio_is_the_median_of_those_within_a_repeat(harness: Any) -> None:
    target = harness.Target("rlmem", "bare", 2.0, "speed")
    (row,) = measured(harness, target)
    assert (row["measured"], row["met"]) == (2.0, True)  # of 2, 1 and 4; of the medians: 3


def test_the_fastest_peer_is_looked_up_and_named(harness: Any) -> None:
    target = harness.Target("rlmem", harness.FASTEST_PEER, 0.6, "speed")
    (row,) = measured(harness, target)
    assert (row["over"], row["measured"], row["met"]) == ("peer", 0.5, False)


def test_a_limit_is_met_from_below_and_a_missing_run_is_neither(harness: Any) -> None:
    limit = harness.Target("rlmem", "", 30.0, "speed", most=True)
    absent = harness.Target("rlmem", "nobody", 1.0, "speed")
    rows = measured(harness, limit, absent)
    assert [(row["measured"], row["met"]) for row in rows] == [(30.0, True), (None, None)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "cartpole",
        "pqn",
        "drq",
        "atari",
        "stored",
        "side_by_side",
        "er_study",
        "startup",
        "diagnostics",
    ],
)
def test_what_a_target_is_divided_by_is_run_with_it(harness: Any, name: str) -> None:
    everything = harness.BENCHMARKS[name]()
    assert everything.targets
    for target in everything.targets:
        args = argparse.Namespace(only=target.contender, peers=True, against=None)
        names = {c.name for c in harness.chosen(everything, args).contenders}
        needed = {target.contender, *({target.over} - {"", harness.FASTEST_PEER})}
        assert needed <= names


@pytest.mark.slow
def test_a_recording_of_a_training_is_what_the_memory_was_given(harness: Any, tmp_path: Path):
    recorder, folder = importlib.import_module("record_frames"), tmp_path / "run"
    game = ["env=road_runner", "env/protocol=atari_100k", "agent=dqn", "memory/storage=compressed"]
    keep = "checkpoint.keep_memory_when_finished=true"
    run(folder, *game, *TINY_ATARI, keep, "trainer.max_env_steps=1200")
    played, steps = recorder.training(folder)
    assert steps == 1200
    recorder.record(tmp_path / "frames", played, steps)
    recorded = importlib.import_module("recording").load(tmp_path / "frames")
    assert recorded.about["policy"] == "training, agent=dqn"

    memory = build_memory(run_settings(folder, ""), played.env.spec)
    load_memory(folder / "checkpoints" / "last", memory)
    held = everything(memory.storage)
    assert np.array_equal(held["observation"][:, -1], recorded.observation[:-1].reshape(-1, 84, 84))
    assert np.array_equal(held["action"], recorded.action.reshape(-1))
    assert np.array_equal(held["next", "terminated"][:, 0], recorded.terminated.reshape(-1))
    assert np.array_equal(held["next", "reward"][:, 0], np.clip(recorded.reward, -1, 1).reshape(-1))
    assert recorded.done.any()


@pytest.mark.slow
def test_a_run_whose_checkpoint_lacks_its_first_actions_is_refused(harness: Any, tmp_path: Path):
    recorder, folder = importlib.import_module("record_frames"), tmp_path / "run"
    run(folder, "env=road_runner", "agent=dqn", *TINY_ATARI, "checkpoint.reseed_every=200")
    with pytest.raises(UserError, match="has not kept its actions from the first step on"):
        recorder.training(folder)


@pytest.mark.parametrize("name", frontier_figure.FIGURES)
def test_a_figure_of_the_readme_shows_the_recorded_runs(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", ["frontier_figure", "--out", str(tmp_path)])
    frontier_figure.main()
    kept = FOLDER.parent / "docs/img" / name
    assert unlike(kept, tmp_path / name) < 1e-3, "python -m benchmarks.frontier_figure"
