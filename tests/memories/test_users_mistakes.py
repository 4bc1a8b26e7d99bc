"""What a user of the parts gets wrong is refused in one line, and what is held stays as it was."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torchrl.data import RoundRobinWriter, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import RandomSampler
from torchrl.envs.transforms import RewardSum

from rlmem.errors import UserError
from rlmem.memories import (
    CombinedSampler,
    FrameStorage,
    GWRWriter,
    LatestSampler,
    MapOptions,
    MapStorage,
    NewestSampler,
    PrioritizedEdgeSampler,
    PrioritizedSampler,
    RandomEvictionWriter,
    RandomProjection,
    RankSampler,
    ReplayMemory,
    RingWriter,
    RuleSettings,
    SlotStorage,
    UniformEdgeSampler,
    UniformSampler,
    VisitSampler,
)
from rlmem.memories.base.serialize import load_state, where_saved
from rlmem.memories.gwr.rule import MetricSettings
from rlmem.memories.transforms.base import ReplayTransform
from tests.memories.gwr.maps import vector_map, walk_block
from tests.memories.helpers import run_measured, vector_block


def filled(sampler: Any, rows: int = 30, **options: Any) -> ReplayMemory:
    storage = FrameStorage(100, (4,), np.float32)
    memory = ReplayMemory(storage, sampler, RingWriter(), seed=0, **options)
    if rows:
        memory.extend(vector_block(rows))
    return memory


@pytest.mark.parametrize("make", [UniformSampler, CombinedSampler, lambda: PrioritizedSampler(100),
                                  lambda: RankSampler(100)])  # fmt: skip
@pytest.mark.parametrize(("size", "batches"), [(0, None), (8, 0), (-1, 1)])
def test_a_batch_of_nothing_is_refused(make: Any, size: int, batches: int | None) -> None:
    with pytest.raises(ValueError, match="each must be at least 1"):
        filled(make()).sample(size, batches)


def test_a_batch_of_a_half_is_refused() -> None:
    with pytest.raises(ValueError, match=r"batch_size=4\.5: a whole number is wanted"):
        filled(UniformSampler()).sample(9 / 2)  # pyright: ignore


@pytest.mark.parametrize("kind", [VisitSampler, UniformEdgeSampler, PrioritizedEdgeSampler])
def test_a_sampler_of_edges_wants_a_map(kind: Any) -> None:
    storage, sampler = filled(UniformSampler()).storage, kind()
    with pytest.raises(ValueError, match="draws from a MapStorage, not a FrameStorage; use Unifo"):
        ReplayMemory(storage, sampler, RingWriter(), seed=0)
    with pytest.raises(ValueError, match="draws from a MapStorage, not a FrameStorage"):
        sampler.sample(storage, 4)


def test_a_sampler_of_the_newest_wants_the_order_of_time_in_torchrls_buffer_too() -> None:
    storage = SlotStorage(100, (4,), np.float32)
    options = {"collate_fn": lambda sample: sample, "batch_size": 4}
    buffer = TensorDictReplayBuffer(storage=storage, sampler=NewestSampler(), **options)
    rows = vector_block(5)
    del rows["env_id"]
    with pytest.raises(UserError, match="NewestSampler draws by the order of time, which SlotSto"):
        buffer.extend(TensorDict(rows, [5]))
    assert len(buffer) == 0


def test_a_save_of_other_parts_says_what_to_load_it_into(tmp_path: Path) -> None:
    filled(UniformSampler()).save(tmp_path)
    memory = filled(PrioritizedSampler(100))
    with pytest.raises(UserError, match="lacks max_priority; load it into parts like those that"):
        memory.load(tmp_path)
    assert len(memory) == 30


def test_parts_of_torchrl_are_refused_when_the_memory_is_made() -> None:
    storage = FrameStorage(100, (4,), np.float32)
    with pytest.raises(TypeError, match="transforms: RewardSum is none of rlmem's, such as"):
        ReplayMemory(storage, UniformSampler(), RingWriter(), seed=0, transforms=[RewardSum()])  # pyright: ignore
    with pytest.raises(TypeError, match="RandomSampler is no ReplaySampler; use one of rlmem's"):
        ReplayMemory(storage, RandomSampler(), RingWriter(), seed=0)  # pyright: ignore
    with pytest.raises(TypeError, match=r"RoundRobinWriter is no ReplayWriter; .*RingWriter\(\)"):
        ReplayMemory(storage, UniformSampler(), RoundRobinWriter(), seed=0)


def test_a_budget_names_what_is_beside_an_empty_storage() -> None:
    with pytest.raises(UserError, match=r"^budget=3000: what is beside the storage takes \d+ byte"):
        ReplayMemory(FrameStorage(50, (4,), np.float32), Heavy(), RingWriter(), seed=0, budget=3000)


class Heavy(UniformSampler):
    """Holds arrays, and the number of draws as numpy counts."""

    drawn = np.int64(0)

    def footprint(self) -> dict[str, int]:
        return {"sampler": 4000}

    def state_views(self) -> dict[str, Any]:
        return {"drawn": self.drawn, "seen": torch.arange(3), "odd": getattr(self, "odd", None)}


def test_a_state_may_hold_what_numpy_and_torch_make_of_numbers(tmp_path: Path) -> None:
    memory = filled(Heavy())
    memory.save(tmp_path / "saved")
    state = load_state(where_saved(tmp_path / "saved", "sampler"))
    assert (state["drawn"], state["seen"].tolist()) == (0, [0, 1, 2])
    memory.sampler.odd = object()
    with pytest.raises(TypeError, match=r"^sampler: its state cannot be saved .*'odd': 'object'"):
        memory.save(tmp_path / "saved")


@pytest.mark.parametrize("make", [
    lambda: FrameStorage(1e3, (4,)),  # pyright: ignore[reportArgumentType]
    lambda: FrameStorage(10, (4,), stack=2.0),
    lambda: FrameStorage(10, (4,), n_step=2.5),
    lambda: FrameStorage(10, (4,), num_envs=True),
    lambda: SlotStorage(1e3, (4,)),  # pyright: ignore[reportArgumentType]
])  # fmt: skip
def test_a_size_that_is_no_whole_number_is_refused(make: Any) -> None:
    with pytest.raises(ValueError, match=r"=.*: a whole number is wanted"):
        make()


@pytest.mark.parametrize("kind", [PrioritizedSampler, RankSampler])
def test_priorities_of_what_was_cleared_are_forgotten(kind: Any) -> None:
    storage = FrameStorage(20_000, (4,), np.float32)
    memory = ReplayMemory(storage, kind(20_000), RingWriter(), seed=0)
    memory.extend(vector_block(20_000))
    storage.clear()
    memory.extend(vector_block(10))
    assert memory.sample(32)["index"].max() < 10


def test_the_newest_transitions_stay_within_a_budget() -> None:
    memory = filled(LatestSampler(32), 0, budget=20_000)
    memory.extend(vector_block(90))
    assert sum(memory.footprint().values()) <= 20_000


@pytest.mark.parametrize("dtype", [np.longdouble, np.complex64, ">f4", "U3", object])
def test_frames_of_a_dtype_that_is_not_held_are_refused(dtype: Any) -> None:
    with pytest.raises(ValueError, match=r"dtype=.*: use one such as uint8 or float32"):
        FrameStorage(20, (4,), dtype)


def test_an_action_that_is_no_number_is_refused_by_a_map(tmp_path: Path) -> None:
    storage, writer = vector_map(0.9, action_shape=(2,))
    block = walk_block(np.random.default_rng(0), 20, action_dims=2)
    block["action"][7, 1] = np.nan
    with pytest.raises(UserError, match="an action has values that are not finite"):
        writer.extend(block)
    assert storage.num_nodes == 0


def map_of(budget: int, *, pixels: bool = False) -> ReplayMemory:
    shape, dtype = ((4, 20, 20), np.uint8) if pixels else ((3,), np.float32)
    metric = MetricSettings(scale="auto" if pixels else 1.0)
    rule = RuleSettings(metric=metric)
    options = MapOptions(contexts=0, prototype="moving")
    storage = MapStorage(
        1000, shape, dtype, 8, num_actions=2, stack=4 if pixels else 1, options=options
    )
    projection = RandomProjection(shape, 8, stack=4 if pixels else 1)
    writer = GWRWriter(1.0, 1.0, embedding=projection, rule=rule)
    return ReplayMemory(storage, VisitSampler(), writer, seed=0, budget=budget)


def test_a_map_that_passes_the_budget_is_not_loaded(tmp_path: Path) -> None:
    memory = map_of(200_000)
    memory.extend(walk_block(np.random.default_rng(0), 900))
    memory.save(tmp_path)
    again, smaller = map_of(200_000), map_of(100_000)
    again.load(tmp_path)
    assert again.entries == memory.entries > 100
    with pytest.raises(UserError, match=r"memory\.budget: the saved map takes \d+ bytes of the"):
        smaller.load(tmp_path)
    assert smaller.entries == 0


def test_a_budget_holds_what_is_kept_until_the_scale_is_known() -> None:
    with pytest.raises(UserError, match=r"budget=300000: what is kept at first takes \d"):
        map_of(300_000, pixels=True)


CLEARED = """
import numpy as np, psutil
from rlmem.memories import {kind} as Storage
from tests.memories.helpers import RandomEnvs
def resident():
    return psutil.Process().memory_info().rss
