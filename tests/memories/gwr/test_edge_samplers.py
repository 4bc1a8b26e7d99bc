"""The samplers of a map's temporal edges: what they draw, how often, and what they forget."""

import numpy as np
import pytest
import torch
from tensordict import assert_close
from torchrl.data import ReplayBuffer

from rlmem.memories import ReplayMemory
from rlmem.memories.gwr import lists
from rlmem.memories.gwr.embedding import Identity
from rlmem.memories.gwr.map import MapStorage
from rlmem.memories.gwr.rule import RuleSettings
from rlmem.memories.gwr.samplers import (
    PrioritizedEdgeSampler,
    UniformEdgeSampler,
    VisitSampler,
)
from rlmem.memories.gwr.writer import GWRWriter
from tests.memories.gwr.maps import corridor, part, small_map, walk_block

DRAWS = 60_000
SAMPLERS = [UniformEdgeSampler, VisitSampler, PrioritizedEdgeSampler]
each_sampler = pytest.mark.parametrize("kind", SAMPLERS)


def seeded(sampler, seed=0):
    sampler._rng = torch.Generator().manual_seed(seed)
    return sampler


def drawn(sampler, storage, n=DRAWS):
    """How often each position was drawn, in shares."""
    index = sampler.sample(storage, n)[0].numpy()
    return np.bincount(index, minlength=int(storage.arrays.book[7])) / n


def assert_drawn_as(share, weight):
    """Each frequency lies within five standard deviations of its probability."""
    probability = weight / weight.sum()
    deviation = np.sqrt(probability * (1 - probability) / DRAWS)
    assert (np.abs(share - probability) <= 5 * deviation + 1e-12).all()


def pass_where_none_did(storage, writer):
    """The position of an edge to a state that was never seen."""
    states = np.array([[0, 0], [1000, 1000]], np.float32)
    never = np.zeros((1, 1), bool)
    following = {"observation": states[1:], "reward": never.astype(np.float32)}
    following |= {"terminated": never, "truncated": never}
    writer._streams.last[:] = storage.live_nodes()[0]
    block = {"observation": states[:1], "action": np.zeros(1, np.int64), "next": following}
    return int(writer.extend(block)[0])


@pytest.mark.parametrize(
    ("kind", "weight"),
    [(UniformEdgeSampler, lambda counts: counts > 0), (VisitSampler, lambda counts: counts)],
)
def test_edges_are_drawn_all_alike_or_by_their_visits(kind, weight):
    storage, writer = small_map(states=8, rows=3000)
    sampler = seeded(kind())
    counts = storage.counts(np.arange(len(storage)))
    assert counts.max() > 2 * counts.min()
    assert_drawn_as(drawn(sampler, storage), weight(counts).astype(float))
    for edge in (2, 5):
        lists.remove_edge(storage.arrays, edge)
    writer._streams.last[:] = -1
    writer.extend(corridor(0, 8))
    writer.extend(corridor(500, 8, seed=4))
    storage.check_valid()
    counts = storage.counts(np.arange(int(storage.arrays.book[7])))
    assert_drawn_as(drawn(sampler, storage), weight(counts).astype(float))
    sampler.check_valid()


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_edges_are_drawn_by_their_priorities_to_the_power_alpha(alpha):
    storage, _ = small_map(states=8, rows=3000)
    sampler = seeded(PrioritizedEdgeSampler(alpha=alpha, eps=0.01))
    sampler.sample(storage, 1)
    td_error = np.random.default_rng(0).normal(size=len(storage))
    sampler.update_priority(torch.arange(len(storage)), torch.from_numpy(td_error))
    assert_drawn_as(drawn(sampler, storage), (np.abs(td_error) + 0.01) ** alpha)


@pytest.mark.parametrize("beta", [0.4, 1.0])
def test_weights_are_n_p_to_the_minus_beta_over_the_largest(beta):
    storage, _ = small_map(states=8, rows=3000)
    sampler = seeded(PrioritizedEdgeSampler(alpha=0.6, beta_start=beta, eps=0.01))
    sampler.sample(storage, 1)
    n = len(storage)
    td_error = np.random.default_rng(0).normal(size=n)
    sampler.update_priority(torch.arange(n), torch.from_numpy(td_error))
    index, info = sampler.sample(storage, 32)
    probability = (np.abs(td_error) + 0.01) ** 0.6
    weight = (n * probability[index] / probability.sum()) ** -beta
    np.testing.assert_allclose(info["priority_weight"], weight / weight.max(), rtol=1e-6)


