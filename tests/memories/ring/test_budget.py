"""memory.budget: all bytes counted, never passed, the oldest transitions go."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from rlmem.envs import EnvSpec
from rlmem.errors import UserError
from rlmem.memories import ReplayMemory
from rlmem.memories.base.lazy import give_back, lazy_zeros
from rlmem.memories.compression import arena
from rlmem.memories.compression.arena import SEGMENT
from rlmem.memories.gwr.map import MapStorage
from tests.memories.helpers import RandomEnvs, configured
from tests.memories.ring.test_ring_storages import make

FRAME = (1, 20, 20)
KINDS = ("dense", "frames", "compressed")
SAMPLERS = ("uniform", "cer", "per", "per_rank")


def limited(
    budget: Any,
    kind: str,
    sampler: str = "uniform",
    num_envs: int = 2,
    frame: tuple[int, ...] = FRAME,
    more: Sequence[str] = (),
) -> ReplayMemory:
    overrides = [f"memory={sampler}", f"memory.budget={budget}", "env=pong"]
    overrides += ["agent.n_step=2", "agent.gamma=0.9"]
    overrides.append(f"memory/storage={'map' if kind == 'map' else kind}")
    if kind == "map":
        overrides += ["memory=gwr", "memory.metric.scale=1.0", "memory.prototype=moving"]
        overrides += ["threshold.activation=0.9", "threshold.habituation=0.5"]
    spec = EnvSpec("ALE/Pong", "atari", num_envs, frame, np.dtype(np.uint8), 4, 6, 4)
    return configured(spec, *overrides, *more)


def held(memory: ReplayMemory) -> int:
    return sum(memory.footprint().values())


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_budget_is_filled_and_never_passed(kind: str, sampler: str) -> None:
    budget = 500_000
    memory = limited(budget, kind, sampler)
    most = 0
    # White noise, then frames that compress well, then noise again: what fits changes.
    for change in (1.0, 0.02, 1.0, 0.1):
        envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2, 0.02, change)
        for _ in range(50):
            memory.extend(envs.block(40))
            memory.sample(8)
            most = max(most, held(memory))
        memory.check_valid()
    assert 0.9 * budget < most <= budget
    assert len(memory) > 0.8 * most / (3300 if kind == "dense" else 520)


@pytest.mark.parametrize("kind", KINDS)
def test_the_newest_transitions_stay_and_are_exact(kind: str) -> None:
    memory = limited(400_000, kind)
    envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2, 0.02, 0.3)
    blocks = [envs.block(60) for _ in range(60)]
    slots = np.concatenate([memory.extend(block).numpy() for block in blocks])
    newest = slots[-len(memory) :]
    assert 50 < len(memory) < 3600
    assert len(set(newest.tolist())) == len(memory)
    frames = np.concatenate([block["observation"] for block in blocks])[-len(memory) :]
    after = np.concatenate([block["next"]["observation"] for block in blocks])[-len(memory) :]
    memory.storage.n_step = 1
    sample = memory.storage.get(torch.from_numpy(newest))
    np.testing.assert_array_equal(sample["observation"][:, -1:], frames)
    np.testing.assert_array_equal(sample["next", "observation"][:, -1:], after)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_what_was_evicted_is_not_drawn(sampler: str) -> None:
    """Fewer transitions fit after the frames stop compressing: slots lie empty."""
    memory = limited(300_000, "compressed", sampler)
    live: list[int] = []
    for change in (0.01, 1.0):
        envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2, 0.02, change)
        for _ in range(100):
            live += memory.extend(envs.block(40)).tolist()
            index = memory.sample(32)["index"]
            assert set(index.tolist()) <= set(live[-len(memory) :])
            memory.update_priority(index, torch.rand(32))
    assert len(memory) < int(memory.storage.arrays.head["size"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 8, 64, 200])
def test_open_chunks_of_many_environments_stay_within_the_budget(kind: str, rows: int) -> None:
    budget, frame = 2 * 2**20, (1, 42, 42)
    memory = limited(budget, kind, "per", 8, frame)
    envs = RandomEnvs(np.random.default_rng(0), frame, np.uint8, 8, 0.02)
    for _ in range(-(-1500 // rows)):
        memory.extend(envs.block(rows))
        assert held(memory) <= budget
    memory.check_valid()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_of_a_block_that_does_not_fit_the_newest_rows_are_held_and_drawn(
    kind: str, sampler: str
) -> None:
    budget = 150_000
    memory, small = limited(budget, kind, sampler), limited(budget, kind, sampler)
    envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2, 0.02)
    for rows in (2000, 30, 700):
        block = envs.block(rows)
        slots = memory.extend(block).numpy()
        for first in range(0, rows, 10):
            small.extend(rows_of(block, slice(first, first + 10)))
        assert held(memory) <= budget
        assert len(memory) > 0.8 * len(small)
        live = memory.storage.locate(torch.arange(len(memory)))
        newest = min(rows, len(memory))
        frames = memory.storage.get(slots[-newest:])["observation"][:, -1:]
        np.testing.assert_array_equal(frames, block["observation"][-newest:])
        for _ in range(30):
            assert np.isin(memory.sample(32)["index"], live).all()
        memory.check_valid()


def rows_of(block: dict[str, Any], rows: slice) -> dict[str, Any]:
    return {k: rows_of(v, rows) if isinstance(v, dict) else v[rows] for k, v in block.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_byte_fill_a_budget_in_large_blocks(kind: str) -> None:
    storage, lengths = make(kind, 100_000, (1,), np.uint8, budget=100_000), []
    envs = RandomEnvs(np.random.default_rng(0), (1,), np.uint8, 1, 0.0)
    block = envs.block(4097)
    for _ in range(4):
        storage.append(block)
        storage.check_valid()
        lengths.append(len(storage))
        assert storage.nbytes <= 100_000
    assert min(lengths) > 1500


def test_an_error_of_the_budget_leaves_a_valid_storage() -> None:
    """Eight rows of noise fit, but not the open chunks when they are full."""
    memory = limited(60_000, "compressed", "per", 8)
    envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 8, 0.0)
    for _ in range(10):
        memory.extend(envs.block(8))
    block = envs.block(400)
    with pytest.raises(UserError, match=r"too small .*, \d+ bytes are missing"):
        memory.extend(block)
    assert held(memory) > 30_000
    memory.check_valid()
    live = memory.storage.locate(torch.arange(len(memory)))
    memory.storage.get(live)


def test_a_slot_that_was_evicted_is_not_read() -> None:
    storage = make("compressed", 10_000, FRAME, budget=200_000)
    for change in (0.01, 1.0):
        envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 1, 0.02, change)
        for _ in range(25):
            storage.append(envs.block(40))
    size = int(storage.arrays.head["size"])
    assert len(storage) < size
    with pytest.raises(IndexError, match="holds no transition"):
        storage.get(np.arange(size))


def test_what_is_given_back_is_zeros_and_the_rest_stays() -> None:
    pages = lazy_zeros((9, SEGMENT), np.uint8, least=0)
    pages[:] = 1
    assert give_back(pages, 3, 2)
    assert pages[:, 0].tolist() == [1, 1, 1, 0, 0, 1, 1, 1, 1]
    for other in (np.ones((9, SEGMENT), np.uint8), lazy_zeros((9, 100), np.uint8, least=0)):
        assert not give_back(other, 3, 2)


def test_what_the_system_does_not_take_back_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena, "give_back", lambda *_: False)
    monkeypatch.setattr(arena, "can_give_back", lambda *_: False)
    strings = arena.Arena(500_000)
    blobs = [strings.put(np.ones(SEGMENT, np.uint8)) for _ in range(20)]
    before = strings.nbytes
    strings.release(np.concatenate(blobs))
    assert strings.give_back(10**6, 0) == 0
    assert strings.nbytes == before
    budget = 400_000  # and a budget holds all the same
    memory = limited(budget, "compressed", "per")
    for change in (0.01, 1.0, 0.1):
        envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2, 0.02, change)
        for _ in range(40):
            memory.extend(envs.block(40))
            assert held(memory) <= budget
    assert len(memory) > 300


def test_slots_leave_room_for_frames_that_compress_less_later() -> None:
    memory = limited(500_000, "compressed")
    for change, blocks in ((0.0, 60), (1.0, 4)):
        envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2, 0.0, change)
        for _ in range(blocks):
            memory.extend(envs.block(500))
            assert held(memory) <= 500_000
    assert len(memory) > 100


@pytest.mark.parametrize("change", [0.0, 0.005, 0.02])
@pytest.mark.parametrize("budget", [44_000, 53_000, 60_000, 66_000, 80_000])
def test_a_small_budget_that_is_taken_lasts(budget: int, change: float) -> None:
    """Slots take no room that open chunks and a second segment need later."""
    memory = limited(budget, "compressed", num_envs=4)
    envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 4, 0.002, change)
    for _ in range(600):
        memory.extend(envs.block(4))
    assert 24_000 < held(memory) <= budget
    assert len(memory) >= 40
    memory.check_valid()


def test_a_compressed_budget_without_room_for_frames_is_refused_before_a_run() -> None:
    with pytest.raises(UserError, match=r"memory\.budget=36000: too small .* missing"):
        limited(36_000, "compressed", num_envs=4)


def test_a_budget_takes_no_more_address_space_than_it_can_use() -> None:
    storage: Any = limited("64GiB", "compressed", frame=(3, 210, 160)).storage
    assert storage._arena.limit < 65 * 2**30


@pytest.mark.parametrize("kind", KINDS)
def test_a_budget_beyond_the_address_space_is_one_line(kind: str) -> None:
    with pytest.raises(UserError, match=r"memory\.budget: the system refuses"):
        limited("900TiB", kind)


def test_a_budget_beyond_any_machine_is_one_line() -> None:
    with pytest.raises(UserError, match=r"memory\.budget=9000TiB is more than a million GiB"):
        limited("9000TiB", "frames")


@pytest.mark.parametrize("kind", KINDS)
def test_a_budget_for_nothing_is_one_line(kind: str) -> None:
    with pytest.raises(UserError, match=r"memory\.budget=2000: too small") as error:
        limited(2000, kind).extend(
            RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2).block(40)
        )
    assert "\n" not in str(error.value)


def test_a_map_takes_as_many_nodes_as_fit() -> None:
    memory = limited("4MiB", "map")
    full = memory.projected_footprint()
    grow = "links", "edges", "sampler_tree"  # by how much depends on the play
    size = sum(full.values()) - sum(full[name] for name in grow)
    assert 0.99 * 4 * 2**20 < size <= 4 * 2**20


@pytest.mark.parametrize("change", [0.05, 1.0])
def test_a_map_never_holds_more_than_its_budget(change: float) -> None:
    budget = 1_100_000
    memory = limited(budget, "map")
    storage: Any = memory.storage
    envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2, 0.02, change)
    for _ in range(60):
        memory.extend(envs.block(40))
        memory.sample(8)
        assert held(memory) <= budget
    assert held(memory) > 0.97 * budget  # a map that evicts keeps a little spare
    if change < 1.0:  # much merges: there are more edges than were reckoned with
        assert storage.num_edges > storage.projected_edges
    memory.check_valid()


EXEMPLARS = ["memory.prototype=exemplar", "threshold.activation=1", "threshold.habituation=1"]


@pytest.mark.parametrize(
    ("eviction", "rows", "sampler"),
    [
        ("merge", 1, "visits"),
        ("merge", 64, "prioritized"),
        ("lru", 1, "prioritized"),
        ("lru", 8, "uniform"),
        ("lru", 300, "visits"),
    ],
)
def test_exemplars_fill_a_budget_and_never_pass_it(eviction: str, rows: int, sampler: str) -> None:
    """Compressible frames, then noise, then compressible ones; nodes come and go."""
    budget = 1_000_000
    more = [*EXEMPLARS, f"memory.eviction={eviction}", f"memory/sampler={sampler}"]
    memory = limited(budget, "map", more=more)
    storage: Any = memory.storage
    most = 0
    for change in (0.02, 1.0, 0.1):
        envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2, 0.02, change)
        for _ in range(900 // rows):
            memory.extend(envs.block(rows))
            if len(memory):
                memory.sample(4)
            most = max(most, held(memory))
            assert most <= budget
    assert most > 0.9 * budget
    memory.check_valid()
    newest = [envs.block(rows) for _ in range(-(-40 // rows))]
    for block in newest:
        memory.extend(block)
    frames = storage.node_observations(storage.live_nodes())[:, -1:]
    known = {frame.tobytes() for frame in frames}
    shown = [frame for block in newest for frame in block["next"]["observation"]]
    share = np.mean([frame.tobytes() in known for frame in shown])
    assert share > 0.5 if eviction == "lru" else share == 0.0


def test_a_budget_holds_more_exemplars_than_averages() -> None:
    nodes = []
    for more in ([], EXEMPLARS):
        memory = limited(1_500_000, "map", more=more)
        envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2, 0.02, 0.02)
        for _ in range(60):
            memory.extend(envs.block(40))
        nodes.append(memory.storage.entries)
    assert nodes[1] > 1.3 * nodes[0]


@pytest.mark.parametrize("prototype", ["moving", "exemplar"])
def test_the_scale_is_measured_within_the_budget(prototype: str) -> None:
    more = [f"memory.prototype={prototype}", "memory.metric.scale=auto"]
    budget = 1_500_000
    memory = limited(budget, "map", more=more)
    envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2, 0.02)
    for _ in range(70):
        memory.extend(envs.block(40))
        assert held(memory) <= budget
    assert memory.writer.scale is not None
    assert held(memory) > 0.9 * budget
    frame = (1, 60, 60)
    with pytest.raises(UserError, match=r"or fewer memory\.metric\.scale_samples") as error:
        limited(4_000_000, "map", frame=frame, more=more)
    assert "\n" not in str(error.value)


def test_a_map_without_room_for_three_nodes_is_one_line_that_says_what_has_room() -> None:
    with pytest.raises(UserError, match=r"=5000: .* a node without links and edges; use") as error:
        limited(5000, "map")
    least = int(re.findall(r"budget=(\d+) or more", str(error.value))[0])
    with pytest.raises(UserError, match=rf"memory\.budget={least - 10}: "):
        limited(least - 10, "map")
    assert limited(least + 10, "map").storage.max_size == 3


def test_a_map_of_more_nodes_than_can_be_named_is_one_line_or_the_most() -> None:
    assert limited("1TiB", "map", frame=(1, 1, 1)).storage.max_size == 2**30
    with pytest.raises(UserError, match=r"memory\.capacity=100000000000: a GWR map takes 3 to"):
        MapStorage(10**11, (4,), np.float32, 4, num_actions=2)
