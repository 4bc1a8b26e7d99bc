"""The map as a TorchRL storage: samples, visits, bytes, state, and what check_valid catches."""

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torchrl.data import ReplayBuffer, TensorDictReplayBuffer

from rlmem.errors import UserError
from rlmem.memories.base.serialize import load_state, save_state
from rlmem.memories.gwr import lists
from rlmem.memories.gwr.embedding import Identity
from rlmem.memories.gwr.map import MapStorage
from rlmem.memories.gwr.records import EDGE, HALF, NODE
from rlmem.memories.gwr.samplers import VisitSampler
from rlmem.memories.gwr.writer import GWRWriter
from tests.memories.gwr.maps import corridor, image_block, image_map, small_map, storage_options
from tests.memories.helpers import run_measured

torch.set_num_threads(1)


def test_a_sample_is_an_edge_between_two_prototypes():
    storage, writer = small_map(rows=0)
    block = corridor(50, 10)
    index = writer.extend(block)
    sample = storage.get(index)
    assert sample.batch_size == (50,)
    np.testing.assert_array_equal(sample["observation"].numpy(), block["observation"])
    np.testing.assert_array_equal(sample["action"].numpy(), block["action"])
    following = sample["next"]
    np.testing.assert_array_equal(following["observation"], block["next"]["observation"])
    np.testing.assert_array_equal(following["reward"], block["next"]["reward"])
    for name in ("terminated", "truncated", "done"):
        assert following[name].dtype == torch.bool
        assert not following[name].any()
    assert sample["steps_to_next"].dtype == torch.int64
    assert (sample["steps_to_next"] == 1).all()
    assert storage.get(index.reshape(5, 10))["next", "reward"].shape == (5, 10, 1)
    assert storage.get(int(index[0]))["observation"].shape == (2,)


def test_lengths_count_live_edges_and_nodes():
    storage, _ = small_map(states=20)
    assert storage.num_nodes == storage.entries <= 20
    assert len(storage) == storage.num_edges == len(storage.live_edges())
    assert storage.transitions_represented == 400
    assert storage.get(storage.live_edges()).batch_size == (len(storage),)


def test_positions_without_an_edge_are_refused():
    storage, _ = small_map()
    with pytest.raises(IndexError, match="no live edge"):
        storage.get([0, 10**6])
    lists.remove_edge(storage.arrays, 3)
    with pytest.raises(IndexError, match="no live edge"):
        storage.get(torch.tensor([3]))
    assert storage.contains([2, 3, -1, 10**6]).tolist() == [True, False, False, False]
    with pytest.raises(TypeError, match="GWRWriter"):
        storage.set(0, corridor(1, 2))


def test_removing_nodes_in_any_order_leaves_a_valid_map():
    storage, _ = small_map(states=30, rows=2000)
    for node in np.random.default_rng(0).permutation(storage.live_nodes()):
        lists.remove_node(storage.arrays, node)
        storage.check_valid()
    assert (storage.num_nodes, storage.num_links, storage.num_edges) == (0, 0, 0)


def test_freed_records_are_used_again():
    storage, writer = small_map(states=30, rows=1000)
    held = storage.footprint()
    for node in storage.live_nodes()[2:]:
        lists.remove_node(storage.arrays, node)
    writer._streams.last[:] = -1
    writer.extend(corridor(1000, 30))
    storage.check_valid()
    again = storage.footprint()
    assert all(again[name] <= 1.1 * held[name] for name in held)


def test_visit_sampler_follows_counts_and_removals():
    storage, _ = small_map(states=6, rows=3000)
    sampler = VisitSampler()
    sampler._rng = torch.Generator().manual_seed(0)
    index, _ = sampler.sample(storage, 60_000)
    share = np.bincount(index.numpy(), minlength=len(storage)) / 60_000
    wanted = storage.counts(np.arange(len(storage))) / 3000
    np.testing.assert_allclose(share, wanted, atol=5 * np.sqrt(0.25 / 60_000))
    lists.remove_edge(storage.arrays, int(index[0]))
    assert int(index[0]) not in sampler.sample(storage, 60_000)[0]
    assert sampler._tree.total == storage.transitions_represented
    sampler.check_valid()


