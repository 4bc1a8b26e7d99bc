"""Weights & Biases: the same rows, over env steps, nothing left open, nothing lost by a resume."""

import json
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlmem.config import compose
from rlmem.data.stream import EnvStepStream
from rlmem.integrations.wandb_dashboard import MEMORY_TABLE, THRESHOLD_TABLE, VIDEO
from tests.jobs.helpers import TINY_GWR, rows_of, run, summary_of

wandb = pytest.importorskip("wandb")

from wandb.proto.wandb_internal_pb2 import Record  # noqa: E402

from rlmem.callbacks.wandb_logger import WandbLogger, next_segment  # noqa: E402

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
    cfg = compose("train", ["logger=wandb", "seed=3", *overrides])
    logger, run, given = WandbLogger(cfg, tmp_path, "a run"), FakeRun(), {}

    def init(**kwargs: Any) -> FakeRun:
        given.update(kwargs)
        return run

    logger._wandb = SimpleNamespace(
        init=init,
        login=lambda **_: "WANDB_API_KEY" in os.environ,
        errors=wandb.errors,
        Settings=lambda **_: None,
        Table=lambda columns, data: (columns, data),
    )
    return logger, run, given


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_DATA_DIR"):
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


def test_where_wandb_cannot_be_reached_the_same_run_is_recorded_offline(tmp_path: Path) -> None:
    logger, run, _ = make_logger(tmp_path, "logger.wandb.mode=online")
    tried: list[tuple[str, str]] = []

    def init(**kwargs: Any) -> FakeRun:
        tried.append((kwargs["mode"], kwargs["id"]))
        if kwargs["mode"] == "online":
            raise wandb.errors.CommError("no network")
        return run

    logger._wandb.init = init
    logger.log({"env_steps": 1})
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
        ([], "cartpole/uniform"),
        (["memory=gwr", "threshold=rr_070_080"], "cartpole/gwr/0.7-0.8"),
        (["memory=per", "memory.budget=64MiB"], "cartpole/per/64MiB"),
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
    assert run.rows == [{"env_steps": 1, "epsilon": 0.0}]


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


def read_records(file: Path) -> list[Any]:
    """The whole records of a .wandb file: LevelDB's log format after a header of 7 bytes."""
    data, position, parts, found = file.read_bytes(), 7, b"", []
    while position + 7 <= len(data):
        room = 32768 - position % 32768
        if room < 7:
            position += room
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        position += 7 + length
        if position > len(data):
            break
        parts += data[position - length : position]
        if kind in (1, 4):  # whole, or the last part
            found.append(Record.FromString(parts))
            parts = b""
    return found


def records(run_dir: Path) -> list[list[Any]]:
    """The records of each finished offline run, oldest first."""
    files = sorted((run_dir / "wandb").glob("offline-run-*/*.wandb"))
    deadline = time.monotonic() + 10  # W&B's process writes the last of it after finish() returns
    while not all(of_kind(read_records(file), "exit") for file in files):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return [read_records(file) for file in files]


def of_kind(found: list[Any], kind: str) -> list[Any]:
    return [getattr(record, kind) for record in found if record.WhichOneof("record_type") == kind]


def history(found: list[Any]) -> list[dict[str, Any]]:
    return [
        {"/".join(item.nested_key): json.loads(item.value_json) for item in row.item}
        for row in of_kind(found, "history")
    ]


