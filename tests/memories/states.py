"""Small memories of every kind, how they are fed and compared, and the states of their parts."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from rlmem.memories import (
    BoundedStates,
    CombinedSampler,
    Consolidation,
    LatestSampler,
    NewestSampler,
    PrioritizedEdgeSampler,
    PrioritizedSampler,
    RandomEvictionWriter,
    RankSampler,
    ReplayMemory,
    RingWriter,
    SlotStorage,
    StoredStates,
    UniformEdgeSampler,
    UniformSampler,
    VisitSampler,
)
from tests.memories.gwr.maps import image_block, image_map, vector_map, walk_block
from tests.memories.helpers import RandomEnvs
from tests.memories.ring.test_ring_storages import make
from tests.memories.transforms.goals import GoalEnvs, hindsight_memory

FRAME, CAPACITY, BATCH = (1, 6, 6), 60, 8
SAMPLERS: dict[str, Callable[[], Any]] = {
    "uniform": UniformSampler,
    "combined": CombinedSampler,
    "newest": NewestSampler,
    "latest": lambda: LatestSampler(3 * BATCH),
    "prioritized": lambda: PrioritizedSampler(CAPACITY),
    "rank": lambda: RankSampler(CAPACITY, sort_every=50),
}
BUDGETS = {"dense": 12_000, "frames": 6_000, "memmap": 6_000, "compressed": 38_000}
EDGE_SAMPLERS = {
    "visits": VisitSampler,
    "edges alike": UniformEdgeSampler,
    "edges by priority": PrioritizedEdgeSampler,
}
Blocks = Callable[[np.random.Generator, int], dict[str, Any]]  # rng, rows -> block
Case = tuple[Callable[[], ReplayMemory], Blocks]


def _ring(kind: str, sampler: str) -> ReplayMemory:
    storage = make(kind, CAPACITY, FRAME, stack=3, num_envs=2, n_step=2)
    return ReplayMemory(storage, SAMPLERS[sampler](), RingWriter(), seed=0)


def limited(kind: str, budget: int) -> ReplayMemory:
    """A ring of at most 1,000 transitions and so many bytes."""
    storage = make(kind, 1000, FRAME, stack=3, num_envs=2, n_step=2, budget=budget)
    sampler = PrioritizedSampler(1000)
    return ReplayMemory(storage, sampler, RingWriter(), seed=0, budget=budget)


def _map(parts: Callable[[], tuple], sampler: str) -> ReplayMemory:
    storage, writer = parts()
    return ReplayMemory(storage, EDGE_SAMPLERS[sampler](), writer, seed=0)


def by_chance(reservoir: bool, budget: int | None = None) -> ReplayMemory:
    """A list in which chance says what makes room."""
    storage = SlotStorage(CAPACITY, FRAME, stack=3, num_envs=2)
    sampler, writer = PrioritizedSampler(CAPACITY), RandomEvictionWriter(reservoir)
    return ReplayMemory(storage, sampler, writer, seed=0, budget=budget)


def _consolidating(bounds: bool) -> ReplayMemory:
    storage = make("frames", CAPACITY, (4,), np.float32, num_envs=2)
    states = BoundedStates((4,), np.float32) if bounds else StoredStates(storage)
    options: dict[str, Any] = {"weight_start": 1.0, "weight_end": 2.0, "weight_steps": 100}
    part = Consolidation(states, steps=2, batch_size=5, **options)
    return ReplayMemory(storage, UniformSampler(), RingWriter(), seed=0, transforms=[part])


def frames(rng: np.random.Generator, rows: int) -> dict[str, Any]:
    return RandomEnvs(rng, FRAME, np.uint8, 2, 0.1, 0.3).block(rows)


MAPS: dict[str, tuple[Callable[[], tuple], Blocks]] = {
    "moving prototypes": (
        partial(vector_map, 0.6, contexts=2, n_step=3, max_age=2, num_envs=2),
        partial(walk_block, num_envs=2),
    ),
    "its own keys": (partial(vector_map, 0.5, own_keys=True, max_age=2), walk_block),
    "continuous actions": (
        partial(vector_map, 0.6, action_shape=(2,)),
        partial(walk_block, action_dims=2),
    ),
    "as released": (
        partial(vector_map, 0.6, node_terminals=True, links=False, joined=True),
        walk_block,
    ),
    "evicting": (partial(vector_map, 0.8, capacity=25, evict=True, max_age=4), walk_block),
    "images": (partial(image_map, 0.9, metric_scale=2.0, max_age=2, num_envs=2), image_block),
    "exemplars": (
        partial(image_map, 0.99, metric_scale=2.0, max_age=1, prototype="exemplar", num_envs=2),
        partial(image_block, num_envs=2),
    ),
    "warming up": (partial(image_map, 0.75, scale_samples=200), image_block),
}


def _cases() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for kind in ("dense", "frames", "memmap", "compressed"):
        for sampler in SAMPLERS:
            cases[f"{kind}, {sampler}"] = partial(_ring, kind, sampler), frames
        cases[f"{kind}, budget"] = partial(limited, kind, BUDGETS[kind]), frames
    for name, (parts, blocks) in MAPS.items():
        for sampler in EDGE_SAMPLERS:
            cases[f"map of {name}, {sampler}"] = partial(_map, parts, sampler), blocks
    for strategy in ("future", "final", "episode", "random"):
        memory = partial(hindsight_memory, strategy, sampler="per")
        cases[f"hindsight, {strategy}"] = memory, lambda rng, rows: GoalEnvs(rng, 2).block(rows)
    cases["random eviction"] = partial(by_chance, False), frames
    cases["reservoir, budget"] = partial(by_chance, True, 8_000), frames
    cases["consolidation, bounds"] = partial(_consolidating, True), _vectors
    cases["consolidation, stored"] = partial(_consolidating, False), _vectors
    return cases


def _vectors(rng: np.random.Generator, rows: int) -> dict[str, Any]:
    return RandomEnvs(rng, num_envs=2).block(rows)


CASES = _cases()


def grow(memory: ReplayMemory, blocks: Blocks, seeds: range, rows: int = 40) -> ReplayMemory:
    """Write a block a seed and learn from a batch after each; the same memory."""
    for seed in seeds:
        memory.extend(blocks(np.random.default_rng(seed), rows))
        learn(memory)
    return memory


def learn(memory: ReplayMemory) -> TensorDict | None:
    """Draw a minibatch and write priorities back; None if none can be drawn."""
    if memory.available(BATCH, 1) == 0:
        return None
    batch = memory.sample(BATCH)
    memory.update_priority(batch["index"], batch["next", "reward"].abs() + batch["index"][:, None])
    return batch


def states_of(memory: ReplayMemory) -> dict[str, Any]:
    """The states of all parts and of the generator."""
    states = {name: part.state_dict() for name, part in memory._parts().items()}
    return {**states, "generator": memory.generator.get_state()}


def load(memory: ReplayMemory, states: dict[str, Any]) -> None:
    for name, part in memory._parts().items():
        part.load_state_dict(states[name])
    memory.generator.set_state(states["generator"])


def assert_equal(a: Any, b: Any, name: str = "") -> None:
    """Nested states are the same, to the bit."""
    assert type(a) is type(b), name
    if isinstance(a, dict):
        assert a.keys() == b.keys(), name
        for key in a:
            assert_equal(a[key], b[key], f"{name}/{key}")
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype, name
        np.testing.assert_array_equal(a, b, err_msg=name)
    elif isinstance(a, torch.Tensor):
        assert torch.equal(a, b), name
    else:
        assert a == b, name


def footprint(memory: ReplayMemory) -> dict[str, int]:
    """Bytes by component, without those that only the next draw needs."""
    held = memory.footprint()
    if isinstance(memory.sampler, RankSampler):
        held["priorities"] -= memory.sampler._cdf.nbytes
    return held


def assert_same(memory: ReplayMemory, twin: ReplayMemory, batches: int = 6) -> None:
    """Both are valid, hold as much and draw the same; changes them alike."""
    memory.check_valid()
    assert len(memory) == len(twin)
    for _ in range(batches):
        drawn = [learn(each) for each in (memory, twin)]
        if drawn[0] is None or drawn[1] is None:
            assert drawn == [None, None]
        else:
            assert_equal(*(batch.to_dict() for batch in drawn))
    for each in (memory, twin):
        each.sampler.synchronise(each.storage)  # where nothing could be drawn
    assert footprint(memory) == footprint(twin)


def assert_goes_on_as(memory: ReplayMemory, twin: ReplayMemory, blocks: Blocks) -> None:
    """Both draw the same, now and as they are written on."""
    assert_same(memory, twin)
    for seed in range(900, 906):
        for each in (memory, twin):
            each.extend(blocks(np.random.default_rng(seed), 30))
        assert_same(memory, twin, 3)
