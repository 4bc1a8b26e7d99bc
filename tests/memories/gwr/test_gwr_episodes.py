"""What may follow what: no edge joins two episodes, but for those of the released variant."""

import numpy as np
import pytest
import torch

from rlmem.errors import UserError
from rlmem.memories import (
    GWRWriter,
    Identity,
    MapOptions,
    MapStorage,
    ReplayMemory,
    RuleSettings,
    VisitSampler,
)
from tests.memories.gwr.maps import image_block, image_map, part, vector_map, walk_block, write


def numbered_block(rows, num_envs, seed=1):
    """A walk whose first coordinate is the number of the episode, of no two envs the same."""
    block = walk_block(np.random.default_rng(seed), rows, num_envs, end=0.3, dims=2)
    done = (block["next"]["terminated"] | block["next"]["truncated"])[:, 0]
    for env in range(num_envs):
        mine = block["env_id"] == env
        before = np.concatenate([[False], done[mine][:-1]])
        number = num_envs * np.cumsum(before) + env
        block["observation"][mine, 0] = block["next"]["observation"][mine, 0] = number
    return block, done


@pytest.mark.parametrize("num_envs", [1, 2, 3])
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize(
    "variant",
    [{}, {"links": False}, {"prototype": "exemplar"}, {"contexts": 2}],
    ids=["plain", "no links", "exemplar", "contexts"],
)
def test_no_edge_joins_two_episodes(num_envs, n_step, variant):
    block, done = numbered_block(400, num_envs)
    storage, writer = vector_map(1.0, dims=2, num_envs=num_envs, n_step=n_step, **variant)
    index = write(writer, block, size=37)
    sample = storage.get(storage.live_edges())
    assert torch.equal(sample["observation"][:, 0], sample["next", "observation"][:, 0])
    waiting = int(writer._streams.waiting.sum())
    assert storage.transitions_represented == 400 - waiting
    if n_step == 1:
        assert (index >= 0).all()
        following = block["next"]
        each = storage.get(index)
        for name in ("terminated", "truncated"):
            assert np.array_equal(each["next", name], following[name])
        assert int(sample["next", "done"].sum()) == int(done.sum())


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("variant", [{}, {"contexts": 2}], ids=["plain", "contexts"])
@pytest.mark.parametrize("size", [1, 37])
def test_no_edge_joins_two_episodes_whose_end_was_not_told(num_envs, n_step, variant, size):
    """As a ring does: what begins elsewhere than the row before ended begins anew."""
    block, _ = numbered_block(400, num_envs)
    for name in ("terminated", "truncated"):
        block["next"][name][:] = False
    storage, writer = vector_map(1.0, dims=2, num_envs=num_envs, n_step=n_step, **variant)
    write(writer, block, size=size)
    sample = storage.get(storage.live_edges())
    assert torch.equal(sample["observation"][:, 0], sample["next", "observation"][:, 0])
    waiting = int(writer._streams.waiting.sum())
    assert storage.transitions_represented == 400 - waiting  # each row has an edge or waits for it
    steps = sample["steps_to_next"][:, 0] if n_step > 1 else torch.ones(len(sample))
    assert set(steps.tolist()) == set(range(1, n_step + 1))
    assert not sample["next", "done"].any()
    writer.check_valid()


def test_an_end_that_was_not_told_is_seen_while_the_scale_is_measured():
    block = image_block(np.random.default_rng(0), 300, num_envs=2, end=0.3)
    told = {k: v.copy() if k != "next" else {**v} for k, v in block.items()}
    for name in ("terminated", "truncated"):
        block["next"][name] = np.zeros_like(block["next"][name])
    nodes = []
    for rows in (told, block):
        storage, writer = image_map(num_envs=2, metric_scale="auto", scale_samples=100)
        write(writer, rows, size=4)
        nodes.append(storage.node_observations(storage.live_nodes()))
    assert np.array_equal(*nodes)


