"""TorchRL's slice samplers beside a ring: steps in a row of one episode, or a refusal."""

from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torchrl.data import ReplayBuffer, SliceSampler, TensorDictReplayBuffer

from rlmem.memories import FrameStorage


def numbered(rows: int, ends: tuple[int, ...] = ()) -> TensorDict:
    """Steps whose reward is their number, with the ends of some episodes."""
    done = torch.zeros(rows, 1, dtype=torch.bool)
    done[list(ends)] = True
    seen = torch.arange(rows + 1.0)[:, None]
    after = {"observation": seen[1:], "reward": seen[:-1].clone(), "terminated": done}
    after |= {"truncated": torch.zeros_like(done), "done": done}
    action = torch.zeros(rows, dtype=torch.int64)
    return TensorDict({"observation": seen[:-1], "action": action, "next": after}, [rows])


def sliced(buffer_class: Any, **options: Any) -> Any:
    return buffer_class(
        storage=FrameStorage(100, (1,), np.float32, **options),
        sampler=SliceSampler(slice_len=4, end_key=("next", "done")),
        batch_size=32,
        collate_fn=lambda sample: sample,
    )


@pytest.mark.parametrize("buffer_class", [ReplayBuffer, TensorDictReplayBuffer])
def test_torchrls_slices_are_steps_in_a_row_of_one_episode(buffer_class: Any) -> None:
    """Of a ring that has turned: none goes from its newest step to its oldest."""
    buffer = sliced(buffer_class)
    buffer.extend(numbered(150, ends=(60, 77, 120)))
    for _ in range(100):
        sample = buffer.sample()
        assert sample.shape == (32,)
        number = sample["next", "reward"].view(-1, 4)
        assert (number.diff(dim=1) == 1).all()
        assert not sample["next", "terminated"].view(-1, 4)[:, :-1].any()


def test_slices_of_rows_that_are_no_steps_in_a_row_are_refused() -> None:
    for options in ({"num_envs": 2}, {"budget": 10_000}):
        buffer = sliced(ReplayBuffer, **options)
        rows = numbered(20)
        rows["env_id"] = torch.arange(20) % 2 if "num_envs" in options else torch.zeros(20).long()
        buffer.storage.append(rows)
        with pytest.raises(ValueError, match="use SequenceSampler"):
            buffer.sample()
