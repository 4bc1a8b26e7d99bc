"""Each file of a checkpoint is covered by a checksum, belongs to its run, and is on the disk."""

import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file as load_safetensors

from rlmem.callbacks.checkpoint_files import (
    BEST,
    CHECKSUMS,
    find_checkpoint,
    no_checkpoint,
    run_id,
)
from rlmem.callbacks.weights import load_best, save_best, save_file
from rlmem.errors import UserError
from rlmem.memories.base.serialize import load_state, save_state
from tests.callbacks.test_checkpoint import Parts

EACH = [
    "manifest.json",
    "checksums.json",
    "model.safetensors",
    "optimizer.safetensors",
    "best.ckpt",
    "stream/state.json",
    "stream/actions.npy",
    "random/state.json",
    "random/cpu.npy",
    "memory/memory/state.json",
    "memory/storage/state.json",
    "memory/storage/rows-0-150.npy",
    "memory/sampler/leaves.npy",
]


def made(folder: Path, *overrides: str) -> Path:
    """A run directory with a checkpoint at 150 env steps and a best model."""
    parts, last = Parts(folder, *overrides).train(150), folder / "checkpoints" / "last"
    last.mkdir(parents=True)
    parts.recorder.best_return = 1.0
    save_best(last.with_name(BEST), parts.agent, 100, 1.0)
    parts.save(last)
    return folder


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("saved"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another run, of other weights."""
    return made(tmp_path_factory.mktemp("other"), "seed=1")


@pytest.fixture
def last(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "run")) / "checkpoints" / "last"


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    path.write_bytes(content)


def in_place(make: Callable[[Path], Any]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


DAMAGE: dict[str, Callable[[Path], None]] = {
    "flipped": flip,
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "gone": Path.unlink,
    "fifo": in_place(os.mkfifo),
    "folder": in_place(Path.mkdir),
    "device": in_place(lambda path: path.symlink_to("/dev/zero")),
    "outside": in_place(lambda path: path.symlink_to("/etc/hostname")),
}


def refusal(last: Path) -> str:
    with pytest.raises(UserError) as error:
        Parts(last).load(last)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("name", EACH)
def test_a_damaged_file_is_named_and_nothing_is_written(last: Path, name: str, how: str) -> None:
    DAMAGE[how](last / name)
    before = {path: path.lstat().st_mtime_ns for path in last.parents[1].rglob("*")}
    assert str(last / name) in refusal(last)
    assert {path: path.lstat().st_mtime_ns for path in last.parents[1].rglob("*")} == before


@pytest.mark.parametrize("name", [name for name in EACH if name != "random/cpu.npy"])
def test_a_file_of_another_run_is_named(last: Path, other: Path, name: str) -> None:
    shutil.copy(other / "checkpoints/last" / name, last / name)
    named = last / name if name != "checksums.json" else last  # it names the run
    assert str(named) in refusal(last)


def test_a_checkpoint_of_another_run_is_refused(last: Path, other: Path) -> None:
    shutil.rmtree(last)
    shutil.copytree(other / "checkpoints/last", last)
    assert "is of another run" in refusal(last)
    (last.parents[1] / "run.json").unlink()  # a run that lost its name takes what it finds
    Parts(last, "seed=1").load(last)
    assert run_id(last.parents[1]) is None


def reseal(last: Path) -> None:
    """Let the checksums be right again."""
    outer = json.loads((last / CHECKSUMS).read_text())
    content = json.loads(outer["text"])
    for name in content["files"]:
        data = (last / name).read_bytes()
        content["files"][name] = {"bytes": len(data), "crc32": zlib.crc32(data)}
    text = json.dumps(content)
    (last / CHECKSUMS).write_text(json.dumps({"checksum": zlib.crc32(text.encode()), "text": text}))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_named(last: Path, value: float) -> None:
    weights = load_safetensors(last / "model.safetensors")
    name = next(iter(weights))
    weights[name].view(-1)[3] = value
    save_file(weights, last / "model.safetensors")
    reseal(last)
    what = "NaN" if value != value else "infinity"
    assert f"{last}/model.safetensors: {name} holds {what}" in refusal(last)


MOMENTS: dict[str, Callable[[dict[str, torch.Tensor]], Any]] = {
    "0.exp_avg is float32 [3], its parameter": lambda t: t.update({"0.exp_avg": torch.zeros(3)}),
    "0.exp_avg is float64": lambda t: t.update({"0.exp_avg": t["0.exp_avg"].double()}),
    "99.exp_avg is of no parameter": lambda t: t.update({"99.exp_avg": torch.zeros(3)}),
    "x.exp_avg is of no parameter": lambda t: t.update({"x.exp_avg": torch.zeros(3)}),
    "this optimizer has": lambda t: t.pop("0.exp_avg_sq"),
    "holds a number below 0": lambda t: t["0.exp_avg_sq"].sub_(1),
    "0.step is float32 [2]": lambda t: t.update({"0.step": torch.zeros(2)}),
    "0.exp_avg holds NaN": lambda t: t["0.exp_avg"].fill_(float("nan")),
}


@pytest.mark.parametrize("message", MOMENTS)
def test_an_optimizer_that_does_not_fit_is_refused(last: Path, message: str) -> None:
    tensors = load_safetensors(last / "optimizer.safetensors")
    MOMENTS[message](tensors)
    save_file(tensors, last / "optimizer.safetensors")
    reseal(last)
    assert message in refusal(last)


MANIFESTS: dict[str, Any] = {
    "env_steps": [-1, 1.5, "1", None, True, 2**70, [1]],
    "grad_steps": [-1, None],
    "threads": [0, 10**9, "2"],
    "processes": [0, 1.0],
    "memory_saved": [1, None, "yes"],
    "best_return": ["x", []],
    "last_evaluation": [1, {}, {"returns": [], "lengths": []}, {"returns": ["a"], "lengths": [1]}],
    "rows": [[], {"metrics.csv": -1}],
    "summary": [3],
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in MANIFESTS.items() for value in values]
)
def test_a_manifest_that_no_run_saves_is_refused(last: Path, key: str, value: Any) -> None:
    manifest = json.loads((last / "manifest.json").read_text())
    (last / "manifest.json").write_text(json.dumps({**manifest, key: value}))
    reseal(last)
    assert f"{last}/manifest.json cannot be read (it" in refusal(last)


def test_nested_json_is_refused(last: Path) -> None:
    (last / "manifest.json").write_text('{"format": 3, "a": ' + "[" * 5000 + "]" * 5000 + "}")
    reseal(last)
    assert f"{last}/manifest.json cannot be read" in refusal(last)


def test_a_name_of_an_array_leads_nowhere_else(last: Path) -> None:
    folder = last / "memory" / "sampler"
    state = json.loads((folder / "state.json").read_text())
    state["files"]["../storage/rows-0-150"] = {"bytes": 1, "crc32": 1}
    del state["crc32"]
    (folder / "state.json").write_text(json.dumps(state))
    reseal(last)
    assert "is no name of an array" in refusal(last)


def test_a_checkpoint_without_checksums_is_of_an_earlier_version(last: Path) -> None:
    (last / CHECKSUMS).unlink()
    assert f"{last}/checksums.json is missing" in refusal(last)
    manifest = json.loads((last / "manifest.json").read_text())
    (last / "manifest.json").write_text(json.dumps({**manifest, "format": 2}))
    assert Parts(last).load(last)["env_steps"] == 150


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_a_link_in_the_place_of_a_checkpoint_is_replaced(
    last: Path, where: str, tmp_path: Path
) -> None:
    target = (last.parent if where == "inside" else tmp_path) / "elsewhere"
    for _ in range(3):
        if not last.is_symlink():
            if target.exists():
                shutil.rmtree(target)
            last.rename(target)
            last.symlink_to(target)
        kept = sorted(target.iterdir())
        Parts(last).train(20).save(last)
        assert not last.is_symlink()
        assert sorted(target.iterdir()) == kept
        Parts(last).load(last)
    assert not last.with_name("last.old").exists()


def test_a_kill_between_two_renames_loses_nothing_twice(
    last: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is left is `last.old`; the next save is killed just before it is in place."""
    last.rename(last.with_name("last.old"))
    replace = os.replace

    def killed(source: Any, target: Any) -> None:
        if Path(target) == last:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        Parts(last).train(20).save(last)
    found = find_checkpoint(last.parents[1])
    assert found == last.with_name("last.old")
    assert Parts(last).load(found)["env_steps"] == 150


def test_leftovers_that_are_links_lead_nowhere(last: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").touch()
    for name in ("last.new", "last.old"):
        last.with_name(name).symlink_to(tmp_path / "precious")
    Parts(last).train(20).save(last)
    assert (tmp_path / "precious/file").exists()
    assert {path.name for path in last.parent.iterdir()} == {"last", BEST}


def test_a_piece_that_a_disk_lost_is_written_again(tmp_path: Path) -> None:
    parts, last = Parts(tmp_path).train(150), tmp_path / "checkpoints" / "last"
    parts.save(last)
    flip(last / "memory/storage/rows-0-150.npy")
    parts.train(30).save(last)
    assert Parts(tmp_path).load(last)["env_steps"] == 180


def test_a_piece_that_changed_without_a_trace_is_found_as_well(tmp_path: Path) -> None:
    parts, last = Parts(tmp_path).train(150), tmp_path / "checkpoints" / "last"
    parts.save(last)
    path = last / "memory/storage/rows-0-150.npy"
    time = path.stat().st_mtime_ns
    flip(path)
    os.utime(path, ns=(time, time))
    parts.train(30).save(last)
    assert Parts(tmp_path).load(last)["env_steps"] == 180


def test_files_and_folders_are_on_the_disk_before_they_take_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync, replace = os.fsync, os.replace
    last = tmp_path / "checkpoints" / "last"

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    def check(source: Any, target: Any) -> None:
        if Path(source).name == "last.new":
            tables = {str(tmp_path / name) for name in ("metrics.csv", "episodes.csv")}
            assert tables <= set(synced)  # whose rows it counts
            paths = [Path(source), *Path(source).rglob("*")]
            assert [str(p) for p in paths if str(p) not in synced and p.name != "README.txt"] == []
        elif Path(source).is_dir():  # the parts of a memory, which are put in their places
            below = [name for name in synced if name.startswith(str(source))]
            synced.extend(name.replace(str(source), str(target)) for name in below)
        synced.append(f"-> {target}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "replace", check)
    parts = Parts(tmp_path)
    parts.recorder.open()
    parts.train(120).save(last)
    assert synced[-2:] == [f"-> {last}", str(last.parent)]


def test_a_checkpoint_without_its_manifest_is_no_reason_to_start_anew(last: Path) -> None:
    run_dir = last.parents[1]
    assert no_checkpoint(run_dir) is None
    (last / "manifest.json").unlink()
    assert str(last / "manifest.json") in str(no_checkpoint(run_dir))
    shutil.rmtree(last)
    assert no_checkpoint(run_dir) is None


# The best model.


def test_the_best_model_is_torchs_and_read_without_it(
    last: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, parts = last.with_name(BEST), Parts(last, "seed=5")
    content = torch.load(path, weights_only=True)
    assert (content["env_steps"], content["eval_return_mean"]) == (100, 1.0)
    monkeypatch.setattr(torch, "load", None)
    assert load_best(path, parts.agent) == 100
    for name, tensor in parts.agent.state_dict().items():
        assert torch.equal(tensor, content["state_dict"][name]), name


def test_a_best_model_of_a_pickle_alone_is_refused(last: Path) -> None:
    path, parts = last.with_name(BEST), Parts(last)
    torch.save({"state_dict": parts.agent.state_dict(), "env_steps": 1}, path)
    with pytest.raises(UserError, match="a pickle, which is not read; use checkpoint=last"):
        load_best(path, parts.agent)


def test_a_flipped_weight_of_the_best_model_is_found(last: Path) -> None:
    path, parts = last.with_name(BEST), Parts(last)
    flip(path)
    with pytest.raises(UserError, match=r"best\.ckpt cannot be loaded"):
        load_best(path, parts.agent)


# States.


def test_a_flipped_value_of_a_state_is_found(tmp_path: Path) -> None:
    save_state(tmp_path, {"count": 1234})
    path = tmp_path / "state.json"
    path.write_text(path.read_text().replace("1234", "1235"))
    with pytest.raises(ValueError, match=r"state\.json is damaged: its checksum is wrong"):
        load_state(tmp_path)