frame = (1, 84, 84)
storage = Storage(4000, frame, stack=1, num_envs=2)
envs = RandomEnvs(np.random.default_rng(0), frame, np.uint8, 2)
block = envs.block(64)
for _ in range(2):  # what libraries take at their first use and keep (1.3 MB) is not the storage's
    before = resident()
    for _ in range(40):
        storage.append(block)
    grown, counted = resident() - before, sum(storage.footprint().values())
    storage.clear()
print(counted, grown, resident() - before, sum(storage.footprint().values()))
"""


@pytest.mark.parametrize("kind", ["FrameStorage", "DenseStorage", "CompressedFrameStorage"])
def test_what_is_cleared_goes_back_to_the_system(kind: str) -> None:
    counted, grown, left, after = map(int, run_measured(CLEARED.format(kind=kind)).split())
    assert counted > 5_000_000
    assert grown > 0.8 * counted  # of the second time: less if the first were still held
    assert left < 0.05 * counted
    assert after < 0.01 * counted


class Counting(ReplayTransform):
    """A transform as a user writes it, without a name."""


class Sampler(ReplayTransform):
    name = "sampler"


@pytest.mark.parametrize("transforms", [[Counting(), Counting()], [Sampler()]])
def test_transforms_that_a_saved_memory_could_not_tell_apart_are_refused(
    transforms: list[ReplayTransform],
) -> None:
    storage = FrameStorage(20, (4,), np.float32)
    with pytest.raises(ValueError, match="each needs a `name` of its own"):
        ReplayMemory(storage, UniformSampler(), RingWriter(), seed=0, transforms=transforms)


def test_a_transform_alone_needs_no_list() -> None:
    alone = Counting()
    memory = ReplayMemory(
        FrameStorage(20, (4,), np.float32), UniformSampler(), RingWriter(), seed=0, transforms=alone
    )
    assert memory.transforms == (alone,)


@pytest.mark.parametrize("reservoir", ["random", "reservoir", 1])
def test_a_reservoir_is_one_or_not(reservoir: Any) -> None:
    with pytest.raises(ValueError, match=f"reservoir={reservoir!r}: give True, or False for rando"):
        RandomEvictionWriter(reservoir)


def test_a_ring_is_not_evicted_from_at_random() -> None:
    storage = FrameStorage(20, (4,), np.float32)
    with pytest.raises(UserError, match="writes a SlotStorage, not a FrameStorage"):
        ReplayMemory(storage, UniformSampler(), RandomEvictionWriter(), seed=0)