def test_visit_sampler_grows_with_the_map():
    storage = MapStorage(5000, (2,), np.float32, 2, num_actions=2)
    writer = GWRWriter(1.0, 1.0, embedding=Identity((2,)))
    writer.register_storage(storage)
    sampler = VisitSampler(expected_edges=4000)
    small = sampler.footprint()["sampler_tree"]
    block = corridor(3000, 10)
    block["next"]["observation"] = np.random.default_rng(0).normal(size=(3000, 2))
    block["next"]["observation"] = block["next"]["observation"].astype(np.float32)
    block["observation"][1:] = block["next"]["observation"][:-1]
    writer.extend(block)
    sampler.sample(storage, 8)
    sampler.check_valid()
    assert sampler._tree.total == 3000
    assert sampler.footprint()["sampler_tree"] == 16 * storage.num_edges > small
    assert sampler.projected_footprint()["sampler_tree"] == 16 * 4000


def test_an_empty_map_gives_no_sample():
    storage, _ = small_map(rows=0)
    assert not VisitSampler().can_sample(storage, 1)
    with pytest.raises(RuntimeError, match="empty"):
        VisitSampler().sample(storage, 1)


def test_works_inside_torchrl_buffers():
    storage, writer = small_map(rows=0)
    parts = {"storage": storage, "sampler": VisitSampler(), "writer": writer, "batch_size": 16}
    parts["collate_fn"] = lambda x: x
    buffer = ReplayBuffer(**parts)
    buffer.set_rng(torch.Generator().manual_seed(0))
    index = buffer.extend(corridor(100, 10))
    assert index.shape == (100,)
    assert len(buffer) == len(storage)
    assert buffer.sample()["observation"].shape == (16, 2)
    buffer.empty()
    assert len(buffer) == 0

    storage, writer = small_map(rows=0)
    parts |= {"storage": storage, "sampler": VisitSampler(), "writer": writer}
    buffer = TensorDictReplayBuffer(**parts)
    buffer.extend(TensorDict(corridor(100, 10), [100]))
    sample = buffer.sample()
    assert sample["index"].shape == (16,)
    assert sample["next", "reward"].shape == (16, 1)


def test_state_survives_a_folder(tmp_path):
    storage, writer = small_map(states=40, rows=1500)
    lists.remove_node(storage.arrays, 5)
    save_state(tmp_path / "map", storage.state_dict())
    other, _ = small_map(states=3, rows=50)
    other.load_state_dict(load_state(tmp_path / "map"))
    other.check_valid()
    a, b = storage.state_dict(), other.state_dict()
    for name in a.keys() - {"edges.dirty", "book"}:
        np.testing.assert_array_equal(a[name], b[name])
    samplers = [VisitSampler(), VisitSampler()]
    for sampler in samplers:
        sampler._rng = torch.Generator().manual_seed(3)
    first, second = (s.sample(m, 100)[0] for s, m in zip(samplers, (storage, other), strict=True))
    assert torch.equal(first, second)
    storage.dumps(tmp_path / "again")
    writer.dumps(tmp_path / "writer")
    other.loads(tmp_path / "again")
    writer.loads(tmp_path / "writer")


def kind_of_map(**options):
    options = {"num_actions": 2, **options}
    key_dims = options.pop("embedding_dims", 2)
    capacity, shape = options.pop("capacity", 100), options.pop("shape", (2,))
    dtype, own = options.pop("dtype", np.float32), storage_options(options)
    return MapStorage(capacity, shape, dtype, key_dims, **own)


@pytest.mark.parametrize(
    "other",
    [
        {"shape": (3,)},
        {"dtype": np.uint8},
        {"dtype": np.uint8, "prototype": "exemplar"},
        {"embedding_dims": 4},
        {"embedding_dims": None},
        {"capacity": 10},
        {"contexts": 1},
        {"node_terminals": True},
        {"evict": True},
        {"num_actions": 0, "action_shape": (1,)},
    ],
    ids=str,
)
def test_a_state_of_another_kind_of_map_is_refused(other):
    storage, _ = small_map()
    strange = kind_of_map(**other)
    with pytest.raises(UserError, match="saved map"):
        strange.load_state_dict(storage.state_dict())
    with pytest.raises(UserError, match="saved map"):  # and the other way round
        storage.load_state_dict({**strange.state_dict(), "book": storage.arrays.book})
    storage.check_valid()


