"""Weights & Biases: the same rows, over env steps, nothing left open."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlmem.errors import UserError
from rlmem.integrations.wandb_dashboard import MEMORY_TABLE

wandb = pytest.importorskip("wandb")

from rlmem.callbacks import wandb_logger  # noqa: E402
from rlmem.callbacks.wandb_logger import WandbLogger, next_segment  # noqa: E402
from tests.settings import settings  # noqa: E402

SUMMARY = {
    "env_steps": 5,
    "memory_components": {"frames": 30, "index": 10},
    "eval_return_mean": 9.0,
    "memory_bytes_peak": 50,
    "seed": 3,
    "versions": {},
    "error": None,
}


class FakeRun:
    """Notes what is sent."""

    def __init__(self) -> None:
        self.rows, self.summary, self.metrics, self.exit_code = [], {}, [], None
        self.artifacts: list[Any] = []

    def define_metric(self, *args: Any, **kwargs: Any) -> None:
        self.metrics.append((args, kwargs))

    def log(self, row: dict[str, Any], **kwargs: Any) -> None:
        assert not kwargs  # step= drops rows
        self.rows.append(row)

    def log_artifact(self, artifact: Any) -> None:
        self.artifacts.append(artifact)

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


def make_logger(tmp_path: Path, *overrides: str) -> tuple[WandbLogger, FakeRun, dict[str, Any]]:
    cfg = settings("logger=wandb", "seed=3", *overrides)
    logger, run, given = cfg.logger["wandb"].build(cfg, tmp_path, "a run"), FakeRun(), {}

    def init(**kwargs: Any) -> FakeRun:
        given.update(kwargs)
        return run

    logger._wandb = SimpleNamespace(
        init=init,
        errors=wandb.errors,
        Settings=lambda **_: None,
        Table=lambda columns, data: (columns, data),
    )
    return logger, run, given


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    # W&B itself would look for the key's owner in the network.
    monkeypatch.setattr(wandb_logger, "has_key", lambda _: "WANDB_API_KEY" in os.environ)


def test_without_a_key_it_is_offline(tmp_path: Path) -> None:
    logger, _, given = make_logger(tmp_path)
    logger.log({"env_steps": 1})
    assert given["mode"] == "offline"


def test_with_a_key_it_is_online(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    logger, _, given = make_logger(tmp_path)
    logger.log({"env_steps": 1})
    assert given["mode"] == "online"


@pytest.mark.parametrize(
    ("mode", "override", "line"),
    [
        ("online", "", r"^WANDB_MODE=online: there is no W&B key here; run `wandb login`, or use"),
        ("", "online", r"^logger.wandb.mode=online: there is no W&B key here; run `wandb login`"),
        ("nonsense", "", r"^WANDB_MODE=nonsense: use one of online, offline, disabled$"),
    ],
)
def test_a_mode_that_cannot_work_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, override: str, line: str
) -> None:
    monkeypatch.setenv("WANDB_MODE", mode)
    with pytest.raises(UserError, match=line):
        make_logger(tmp_path, *([f"logger.wandb.mode={override}"] if override else []))


def test_former_names_of_modes_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "dryrun")
    logger, _, given = make_logger(tmp_path)
    logger.log({"env_steps": 1})
    assert given["mode"] == "offline"


def test_where_wandb_cannot_be_reached_the_same_run_is_recorded_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    logger, run, _ = make_logger(tmp_path, "logger.wandb.mode=online")
    tried: list[tuple[str, str]] = []

    def init(**kwargs: Any) -> FakeRun:
        tried.append((kwargs["mode"], kwargs["id"]))
        if kwargs["mode"] == "online":
            raise wandb.errors.CommError("no network")
        return run

    logger._wandb.init = init
    # Its service holds the id until it is torn down: the second would be refused as in use.
    logger._wandb.teardown = lambda: tried.append(("torn down", ""))
    logger.log({"env_steps": 1})
    assert tried.pop(1) == ("torn down", "")
    assert [mode for mode, _ in tried] == ["online", "offline"]
    assert tried[0][1] == tried[1][1]
    assert run.rows == [{"env_steps": 1}]


def test_every_metric_is_drawn_over_env_steps(tmp_path: Path) -> None:
    logger, run, _ = make_logger(tmp_path)
    logger.log({"env_steps": 1})
    assert (("*",), {"step_metric": "env_steps"}) in run.metrics


@pytest.mark.parametrize(
    ("overrides", "group"),
    [
        ([], "cartpole/dqn/uniform"),
        (["agent=rainbow"], "cartpole/rainbow/uniform"),
        (["memory=gwr", "threshold=rr_070_080"], "cartpole/dqn/gwr/0.7-0.8"),
        (["memory=per", "memory.budget=64MiB"], "cartpole/dqn/per/64MiB"),
        (["logger.wandb.group=mine"], "mine"),
    ],
)
def test_runs_that_differ_in_their_seed_share_a_group(
    tmp_path: Path, overrides: list[str], group: str
) -> None:
    logger, _, given = make_logger(tmp_path, *overrides)
    logger.log({"env_steps": 1})
    assert given["group"] == group
    assert given["job_type"] == "train"


def test_tags_name_memory_env_and_agent_once(tmp_path: Path) -> None:
    logger, _, given = make_logger(tmp_path, "logger.wandb.tags=[uniform,mine]")
    logger.log({"env_steps": 1})
    assert given["tags"] == ["uniform", "cartpole", "dqn", "mine"]


def test_the_config_can_be_filtered(tmp_path: Path) -> None:
    logger, _, given = make_logger(tmp_path, "memory=gwr", "agent.network.hidden=[64,32]")
    logger.log({"env_steps": 1})
    config = given["config"]
    assert config["seed"] == 3
    assert config["threshold"] == {"activation": 0.95, "habituation": 0.8}
    assert config["agent"]["network"]["hidden"] == "64, 32"


def test_keys_that_the_run_did_not_read_are_left_out(tmp_path: Path) -> None:
    logger, _, given = make_logger(tmp_path, "memory=per")
    logger.log({"env_steps": 1})
    assert "threshold" not in given["config"]
    assert "recommended" not in given["config"]["env"]


def test_empty_cells_are_not_sent(tmp_path: Path) -> None:
    logger, run, _ = make_logger(tmp_path)
    logger.log({"env_steps": 1, "loss": None, "epsilon": 0.0})
    assert run.rows == [{"env_steps": 1, "learning/epsilon": 0.0}]


def test_names_have_their_section_in_front(tmp_path: Path) -> None:
    logger, run, _ = make_logger(tmp_path)
    row = {"env_steps": 1, "train_return_mean": 2.0, "loss": 3.0, "sample_us": 4.0}
    logger.log({**row, "grad_steps": 5, "memory_bytes": 6, "memory/frames": 7})
    assert run.rows == [
        {
            "env_steps": 1,
            "return/train_return_mean": 2.0,
            "learning/loss": 3.0,
            "speed/sample_us": 4.0,
            "speed/grad_steps": 5,
            "memory/memory_bytes": 6,
            "memory/component/frames": 7,
        }
    ]


@pytest.mark.parametrize(("status", "code"), [("finished", 0), ("failed", 1), ("interrupted", 1)])
def test_a_run_that_did_not_finish_is_shown_so(tmp_path: Path, status: str, code: int) -> None:
    logger, run, _ = make_logger(tmp_path)
    logger.log({"env_steps": 1})
    logger.close(status, {**SUMMARY, "status": status})
    assert run.exit_code == code
    assert run.summary == {
        "status": status,
        "env_steps": 5,
        "eval_return_mean": 9.0,
        "memory_bytes_peak": 50,
        "seed": 3,
    }
    assert not run.artifacts
    assert "WANDB_DATA_DIR" not in os.environ


def test_the_end_has_a_table_of_bytes_by_component(tmp_path: Path) -> None:
    logger, run, _ = make_logger(tmp_path)
    logger.log({"env_steps": 1})
    logger.close("finished", SUMMARY)
    columns = ["component", "bytes", "share"]
    table = (columns, [["frames", 30, 0.75], ["index", 10, 0.25]])
    assert run.rows[-1] == {"env_steps": 5, MEMORY_TABLE: table}


def test_a_picture_is_sent_at_its_env_steps(tmp_path: Path) -> None:
    logger, run, _ = make_logger(tmp_path)
    logger._wandb.Image = lambda path: ("image", path)
    logger.image(500, "map", tmp_path / "map.png")
    assert run.rows == [{"env_steps": 500, "map": ("image", str(tmp_path / "map.png"))}]


def test_a_run_without_rows_starts_nothing(tmp_path: Path) -> None:
    logger, run, given = make_logger(tmp_path)
    logger.close("failed", {})
    assert not given
    assert run.exit_code is None
    assert not any(tmp_path.iterdir())


def test_a_segment_is_never_given_twice(tmp_path: Path) -> None:
    run_id, first = next_segment(tmp_path)
    assert (first, next_segment(tmp_path)) == (1, (run_id, 2))
    (tmp_path / "wandb.json").write_text("{")
    assert next_segment(tmp_path)[0] != run_id  # the numbers are lost: count anew under a new id
