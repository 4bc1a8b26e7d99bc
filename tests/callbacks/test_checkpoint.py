"""Checkpoints: complete or not there, loaded in place, one line when damaged."""

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rlmem.callbacks.checkpoint import (
    Checkpointing,
    find_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from rlmem.callbacks.records import Recorder
from rlmem.errors import UserError
from rlmem.runs import build
from tests.runs.helpers import TINY
from tests.settings import settings


class Parts:
    """The agent, stream and recorder of a run, as `train` makes them."""

    def __init__(self, folder: Path, *overrides: str) -> None:
        cfg = settings(*TINY, "memory=per", *overrides)
        env = build.build_env(cfg)
        self.agent = build.build_agent(cfg, env.spec)
        memory = build.build_memory(cfg, env.spec)
        self.stream = build.build_stream(cfg, env, memory, self.agent)
        self.recorder = Recorder(folder, self.stream, 100, [])

    def train(self, batches: int) -> "Parts":
        for _ in range(batches):
            batch = next(self.stream)
            if batch:
                self.stream.memory.learned(batch, self.agent.update(batch))
        return self

    def save(self, folder: Path, *, with_memory: bool = True) -> None:
        save_checkpoint(folder, self.agent, self.stream, self.recorder, with_memory=with_memory)

    def load(self, folder: Path) -> dict[str, Any]:
        return load_checkpoint(folder, self.agent, self.stream)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory with a checkpoint at 150 env steps."""
    run_dir = tmp_path_factory.mktemp("saved")
    Parts(run_dir).train(150).save(run_dir / "checkpoints" / "last")
    return run_dir


@pytest.fixture
def last(saved: Path, tmp_path: Path) -> Path:
    """A copy of that checkpoint, to be damaged."""
    shutil.copytree(saved, tmp_path / "run")
    return tmp_path / "run" / "checkpoints" / "last"


def weights(parts: Parts) -> list[torch.Tensor]:
    return [value.clone() for value in parts.agent.state_dict().values()]


def test_a_loaded_run_goes_on_as_the_saved_one(tmp_path: Path) -> None:
    parts, other = Parts(tmp_path), Parts(tmp_path)
    parts.train(150).save(tmp_path / "last")
    other.load(tmp_path / "last")
    assert other.agent.grad_steps == parts.agent.grad_steps == 51
    for each in (parts, other):
        each.train(60)
    assert all(torch.equal(a, b) for a, b in zip(weights(parts), weights(other), strict=True))
    assert parts.stream.state_dict()["env_steps"] == other.stream.state_dict()["env_steps"]


def test_the_manifest_holds_the_counters(saved: Path) -> None:
    manifest = json.loads((saved / "checkpoints/last/manifest.json").read_text())
    assert (manifest["env_steps"], manifest["grad_steps"]) == (150, 51)
    assert manifest["memory_saved"] is True


def test_nothing_is_pickled(saved: Path) -> None:
    files = [file for file in saved.rglob("*") if file.is_file()]
    assert {file.suffix for file in files} == {".safetensors", ".npy", ".json", ".txt"}
    for file in files:
        if file.suffix == ".npy":
            np.load(file, allow_pickle=False)


def test_the_best_model_loads_as_weights_only(finished_run: Path) -> None:
    content = torch.load(finished_run / "checkpoints/best.ckpt", weights_only=True)
    assert content.keys() == {"state_dict", "env_steps", "eval_return_mean"}


def test_a_new_save_replaces_the_old_one_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    parts, folder = Parts(tmp_path), tmp_path / "checkpoints" / "last"
    for _ in range(2):
        parts.train(120).save(folder)
    assert [path.name for path in folder.parent.iterdir()] == ["last"]
    assert Parts(tmp_path).load(folder)["env_steps"] == 240


def test_a_kill_between_the_two_renames_leaves_the_old_one_to_be_found(last: Path) -> None:
    last.rename(last.with_name("last.old"))
    found = find_checkpoint(last.parents[1])
    assert found == last.with_name("last.old")
    assert Parts(last).load(found)["env_steps"] == 150


def test_the_save_after_such_a_kill_works(last: Path) -> None:
    last.rename(last.with_name("last.old"))
    Parts(last).train(120).save(last)
    assert find_checkpoint(last.parents[1]) == last
    assert not last.with_name("last.old").exists()


def test_a_kill_in_the_middle_of_writing_leaves_the_previous_one(last: Path) -> None:
    shutil.copytree(last, last.with_name("last.new"))
    (last.with_name("last.new") / "manifest.json").unlink()
    assert find_checkpoint(last.parents[1]) == last
    Parts(last).train(120).save(last)
    assert Parts(last).load(last)["env_steps"] == 120


def test_a_checkpoint_without_a_manifest_is_none(last: Path) -> None:
    (last / "manifest.json").unlink()
    assert find_checkpoint(last.parents[1]) is None


def damaged(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize(
    "name",
    [
        "manifest.json",
        "model.safetensors",
        "optimizer.safetensors",
        "memory/storage/rows-0-150.npy",
        "memory/storage/open_frames.npy",
        "memory/storage/state.json",
        "memory/sampler/leaves.npy",
        "memory/memory/generator.npy",
        "stream/actions.npy",
    ],
)
@pytest.mark.parametrize("how", [damaged, Path.unlink], ids=["damaged", "missing"])
def test_a_broken_file_is_reported_in_one_line(last: Path, name: str, how: Any) -> None:
    how(last / name)
    with pytest.raises(UserError) as error:
        Parts(last).load(last)
    assert str(last) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_memory_is_reported_in_one_line(last: Path) -> None:
    shutil.rmtree(last / "memory")
    with pytest.raises(UserError, match="cannot be loaded") as error:
        Parts(last).load(last)
    assert "\n" not in str(error.value)


def test_a_finished_run_without_memory_says_how_to_keep_it(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints" / "last"
    Parts(tmp_path).train(120).save(folder, with_memory=False)
    with pytest.raises(UserError, match=r"checkpoint\.keep_memory_when_finished=true"):
        Parts(tmp_path).load(folder)


def test_a_checkpoint_of_another_format_is_refused(last: Path) -> None:
    manifest = json.loads((last / "manifest.json").read_text())
    (last / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(UserError, match="checkpoint format 99"):
        Parts(last).load(last)


@pytest.mark.parametrize(
    "override",
    ["agent.network.hidden=[16]", "agent.dueling=true", "memory.capacity=100", "env.num_envs=2"],
)
def test_a_checkpoint_of_another_network_or_memory_is_one_line(last: Path, override: str) -> None:
    extra = ["agent.train_every=2"] if "num_envs" in override else []
    with pytest.raises(UserError) as error:
        Parts(last, override, *extra).load(last)
    assert "\n" not in str(error.value)


def test_an_evaluation_that_is_no_number_is_not_the_best(tmp_path: Path) -> None:
    parts = Parts(tmp_path)
    keeps = Checkpointing(tmp_path, parts.stream, parts.recorder, 100)
    for mean, best in ((math.nan, None), (10.0, 10.0), (math.nan, 10.0), (9.0, 10.0)):
        parts.recorder.last_evaluation = SimpleNamespace(mean=mean)
        keeps.save_if_best(parts.agent)
        assert parts.recorder.best_return == best
    content = torch.load(tmp_path / "checkpoints/best.ckpt", weights_only=True)
    assert content["eval_return_mean"] == 10.0
