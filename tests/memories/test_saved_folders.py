"""What a save leaves of what was in its folder."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchrl.data import ReplayBuffer
from torchrl.data.replay_buffers.writers import RoundRobinWriter

from rlmem.errors import UserError
from rlmem.memories import (
    FrameStorage,
    PrioritizedSampler,
    ReplayMemory,
    RingWriter,
    SlotStorage,
)
from tests.memories.helpers import RandomEnvs


def memory_of(rows: int) -> ReplayMemory:
    storage = FrameStorage(50, (4,), np.float32)
    memory = ReplayMemory(storage, PrioritizedSampler(50), RingWriter(), seed=0)
    if rows:
        envs = RandomEnvs(np.random.default_rng(0), (4,), np.float32, 1, 0.1, 1.0)
        memory.extend(envs.block(rows))
    return memory


@pytest.mark.parametrize("part", [FrameStorage(50, (4,), np.float32), PrioritizedSampler(50)])
def test_a_part_leaves_a_users_arrays_in_its_folder(part: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "expert_returns.npy", np.ones(3))
    part.dumps(tmp_path)
    part.dumps(tmp_path)
    assert np.load(tmp_path / "expert_returns.npy").tolist() == [1, 1, 1]


def test_a_state_removes_what_the_one_before_it_had_beside(tmp_path: Path) -> None:
    full, empty = memory_of(rows=20).storage, memory_of(rows=0).storage
    held = []
    for storage in (full, empty):
        storage.dumps(tmp_path)
        held.append({path.name for path in tmp_path.iterdir()})
    empty.loads(tmp_path)
    assert held[1] < held[0]


def test_two_parts_are_not_saved_into_one_folder(tmp_path: Path) -> None:
    memory = memory_of(rows=20)
    memory.storage.dumps(tmp_path)
    with pytest.raises(UserError, match="holds another part's state") as refused:
        memory.sampler.dumps(tmp_path)
    assert "\n" not in str(refused.value)
    again = memory_of(rows=0)
    again.storage.loads(tmp_path)
    assert len(again) == 20


@pytest.mark.parametrize("name", ["storage", "sampler", "writer", "memory"])
@pytest.mark.parametrize("saved_before", [False, True])
def test_a_memory_leaves_what_is_in_its_way(name: str, saved_before: bool, tmp_path: Path) -> None:
    memory = memory_of(rows=20)
    if saved_before:
        memory.save(tmp_path)
    (tmp_path / name).mkdir(exist_ok=True)
    (tmp_path / name / "thesis.tex").write_text("x")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=f"{name} is in the way"):
        memory.save(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before
    if saved_before:
        memory_of(rows=0).load(tmp_path)


def test_a_memory_in_a_folder_called_memory_stays_when_another_is_saved_beside(
    tmp_path: Path,
) -> None:
    memory = memory_of(rows=20)
    memory.save(tmp_path / "memory")
    with pytest.raises(UserError, match="memory is in the way"):
        memory.save(tmp_path)
    memory.save(tmp_path / "memory")
    again = memory_of(rows=0)
    again.load(tmp_path / "memory")
    assert len(again) == 20


def test_a_file_is_no_place_for_a_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="file is a file"):
        memory_of(rows=20).save(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "x"


def test_a_full_buffer_of_torchrls_writer_loads_into_a_larger_one_of_ours(tmp_path: Path) -> None:
    def buffer(capacity: int, writer: Any) -> ReplayBuffer:
        storage = FrameStorage(capacity, (4,), np.float32)
        return ReplayBuffer(
            storage=storage,
            sampler=PrioritizedSampler(capacity),
            writer=writer,
            batch_size=8,
            collate_fn=lambda sample: sample,
        )

    envs = RandomEnvs(np.random.default_rng(0), (4,), np.float32, 1, 0.1, 1.0)
    full, larger = buffer(30, RoundRobinWriter()), buffer(50, RingWriter())
    full.extend(envs.block(30))
    full.dumps(tmp_path)
    larger.loads(tmp_path)
    larger.extend(envs.block(10))
    assert (len(larger), larger.write_count) == (40, 40)
    larger.storage.check_valid()


def test_dtypes_may_be_torchs() -> None:
    for kind in (FrameStorage, SlotStorage):
        storage = kind(50, (4,), torch.float16, action_dtype=torch.float32)
        assert (storage.dtype, storage.actions.dtype) == (np.float16, np.float32)
        for given in ({"dtype": "float33"}, {"action_dtype": torch.bfloat16}):
            with pytest.raises(ValueError, match=rf"{next(iter(given))}=\S+: use one such as"):
                kind(50, (4,), **given)
    columns = {"logits": ((2,), torch.float32)}
    assert FrameStorage(50, (4,), np.uint8, columns=columns).columns["logits"].dtype == np.float32


def test_the_end_of_beta_is_looked_at_when_a_sampler_is_made() -> None:
    with pytest.raises(ValueError, match="beta_end=-1"):
        PrioritizedSampler(10, beta_end=-1)


@pytest.mark.parametrize("part", ["sampler", "storage"])
def test_a_part_of_another_memory_is_refused(part: str, tmp_path: Path) -> None:
    memory_of(rows=40).save(tmp_path / "one")
    memory_of(rows=20).save(tmp_path / "two")
    shutil.rmtree(tmp_path / "one" / part)
    shutil.copytree(tmp_path / "two" / part, tmp_path / "one" / part)
    loaded = memory_of(rows=5)
    with pytest.raises(ValueError, match=f"one/{part} was not saved together with the others"):
        loaded.load(tmp_path / "one")
    assert len(loaded) == 5
    loaded.check_valid()


def test_a_save_without_marks_loads(tmp_path: Path) -> None:
    """As earlier versions wrote them."""
    memory_of(rows=40).save(tmp_path)
    path = tmp_path / "memory" / "state.json"
    values = json.loads(path.read_text())
    del values["parts"], values["crc32"]
    path.write_text(json.dumps(values))
    loaded = memory_of(rows=0)
    loaded.load(tmp_path)
    assert len(loaded) == 40
