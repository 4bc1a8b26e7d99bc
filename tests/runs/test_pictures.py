"""What `mode=map` leaves of a run, and what it says where there is nothing to draw."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from rlmem.collect.rollout import evaluate_policy
from rlmem.envs import make_env
from rlmem.errors import UserError
from rlmem.runs.evaluate import evaluate
from rlmem.runs.pictures import visited
from tests.runs.helpers import KEEP, TINY_ATARI, TINY_GWR, run, signal_at
from tests.settings import evaluate_settings, settings


@pytest.fixture(scope="module")
def map_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of CartPole with a map with contexts. Read it, do not write."""
    folder = tmp_path_factory.mktemp("map") / "run"
    run(folder, *TINY_GWR, "memory.contexts=2", KEEP)
    return folder


@pytest.fixture
def run_dir(map_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(map_run, tmp_path / "run"))


def drawn(run_dir: Path, *overrides: str) -> dict[str, float]:
    """The table that is left."""
    evaluate(evaluate_settings("mode=map", f"run='{run_dir}'", "episodes=3", *overrides))
    with (run_dir / "map" / "table.csv").open(newline="") as file:
        return {row["quantity"]: float(row["value"]) for row in csv.DictReader(file)}


@pytest.mark.slow
def test_pictures_table_and_nodes_are_left(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = drawn(run_dir)
    assert {p.name for p in (run_dir / "map").iterdir()} == {
        *("map.png", "map.svg", "table.csv", "nodes.csv")
    }
    summary = json.loads((run_dir / "summary.json").read_text())
    assert table["nodes"] == summary["memory_entries"]
    assert table["bytes"] == summary["memory_bytes"]
    components = {k.removeprefix("bytes_"): v for k, v in table.items() if k.startswith("bytes_")}
    assert components == summary["memory_components"]
    with (run_dir / "map" / "nodes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == table["nodes"]
    assert sum(int(row["out_degree"]) for row in rows) == table["temporal_edges"]
    assert sum(int(row["merges"]) for row in rows) / len(rows) == table["merges_per_node_mean"]
    assert 0 < table["coverage"] <= 1
    shown = capsys.readouterr().out
    assert "quantisation error" in shown
    assert "visited by the random policy" in shown


@pytest.mark.slow
def test_a_seed_decides_the_figures(run_dir: Path) -> None:
    settings = ["episodes=9", "epsilon=0.5"]
    first, again, other = (drawn(run_dir, *settings, f"seed={seed}") for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.slow
def test_another_folder_can_be_named(run_dir: Path, tmp_path: Path) -> None:
    evaluate(
        evaluate_settings("mode=map", f"run='{run_dir}'", "episodes=1", f"out='{tmp_path}/mine'")
    )
    assert (tmp_path / "mine" / "map.svg").exists()
    assert not (run_dir / "map").exists()


@pytest.mark.slow
def test_a_map_of_pixels_has_a_contact_sheet(tmp_path: Path) -> None:
    atari = ["env=pong", "memory=gwr", "memory.metric.scale_samples=50", "memory.capacity=300"]
    run(tmp_path, *TINY_ATARI, *atari, KEEP)
    drawn(tmp_path, "episodes=1")
    assert (tmp_path / "map" / "prototypes.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_finished_run_without_its_memory_is_one_line_that_says_how_to_keep_it(
    tmp_path: Path,
) -> None:
    run(tmp_path, *TINY_GWR)
    with pytest.raises(UserError, match="keep_memory_when_finished=true") as error:
        drawn(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_run_that_was_interrupted_is_drawn_as_it_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signal_at(monkeypatch, 200)
    with pytest.raises(SystemExit):
        run(tmp_path, *TINY_GWR)
    assert drawn(tmp_path, "episodes=1")["transitions_represented"] >= 199


@pytest.mark.slow
def test_a_memory_without_pictures_is_one_line(finished_run: Path) -> None:
    with pytest.raises(UserError, match="its memory is per, which has no pictures"):
        drawn(finished_run)


def test_a_directory_without_a_run_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run there"):
        drawn(tmp_path)


@pytest.mark.slow
def test_a_damaged_memory_is_one_line(run_dir: Path) -> None:
    (run_dir / "checkpoints/last/memory/storage/state.json").write_text("{")
    with pytest.raises(UserError, match="cannot be loaded"):
        drawn(run_dir)


def test_every_observation_of_the_scored_episodes_is_seen_once() -> None:
    """The lengths of the episodes, and for each its last observation; ends of episodes between."""

    def random(observation: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
        return rng.integers(2, size=len(observation))

    env = make_env(settings("env=cartpole").env, 2)
    episodes = visited(lambda rows: 2 * rows, env, random, 5, 1.0, 3)
    scored = evaluate_policy(env, random, episodes=5, epsilon=1.0, seed=3)
    assert [len(e) - 1 for e in episodes] == scored.lengths
    for episode in episodes:  # an episode begins near the middle and ends beyond a limit
        assert (np.abs(episode[0]) <= 0.1).all()
        assert abs(episode[-1][2]) > 0.4 or abs(episode[-1][0]) > 4.8
