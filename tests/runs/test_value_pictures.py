"""Pictures and films of runs whose memories answer."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from rlmem.errors import UserError
from rlmem.memories.values.pictures_data import fit_plane, kept_plane
from rlmem.runs.evaluate import evaluate
from tests.runs.helpers import assert_same_run, run
from tests.runs.test_nec import NEC
from tests.runs.test_tabular import TINY
from tests.settings import evaluate_settings


def names(run_dir: Path) -> set[str]:
    """Files of map/."""
    return {path.name for path in (run_dir / "map").iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("memory", "left"), [("q_table", ["maze"]), ("gcmr", ["graph", "maze"]), ("gq", ["graph"])]
)
def test_a_maze_is_drawn_while_the_run_trains_and_after_it(
    memory: str, left: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, f"memory={memory}", "log.map_every=450", tiny=TINY)
    assert {f"{name}_{step:09d}.png" for name in left for step in (450, 900)} <= names(tmp_path)
    evaluate(evaluate_settings("mode=map", f"run='{tmp_path}'"))
    assert {f"{name}.{end}" for name in left for end in ("png", "svg")} <= names(tmp_path)
    assert f"mini_maze, {memory}, 900 env steps: the greedy way" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["dnd", "mfec"])
def test_a_dictionary_is_drawn_and_the_run_is_as_without(memory: str, tmp_path: Path) -> None:
    given = [*NEC, f"memory={memory}"]
    run(tmp_path / "without", *given, tiny=())
    run(tmp_path / "with", *given, "log.map_every=100", tiny=())
    assert_same_run(tmp_path / "without", tmp_path / "with")
    drawn = {f"{n}_{s:09d}.png" for n in ("entries", "lookup") for s in (100, 200, 300)}
    assert names(tmp_path / "with") >= drawn
    evaluate(evaluate_settings("mode=map", f"run='{tmp_path / 'with'}'", "episodes=1"))
    assert names(tmp_path / "with") >= {"entries.png", "lookup_1.png", "lookup_3.png"}


@pytest.mark.slow
@pytest.mark.parametrize("given", [[*TINY, "memory=gcmr"], NEC], ids=["maze", "dictionary"])
def test_what_the_memory_says_stands_beside_the_game(given: list[str], tmp_path: Path) -> None:
    imageio = pytest.importorskip("imageio.v2")
    pytest.importorskip("imageio_ffmpeg")
    if "agent=nec" in given:
        pytest.importorskip("pygame")
    run(tmp_path, *given, "evaluation.video=true", "evaluation.episodes=1", tiny=())
    (film,) = (tmp_path / "videos").iterdir()
    evaluate(evaluate_settings(f"run='{tmp_path}'", "episodes=1", "video=true"))
    for path in (film, *(tmp_path / "evaluation").glob("*.mp4")):
        frame = imageio.mimread(path, memtest=False)[0]
        assert frame.shape[0] >= 420
        assert frame.shape[1] > 700  # the game, and 400 pixels beside it
        assert frame[:, -400:].std() > 10


@pytest.mark.slow
def test_a_graph_in_no_maze_is_laid_out_once_and_says_what_it_looked_up(tmp_path: Path) -> None:
    given = [s for s in TINY if not s.startswith("env")]
    near = ["memory=gq", "env=cartpole", "memory.neighbours=5", "memory.dist_th=0.1"]
    run(tmp_path, *near, "log.map_every=450", tiny=given)
    drawn = {f"{n}_{s:09d}.png" for n in ("graph", "lookup") for s in (450, 900)}
    assert names(tmp_path) == drawn | {"layout.npz"}
    before = (tmp_path / "map" / "layout.npz").read_bytes()
    evaluate(evaluate_settings("mode=map", f"run='{tmp_path}'", "episodes=1"))
    assert names(tmp_path) >= {"graph.png", "lookup_1.png"}
    assert (tmp_path / "map" / "layout.npz").read_bytes() == before


@pytest.mark.slow
def test_pictures_are_written_through_no_link_and_a_folder_in_the_way_is_one_line(
    tmp_path: Path,
) -> None:
    run_dir, precious = tmp_path / "run", tmp_path / "precious"
    run(run_dir, "memory=gcmr", tiny=TINY)
    precious.write_text("mine")
    metrics = (run_dir / "metrics.csv").read_bytes()
    (run_dir / "map").mkdir()
    (run_dir / "map" / "maze.png").hardlink_to(precious)
    (run_dir / "map" / "maze.svg").symlink_to("../metrics.csv")
    evaluate(evaluate_settings("mode=map", f"run='{run_dir}'", "episodes=1"))
    assert precious.read_text() == "mine"
    assert (run_dir / "metrics.csv").read_bytes() == metrics
    (run_dir / "map" / "maze.png").unlink()
    (run_dir / "map" / "maze.png").mkdir()
    with pytest.raises(UserError, match=r"^out=.*/map: cannot be written to \("):
        evaluate(evaluate_settings("mode=map", f"run='{run_dir}'", "episodes=1"))


def test_a_plane_that_cannot_be_kept_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "map").touch()  # in the way of the folder
    keys = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    plane = kept_plane(keys, tmp_path / "map")
    assert np.array_equal(plane.axes, fit_plane(keys).axes)
