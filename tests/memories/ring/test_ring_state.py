"""Saved ring storages: only what is new is written, what is damaged is named."""

import os
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import assert_close

from rlmem.errors import UserError
from rlmem.memories import FrameStorage, LatestSampler, ReplayMemory, RingWriter
from rlmem.memories.base.serialize import load_state
from rlmem.memories.ring import checkpoint, frame_file, ring
from rlmem.memories.ring.ring import RingStorage
from tests.memories.helpers import RandomEnvs
from tests.memories.ring.test_ring_storages import KINDS, make, options_of

FRAME = (1, 12, 12)


def everything(storage: RingStorage) -> Any:
    return storage.get(storage.newest(len(storage)))


def reloaded(storage: RingStorage, kind: str, folder: Path) -> RingStorage:
    fresh = make(kind, **options_of(storage))
    fresh.loads(folder)
    fresh.check_valid()
    return fresh


@pytest.mark.parametrize("kind", KINDS)
@given(
    steps=st.lists(st.integers(0, 90), min_size=1, max_size=6),
    capacity=st.sampled_from([20, 60, 400]),
    reload=st.integers(0, 5),
    piece=st.sampled_from([200, 5000, 2**25]),
    seed=st.integers(0, 999),
)
@settings(max_examples=25)
def test_every_save_of_a_chain_of_saves_is_whole(
    kind: str,
    steps: list[int],
    capacity: int,
    reload: int,
    piece: int,
    seed: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Saves build on one another, also after going on from one of them."""
    folder = tmp_path_factory.mktemp("saves")
    envs = RandomEnvs(np.random.default_rng(seed), FRAME, np.uint8, 3, 0.1, 0.1)
    storage = make(kind, capacity, FRAME, stack=4, num_envs=3, n_step=2)
    previous = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "PIECE", piece)
        for number, rows in enumerate(steps):
            if rows:
                storage.append(envs.block(rows, in_turn=False))
            storage.save(folder / str(number), previous)
            previous = folder / str(number)
            fresh = reloaded(storage, kind, previous)
            if len(storage):
                assert_close(everything(fresh), everything(storage), rtol=0, atol=0)
            if number == reload:
                storage = fresh


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_save_writes_what_is_new(kind: str, tmp_path: Path) -> None:
    envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2, 0.02, 0.1)
    storage = make(kind, 10_000, FRAME, stack=4, num_envs=2)
    storage.append(envs.block(8000))
    storage.save(tmp_path / "a")
    storage.append(envs.block(80))
    storage.save(tmp_path / "b", tmp_path / "a")
    files = list((tmp_path / "b").iterdir())
    fresh = sum(f.stat().st_size for f in files if f.stat().st_nlink == 1)
    linked = sum(f.stat().st_size for f in files if f.stat().st_nlink > 1)
    whole = sum(f.stat().st_size for f in (tmp_path / "a").iterdir())
    assert linked > 0.95 * whole
    assert fresh < 0.05 * whole + 10_000
    assert_close(everything(reloaded(storage, kind, tmp_path / "b")), everything(storage))


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_overwritten_leaves_the_later_saves(kind: str, tmp_path: Path) -> None:
    envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2, 0.02, 0.1)
    storage = make(kind, 300, FRAME, stack=4, num_envs=2)
    sizes = []
    for number in range(8):
        storage.append(envs.block(200))
        folder = tmp_path / str(number)
        storage.save(folder, tmp_path / str(number - 1) if number else None)
        sizes.append(sum(f.stat().st_size for f in folder.iterdir()))
    assert max(sizes[3:]) < 1.1 * sizes[3]


def test_a_folder_of_another_run_is_not_built_upon(tmp_path: Path) -> None:
    envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8)
    for name, rows in (("a", 100), ("b", 200)):
        storage = make("frames", 500, FRAME)
        storage.append(envs.block(rows))
        storage.save(tmp_path / name, tmp_path / "a" if name == "b" else None)
    assert all(f.stat().st_nlink == 1 for f in (tmp_path / "b").iterdir())
    assert_close(everything(reloaded(storage, "frames", tmp_path / "b")), everything(storage))


@pytest.fixture
def saved(tmp_path: Path) -> tuple[RingStorage, Path]:
    envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2, 0.02, 0.1)
    storage = make("compressed", 1000, FRAME, stack=4, num_envs=2)
    storage.append(envs.block(500))
    storage.save(tmp_path / "saved")
    return storage, tmp_path / "saved"


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 4
    file.write_bytes(content)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-10])


@pytest.mark.parametrize("how", [flip, cut, Path.unlink], ids=["flipped bit", "cut", "missing"])
def test_a_damaged_file_is_named(saved: tuple[RingStorage, Path], how: Any) -> None:
    storage, folder = saved
    names = [file.name for file in folder.glob("*.npy")]
    assert len(names) >= 8
    for name in names:
        content = (folder / name).read_bytes()
        how(folder / name)
        with pytest.raises(ValueError, match=name):
            make("compressed", **options_of(storage)).loads(folder)
        (folder / name).write_bytes(content)
    assert_close(everything(reloaded(storage, "compressed", folder)), everything(storage))


def test_a_save_onto_a_full_disk_leaves_the_previous_one_to_build_upon(
    saved: tuple[RingStorage, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, folder = saved
    envs = RandomEnvs(np.random.default_rng(1), FRAME, np.uint8, 2, 0.02, 0.1)
    before = everything(storage)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            storage.save(folder.with_name("next"), folder)
    assert_close(everything(reloaded(storage, "compressed", folder)), before)
    storage.append(envs.block(100))
    storage.save(folder.with_name("later"), folder)
    assert any(f.stat().st_nlink > 1 for f in folder.with_name("later").iterdir())
    later = reloaded(storage, "compressed", folder.with_name("later"))
    assert_close(everything(later), everything(storage))


def test_a_file_system_without_links_gets_copies(
    saved: tuple[RingStorage, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, folder = saved

    def refuse(*_: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    storage.save(folder.with_name("next"), folder)
    next_one = reloaded(storage, "compressed", folder.with_name("next"))
    assert_close(everything(next_one), everything(storage))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("onto_itself", [False, True])
def test_saves_into_one_folder_leave_the_last_state_alone(
    kind: str, onto_itself: bool, tmp_path: Path
) -> None:
    envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2, 0.02, 0.1)
    storage = make(kind, 200, FRAME, stack=4, num_envs=2)
    for _ in range(5):
        storage.append(envs.block(90))
        storage.save(tmp_path, tmp_path if onto_itself else None)
        assert_close(everything(reloaded(storage, kind, tmp_path)), everything(storage))
    files = {file.stem for file in tmp_path.glob("*.npy")}
    assert files == set(load_state(tmp_path).files)


def test_a_save_over_linked_files_leaves_the_other_state_as_it_was(
    saved: tuple[RingStorage, Path],
) -> None:
    storage, folder = saved
    storage.save(folder.with_name("linked"), folder)
    other = make("compressed", **options_of(storage))
    other.append(RandomEnvs(np.random.default_rng(1), FRAME, np.uint8, 2, 0.02, 0.1).block(500))
    other.dumps(folder.with_name("linked"))
    assert_close(everything(reloaded(storage, "compressed", folder)), everything(storage))


@pytest.mark.parametrize("how", [cut, Path.unlink], ids=["cut", "missing"])
def test_a_previous_folder_that_lost_files_is_not_built_upon(
    saved: tuple[RingStorage, Path], how: Any
) -> None:
    storage, folder = saved
    how(next(folder.glob("rows-*.npy")))
    storage.save(folder.with_name("next"), folder)
    following = reloaded(storage, "compressed", folder.with_name("next"))
    assert_close(everything(following), everything(storage))
    storage.save(folder.with_name("after"), folder / "state.json")  # no folder at all


@pytest.mark.parametrize("kind", ["dense", "frames"])
def test_a_state_of_another_kind_is_refused_before_anything_is_lost(
    saved: tuple[RingStorage, Path], kind: str
) -> None:
    storage, folder = saved
    other = make(kind, **options_of(storage))
    other.append(RandomEnvs(np.random.default_rng(1), FRAME, np.uint8, 2, 0.02, 0.1).block(50))
    before = everything(other)
    with pytest.raises(ValueError, match=f"of kind compressed, this one {kind}"):
        other.loads(folder)
    assert_close(everything(other), before)


def test_a_state_of_another_version_is_refused(saved: tuple[RingStorage, Path]) -> None:
    storage, _ = saved
    before = everything(storage)
    with pytest.raises(ValueError, match="of another version of rlmem"):
        storage.load_state_dict({**storage.state_dict(), "format": 1})
    assert_close(everything(storage), before)


def test_what_was_never_used_is_not_touched_by_loading_or_projecting() -> None:
    storage = make("compressed", 50_000_000, FRAME)
    storage.append(RandomEnvs(np.random.default_rng(0), FRAME, np.uint8).block(100))
    state = storage.state_dict()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    storage.load_state_dict(state)
    storage.projected_footprint()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert faults < 2000  # the table of chunks alone has 18,000 pages


def test_states_hold_plain_arrays_and_json(saved: tuple[RingStorage, Path]) -> None:
    state = load_state(saved[1])
    assert all(isinstance(state[name], np.ndarray | int | str | list) for name in state)


def test_a_directory_with_too_little_room_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Usage:
        free = 100_000

    monkeypatch.setattr(frame_file.shutil, "disk_usage", lambda _: Usage)
    with pytest.raises(UserError, match=r"memory\.storage\.directory=.*smaller memory\.capacity"):
        FrameStorage(1000, FRAME, directory=tmp_path)
    with pytest.raises(UserError, match=r"memory\.storage\.directory=.*smaller memory\.budget"):
        FrameStorage(1000, FRAME, directory=tmp_path, budget=150_000)


def test_a_file_takes_no_more_room_than_it_soon_needs(tmp_path: Path) -> None:
    storage = FrameStorage(2000, (1, 84, 84), directory=tmp_path)
    storage.append(RandomEnvs(np.random.default_rng(0), (1, 84, 84), np.uint8).block(20))
    assert storage._file is not None
    taken = 512 * os.fstat(storage._file._file.fileno()).st_blocks
    assert taken <= 2 * 2**20 < storage.projected_footprint()["frames_on_disk"] / 4


@pytest.mark.parametrize(
    ("mounted", "name"),
    [
        ({"/": "ext4"}, "frames_on_disk"),
        ({"/": "tmpfs", "{parent}": "ext4"}, "frames_on_disk"),
        ({"/": "ext4", "{parent}": "tmpfs"}, "frames"),
    ],
)
def test_frames_in_a_directory_that_is_memory_count_as_memory(
    mounted: dict[str, str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = [
        SimpleNamespace(mountpoint=place.format(parent=tmp_path), fstype=kind)
        for place, kind in mounted.items()
    ]
    monkeypatch.setattr(frame_file.psutil, "disk_partitions", lambda all: there)
    storage = FrameStorage(2000, FRAME, directory=tmp_path / "own")
    assert name in storage.projected_footprint()


def test_a_disk_that_fills_up_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(frame_file, "MOST_STEP", 2**16)
    storage = FrameStorage(10_000, FRAME, directory=tmp_path)
    envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8)

    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(frame_file.os, "posix_fallocate", full)
    storage.append(envs.block(200))
    before, later = everything(storage), envs.block(1000)
    with pytest.raises(UserError, match="no room for more frames"):
        storage.append(later)
    storage.check_valid()
    assert_close(everything(storage), before)


def test_a_disk_that_fills_up_behind_some_runs_of_a_block_leaves_none_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(frame_file, "MOST_STEP", 2**16)
    monkeypatch.setattr(ring, "MAX_ROWS", 200)
    storage = FrameStorage(10_000, FRAME, directory=tmp_path)
    memory = ReplayMemory(storage, LatestSampler(10_000, 2000), RingWriter(), seed=0)
    envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8)
    memory.extend(envs.block(100))
    left = [500]

    def full(_: int, start: int, size: int) -> None:
        left[0] -= size // storage._frames[0].nbytes
        if left[0] < 0:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(frame_file.os, "posix_fallocate", full)
    with pytest.raises(UserError, match="no room for more frames"):
        memory.extend(envs.block(1000))
    assert len(memory) == memory.transitions_seen == memory.available(1, 1) == 100
    memory.check_valid()


def test_a_state_for_which_a_disk_has_no_room_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(frame_file, "MOST_STEP", 2**16)
    storage, larger = (FrameStorage(10_000, FRAME, directory=tmp_path) for _ in range(2))
    envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8)
    storage.append(envs.block(200))
    larger.append(envs.block(1000))
    before, state = everything(storage), larger.state_dict()

    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(frame_file.os, "posix_fallocate", full)
    with pytest.raises(UserError, match="no room for more frames"):
        storage.load_state_dict(state)
    storage.check_valid()
    assert_close(everything(storage), before)


def test_the_file_of_the_frames_leaves_nothing_behind(tmp_path: Path) -> None:
    storage = FrameStorage(1000, FRAME, directory=tmp_path)
    storage.append(RandomEnvs(np.random.default_rng(0), FRAME, np.uint8).block(100))
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write there"):
        FrameStorage(1000, FRAME, directory=tmp_path / "file" / "below")


@pytest.mark.parametrize("rows", [50, 400])
@pytest.mark.parametrize("kind", KINDS)
def test_a_cleared_storage_builds_upon_no_earlier_save(
    kind: str, rows: int, tmp_path: Path
) -> None:
    envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 1, 0.02, 0.1)
    storage = make(kind, 1000, FRAME)
    storage.append(envs.block(300))
    storage.save(tmp_path / "a")
    storage.clear()
    storage.append(envs.block(rows))
    storage.save(tmp_path / "b", tmp_path / "a")
    fresh = reloaded(storage, kind, tmp_path / "b")
    assert_close(everything(fresh), everything(storage), rtol=0, atol=0)


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="a file system that is memory")
def test_a_file_in_memory_takes_what_is_told_and_gives_it_back() -> None:
    storage = FrameStorage(2000, (1, 84, 84), directory="/dev/shm")  # a container has 64 MiB
    assert storage._file is not None
    envs = RandomEnvs(np.random.default_rng(0), (1, 84, 84), np.uint8)

    def taken() -> int:
        assert storage._file is not None
        return 512 * os.fstat(storage._file._file.fileno()).st_blocks

    for _ in range(3):
        storage.append(envs.block(50))
        told = storage.footprint()["frames"]
        assert told <= taken() < told + 2**14
    storage.clear()
    assert taken() <= 2**14
    storage.append(envs.block(10))
    storage.check_valid()
