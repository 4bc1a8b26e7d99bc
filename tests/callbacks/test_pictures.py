"""Pictures of the memory while a run trains."""

import sys
from pathlib import Path
from typing import Any

import pytest

from rlmem.errors import UserError
from rlmem.runs import build
from tests.runs.helpers import TINY_GWR, assert_same_run, run


class NoteImages:
    """A logger that notes the pictures."""

    def __init__(self) -> None:
        self.images: list[tuple[int, str, Path]] = []

    def log(self, row: dict[str, Any]) -> None: ...

    def image(self, env_steps: int, name: str, path: Path) -> None:
        assert path.read_bytes().startswith(b"\x89PNG")
        self.images.append((env_steps, name, path))


@pytest.mark.slow
def test_pictures_come_at_their_steps_and_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    logger = NoteImages()
    run(tmp_path / "without", *TINY_GWR, "checkpoint.keep_memory_when_finished=true")
    monkeypatch.setattr(build, "build_loggers", lambda *_: [logger])
    kept = ["checkpoint.keep_memory_when_finished=true", "log.map_every=100"]
    run(tmp_path / "with", *TINY_GWR, *kept)
    folder = tmp_path / "with" / "map"
    steps = (100, 200, 300)
    assert sorted(p.name for p in folder.iterdir()) == [f"map_{s:09d}.png" for s in steps]
    assert logger.images == [(s, "map", folder / f"map_{s:09d}.png") for s in steps]
    assert_same_run(tmp_path / "without", tmp_path / "with")


@pytest.mark.slow
def test_nothing_is_drawn_while_the_scale_is_being_measured(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("minatar")
    waiting = ["memory=gwr", "env=minatar_breakout", "memory.metric.scale_samples=150"]
    run(tmp_path, *waiting, "env.num_envs=1", "log.map_every=100")
    names = sorted(path.name for path in (tmp_path / "map").iterdir())
    assert names == ["map_000000200.png", "map_000000300.png"]


@pytest.mark.slow
def test_a_memory_without_pictures_says_so_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, "memory=per", "log.map_every=100")
    assert capsys.readouterr().out.count("memory=per has no pictures, nothing is drawn") == 1
    assert not (tmp_path / "map").exists()


def test_without_matplotlib_a_run_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"log.map_every=100 needs matplotlib: pip install 'rlmem"):
        run(tmp_path / "run", *TINY_GWR, "log.map_every=100")
    assert not (tmp_path / "run").exists()
