"""check_valid: what is damaged in a map or in its writer is seen."""

import numpy as np
import pytest

from rlmem.memories.gwr import lists
from tests.memories.gwr.maps import image_block, image_map, small_map, write


@pytest.mark.parametrize(
    ("array", "field", "value"),
    [
        ("nodes", "link", 0),
        ("nodes", "out", 2),
        ("nodes", "habituation", 2.0),
        ("nodes", "merges", -1),
        ("nodes", "firings", 0),
        ("halves", "age", -1),
        ("halves", "node", 7),
        ("halves", "prev", 3),
        ("edges", "count", 0),
        ("edges", "source", 5),
        ("edges", "in_prev", 4),
        ("edges", "dirty", 0),
        ("edges", "steps", 0),
        ("edges", "reward", np.nan),
    ],
)
def test_check_valid_sees_damaged_records(array, field, value):
    storage, _ = small_map()
    storage.check_valid()
    getattr(storage.arrays, array)[field][1] = value
    with pytest.raises(AssertionError):
        storage.check_valid()


def map_of_all(**options):
    """A map that has every optional array: exemplars, terminals, visits, contexts."""
    options = {"prototype": "exemplar", "node_terminals": True, "evict": True, **options}
    storage, writer = image_map(0.7, metric_scale=2.0, capacity=40, num_envs=2, **options)
    write(writer, image_block(np.random.default_rng(0), 300, 2))
    return storage, writer


DAMAGE = {
    "a key is not finite": lambda m: m.arrays.heads[0].fill(np.nan),
    "a context is not finite": lambda m: m.arrays.contexts[2].fill(np.inf),
    "a node was never visited": lambda m: m.arrays.terminal[:2].fill(-1),
    "a visit of the future": lambda m: m.arrays.stamps[:1].fill(10**6),
    "a live node without a visit": lambda m: m.arrays.stamps[:1].fill(0),
    "two visits at once": lambda m: m.arrays.stamps[:2].fill(7),
    "a clock that went back": lambda m: m.arrays.book[10:11].fill(5),
    "a node in the log of removed ones": lambda m: m.arrays.book[11:].fill(1),
    "a capacity that is passed": lambda m: m.arrays.limits[:1].fill(41),
    "a mark past the arrays": lambda m: m.arrays.book[7:8].fill(10**6),
    "an open block": lambda m: m.arrays.alive[:1].fill(2),
    "an exemplar of a removed node": lambda m: lists.remove_node(m.arrays, 3),
    "a live node without its exemplar": lambda m: m.exemplars.release(np.array([3])),
    "an exemplar's length": lambda m: m.exemplars._blobs["size"][3:4].fill(9),
    "an exemplar's place": lambda m: m.exemplars._blobs["segment"][3:4].fill(1),
    "the count of a segment": lambda m: m.exemplars._arena.segments.held[:1].fill(3),
    "the bytes of exemplars": lambda m: setattr(m.exemplars, "size_held", 1),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_check_valid_sees(what):
    storage, _ = map_of_all()
    DAMAGE[what](storage)
    with pytest.raises(AssertionError):
        storage.check_valid()


def test_check_valid_sees_an_action_that_is_not_finite():
    block = image_block(np.random.default_rng(0), 100)
    block["action"] = np.zeros((100, 2), np.float32)
    actions = {"num_actions": 0, "action_shape": (2,)}
    storage, writer = image_map(metric_scale=2.0, **actions)
    write(writer, block)
    storage.arrays.actions[storage.live_edges()[3], 1] = np.nan
    with pytest.raises(AssertionError, match="action"):
        storage.check_valid()


WRITER_DAMAGE = {
    "a last node that is gone": lambda w: lists.remove_node(w._storage.arrays, w._streams.last[0]),
    "a last node of an ended episode": lambda w: (
        w._streams.last.fill(0),
        w._episodes.fresh.fill(True),
    ),
    "contexts of an ended episode": lambda w: (
        w._streams.last.fill(-1),
        w._streams.contexts.fill(1.0),
        w._episodes.fresh.fill(True),
    ),
    "a context that is not finite": lambda w: w._streams.contexts[:1].fill(np.nan),
    "an overdue edge": lambda w: w._streams.waiting.fill(1),
    "a scale of nothing": lambda w: setattr(w, "scale", 0.0),
}


@pytest.mark.parametrize("what", WRITER_DAMAGE)
def test_the_writers_check_valid_sees(what):
    _, writer = map_of_all()
    assert writer._streams.last[0] >= 0
    writer.check_valid()
    WRITER_DAMAGE[what](writer)
    with pytest.raises(AssertionError):
        writer.check_valid()


def test_the_writers_check_valid_sees_waiting_edges_that_lost_a_step_or_a_value():
    for field, value in (("steps", 3), ("partial", np.nan)):
        _, writer = image_map(metric_scale=2.0, n_step=3)
        write(writer, image_block(np.random.default_rng(0), 60, end=0.0))
        assert writer._streams.waiting[0] == 2
        writer._streams.pending[field][0, 0] = value
        with pytest.raises(AssertionError):
            writer.check_valid()


def test_the_writers_check_valid_sees_links_where_there_are_none():
    storage, writer = image_map(metric_scale=2.0, links=False)
    write(writer, image_block(np.random.default_rng(0), 60))
    lists.add_link(storage.arrays, 0, 1)
    storage.check_valid()
    with pytest.raises(AssertionError, match="linked"):
        writer.check_valid()
