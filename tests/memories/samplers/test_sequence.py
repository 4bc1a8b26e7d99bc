"""Runs of transitions, against the order in which they were written."""

import numpy as np
import pytest
import torch

from rlmem.config import check, compose
from rlmem.errors import UserError
from rlmem.memories import DenseStorage, FrameStorage, ReplayMemory, RingWriter
from rlmem.memories.samplers.sequence import SequenceSampler
from tests.memories.gwr.maps import vector_map
from tests.memories.helpers import RandomEnvs


def filled(length: int, rows: int = 150, capacity: int = 60, num_envs: int = 2) -> ReplayMemory:
    storage = FrameStorage(capacity, (4,), np.float32, num_envs=num_envs)
    memory = ReplayMemory(storage, SequenceSampler(length), RingWriter(), seed=0)
    envs = RandomEnvs(np.random.default_rng(0), num_envs=num_envs, end=0.15)
    for _ in range(rows // 5):
        memory.extend(envs.block(5))
    return memory


def test_a_run_is_of_one_episode_in_the_order_of_time() -> None:
    memory = filled(6)
    batch = memory.draw(16, 4)
    assert batch["observation"].shape == (4, 16, 6, 4)
    assert batch["mask"].shape == batch["reward"].shape == (4, 16, 6, 1)
    mask = batch["mask"].squeeze(-1).bool()
    together = mask[..., 1:]  # a transition and the one before are both real
    following = batch["next_observation"][..., :-1, :][together]
    assert torch.equal(following, batch["observation"][..., 1:, :][together])
    done = (batch["terminated"] | batch["truncated"]).squeeze(-1)
    assert not done[..., :-1][together].any()
    assert mask[..., 0].all()
    assert (mask[..., :-1] | ~mask[..., 1:]).all()  # real ones first


def test_a_run_ends_early_only_where_its_episode_does_or_what_is_held_of_it() -> None:
    memory = filled(6)
    batch = memory.draw(64, 4)
    mask = batch["mask"].squeeze(-1).bool().flatten(0, 1)
    index, done = batch["index"].flatten(0, 1), (batch["terminated"] | batch["truncated"])
    done = done.squeeze(-1).flatten(0, 1)
    newest = set(memory.storage.arrays.chains["slot"].tolist())
    short = 0
    for run, real, ends in zip(index, mask, done, strict=True):
        last = int(real.sum()) - 1
        if last + 1 < len(run):
            short += 1
            assert ends[last] or int(run[last]) in newest
            assert (run[last:] == run[last]).all()
    assert 0 < short < len(index)


def test_runs_of_one_are_single_transitions() -> None:
    batch = filled(1).draw(8, 2)
    assert batch["mask"].min() == 1
    assert batch["observation"].shape == (2, 8, 1, 4)


def test_a_sample_has_the_runs_with_torchrls_keys() -> None:
    sample = filled(5).sample(8)
    assert sample.batch_size == (8, 5)
    assert sample["next", "reward"].shape == (8, 5, 1)


def test_only_rings_have_runs() -> None:
    storage = DenseStorage(10, (4,), np.float32)
    SequenceSampler(3).check_storage(storage)
    with pytest.raises(ValueError, match="from a ring, not from MapStorage"):
        SequenceSampler(3).check_storage(vector_map()[0])
    with pytest.raises(UserError, match="agent=dqn learns from single transitions"):
        check(compose("train", ["memory/sampler=sequence", "paths.output_dir=x"]))
    with pytest.raises(ValueError, match="length=0"):
        SequenceSampler(0)
