"""Pictures of the map while a run trains."""

import builtins
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rlmem.callbacks import map_images
from rlmem.callbacks.map_images import reach, state_values
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

    def close(self, status: str, summary: dict[str, Any]) -> None: ...


def storage_of(observations: np.ndarray) -> Any:
    return SimpleNamespace(node_observations=lambda nodes: observations[nodes])


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
def test_a_memory_without_a_map_says_so_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, "memory=per", "log.map_every=100")
    assert capsys.readouterr().out.count("memory=per is no map, nothing is drawn") == 1
    assert not (tmp_path / "map").exists()


def test_without_matplotlib_a_run_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return imported(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UserError, match=r"log.map_every=100 needs matplotlib: pip install 'rlmem"):
        run(tmp_path / "run", *TINY_GWR, "log.map_every=100")
    assert not (tmp_path / "run").exists()


def test_the_value_of_discrete_actions_is_the_largest_q(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_images, "_BATCH", 2)
    agent = SimpleNamespace(online=lambda x: torch.stack([x[:, 0], -x[:, 0]], 1), device="cpu")
    values, name = state_values(agent, storage_of(np.float32([[1], [-3], [2]])), np.arange(3))
    assert values.tolist() == [1, 3, 2]
    assert "max" in name


def test_the_value_of_an_actor_is_the_smaller_critics() -> None:
    agent = SimpleNamespace(
        actor=lambda x: 2 * x,
        critics=[lambda x, a: x + a, lambda x, a: x - a],
        device="cpu",
    )
    values, name = state_values(agent, storage_of(np.float32([[1], [-3]])), np.arange(2))
    assert values.tolist() == [-1, -9]
    assert "actor" in name
    assert "smaller" in name


def test_another_agent_has_no_values_and_says_so() -> None:
    values, why = state_values(SimpleNamespace(), storage_of(np.zeros((1, 1))), np.arange(1))
    assert values is None
    assert "no values" in why


def test_the_reach_is_where_the_activity_is_the_threshold() -> None:
    assert np.exp(-(reach(0.7, 0) or 0)) == pytest.approx(0.7)
    alpha_0 = 1 / (1 + np.exp(-1) + np.exp(-2))
    assert np.exp(-alpha_0 * (reach(0.7, 2) or 0)) == pytest.approx(0.7)
    assert reach(1.0, 0) is None
