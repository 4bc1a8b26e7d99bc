"""Compressed exemplars: exact, freed with their nodes, no larger than what they hold."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmem.envs import EnvSpec
from rlmem.memories.base.state import snapshot
from rlmem.memories.compression.arena import SEGMENT, Arena
from rlmem.memories.compression.packing import PACKED, STORED, Packer
from rlmem.memories.gwr.exemplars import ExemplarStore
from tests.memories.helpers import RandomEnvs, configured

NODES = 8
SHAPES = [(1, 5), (3, 7, 3), (1, 8), (1, 1, 1), (2, 16, 4)]  # of a frame; few of a multiple of 8


def observation(rng, shape, stack, change):
    """A stack of frames of which each differs from the one before in some values."""
    frames = [rng.integers(0, 256, shape, dtype=np.uint8)]
    for _ in range(stack - 1):
        changed = rng.random(shape) < change
        frames.append(np.where(changed, rng.integers(0, 256, shape, dtype=np.uint8), frames[-1]))
    return np.concatenate(frames).reshape(-1)


def assert_holds(store, model):
    live = np.array(sorted(model), np.int64)
    store.check_valid(live)
    if len(live):
        asked = np.concatenate([live, live[::-1], live[:1]])  # in any order, more than once
        np.testing.assert_array_equal(store.get(asked), np.stack([model[n] for n in asked]))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    shape=st.sampled_from(SHAPES),
    stack=st.sampled_from([1, 4]),
    change=st.sampled_from([0.0, 0.05, 1.0]),
    steps=st.lists(
        st.tuples(st.sampled_from(["put", "put", "release", "reload"]), st.integers(0, NODES - 1)),
        max_size=30,
    ),
)
def test_exemplars_are_given_back_bit_for_bit(seed, shape, stack, change, steps):
    rng, model = np.random.default_rng(seed), {}
    whole = (stack * shape[0], *shape[1:])
    store = ExemplarStore(NODES, whole, stack)
    for kind, node in steps:
        if kind == "put":
            model[node] = observation(rng, shape, stack, change)
            store.put(node, model[node])
        elif kind == "release":
            store.release(np.array([node]))
            model.pop(node, None)
        else:
            state = snapshot(store.state_views(NODES))
            store = ExemplarStore(NODES, whole, stack)
            store.put(1, observation(rng, shape, stack, change))  # of a map that was here before
            store.check_state(state, NODES)
            store.take_over(state)
        assert_holds(store, model)


@pytest.mark.parametrize("shape", [(2, 7, 3), (4, 40, 40)])
def test_nodes_that_come_and_go_in_any_order_leave_no_holes(shape):
    rng, nodes = np.random.default_rng(0), 200
    store, model = ExemplarStore(nodes, shape, shape[0]), {}
    largest = 0
    for k in range(4000):
        node = k if k < nodes else int(rng.integers(nodes))
        model[node] = observation(rng, (1, *shape[1:]), shape[0], rng.choice([0.02, 0.5]))
        store.put(node, model[node])
        if k % 500 == 0:
            assert_holds(store, model)
        largest = max(largest, store.size_held)
        assert store._arena.nbytes <= 1.3 * largest + 6 * SEGMENT
    assert_holds(store, model)
    store.release(np.arange(nodes))
    assert store.size_held == 0
    store.check_valid(np.empty(0, np.int64))
    assert store._arena.occupied <= 5 * SEGMENT


def test_a_store_without_nodes_takes_the_bytes_of_its_work_space_alone():
    store = ExemplarStore(1000, (4, 84, 84), 4)
    empty = store.nbytes
    assert empty < 100_000
    store.put(3, np.zeros(28_224, np.uint8))
    assert empty < store.nbytes <= empty + 2 * SEGMENT + 7056
    store.clear()
    store.check_valid(np.empty(0, np.int64))


def test_growth_is_never_less_than_what_observations_take():
    rng, shape = np.random.default_rng(0), (4, 30, 30)
    store = ExemplarStore(500, shape, 4)
    for first in range(0, 500, 25):
        before, bound = store.nbytes, store.growth(25)
        for node in range(first, first + 25):
            store.put(node, observation(rng, (1, 30, 30), 4, rng.choice([0.0, 1.0])))
        assert store.nbytes - before <= bound


@pytest.mark.parametrize("compressible", [True, False])
def test_a_packed_stream_comes_back_and_is_never_longer(compressible):
    rng, packer, arena = np.random.default_rng(0), Packer(-1), Arena(10**6)
    streams = [rng.integers(0, 256, n, dtype=np.uint8) for n in (2, 300, 20_000)]
    if compressible:
        streams = [np.repeat(s[:1], len(s)) for s in streams]
    blobs = []
    for stream in streams:
        packed = packer.pack(stream.copy())
        assert len(packed) <= len(stream)
        blobs.append(arena.put(packed))
    assert packed[0] == (PACKED if compressible else STORED)
    blobs.insert(1, np.zeros(1, blobs[0].dtype))  # an empty one
    data, starts = packer.unpack(arena, np.concatenate(blobs))
    assert starts[1] == -1
    for start, stream in zip(np.delete(starts, 1), streams, strict=True):
        np.testing.assert_array_equal(data[start : start + len(stream) - 1], stream[1:])


def test_repacking_an_arena_keeps_its_strings_and_returns_what_is_free():
    rng, arena = np.random.default_rng(0), Arena(4 * 10**6)
    strings = [rng.integers(0, 256, rng.integers(1, 40_000), dtype=np.uint8) for _ in range(80)]
    blobs = np.concatenate([arena.put(s) for s in strings])
    before = arena.nbytes
    kept = np.flatnonzero(rng.random(80) < 0.4)
    arena.release(np.delete(blobs, kept))
    moved = arena.repack(blobs[kept])
    arena.check_valid(moved)
    wanted = np.concatenate([strings[k] for k in kept])
    np.testing.assert_array_equal(arena.gather(moved), wanted)
    assert arena.occupied <= len(wanted) + SEGMENT
    assert arena.nbytes < 0.6 * before
    more = np.concatenate([arena.put(s) for s in strings])
    arena.check_valid(np.concatenate([moved, more]))
    np.testing.assert_array_equal(arena.gather(more), np.concatenate(strings))


def test_a_damaged_layout_is_refused():
    rng, arena = np.random.default_rng(0), Arena(10**6)
    blobs = np.concatenate(
        [arena.put(rng.integers(0, 255, 9000, dtype=np.uint8)) for _ in range(9)]
    )
    arena.release(blobs[:4])
    state, data = arena.state_dict(), arena.gather(blobs[4:])
    for name, value in {"arena.free": 10**6, "arena.state": [1, 1, 5, 0, 0]}.items():
        damaged = {**state, name: np.full_like(state[name], value)}
        with pytest.raises(ValueError, match="damaged: no such segments"):
            Arena(10**6).load_state_dict(damaged)
    loaded = Arena(10)
    for field, value in {"segment": 10**6, "offset": -1, "size": 10**6}.items():
        wrong = blobs[4:].copy()
        wrong[field][1] = value
        with pytest.raises(ValueError, match="damaged: no such strings"):
            loaded.check_strings(state, wrong, len(data))
    loaded.check_strings(state, blobs[4:], len(data))
    loaded.load_state_dict(state)
    loaded.restore(blobs[4:], data)
    loaded.check_valid(blobs[4:])
    np.testing.assert_array_equal(loaded.gather(blobs[4:]), data)


def test_a_map_of_images_never_projects_less_than_it_holds():
    """Where exemplars of removed nodes lay, holes are left for a while."""
    spec = EnvSpec("Pong", "atari", 2, (1, 24, 24), np.dtype(np.uint8), 4, 3, 1)
    given = "memory.capacity=200", "memory.metric.scale_samples=50"
    memory = configured(spec, "memory=gwr", *given)
    envs = RandomEnvs(np.random.default_rng(0), (1, 24, 24), np.uint8, 2, 0.05, 1.0)
    for _ in range(12):
        memory.extend(envs.block(100))
        held, full = (f()["prototypes"] for f in (memory.footprint, memory.projected_footprint))
        assert held <= full
    assert memory.entries == 200