@each_sampler
def test_a_removed_edge_is_never_drawn(kind):
    storage, _ = small_map(states=20, rows=2000)
    sampler, gone = seeded(kind()), set()
    rng = np.random.default_rng(0)
    for _ in range(10):
        for node in rng.choice(storage.live_nodes(), 1):
            lists.remove_node(storage.arrays, int(node))
        gone = set(range(int(storage.arrays.book[7]))) - set(storage.live_edges().tolist())
        index = sampler.sample(storage, 2000)[0].tolist()
        assert not gone & set(index)
        assert storage.get(index).batch_size == (2000,)
    sampler.check_valid()
    assert len(gone) > 10


def test_a_td_error_that_comes_after_its_edge_was_removed_does_not_bring_it_back():
    storage, _ = small_map(states=8, rows=1000)
    sampler = seeded(PrioritizedEdgeSampler())
    index, _ = sampler.sample(storage, 64)
    edge = int(index[0])
    lists.remove_edge(storage.arrays, edge)
    sampler.sample(storage, 1)  # the sampler knows of it
    sampler.update_priority(index, torch.full((64,), 100.0))
    assert drawn(sampler, storage)[edge] == 0
    sampler.check_valid()


@pytest.mark.parametrize("drained", [True, False])
def test_a_position_that_is_used_again_has_the_largest_priority(drained):
    storage, writer = small_map(states=8, rows=1000)
    sampler = seeded(PrioritizedEdgeSampler(alpha=1.0, eps=1e-3))
    sampler.sample(storage, 1)
    n = len(storage)
    sampler.update_priority(torch.arange(n), torch.full((n,), 0.1))
    sampler.update_priority(torch.tensor([0]), torch.tensor([7.0]))
    lists.remove_edge(storage.arrays, 3)
    if drained:
        sampler.sample(storage, 1)
        assert sampler._tree.leaf(np.array([3])) == 0.0
    assert pass_where_none_did(storage, writer) == 3
    sampler.sample(storage, 1)
    assert sampler._tree.leaf(np.array([3])) == pytest.approx(7.001)


def test_an_edge_that_is_passed_again_keeps_its_priority():
    storage, writer = small_map(states=8, rows=1000)
    sampler = seeded(PrioritizedEdgeSampler(alpha=1.0, eps=1e-3))
    sampler.sample(storage, 1)
    n = len(storage)
    sampler.update_priority(torch.arange(n), torch.full((n,), 0.1))
    before = storage.counts(np.arange(n))
    writer.extend(corridor(300, 8, seed=0))
    assert (storage.counts(np.arange(n)) > before).sum() > n // 2
    sampler.sample(storage, 1)
    np.testing.assert_allclose(sampler._tree.leaf(np.arange(n)), 0.101)


def test_priorities_survive_the_trees_growth():
    storage = MapStorage(9000, (3,), np.float32, 3, num_actions=2)
    writer = GWRWriter(1.0, 1.0, embedding=Identity((3,)))
    writer.register_storage(storage)
    block = walk_block(np.random.default_rng(0), 6000)
    sampler = seeded(PrioritizedEdgeSampler(alpha=1.0, eps=1e-9))
    wanted = np.empty(0)
    for first in range(0, 6000, 1500):
        writer.extend(part(block, slice(first, first + 1500)))
        sampler.sample(storage, 8)
        known = len(wanted)
        np.testing.assert_allclose(sampler._tree.leaf(np.arange(known)), wanted, rtol=1e-6)
        wanted = np.random.default_rng(first).uniform(0.1, 1, len(storage))
        sampler.update_priority(torch.arange(len(storage)), torch.from_numpy(wanted))
        sampler.check_valid()
    assert sampler._tree.capacity >= len(storage) > 5000
    assert sampler._tree.total == pytest.approx(wanted.sum())
    assert sampler.footprint()["priorities"] == 16 * len(storage)


