"""The parts inside TorchRL's own buffers, and the memories as a library of their own."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict, assert_close
from torchrl.data import ReplayBuffer, TensorDictReplayBuffer
from torchrl.data.replay_buffers.writers import RoundRobinWriter

from rlmem.memories import (
    CombinedSampler,
    FrameStorage,
    GWRWriter,
    Identity,
    LatestSampler,
    MapStorage,
    PrioritizedSampler,
    RankSampler,
    RingWriter,
    UniformSampler,
    VisitSampler,
)
from tests.memories.helpers import RandomEnvs

CAPACITY, FRAME = 60, (1, 6, 6)
SAMPLERS: dict[str, Callable] = {
    "uniform": UniformSampler,
    "combined": CombinedSampler,
    "latest": lambda: LatestSampler(16),
    "prioritized": lambda: PrioritizedSampler(CAPACITY),
    "rank": lambda: RankSampler(CAPACITY),
}
each_sampler = pytest.mark.parametrize("kind", SAMPLERS)
each_buffer = pytest.mark.parametrize("buffer_class", [ReplayBuffer, TensorDictReplayBuffer])


def block(rows: int, seed: int = 0) -> TensorDict:
    raw = RandomEnvs(np.random.default_rng(seed), FRAME, np.uint8).block(rows)
    raw.pop("env_id")
    return TensorDict(raw, batch_size=[rows])


def ring_buffer(buffer_class: Any, kind: str, writer: Any = None, seed: int = 0) -> Any:
    buffer = buffer_class(
        storage=FrameStorage(CAPACITY, FRAME, stack=4),
        sampler=SAMPLERS[kind](),
        writer=writer or RingWriter(),
        batch_size=8,
        collate_fn=lambda sample: sample,  # TorchRL knows none for storages that are not its own
        generator=torch.Generator().manual_seed(seed),
    )
    buffer.extend(block(20))
    buffer.extend(block(64))
    return buffer


def map_buffer(buffer_class: Any, seed: int = 0) -> Any:
    buffer = buffer_class(
        storage=MapStorage(50, (4, 6, 6), np.uint8, 144, num_actions=2),
        sampler=VisitSampler(),
        writer=GWRWriter(
            0.9,
            0.8,
            stack=4,
            num_envs=1,
            embedding=Identity((4, 6, 6), 1 / 255),
            metric_scale=1.0,
        ),
        batch_size=8,
        collate_fn=lambda sample: sample,  # TorchRL knows none for storages that are not its own
        generator=torch.Generator().manual_seed(seed),
    )
    buffer.extend(block(40))
    return buffer


@each_buffer
@each_sampler
@pytest.mark.parametrize("writer", [RingWriter, RoundRobinWriter])
def test_a_buffer_gives_restacked_transitions(
    buffer_class: Any, kind: str, writer: Callable
) -> None:
    buffer = ring_buffer(buffer_class, kind, writer())
    assert len(buffer) == CAPACITY
    sample = buffer.sample()
    assert sample["observation"].shape == sample["next", "observation"].shape == (8, 4, 6, 6)
    assert sample["observation"].dtype == torch.uint8
    assert sample["next", "reward"].shape == (8, 1)


@each_buffer
@each_sampler
def test_what_a_buffer_draws_is_what_its_storage_holds(buffer_class: Any, kind: str) -> None:
    buffer = ring_buffer(buffer_class, kind)
    sample, info = buffer.sample(return_info=True)
    assert_close(
        sample.select("observation", "action", "next"),
        buffer[info["index"]].select("observation", "action", "next"),
        rtol=0,
        atol=0,
    )


@each_sampler
def test_a_single_transition_is_added(kind: str) -> None:
    buffer = ring_buffer(TensorDictReplayBuffer, kind)
    buffer.add(block(1)[0])
    assert len(buffer) == CAPACITY
    buffer.sample()


@pytest.mark.parametrize("kind", ["prioritized", "rank"])
def test_a_plain_buffer_sends_priorities_to_the_sampler(kind: str) -> None:
    buffer = ring_buffer(ReplayBuffer, kind)
    everything = torch.arange(CAPACITY)
    buffer.update_priority(everything, torch.full((CAPACITY,), 1e-9))
    buffer.update_priority(7, 1e9)
    _, info = buffer.sample(400, return_info=True)
    assert np.bincount(info["index"].numpy(), minlength=CAPACITY).argmax() == 7
    assert info["priority_weight"].shape == (400,)


@pytest.mark.parametrize("kind", ["prioritized", "rank"])
def test_a_tensordict_buffer_sends_td_errors_to_the_sampler(kind: str) -> None:
    buffer = ring_buffer(TensorDictReplayBuffer, kind)
    sample = buffer.sample()
    assert sample["priority_weight"].shape[0] == 8
    sample["td_error"] = torch.full((8, 1), 123.0)
    buffer.update_tensordict_priority(sample)
    assert buffer.sampler.default_priority == 123.0
    buffer.sampler.check_valid()


@each_buffer
@each_sampler
def test_a_dumped_buffer_draws_the_same_once_loaded(
    buffer_class: Any, kind: str, tmp_path: Path
) -> None:
    buffer, other = ring_buffer(buffer_class, kind), ring_buffer(buffer_class, kind)
    buffer.extend(block(30, seed=5))
    buffer.dumps(tmp_path)
    other.loads(tmp_path)
    draws = []
    for each in (buffer, other):
        each.set_rng(torch.Generator().manual_seed(3))
        draws.append(each.sample().select("observation", "action", "next"))
    assert_close(*draws, rtol=0, atol=0)
    other.extend(block(10, seed=6))
    other.storage.check_valid()


@each_buffer
def test_an_emptied_buffer_fills_again(buffer_class: Any) -> None:
    buffer = ring_buffer(buffer_class, "prioritized")
    buffer.empty()
    assert len(buffer) == 0
    buffer.extend(block(30))
    buffer.storage.check_valid()
    _, info = buffer.sample(100, return_info=True)
    assert int(torch.as_tensor(info["index"]).max()) < 30


@each_buffer
def test_a_map_of_gwr_gives_transitions(buffer_class: Any) -> None:
    buffer = map_buffer(buffer_class)
    sample = buffer.sample()
    assert sample["observation"].shape == sample["next", "observation"].shape == (8, 4, 6, 6)
    assert 0 < buffer.storage.num_nodes <= 50
    buffer.storage.check_valid()


@each_buffer
def test_a_dumped_map_draws_the_same_once_loaded(buffer_class: Any, tmp_path: Path) -> None:
    buffer, other = map_buffer(buffer_class), map_buffer(buffer_class)
    buffer.extend(block(30, seed=5))
    buffer.sample()
    buffer.dumps(tmp_path)
    other.loads(tmp_path)
    draws = []
    for each in (buffer, other):
        each.set_rng(torch.Generator().manual_seed(3))
        draws.append(each.sample().select("observation", "action", "next"))
    assert_close(*draws, rtol=0, atol=0)


def test_the_memories_import_neither_trainer_nor_config_nor_logger() -> None:
    code = (
        "import sys, rlmem.memories; "
        "print([m for m in ('lightning', 'hydra', 'omegaconf', 'wandb') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
