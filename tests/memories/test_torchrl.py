"""The parts inside TorchRL's own buffers, and the memories as a library of their own."""

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict, assert_close
from tensordict.nn import TensorDictModule
from torchrl.data import ReplayBuffer, TensorDictReplayBuffer
from torchrl.data.replay_buffers.writers import RoundRobinWriter
from torchrl.modules import QValueActor
from torchrl.objectives import DQNLoss

from rlmem.memories import (
    CombinedSampler,
    CompressedFrameStorage,
    DenseStorage,
    FrameStorage,
    GWRWriter,
    Identity,
    LatestSampler,
    MapStorage,
    MetricSettings,
    PrioritizedSampler,
    RandomEvictionWriter,
    RankSampler,
    RingWriter,
    RuleSettings,
    SlotStorage,
    UniformSampler,
    VisitSampler,
)
from rlmem.memories.ring import ring
from tests.memories.helpers import RandomEnvs, vector_block
from tests.memories.states import assert_equal

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
        storage=MapStorage(50, (4, 6, 6), np.uint8, 144, num_actions=2, stack=4),
        sampler=VisitSampler(),
        writer=GWRWriter(
            0.9,
            0.8,
            embedding=Identity((4, 6, 6), 1 / 255),
            rule=RuleSettings(metric=MetricSettings(scale=1.0)),
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


def drawn(buffer: Any, count: int = 20) -> list[Any]:
    """Samples, each followed by new priorities."""
    samples = []
    for _ in range(count):
        sample, info = buffer.sample(return_info=True)
        buffer.update_priority(info["index"], sample["next", "reward"].abs().reshape(-1))
        samples.append(sample.select("observation", "action", "next", "steps_to_next"))
    return samples


def assert_go_on_alike(buffer: Any, twin: Any) -> None:
    for seed in (None, 7, 8):
        if seed is not None:
            for each in (buffer, twin):
                each.extend(block(25, seed))
        buffer.storage.check_valid()
        buffer.sampler.check_valid()
        for own, expected in zip(drawn(buffer), drawn(twin), strict=True):
            assert_close(own, expected, rtol=0, atol=0)


def ring_of(kind: str, writer: Any) -> Callable:
    return lambda buffer_class: ring_buffer(buffer_class, kind, writer())


BUFFERS = {
    **{f"{kind}, RingWriter": ring_of(kind, RingWriter) for kind in SAMPLERS},
    "uniform, RoundRobinWriter": ring_of("uniform", RoundRobinWriter),
    "prioritized, RoundRobinWriter": ring_of("prioritized", RoundRobinWriter),
    "map": lambda buffer_class: map_buffer(buffer_class),
}
del BUFFERS["latest, RingWriter"]  # which has not as many batches


@each_buffer
@pytest.mark.parametrize("kind", BUFFERS)
def test_a_buffers_own_state_changes_nothing(buffer_class: Any, kind: str) -> None:
    buffer, twin = (BUFFERS[kind](buffer_class) for _ in range(2))
    buffer.load_state_dict(buffer.state_dict())
    assert_go_on_alike(buffer, twin)


@each_buffer
@pytest.mark.parametrize("kind", BUFFERS)
def test_a_buffers_state_can_be_kept_while_it_goes_on(buffer_class: Any, kind: str) -> None:
    buffer, twin = (BUFFERS[kind](buffer_class) for _ in range(2))
    state = buffer.state_dict()
    kept = copy.deepcopy(state)
    for seed in range(3):
        buffer.extend(block(25, seed))
        drawn(buffer, 3)
    for part in ("_storage", "_sampler", "_writer"):
        assert_equal(dict(state[part]), dict(kept[part]), part)
    buffer.load_state_dict(state)
    assert_go_on_alike(buffer, twin)


def as_it_is(sample: Any) -> Any:
    return sample


@each_buffer
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_a_copied_buffer_goes_on_as_the_buffer(buffer_class: Any, copied: Callable) -> None:
    storage = CompressedFrameStorage(CAPACITY, FRAME, stack=4)
    options = {"sampler": PrioritizedSampler(CAPACITY), "writer": RingWriter(), "batch_size": 8}
    buffer = buffer_class(storage=storage, collate_fn=as_it_is, **options)
    buffer.extend(block(50))
    other = copied(buffer)
    for each in (buffer, other):  # TorchRL leaves the generator out of a copy
        each.set_rng(torch.Generator().manual_seed(3))
    assert_go_on_alike(other, buffer)


@pytest.mark.parametrize("storage_class", [FrameStorage, DenseStorage, CompressedFrameStorage])
def test_the_sampler_of_torchrl_draws_of_a_ring_under_a_budget(storage_class: Any) -> None:
    storage = storage_class(100_000, (4,), np.float32, budget=200_000)
    buffer = TensorDictReplayBuffer(
        storage=storage, writer=RingWriter(), collate_fn=as_it_is, batch_size=32
    )
    envs = RandomEnvs(np.random.default_rng(0))
    for rows in range(10, 210):
        raw = envs.block(rows)
        raw.pop("env_id")
        buffer.extend(TensorDict(raw, batch_size=[rows]))
        assert len(buffer.sample()) == 32
    assert len(buffer) < 20_000


def test_what_a_buffer_holds_cannot_be_changed_in_place() -> None:
    """TorchRL's methods change what a storage gives, which here is a copy."""
    buffer = ring_buffer(ReplayBuffer, "uniform")
    before = buffer[:].clone()
    for change in (
        lambda: buffer.set_at_(("next", "reward"), torch.zeros(2, 1), [1, 2]),
        lambda: buffer.set_(("next", "reward"), torch.zeros(CAPACITY, 1)),
        lambda: buffer.update_({("next", "reward"): torch.zeros(CAPACITY, 1)}),
    ):
        with pytest.raises(NotImplementedError, match="cannot be changed in place"):
            change()
    assert_close(buffer[:], before)


@each_buffer
def test_an_emptied_buffer_fills_again(buffer_class: Any) -> None:
    buffer = ring_buffer(buffer_class, "prioritized")
    buffer.empty()
    assert len(buffer) == 0
    buffer.extend(block(30))
    buffer.storage.check_valid()
    _, info = buffer.sample(100, return_info=True)
    assert int(torch.as_tensor(info["index"]).max()) < 30


@pytest.mark.parametrize("kind", ["slots", "map"])
def test_what_an_emptied_storage_took_goes_back_to_the_system(kind: str) -> None:
    """Pages that were given back are zeros."""
    if kind == "slots":
        storage, sampler = SlotStorage(20_000, (64,), np.float32), PrioritizedSampler(20_000)
        writer: Any = RandomEvictionWriter()
    else:
        storage, sampler = MapStorage(20_000, (64,), np.float32, 64, num_actions=2), VisitSampler()
        writer = GWRWriter(0.9, 1.0, embedding=Identity((64,)))
    buffer = ReplayBuffer(storage=storage, sampler=sampler, writer=writer, collate_fn=as_it_is)
    envs = RandomEnvs(np.random.default_rng(0), (64,), np.float32)
    buffer.extend(envs.block(2000))
    large = "arrays" if kind == "map" else "_columns"
    held = getattr(storage, large)
    arrays = list(held if kind == "map" else held.values())
    assert sum(a.any() for a in arrays if a.nbytes >= 2**20) >= 2
    buffer.empty()
    assert not any(a.any() for a in arrays if a.nbytes >= 2**20)
    buffer.extend(envs.block(100))
    storage.check_valid()
    assert len(buffer) > 10


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


@pytest.mark.parametrize("n_step", [1, 3])
def test_torchrls_loss_discounts_the_value_behind_a_return_by_its_steps(n_step: int) -> None:
    gamma, value = 0.5, 10.0
    layer = torch.nn.Linear(4, 2)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.constant_(layer.bias, value)
    network = TensorDictModule(layer, ["observation"], ["action_value"])
    loss = DQNLoss(QValueActor(network, action_space="categorical"), action_space="categorical")
    loss.make_value_estimator(gamma=gamma)
    buffer = TensorDictReplayBuffer(
        storage=FrameStorage(CAPACITY, (4,), np.float32, n_step=n_step, gamma=gamma),
        writer=RingWriter(),
        batch_size=20,
        collate_fn=as_it_is,
    )
    buffer.extend(TensorDict(vector_block(40), [40]))
    batch = buffer.sample()
    steps, ended = batch["steps_to_next"], batch["next", "terminated"].float()
    target = batch["next", "reward"] + gamma**steps * (1 - ended) * value
    found = loss.value_estimator.value_estimate(
        batch, target_params=loss.target_value_network_params
    )
    torch.testing.assert_close(found, target)


@pytest.mark.parametrize("kind", ["prioritized", "rank", "latest"])
@each_buffer
def test_what_a_budget_evicted_is_not_drawn(
    buffer_class: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, many = 32, 1000
    monkeypatch.setattr(ring, "MOST_EVICTED", most)
    samplers = {"prioritized": PrioritizedSampler, "rank": RankSampler, "latest": LatestSampler}
    storage = FrameStorage(many, FRAME, budget=8_000)
    buffer = buffer_class(
        storage=storage,
        sampler=samplers[kind](many),
        writer=RingWriter(),
        batch_size=8,
        collate_fn=as_it_is,
    )
    for seed in range(60):
        buffer.extend(block(8, seed))
        buffer.sample()
    assert len(storage) < 300
    for seed in range(80):  # nobody asks what was evicted
        buffer.extend(block(8, seed))
        assert len(storage._evicted) <= most
    assert sum(slots.nbytes for slots in storage._evicted) <= many * 8 + most * 8 * 8
    buffer.sample()
    assert not storage._evicted


@pytest.mark.parametrize("kind", [PrioritizedSampler, RankSampler])
def test_priorities_that_come_a_draw_late_bring_nothing_back(kind: Any) -> None:
    """As with TorchRL's prefetching: some slots were evicted meanwhile."""
    buffer = TensorDictReplayBuffer(
        storage=FrameStorage(1000, FRAME, budget=8_000),
        sampler=kind(1000),
        writer=RingWriter(),
        batch_size=32,
        collate_fn=as_it_is,
    )
    before = None
    for seed in range(200):
        buffer.extend(block(8, seed))
        drawn_now = buffer.sample()
        if before is not None:
            buffer.update_priority(before["index"], torch.rand(32) * 10)
        before = drawn_now
    assert len(buffer._storage) < 300


def test_the_memories_import_neither_trainer_nor_config_nor_logger() -> None:
    code = (
        "import sys, rlmem.memories; "
        "print([m for m in ('lightning', 'hydra', 'omegaconf', 'wandb') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