@each_sampler
@pytest.mark.parametrize("drained", [True, False])
def test_a_saved_memory_of_edges_goes_on_with_the_same_samples(kind, drained, tmp_path):
    """Also where edges were made and removed since the sampler looked last."""
    memories = []
    for _ in range(2):
        storage = MapStorage(60, (3,), np.float32, 3, num_actions=2)
        writer = GWRWriter(0.6, 1.0, embedding=Identity((3,)), rule=RuleSettings(max_age=2))
        memories.append(ReplayMemory(storage, kind(), writer, seed=0))
    first, second = memories
    block = walk_block(np.random.default_rng(0), 900)

    def go_on(memory, rows):
        memory.extend(part(block, rows))
        batch = memory.sample(32)
        memory.update_priority(batch["index"], batch["next", "reward"].squeeze(-1))
        return batch

    for start in range(0, 300, 20):
        go_on(first, slice(start, start + 20))
    second.extend(part(block, slice(0, 70)))  # what is there is forgotten
    second.sample(8)
    if not drained:
        dirty = first.storage.arrays.edges["dirty"]
        held = set(first.storage.live_edges().tolist())
        first.writer.extend(part(block, slice(300, 400)))  # of which the sampler is not told
        made = np.flatnonzero(dirty[: len(held)] == 2)
        assert held & set(made.tolist()), "no position was used again"
    first.save(tmp_path)
    second.load(tmp_path)
    second.check_valid()
    for start in range(400, 900, 20):
        rows = slice(start, start + 20)
        assert_close(go_on(first, rows), go_on(second, rows), rtol=0, atol=0)
    assert first.storage.num_edges == second.storage.num_edges
    assert first.footprint() == second.footprint()


@each_sampler
def test_a_sampler_that_comes_to_a_filled_map_draws_all_of_it(kind):
    """Before it was told of any, and after more came: more than it has room for at first."""
    storage = MapStorage(3000, (3,), np.float32, 3, num_actions=2)
    writer = GWRWriter(1.0, 1.0, embedding=Identity((3,)))
    writer.register_storage(storage)
    block = walk_block(np.random.default_rng(0), 2200)
    writer.extend(part(block, slice(0, 2000)))
    storage.drain_touched()  # whoever drew before
    sampler = seeded(kind())
    for _ in range(2):
        drawn, _ = sampler.sample(storage, 60_000)
        held = set(storage.live_edges().tolist())
        assert set(drawn.tolist()) <= held
        assert len(set(drawn.tolist())) > 0.99 * len(held) > 1024
        sampler.check_valid()
        writer.extend(part(block, slice(2000, 2200)))


def test_a_buffer_of_torchrl_is_made_around_a_filled_map():
    storage = MapStorage(3000, (3,), np.float32, 3, num_actions=2)
    writer = GWRWriter(1.0, 1.0, embedding=Identity((3,)))
    writer.register_storage(storage)
    writer.extend(walk_block(np.random.default_rng(0), 2000))
    assert len(storage) > 1024
    buffer = ReplayBuffer(storage=storage, sampler=PrioritizedEdgeSampler(), batch_size=8,
                          writer=writer, collate_fn=lambda it: it)  # fmt: skip
    assert len(buffer.sample()) == 8


def test_a_new_edge_has_the_largest_priority_of_when_it_came(tmp_path):
    def made():
        storage = MapStorage(500, (3,), np.float32, 3, num_actions=2)
        writer = GWRWriter(1.0, 1.0, embedding=Identity((3,)))
        return ReplayMemory(storage, PrioritizedEdgeSampler(), writer, seed=0)

    memory, again = made(), made()
    block = walk_block(np.random.default_rng(0), 80)
    memory.extend(part(block, slice(0, 40)))
    first = memory.sample(16)["index"]
    memory.extend(part(block, slice(40, 80)))
    memory.save(tmp_path / "saved")
    again.load(tmp_path / "saved")
    for each in (memory, again):
        each.update_priority(first, torch.full((16,), 9.0))
    assert torch.equal(memory.sample(64)["index"], again.sample(64)["index"])


def test_a_loaded_sampler_tells_the_bytes_of_the_saved_one():
    """Also where the newest edges had gone before it was told of any."""
    storage, _ = small_map(states=20, rows=400)
    for edge in storage.live_edges()[-3:]:
        lists.remove_edge(storage.arrays, int(edge))
    saved, loaded = PrioritizedEdgeSampler(), PrioritizedEdgeSampler()
    saved.synchronise(storage)
    loaded.load_state_dict(saved.state_dict())
    loaded.synchronise(storage)
    assert loaded.footprint() == saved.footprint() == {"priorities": 16 * storage.edge_positions}