def config_of(found: list[Any]) -> dict[str, Any]:
    (started,) = of_kind(found, "run")
    return {item.key: json.loads(item.value_json) for item in started.config.update}


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 300 env steps that crashed at 280 and went on from its checkpoint at 200."""
    folder = tmp_path_factory.mktemp("wandb") / "run"
    overrides = [
        "memory=per",
        "log.every=50",
        "checkpoint.every=200",
        "evaluation.every=100",
        "evaluation.video=true",
        "logger=wandb",
        "logger.wandb.mode=offline",
    ]
    draw = EnvStepStream._draw

    def draw_or_crash(stream: EnvStepStream) -> Any:
        if stream.env_steps == 280:
            raise RuntimeError("crash")
        return draw(stream)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EnvStepStream, "_draw", draw_or_crash)
        with pytest.raises(RuntimeError, match="crash"):
            run(folder, *overrides)
    run(folder, *overrides, f"resume={folder}")
    return folder


@pytest.mark.slow
def test_segments_of_a_resumed_run_are_runs_of_one_group(resumed: Path) -> None:
    first, second = (of_kind(found, "run")[0] for found in records(resumed))
    base = json.loads((resumed / "wandb.json").read_text())["id"]
    assert [first.run_id, second.run_id] == [f"{base}-1", f"{base}-2"]
    assert first.run_group == second.run_group == "cartpole/per"
    assert first.display_name != second.display_name
    assert [config_of(found)["run"] for found in records(resumed)] == [
        {"id": base, "segment": 1, "from_env_steps": 0},
        {"id": base, "segment": 2, "from_env_steps": 200},
    ]


@pytest.mark.slow
def test_no_row_of_a_resumed_run_is_lost(resumed: Path) -> None:
    first, second = (history(found) for found in records(resumed))
    assert all("env_steps" in row for row in first + second)
    steps = [[row["env_steps"] for row in rows if "grad_steps" in row] for rows in (first, second)]
    assert steps == [[50, 100, 150, 200, 250], [250, 300]]
    kept = [row for row in first if row["env_steps"] <= 200] + second
    sent = {row["env_steps"]: row for row in kept if "grad_steps" in row}
    for row in rows_of(resumed / "metrics.csv"):
        cells = {name: float(cell) for name, cell in row.items() if cell}
        assert {name: sent[int(row["env_steps"])][name] for name in cells} == cells
    scores = [row["env_steps"] for row in kept if "eval_return_mean" in row]
    assert scores == sorted({int(row["env_steps"]) for row in rows_of(resumed / "evaluations.csv")})


@pytest.mark.slow
def test_evaluations_bring_their_video(resumed: Path) -> None:
    rows = [row for found in records(resumed) for row in history(found)]
    videos = [row for row in rows if f"{VIDEO}/path" in row]
    assert len(videos) == sum("eval_return_mean" in row for row in rows) == 3
    (folder,) = (resumed / "wandb").glob(f"offline-run-*/files/{Path(videos[-1][VIDEO + '/path'])}")
    assert folder.read_bytes() == (resumed / "videos" / "eval_000000300.mp4").read_bytes()


@pytest.mark.slow
def test_the_last_segment_has_summary_and_memory_table(resumed: Path) -> None:
    (folder,) = (resumed / "wandb").glob("offline-run-*-2")
    (file,) = (folder / "files/media/table").glob(f"{MEMORY_TABLE}_*.table.json")
    summary = summary_of(resumed)
    rows = json.loads(file.read_text())["data"]
    assert {name: size for name, size, _ in rows} == summary["memory_components"]
    assert sum(share for *_, share in rows) == pytest.approx(1)
    sent = {
        item.key: json.loads(item.value_json)
        for update in of_kind(records(resumed)[1], "summary")
        for item in update.update
    }
    plain = {k: v for k, v in summary.items() if isinstance(v, int | float | str)}
    assert {name: sent[name] for name in plain} == plain
    assert wandb.run is None


@pytest.mark.slow
def test_a_model_on_request_and_a_row_for_the_heatmap(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    offline = ["logger=wandb", "logger.wandb.mode=offline", "logger.wandb.log_model=true"]
    summary = run(folder, *TINY_GWR, *offline)
    (found,) = records(folder)
    (model,) = [a for a in of_kind(found, "artifact") if a.type == "model"]
    files = {entry.path for entry in model.manifest.contents}
    assert files == {"model.safetensors", "best.ckpt", "config.yaml", "summary.json"}
    (file,) = folder.glob(f"wandb/offline-run-*/files/media/table/{THRESHOLD_TABLE}_*.table.json")
    peak, score = summary["memory_bytes_peak"], summary["eval_return_mean"]
    assert json.loads(file.read_text())["data"] == [[0.95, 0.8, score, peak, 0]]
    # What is to be sent lies in the run directory, not in the home directory.
    staged = [e for a in of_kind(found, "artifact") for e in a.manifest.contents]
    assert all(Path(e.local_path).is_relative_to(folder / "wandb") for e in staged)
    assert all(Path(e.local_path).exists() for e in staged)


CHILD = """
import os, signal, sys, time
from pathlib import Path
from rlmem.config import compose
from rlmem.callbacks.wandb_logger import WandbLogger
cfg = compose("train", ["logger=wandb", "logger.wandb.mode=offline"])
logger = WandbLogger(cfg, Path(sys.argv[1]), "a run")
for step in range(50):
    logger.log({"env_steps": step})
if sys.argv[2] == "kill":
    time.sleep(4)
    os.kill(os.getpid(), signal.SIGKILL)
logger.close("finished", {"env_steps": 50, "memory_components": {}})
"""


@pytest.mark.slow
@pytest.mark.parametrize(("end", "code"), [("exit", 0), ("kill", -signal.SIGKILL)])
def test_rows_survive_the_end_of_the_process(tmp_path: Path, end: str, code: int) -> None:
    result = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path), end], timeout=120)
    assert result.returncode == code
    (file,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    found = read_records(file)
    rows = [row["env_steps"] for row in history(found) if len(row) > 1]
    assert rows[:50] == list(range(50))
    assert bool(of_kind(found, "exit")) == (end == "exit")
