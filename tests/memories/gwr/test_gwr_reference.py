"""The map in all its variants against GWR-R in plain loops."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.memories.gwr.gwr_reference import ReferenceGWR
from tests.memories.gwr.maps import DIMS, vector_map, walk_block, write

ROWS = 150
# A decision by less than this may fall the other way in float32.
MARGIN = 1e-5
# Coordinates are at most 1, of which float32 has 6e-8. Each move adds that much once more and a
# node's error shrinks with the node's distance from the sample, so that it
# stays below 1e-6 (measured: 6e-7 at the most); twice that is allowed.
TOLERANCE = 2e-6
VARIANTS = st.fixed_dictionaries(
    {
        "contexts": st.sampled_from([0, 4]),
        "num_envs": st.integers(1, 3),
        "links": st.booleans(),
        "node_terminals": st.booleans(),
        "joined": st.booleans(),
        "evict": st.booleans(),
        "prototype": st.sampled_from(["moving", "exemplar"]),
        "own_keys": st.booleans(),
        "action_dims": st.sampled_from([0, 2]),
        "n_step": st.sampled_from([1, 3]),
        "activation": st.sampled_from([0.6, 0.8, 0.9]),
        "habituation": st.sampled_from([1.0, 0.85, 0.3]),
        "max_age": st.sampled_from([1, 3, 10]),
        "capacity": st.sampled_from([3, 12, 500]),
        "scale": st.sampled_from([1.0, 0.37, 2.5]),
    }
)


def both_maps(seed, v):
    """The map and the reference after the same rows."""
    rng = np.random.default_rng(seed)
    n_step = 1 if v["joined"] or v["node_terminals"] else v["n_step"]
    block = walk_block(rng, ROWS, v["num_envs"], action_dims=v["action_dims"])
    same = ("contexts", "node_terminals", "joined", "evict", "max_age")
    shared = {"n_step": n_step, **{name: v[name] for name in same}}
    actions = {"action_shape": (v["action_dims"],)} if v["action_dims"] else {}
    storage, writer = vector_map(
        v["activation"],
        v["habituation"],
        v["capacity"],
        own_keys=v["own_keys"],
        prototype=v["prototype"],
        num_envs=v["num_envs"],
        links=v["links"],
        metric_scale=v["scale"],
        **shared,
        **actions,
    )
    write(writer, block, size=int(rng.integers(1, 60)))
    reference = ReferenceGWR(
        DIMS,
        v["activation"],
        v["habituation"],
        v["capacity"],
        scale=v["scale"],
        links_on=v["links"],
        moving=v["prototype"] == "moving",
        **shared,
    )
    following = block["next"]
    for row in range(ROWS):
        action = block["action"][row]
        reference.step(
            int(block["env_id"][row]),
            block["observation"][row].astype(np.float64),
            action.astype(np.float64) if v["action_dims"] else int(action),
            float(following["reward"][row, 0]),
            following["observation"][row].astype(np.float64),
            bool(following["terminated"][row, 0]),
            bool(following["truncated"][row, 0]),
        )
    return storage, reference


def test_map_equals_the_reference():
    clear = []

    @settings(max_examples=100)
    @given(seed=st.integers(0, 10**6), variant=VARIANTS)
    def check(seed, variant):
        storage, reference = both_maps(seed, variant)
        clear.append(reference.margin > MARGIN)
        assume(clear[-1])
        assert_equal_maps(storage, reference)

    check()
    assert np.mean(clear) > 0.75, "too many examples hang on the last digits of float32"


def assert_equal_maps(storage, reference):
    a, live = storage.arrays, storage.live_nodes()
    ids = list(reference.nodes)
    assert len(live) == len(ids)
    wanted = np.stack([reference.nodes[i].w for i in ids])
    gaps = np.linalg.norm(wanted[:, None] - storage.node_keys(live)[None], axis=2)
    match = {i: int(live[k]) for i, k in zip(ids, gaps.argmin(1), strict=True)}
    assert len(set(match.values())) == len(ids)
    slots = np.array([match[i] for i in ids])
    close = {"rtol": 0, "atol": TOLERANCE}
    np.testing.assert_allclose(storage.node_keys(slots), wanted, **close)
    np.testing.assert_allclose(storage.node_observations(slots), wanted, **close)
    contexts = np.stack([reference.nodes[i].c for i in ids])
    np.testing.assert_allclose(storage.node_contexts(slots), contexts, **close)
    habituation = [reference.nodes[i].h for i in ids]
    np.testing.assert_allclose(a.nodes[slots]["habituation"], habituation, **close)
    if reference.evict:
        assert a.stamps[slots].tolist() == [reference.nodes[i].stamp for i in ids]

    halves = a.halves[: 2 * a.book[4]]
    links = {
        frozenset((int(halves[k]["node"]), int(halves[k + 1]["node"]))): int(halves[k]["age"])
        for k in range(0, len(halves), 2)
        if halves[k]["node"] >= 0
    }
    assert links == {frozenset(match[n] for n in link): v for link, v in reference.links.items()}

    sample, seen = storage.get(storage.live_edges()), set()
    for row, (e, flag) in enumerate(
        zip(storage.edge_table(), sample["next", "terminated"][:, 0].tolist(), strict=True)
    ):
        key = [int(e["source"]), int(e["target"])]
        if reference.node_terminals:
            terminal = next(n.terminal for i, n in reference.nodes.items() if match[i] == key[1])
            assert flag == terminal
            assert not sample["next", "truncated"][row]
        else:
            key += [None if storage.action_shape else int(e["action"])]
            key += [bool(e["terminated"]), bool(e["truncated"]), int(e["steps"])]
            assert flag == key[3]
        seen.add(tuple(key))
        ends = tuple(next(i for i in ids if match[i] == k) for k in key[:2])
        count, reward, action = reference.edges[(*ends, *key[2:])]
        assert e["count"] == count
        assert e["reward"] == pytest.approx(reward, abs=1e-5)
        np.testing.assert_allclose(sample["action"][row].numpy(), action, rtol=0, atol=1e-5)
    assert len(seen) == len(reference.edges)


@pytest.mark.parametrize(
    ("variant", "happens"),
    [
        ({"max_age": 1}, lambda r: r.pruned > 0),
        ({"evict": True, "capacity": 12, "links": False}, lambda r: r.pruned > 0),
        (
            {"node_terminals": True, "activation": 0.9},
            lambda r: any(n.terminal for n in r.nodes.values()),
        ),
        ({"joined": True}, lambda r: any(count > 1 for count, *_ in r.edges.values())),
        ({"habituation": 0.3}, lambda r: any(n.h < 0.3 for n in r.nodes.values())),
    ],
    ids=["pruning", "eviction", "terminals", "joined", "habituation"],
)
def test_the_examples_reach_what_is_compared(variant, happens):
    plain = {"contexts": 0, "num_envs": 2, "links": True, "node_terminals": False}
    plain |= {"joined": False, "evict": False, "prototype": "moving", "own_keys": False}
    plain |= {"action_dims": 0, "n_step": 1, "activation": 0.6, "habituation": 1.0, "max_age": 10}
    _, reference = both_maps(0, {**plain, "capacity": 500, "scale": 1.0, **variant})
    assert happens(reference)
