"""What users give a memory of their own: numpy's numbers, columns, defaults of torch."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torchrl.data import TensorDictReplayBuffer

from rlmem.errors import UserError
from rlmem.memories import (
    FrameStorage,
    PrioritizedSampler,
    RankSampler,
    SlotStorage,
    UniformSampler,
)
from rlmem.memories.samplers.sequence import SequenceSampler
from rlmem.memories.transforms.consolidation import BoundedStates
from rlmem.memories.transforms.hindsight import HindsightTransform
from tests.memories.given import block, memory_of


def test_sizes_of_numpy_are_saved(tmp_path: Path) -> None:
    four, hundred = np.prod(np.array([4])), np.int64(100)
    options = {"stack": np.int64(1), "chunk": np.int64(8), "n_step": np.int64(2)}
    storage = FrameStorage(hundred, (four,), np.float32, **options)
    memory = memory_of(storage, PrioritizedSampler(hundred))
    memory.extend(block(9))
    memory.save(tmp_path / "saved")
    again = memory_of(
        FrameStorage(100, (4,), np.float32, chunk=8, n_step=2), PrioritizedSampler(100)
    )
    again.load(tmp_path / "saved")
    assert len(again) == 9


def test_a_column_that_nobody_asks_for_is_not_lost_without_a_word(tmp_path: Path) -> None:
    memory = memory_of(FrameStorage(20, (4,), np.float32, columns={"logp": ((), np.float32)}))
    memory.extend(block(5, logp=np.ones(5, np.float32)))
    memory.save(tmp_path / "saved")
    with pytest.raises(ValueError, match="the saved memory has a column logp, which this one has"):
        memory_of(FrameStorage(20, (4,), np.float32)).load(tmp_path / "saved")


def test_bounds_that_saw_nothing_give_no_states() -> None:
    with pytest.raises(RuntimeError, match="BoundedStates has seen no observation"):
        BoundedStates((4,), np.float32).draw(3, torch.Generator())


def test_nothing_is_written_in_place_into_slots() -> None:
    storage = SlotStorage(20, (4,), np.float32)
    with pytest.raises(ValueError, match="SlotStorage is written by extend alone, not in place"):
        storage.set(0, block(1), set_cursor=False)


def test_slices_of_longer_returns_are_refused() -> None:
    storage = FrameStorage(20, (4,), np.float32, n_step=3)
    storage.append(block(9))
    with pytest.raises(ValueError, match="n_step above 1 end where episodes do not"):
        _ = storage._last_cursor_index


def test_a_single_transition_may_have_a_vector_column() -> None:
    storage = FrameStorage(20, (4,), np.float32, columns={"h": ((3,), np.float32)})
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=8, collate_fn=lambda x: x)
    rows = TensorDict(block(5, h=np.arange(15, dtype=np.float32).reshape(5, 3)), [5])
    buffer.extend(rows)
    buffer.add(rows[0])
    assert len(storage) == 6


def test_a_column_of_as_many_numbers_in_another_shape_is_refused() -> None:
    storage = FrameStorage(20, (4,), np.float32, columns={"h": ((2, 3), np.float32)})
    with pytest.raises(ValueError, match=r"^h of shape \(5, 3, 2\) was given, not \(5, 2, 3\)"):
        storage.append(block(5, h=np.zeros((5, 3, 2), np.float32)))


@pytest.fixture
def other_defaults() -> Iterator[None]:
    """As a notebook may set them; nothing can be made on the device `meta`."""
    torch.set_default_device("meta")
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("other_defaults")
@pytest.mark.parametrize("sampler", [UniformSampler(), PrioritizedSampler(50), RankSampler(50)])
def test_draws_do_not_hang_on_the_defaults_of_torch(sampler: Any) -> None:
    memory = memory_of(FrameStorage(50, (4,), np.float32), sampler)
    memory.extend(block(30))
    sample = memory.sample(8)
    assert {sample[key].device.type for key in ("observation", "index", "weight")} == {"cpu"}
    assert sample["weight"].dtype == torch.float32
    assert memory.draw(8, 2)["weight"].dtype == torch.float32


def test_a_fork_does_not_write_over_frames_in_a_file(tmp_path: Path) -> None:
    storage = FrameStorage(64, (4,), np.float32, directory=tmp_path)
    storage.append(block(60))
    before = storage.get(slice(None))["observation"].clone()
    child = os.fork()
    if child == 0:  # nothing of pytest's is to run there
        try:
            storage.append(block(60))
        except UserError as error:
            os._exit(7 if "a forked process shares the file" in str(error) else 1)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert torch.equal(storage.get(slice(None))["observation"], before)


def test_the_mask_of_sequences_multiplies_rewards_in_torchrl() -> None:
    storage = FrameStorage(50, (4,), np.float32)
    buffer = TensorDictReplayBuffer(
        storage=storage, sampler=SequenceSampler(4), batch_size=4, collate_fn=lambda x: x
    )
    buffer.extend(TensorDict(block(30), [30]))
    sample = buffer.sample()
    assert sample["mask"].shape == sample["next", "reward"].shape


def test_hindsight_asks_for_what_each_block_has() -> None:
    storage = FrameStorage(20, (4,), np.float32)

    def rule(*_: Any) -> np.ndarray:
        raise AssertionError("nothing is drawn")

    goals = HindsightTransform(20, 2, rule, rule)
    memory = memory_of(storage, transforms=[goals])
    filled = FrameStorage(20, (4,), np.float32)
    filled.append(block(3))
    with pytest.raises(ValueError, match=r"^the storage holds 3 transitions, of whose goals"):
        memory_of(filled, transforms=[HindsightTransform(20, 2, rule, rule)])
    given = block(3)
    given["next"]["achieved_goal"] = np.zeros((3, 2), np.float32)
    del given["next"]["terminated"]
    with pytest.raises(ValueError, match=r"^a block without next.terminated"):
        memory.extend(given)


@pytest.mark.parametrize("dtype", [np.int64, np.float64, np.bool_])
def test_bounds_are_of_dtypes_that_can_be_drawn(dtype: Any) -> None:
    with pytest.raises(ValueError, match="drawn as float32 or uint8"):
        BoundedStates((4,), dtype)
