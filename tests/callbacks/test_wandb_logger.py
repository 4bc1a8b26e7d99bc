"""Weights & Biases: the same rows, over env steps, nothing left open."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlmem.config import compose

wandb = pytest.importorskip("wandb")

from rlmem.callbacks.wandb_logger import WandbLogger  # noqa: E402


class FakeRun:
    """Notes what is sent."""

    def __init__(self) -> None:
        self.rows, self.summary, self.metrics, self.exit_code = [], {}, [], None

    def define_metric(self, *args: Any, **kwargs: Any) -> None:
        self.metrics.append((args, kwargs))

    def log(self, row: dict[str, Any], **kwargs: Any) -> None:
        assert not kwargs  # step= drops rows
        self.rows.append(row)

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


def make_logger(tmp_path: Path) -> tuple[WandbLogger, FakeRun, dict[str, Any]]:
    logger = WandbLogger(compose("train", ["logger=wandb", "seed=3"]), tmp_path, "a run")
    run, given = FakeRun(), {}

    def init(**kwargs: Any) -> FakeRun:
        given.update(kwargs)
        return run

    logger._wandb = SimpleNamespace(
        init=init, Settings=lambda **_: None, api=SimpleNamespace(api_key=None)
    )
    return logger, run, given


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)


def test_without_a_key_it_is_offline(tmp_path: Path) -> None:
    logger, _, given = make_logger(tmp_path)
    logger.log({"env_steps": 1})
    assert given["mode"] == "offline"


def test_with_a_key_it_is_online(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    logger, _, given = make_logger(tmp_path)
    logger.log({"env_steps": 1})
    assert given["mode"] == "online"


def test_every_metric_is_drawn_over_env_steps(tmp_path: Path) -> None:
    logger, run, _ = make_logger(tmp_path)
    logger.log({"env_steps": 1})
    assert (("*",), {"step_metric": "env_steps"}) in run.metrics


def test_seeds_share_a_group_and_the_config_goes_along(tmp_path: Path) -> None:
    logger, _, given = make_logger(tmp_path)
    logger.log({"env_steps": 1})
    assert given["group"] == "cartpole/uniform"
    assert given["config"]["seed"] == 3


def test_empty_cells_are_not_sent(tmp_path: Path) -> None:
    logger, run, _ = make_logger(tmp_path)
    logger.log({"env_steps": 1, "loss": None, "epsilon": 0.0})
    assert run.rows == [{"env_steps": 1, "epsilon": 0.0}]


@pytest.mark.parametrize(("status", "code"), [("finished", 0), ("failed", 1), ("interrupted", 1)])
def test_a_run_that_did_not_finish_is_shown_so(tmp_path: Path, status: str, code: int) -> None:
    logger, run, _ = make_logger(tmp_path)
    logger.log({"env_steps": 1})
    logger.close(status, {"status": status, "versions": {}, "error": None})
    assert run.exit_code == code
    assert run.summary == {"status": status}


def test_a_run_without_rows_starts_nothing(tmp_path: Path) -> None:
    logger, run, given = make_logger(tmp_path)
    logger.close("failed", {})
    assert not given
    assert run.exit_code is None


@pytest.mark.slow
def test_an_offline_run_leaves_its_files_in_the_run_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    logger = WandbLogger(compose("train", ["logger=wandb"]), tmp_path, "a run")
    logger.log({"env_steps": 1, "memory_bytes": 10, "loss": None})
    logger.close("finished", {"status": "finished"})
    (file,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    assert file.stat().st_size > 0
    assert wandb.run is None
