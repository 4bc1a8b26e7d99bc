"""The search finds what brute force in float64 finds, whatever the keys are like."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmem.memories.values.dnd import DND, DNDRule

ACTIONS = 3


def brute(
    keys: np.ndarray, held: np.ndarray, query: np.ndarray, action: int, p: int
) -> tuple[np.ndarray, np.ndarray]:
    """Places of the p nearest among the keys of an action, and their squared distances."""
    own = keys[held == action].astype(np.float64)
    distance = np.square(own - query.astype(np.float64)).sum(1)
    order = np.argsort(distance, kind="stable")[:p]
    return order, distance[order]


def assert_exact(
    dictionary: DND, keys: np.ndarray, held: np.ndarray, queries: np.ndarray, *, ties: bool
) -> None:
    p = dictionary.rule.neighbours
    _, found = dictionary.read(queries)
    for n, query in enumerate(queries):
        for action in range(dictionary.num_actions):
            order, distance = brute(keys, held, query, action, p)
            given = found.slot[n, action], found.distance[n, action]
            assert (given[0][len(order) :] == -1).all()
            np.testing.assert_allclose(given[1][: len(order)], distance, rtol=1e-12, atol=1e-300)
            if not ties:  # sums in another order may differ in the last bit, and swap equals
                np.testing.assert_array_equal(given[0][: len(order)], order)


def filled(keys: np.ndarray, held: np.ndarray, p: int, *, fit: bool = True, more: int = 50) -> DND:
    dictionary = DND(ACTIONS, keys.shape[1], len(keys) + more, DNDRule(neighbours=p))
    # A state of its own for each row: equal keys stay two entries.
    dictionary.write(keys, held, np.zeros(len(keys), np.float32), np.arange(len(keys)))
    if fit:
        dictionary.fit()
    return dictionary


CLOUDS = {
    "noise": lambda rng, n, d: rng.normal(size=(n, d)),
    "clusters": lambda rng, n, d: (
        rng.normal(size=(8, d))[rng.integers(8, size=n)] + 0.05 * rng.normal(size=(n, d))
    ),
    "a line": lambda rng, n, d: rng.normal(size=(n, 1)) * rng.normal(size=d),
    "far away": lambda rng, n, d: 1e4 + rng.normal(size=(n, d)) * np.exp(-np.arange(d)),
    "two scales": lambda rng, n, d: rng.normal(size=(n, d)) * 10.0 ** rng.integers(-3, 4, (n, 1)),
    "tiny": lambda rng, n, d: 1e-12 * rng.normal(size=(n, d)),
}


@pytest.mark.parametrize("cloud", CLOUDS)
@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 1500),
    d=st.sampled_from([1, 3, 31, 32, 33, 64, 128]),
    p=st.sampled_from([1, 2, 7, 50]),
    drift=st.sampled_from([0.0, 0.3, 30.0]),
    fit=st.booleans(),
)
def test_every_query_finds_what_brute_force_finds(
    cloud: str, seed: int, n: int, d: int, p: int, drift: float, fit: bool
) -> None:
    rng = np.random.default_rng(seed)
    keys = CLOUDS[cloud](rng, n, d).astype(np.float32)
    held = rng.integers(ACTIONS, size=n)
    dictionary = filled(keys, held, p, fit=fit)
    spread = keys.std(0)
    queries = keys[rng.integers(n, size=6)] + drift * spread * rng.normal(size=(6, d))
    assert_exact(dictionary, keys, held, queries.astype(np.float32), ties=True)


@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 800),
    d=st.sampled_from([2, 5, 40]),
    p=st.sampled_from([1, 3, 20]),
)
def test_of_equally_near_keys_those_of_the_lowest_slots_are_found(
    seed: int, n: int, d: int, p: int
) -> None:
    # Small whole numbers: distances are exact, and many are equal.
    rng = np.random.default_rng(seed)
    keys = rng.integers(-2, 3, (n, d)).astype(np.float32)
    held = rng.integers(ACTIONS, size=n)
    queries = rng.integers(-2, 3, (5, d)).astype(np.float32)
    assert_exact(filled(keys, held, p), keys, held, queries, ties=False)


def test_keys_that_moved_away_from_the_axes_are_found_all_the_same() -> None:
    rng = np.random.default_rng(0)
    old = rng.normal(size=(2000, 128)).astype(np.float32) * np.exp(-np.arange(128) / 4)
    new = 100 + 50 * rng.normal(size=(900, 128))
    keys = np.concatenate((old, new)).astype(np.float32)
    held = np.zeros(len(keys), np.int64)
    dictionary = filled(keys[:2000], held[:2000], 50, more=900)
    dictionary.write(keys[2000:], held[2000:], np.zeros(900, np.float32), np.arange(2000, 2900))
    queries = np.concatenate((keys[:3], keys[-3:], (keys[:3] + keys[-3:]) / 2))
    assert_exact(dictionary, keys, held, queries, ties=True)


def test_a_search_does_not_hang_on_those_before() -> None:
    rng = np.random.default_rng(1)
    keys = rng.normal(size=(3000, 16)).astype(np.float32)
    held = rng.integers(ACTIONS, size=3000)
    searched, fresh = filled(keys, held, 50), filled(keys, held, 50)
    near, far = keys[:1], keys[1:2] + 40
    for query in (near, far, near, far):  # what one search leaves behind fits the next badly
        searched.read(query)
    assert_exact(searched, keys, held, np.concatenate((near, far, near)), ties=True)
    for query in (near, far):
        assert (searched.read(query)[1].slot == fresh.read(query)[1].slot).all()
