"""The block search is exact: the same map however the nearest nodes were come to."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmem.errors import UserError
from rlmem.memories.gwr.records import RESCANS, empty_search
from tests.memories.gwr.maps import (
    assert_same_state,
    image_block,
    image_map,
    snapshot,
    vector_map,
    walk_block,
    write,
)

SIZES = (1, 3, 8, 32, 100)


def states(storage, writer):
    return snapshot(storage.state_dict()), snapshot(writer.state_dict())


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10**6),
    num_envs=st.integers(1, 3),
    dims=st.sampled_from([3, 40]),  # 40: more than the search reads of every node
    activation=st.sampled_from([0.3, 0.7, 1.0]),
    variant=st.sampled_from(
        [{}, {"prototype": "exemplar"}, {"contexts": 2}, {"evict": True, "capacity": 20}]
    ),
    max_age=st.sampled_from([1, 10]),
)
def test_a_map_of_vectors_does_not_depend_on_how_rows_are_cut(
    seed, num_envs, dims, activation, variant, max_age
):
    block = walk_block(np.random.default_rng(seed), 200, num_envs, dims=dims)
    maps = []
    for size in SIZES:
        options = {"dims": dims, "num_envs": num_envs, "max_age": max_age, **variant}
        storage, writer = vector_map(activation, **options)
        write(writer, block, size)
        maps.append(states(storage, writer))
    for other in maps[1:]:
        for part, same in zip(maps[0], other, strict=True):
            assert_same_state(part, same)


@settings(max_examples=10)
@given(
    seed=st.integers(0, 10**6),
    prototype=st.sampled_from(["moving", "exemplar"]),
    contexts=st.sampled_from([0, 2]),
    activation=st.sampled_from([0.5, 0.7]),
)
def test_a_map_of_images_does_not_depend_on_how_rows_are_cut(seed, prototype, contexts, activation):
    """Keys are equal to the last digits only: a product of few rows is summed in another order."""
    block = image_block(np.random.default_rng(seed), 200, 2)
    maps = []
    for size in SIZES:
        options = {"prototype": prototype, "contexts": contexts, "scale_samples": 50}
        storage, writer = image_map(activation, num_envs=2, **options)
        write(writer, block, size)
        assert writer.embedding._rotation is not None
        live = storage.live_nodes()
        keys = storage.node_keys(live), storage.node_contexts(live)
        maps.append((live, storage.node_observations(live), keys, snapshot(storage.state_dict())))
    for live, observations, keys, state in maps[1:]:
        np.testing.assert_array_equal(live, maps[0][0])
        np.testing.assert_array_equal(observations, maps[0][1])
        for own, first in zip(keys, maps[0][2], strict=True):
            np.testing.assert_allclose(own, first, rtol=0, atol=1e-5)
        for name in state.keys() - {"heads", "tails", "contexts", "edges.dirty", "book"}:
            np.testing.assert_array_equal(state[name], maps[0][3][name], err_msg=name)


def searched(make, block, search):
    """The states of a map and its writer, and how often all nodes were looked through again."""
    storage, writer = make()
    writer._search = search
    write(writer, block, 32)
    return states(storage, writer), int(search.state[RESCANS])


def assert_same_map(make, block, search):
    """As one by one with room for all nodes, though it looked through all of them at times."""
    wanted, none = searched(make, block, empty_search(block=1, candidates=len(block["action"])))
    found, rescans = searched(make, block, search)
    assert (none, rescans > 0) == (0, True)
    for part, same in zip(wanted, found, strict=True):
        assert_same_state(part, same)


FEW_LISTED, FEW_MOVED = {"candidates": 3}, {"changed": 2}


@pytest.mark.parametrize("room", [FEW_LISTED, FEW_MOVED, FEW_LISTED | FEW_MOVED])
@pytest.mark.parametrize("kind", ["vectors", "images"])
def test_a_search_without_room_for_its_lists_finds_the_same(kind, room):
    if kind == "vectors":
        block = walk_block(np.random.default_rng(0), 400, dims=40)
        assert_same_map(lambda: vector_map(0.2, dims=40), block, empty_search(**room))
    else:
        block = image_block(np.random.default_rng(0), 400)
        make = lambda: image_map(0.5, contexts=0, scale_samples=50)  # noqa: E731
        assert_same_map(make, block, empty_search(**room))


def test_a_search_of_exemplars_without_room_for_its_lists_finds_the_same():
    block = image_block(np.random.default_rng(0), 400)
    options = {"contexts": 0, "scale_samples": 50, "prototype": "exemplar"}
    assert_same_map(lambda: image_map(0.5, **options), block, empty_search(**FEW_LISTED))


def test_nodes_that_moved_away_since_a_block_began_are_not_missed():
    block = walk_block(np.random.default_rng(0), 400)
    assert_same_map(lambda: vector_map(0.4, eps_b=1.0, eps_n=0.9), block, empty_search())


def test_more_equally_near_nodes_than_are_listed_are_looked_through():
    """A tight cluster of nodes, then observations from which all of them are as far."""
    rng, dims = np.random.default_rng(0), 40
    cluster = rng.normal(0, 1e-4, (2000, dims))
    states = np.concatenate([cluster, 5 * np.eye(dims)]).astype(np.float32)
    block = walk_block(rng, len(states) - 1, end=0.0, dims=dims)
    block["observation"], block["next"]["observation"] = states[:-1], states[1:]
    make = lambda: vector_map(1.0, capacity=2500, dims=dims, eps_b=0.0, eps_n=0.0)  # noqa: E731
    assert_same_map(make, block, empty_search())


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e20])
def test_what_a_map_cannot_be_shown_is_refused_in_one_line(value):
    storage, writer = vector_map()
    block = walk_block(np.random.default_rng(0), 40, end=0.0)
    write(writer, block)
    held = snapshot(storage.state_dict())
    block["next"]["observation"][7, 1] = value
    with pytest.raises(ValueError, match="not finite or beyond") as error:
        writer.extend(block)
    block = walk_block(np.random.default_rng(0), 40, end=0.0)
    block["next"]["reward"][7] = np.nan
    with pytest.raises(UserError, match="a reward is not finite"):
        writer.extend(block)
    assert "\n" not in str(error.value)
    writer.check_valid()
    assert_same_state(held, storage.state_dict())