def test_an_edge_that_took_the_place_of_a_removed_one_is_not_the_removed_ones_row():
    storage, writer = image_map(0.99, metric_scale=2.0, max_age=1, prototype="exemplar")
    block = image_block(np.random.default_rng(0), 600)
    index = writer.extend(block).numpy()
    assert storage.arrays.book[7] > storage.num_edges or (index < 0).any(), "nothing was removed"
    made = index >= 0
    sample = storage.get(index[made])
    np.testing.assert_array_equal(sample["action"], block["action"][made])
    rows = np.flatnonzero(made)
    assert len(np.unique(index[made])) <= len(rows)
    counts = np.bincount(index[made], minlength=int(storage.arrays.book[7]))
    assert (counts <= storage.counts(np.arange(len(counts)))).all(), "a row names another's edge"


def test_footprint_counts_used_records_and_never_passes_the_projection():
    storage, writer = small_map(states=20, rows=400)
    held = storage.footprint()
    nodes, links, edges = storage.num_nodes, storage.num_links, storage.num_edges
    assert set(held) == {"prototypes", "embeddings", "contexts", "node_state", "links", "edges"}
    assert held["prototypes"] == held["embeddings"] == nodes * 8
    assert held["node_state"] == nodes * (NODE.itemsize + 1)
    assert held["links"] >= links * 2 * HALF.itemsize
    assert held["edges"] == edges * (EDGE.itemsize + 4)
    projected = storage.projected_footprint()
    assert held.keys() == projected.keys()
    assert all(held[name] <= projected[name] for name in held)
    assert set(writer.footprint()) == set(writer.projected_footprint())
    assert all(type(v) is int for part in (storage, writer) for v in part.footprint().values())


RSS_SCRIPT = """
import numpy as np, psutil, torch
from rlmem.memories import GWRWriter, MapStorage, RandomProjection, VisitSampler
from rlmem.memories import MapOptions, MetricSettings, RuleSettings
torch.set_num_threads(1)
shape = (4, 84, 84)
def build(capacity):
    options = {"stack": 4, "options": MapOptions(contexts=4)}
    storage = MapStorage(capacity, shape, np.uint8, 128, num_actions=18, **options)
    embedding = RandomProjection(shape, 128, 0, 1 / 255)
    rule = RuleSettings(metric=MetricSettings(scale=10.0))
    writer = GWRWriter(1.0, 1.0, num_envs=2, embedding=embedding, rule=rule)
    writer.register_storage(storage)
    return storage, writer, VisitSampler()
def fill(storage, writer, sampler, rows):
    rng = np.random.default_rng(0)
    previous = rng.integers(0, 256, (2, 1, 84, 84), dtype=np.uint8)
    never = np.zeros((64, 1), bool)
    for _ in range(rows // 64):
        frames = rng.integers(0, 256, (64, 1, 84, 84), dtype=np.uint8)
        before = np.concatenate([previous, frames[:-2]])
        previous = frames[-2:]
        following = {"observation": frames, "reward": never.astype(np.float32)}
        following |= {"terminated": never, "truncated": never}
        writer.extend({"observation": before, "action": rng.integers(18, size=64),
                       "env_id": np.arange(64) % 2, "next": following})
        sampler.sample(storage, 32)
fill(*build(200), 128)  # compiled code, BLAS buffers and the allocator's arenas are not the map's
process = psutil.Process()
start = process.memory_info().rss
parts = build(50_000)
fill(*parts, 5056)
grown = process.memory_info().rss - start
held = sum(sum(part.footprint().values()) for part in parts)
print(parts[0].num_nodes, grown, held, grown / held)
"""


def test_footprint_is_the_growth_of_the_process():
    nodes, grown, held, _ = run_measured(RSS_SCRIPT).split()
    assert int(nodes) > 4900
    assert int(held) == pytest.approx(int(grown), rel=0.02)