@pytest.mark.parametrize("num_envs", [1, 2, 3])
def test_no_edge_joins_two_episodes_where_nodes_are_evicted_and_merged(num_envs):
    block, _ = numbered_block(600, num_envs)
    block["observation"][:, 0] *= 100  # episodes lie apart: what merges is of one episode
    block["next"]["observation"][:, 0] *= 100
    options = {"eps_b": 0.0, "eps_n": 0.0, "max_age": 2, "evict": True, "capacity": 30}
    storage, writer = vector_map(0.9, dims=2, num_envs=num_envs, **options)
    write(writer, block, size=23)
    assert storage.arrays.book[10] > 600 > storage.transitions_represented
    sample = storage.get(storage.live_edges())
    assert len(sample) > 10
    assert torch.equal(sample["observation"][:, 0], sample["next", "observation"][:, 0])


def test_joined_episodes_are_those_of_the_released_code() -> None:
    """Five rows by hand: a termination after two, a time limit after two more."""
    x = np.arange(8, dtype=np.float32)[:, None]  # s0 s1 s2 | r0 r1 r2 | q0 q1
    first, following = x[[0, 1, 3, 4, 6]], x[[1, 2, 4, 5, 7]]
    flags = {"terminated": [0, 1, 0, 0, 0], "truncated": [0, 0, 0, 1, 0]}
    block = {"observation": first, "action": np.array([1, 1, 1, 1, 1])}
    block["next"] = {"observation": following, "reward": np.full((5, 1), 2.0, np.float32)}
    block["next"] |= {k: np.array(v, bool)[:, None] for k, v in flags.items()}
    released = MapOptions(node_terminals=True)
    storage = MapStorage(20, (1,), np.float32, None, num_actions=2, options=released)
    rule = RuleSettings(links=False, episodes="joined")
    writer = GWRWriter(1.0, 1.0, embedding=Identity((1,)), rule=rule)
    writer.register_storage(storage)
    index = writer.extend(block).numpy()
    sample = storage.get(storage.live_edges())
    edges = {
        (source, target): (action, reward, terminated)
        for source, target, action, reward, terminated in zip(
            sample["observation"][:, 0].tolist(),
            sample["next", "observation"][:, 0].tolist(),
            sample["action"].tolist(),
            sample["next", "reward"][:, 0].tolist(),
            sample["next", "terminated"][:, 0].tolist(),
            strict=True,
        )
    }
    assert edges == {
        (0, 1): (1, 2.0, False),
        (1, 2): (1, 2.0, True),
        (3, 4): (1, 2.0, False),
        (4, 5): (1, 2.0, False),
        (5, 6): (0, 0.0, False),  # over the time limit
        (6, 7): (1, 2.0, False),
    }
    assert (index >= 0).all()
    assert not sample["next", "truncated"].any()


def test_contexts_go_on_over_resets_only_where_episodes_are_joined():
    block, done = numbered_block(60, 1)
    rows = slice(0, int(np.flatnonzero(done)[2]) + 1)  # ends with an episode
    for joined in (False, True):
        _, writer = vector_map(1.0, dims=2, contexts=4, joined=joined)
        write(writer, part(block, rows))
        assert bool(writer._streams.contexts.any()) == joined


def test_blocks_without_a_row_change_nothing():
    for action_dims, options in ((0, {}), (1, {"num_actions": 0, "action_shape": (1,)})):
        storage, writer = vector_map(1.0, dims=2, **options)
        block = walk_block(np.random.default_rng(0), 5, dims=2, action_dims=action_dims)
        empty = part(block, slice(0, 0))
        assert len(writer.extend(empty)) == storage.num_nodes == 0
        writer.check_valid()


def test_observations_without_a_scale_are_refused_and_the_map_stays_valid(tmp_path):
    def made():
        storage, writer = image_map(metric_scale="auto", scale_samples=24)
        return ReplayMemory(storage, VisitSampler(), writer, seed=0), writer

    memory, writer = made()
    block = image_block(np.random.default_rng(0), 60)
    alike = part(block, slice(0, 8))
    for where in (alike, alike["next"]):
        where["observation"] = np.zeros_like(where["observation"])
    memory.extend(alike)
    memory.extend(alike)
    with pytest.raises(UserError, match="most of the first 24 observations are equal"):
        memory.extend(alike)
    memory.check_valid()
    memory.save(tmp_path / "saved")
    again, other = made()
    again.load(tmp_path / "saved")
    for each in (memory, again):
        each.extend(part(block, slice(8, 60)))
        each.check_valid()
    assert writer.scale == other.scale > 0
    assert memory.storage.num_nodes == again.storage.num_nodes > 1
