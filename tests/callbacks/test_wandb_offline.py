"""What offline runs of W&B hold on disk: every row, of resumed, crashed and killed runs too."""

import json
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rlmem.collect.collector import Collector
from rlmem.integrations.wandb_dashboard import MEMORY_TABLE, THRESHOLD_TABLE, VIDEO, sent_name
from tests.runs.helpers import TINY_GWR, rows_of, run, summary_of

wandb = pytest.importorskip("wandb")

from wandb.proto.wandb_internal_pb2 import Record  # noqa: E402


@pytest.fixture(autouse=True)
def no_place_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_DATA_DIR", raising=False)


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
    deadline = time.monotonic() + 60  # W&B's process writes the last of it after finish() returns
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
    draw = Collector._draw

    def draw_or_crash(stream: Collector) -> Any:
        if stream.env_steps == 280:
            raise RuntimeError("crash")
        return draw(stream)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Collector, "_draw", draw_or_crash)
        with pytest.raises(RuntimeError, match="crash"):
            run(folder, *overrides)
    run(folder, *overrides, f"resume={folder}")
    return folder


@pytest.mark.slow
def test_segments_of_a_resumed_run_are_runs_of_one_group(resumed: Path) -> None:
    first, second = (of_kind(found, "run")[0] for found in records(resumed))
    base = json.loads((resumed / "wandb.json").read_text())["id"]
    assert [first.run_id, second.run_id] == [f"{base}-1", f"{base}-2"]
    assert first.run_group == second.run_group == "cartpole/dqn/per"
    assert first.display_name != second.display_name
    assert [config_of(found)["run"] for found in records(resumed)] == [
        {"id": base, "segment": 1, "from_env_steps": 0},
        {"id": base, "segment": 2, "from_env_steps": 200},
    ]


@pytest.mark.slow
def test_no_row_of_a_resumed_run_is_lost(resumed: Path) -> None:
    first, second = (history(found) for found in records(resumed))
    assert all("env_steps" in row for row in first + second)
    steps = [
        [row["env_steps"] for row in rows if "speed/grad_steps" in row] for rows in (first, second)
    ]
    assert steps == [[50, 100, 150, 200, 250], [250, 300]]
    kept = [row for row in first if row["env_steps"] <= 200] + second
    sent = {row["env_steps"]: row for row in kept if "speed/grad_steps" in row}
    for row in rows_of(resumed / "metrics.csv"):
        cells = {name: float(cell) for name, cell in row.items() if cell}
        told = sent[int(row["env_steps"])]
        assert {name: told[sent_name(name)] for name in cells} == cells
    scores = [row["env_steps"] for row in kept if "return/eval_return_mean" in row]
    assert scores == sorted({int(row["env_steps"]) for row in rows_of(resumed / "evaluations.csv")})


@pytest.mark.slow
def test_evaluations_bring_their_video(resumed: Path) -> None:
    rows = [row for found in records(resumed) for row in history(found)]
    videos = [row for row in rows if f"{VIDEO}/path" in row]
    assert len(videos) == sum("return/eval_return_mean" in row for row in rows) == 3
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
import sys, time
from pathlib import Path
from rlmem.config import check, compose
run = check(compose("train", ["logger=wandb", "logger.wandb.mode=offline"]))
logger = run.logger["wandb"].build(run, Path(sys.argv[1]), "a run")
for step in range(50):
    logger.log({"env_steps": step})
time.sleep(600)
"""


def rows_on_disk(run_dir: Path) -> list[int]:
    """Env steps of the rows of a run that may not have begun to write."""
    files = list((run_dir / "wandb").glob("offline-run-*/*.wandb"))
    return [r["env_steps"] for f in files for r in history(read_records(f)) if len(r) > 1]


@pytest.mark.slow
def test_rows_survive_the_kill_of_the_process(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)])
    try:
        deadline = time.monotonic() + 120
        while len(rows_on_disk(tmp_path)) < 50:  # a process of W&B writes them
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL
    assert rows_on_disk(tmp_path) == list(range(50))
    (file,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    assert not of_kind(read_records(file), "exit")
