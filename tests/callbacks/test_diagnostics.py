"""Replay diagnostics: each column's known answer, for rings, budgets, maps and no replay."""

import copy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmem.callbacks import diagnostics
from rlmem.callbacks.diagnostics import (
    DIAGNOSTICS,
    ReplayDiagnostics,
    correlation_count,
    effective_sample_size,
    summarize_td_errors,
)
from rlmem.integrations import wandb_dashboard
from rlmem.memories import (
    CombinedSampler,
    CompressedFrameStorage,
    FrameStorage,
    LatestSampler,
    PrioritizedSampler,
    ReplayMemory,
    RingWriter,
    UniformSampler,
    VisitSampler,
)
from rlmem.memories.base.batch import Batch
from rlmem.memories.base.serialize import load_state, save_state
from rlmem.memories.samplers.sequence import SequenceSampler
from tests.memories.gwr.maps import part, vector_map, walk_block
from tests.memories.helpers import RandomEnvs, vector_block
from tests.memories.ring.test_budget import FRAME, limited
from tests.runs.helpers import TIMINGS, rows_of, run


class Chosen(UniformSampler):
    """Draws the slots that a test gives, minibatch by minibatch."""

    def __init__(self) -> None:
        super().__init__()
        self.slots: list[Sequence[int]] = []

    def sample(self, storage: Any, batch_size: int) -> tuple[torch.Tensor, dict]:
        return torch.tensor(self.slots.pop(0)), {}


def ring(capacity: int, sampler: Any = None) -> tuple[ReplayMemory, ReplayDiagnostics]:
    storage = FrameStorage(capacity, frame_shape=(4,), dtype=np.float32)
    memory = ReplayMemory(storage, sampler or Chosen(), RingWriter(), seed=0)
    return memory, ReplayDiagnostics(memory)


def learn(diagnostics: ReplayDiagnostics, batch: Batch) -> None:
    """As an agent that learns from a batch [U, B, ...], with TD errors 1, 2, ..."""
    shape = batch["index"].shape
    error = torch.arange(1.0, 1 + shape[-1]).expand(shape)
    outputs = {"td_error": error, "loss": torch.arange(float(shape[0]))}
    diagnostics.learned(batch, outputs)


def draw(
    memory: ReplayMemory, diagnostics: ReplayDiagnostics, *slots: Sequence[int]
) -> dict[str, Any]:
    """The row after minibatches of these slots."""
    memory.sampler.slots = list(slots)
    learn(diagnostics, memory.sample(len(slots[0]), len(slots)))
    return diagnostics.columns()


def test_an_age_is_what_was_written_since() -> None:
    memory, diagnostics = ring(20)
    memory.extend(vector_block(6))
    memory.extend(vector_block(4))
    row = draw(memory, diagnostics, [0, 9, 5])
    assert row["sample_age_mean"] == (9 + 0 + 4) / 3
    assert row["sample_age_max"] == 9


def test_ages_in_a_ring_that_went_round() -> None:
    memory, diagnostics = ring(8)
    memory.extend(vector_block(11))  # 8, 9, 10 stand at the slots 0, 1, 2
    row = draw(memory, diagnostics, [0, 3])
    assert (row["sample_age_mean"], row["sample_age_max"]) == ((2 + 7) / 2, 7)


def test_the_sampled_fraction_is_of_what_is_held() -> None:
    memory, diagnostics = ring(8)
    memory.extend(vector_block(6))
    assert diagnostics.columns()["sampled_fraction"] == 0
    assert draw(memory, diagnostics, [0, 1, 2, 2])["sampled_fraction"] == 3 / 6
    memory.extend(vector_block(3))  # the third at slot 0
    assert diagnostics.columns()["sampled_fraction"] == 2 / 8


def test_the_dashboard_shows_each_of_them() -> None:
    assert {*DIAGNOSTICS} <= {*wandb_dashboard.LEARNING}


def test_overlap_is_with_the_minibatch_before() -> None:
    memory, diagnostics = ring(8)
    memory.extend(vector_block(8))
    assert draw(memory, diagnostics, [0, 1, 2, 3])["batch_overlap"] is None
    assert draw(memory, diagnostics, [2, 2, 3, 4])["batch_overlap"] == 3 / 4
    assert draw(memory, diagnostics, [0, 1, 5, 6])["batch_overlap"] == 0
    assert draw(memory, diagnostics, [5, 6, 7, 7], [0, 5, 6, 1])["batch_overlap"] == 2 / 4


def test_a_slot_that_was_written_over_is_another_transition() -> None:
    memory, diagnostics = ring(8)
    memory.extend(vector_block(8))
    draw(memory, diagnostics, [0, 1])
    memory.extend(vector_block(1))  # at slot 0
    assert draw(memory, diagnostics, [0, 1])["batch_overlap"] == 1 / 2


def test_runs_of_transitions_are_drawn_step_by_step() -> None:
    memory, diagnostics = ring(60, SequenceSampler(5))
    memory.extend(RandomEnvs(np.random.default_rng(0), (4,), np.float32, end=0.0).block(50))
    batch = memory.draw(8, 3)
    index = batch["index"]
    learn(diagnostics, batch)
    row = diagnostics.columns()
    assert row["sampled_fraction"] == len(index.unique()) / 50
    before = torch.isin(index[-1], index[-2])
    assert row["batch_overlap"] == pytest.approx(float(before.float().mean()))
    states = batch["observation"][-1].reshape(8 * 5, 4)
    assert row["correlation_count"] == correlation_count(states)


def test_no_replay_uses_each_transition_once() -> None:
    memory, diagnostics = ring(4, LatestSampler(history=4))
    memory.extend(vector_block(4))
    learn(diagnostics, memory.draw(4, 1))
    assert diagnostics.columns()["sampled_fraction"] == 1
    memory.extend(vector_block(2))
    assert diagnostics.columns()["sampled_fraction"] == 1 / 2
    memory.extend(vector_block(2))
    learn(diagnostics, memory.draw(4, 1))
    row = diagnostics.columns()
    assert (row["batch_overlap"], row["sample_age_mean"], row["sample_age_max"]) == (0, 1.5, 3)


def test_a_row_tells_of_the_newest_minibatch_since_the_last_row() -> None:
    memory, diagnostics = ring(8)
    memory.extend(vector_block(8))
    memory.sampler.slots = [[0, 1], [2, 3]]
    learn(diagnostics, memory.draw(2, 2))
    memory.extend(vector_block(5))
    row = diagnostics.columns()
    assert (row["loss"], row["td_error_mean"], row["sample_age_max"]) == (1.0, 1.5, 5)
    empty = {name for name, value in diagnostics.columns().items() if value is None}
    assert empty == set(DIAGNOSTICS) - {"sampled_fraction"}


@pytest.mark.parametrize(
    ("weights", "size"), [([1, 1, 1, 1], 4.0), ([1, 0.5], 1.8), ([1, 1e-9, 1e-9], 1.0)]
)
def test_the_effective_sample_size_is_kishs(weights: list[float], size: float) -> None:
    assert effective_sample_size(torch.tensor(weights)[:, None]) == pytest.approx(size, rel=1e-6)


def test_the_weights_of_a_row_are_those_of_the_last_minibatch() -> None:
    memory, diagnostics = ring(8, PrioritizedSampler(8))
    memory.extend(vector_block(8))
    memory.update_priority(torch.arange(8), 0.1 + torch.arange(8.0))
    batch = memory.draw(6, 3)
    learn(diagnostics, batch)
    weight = batch["weight"][-1].flatten().double().numpy()
    row = diagnostics.columns()
    assert row["weight_min"] == weight.min() < 1
    assert row["effective_sample_size"] == pytest.approx(weight.sum() ** 2 / (weight**2).sum())


def check_against_a_list(memory: ReplayMemory, blocks: Iterable[dict[str, Any]]) -> int:
    """Columns against a list of which transition stands at which slot; how many were evicted."""
    diagnostics, storage = ReplayDiagnostics(memory), memory.storage
    number: dict[int, int] = {}  # slot -> the transition there
    ever: set[int] = set()
    evicted = 0
    for block in blocks:
        length = len(memory)
        index = memory.extend(block).tolist()
        evicted += length + len(index) - len(memory)
        first = memory.transitions_seen - len(index)
        number |= {slot: first + row for row, slot in enumerate(index)}
        batch = memory.draw(5, 2)
        before, newest = ([number[slot] for slot in row] for row in batch["index"].tolist())
        ever |= {*before, *newest}
        learn(diagnostics, batch)
        row = diagnostics.columns()
        ages = [memory.transitions_seen - 1 - n for n in newest]
        held = storage.locate(torch.arange(len(storage))).tolist()
        assert row["sample_age_mean"] == pytest.approx(np.mean(ages))
        assert row["sample_age_max"] == max(ages)
        assert row["batch_overlap"] == np.mean([n in before for n in newest])
        assert row["sampled_fraction"] == np.mean([number[slot] in ever for slot in held])
    return evicted


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=30), seed=st.integers(0, 99))
@settings(max_examples=15)
def test_a_ring_forgets_what_it_wrote_over(sizes: list[int], seed: int) -> None:
    envs = RandomEnvs(np.random.default_rng(seed), (1, 6, 6), np.uint8, num_envs=2)
    storage = CompressedFrameStorage(70, frame_shape=(1, 6, 6), num_envs=2, stack=2)
    memory = ReplayMemory(storage, CombinedSampler(), RingWriter(), seed=seed)
    check_against_a_list(memory, (envs.block(size) for size in sizes))


@pytest.mark.parametrize("kind", ["frames", "compressed"])
def test_a_ring_forgets_what_its_budget_evicted(kind: str) -> None:
    memory = limited(400_000, kind)
    blocks = []
    for change in (0.02, 1.0, 0.1):
        envs = RandomEnvs(np.random.default_rng(0), FRAME, np.uint8, 2, 0.02, change)
        blocks += [envs.block(40) for _ in range(40)]
    assert check_against_a_list(memory, blocks) > 1000


MAPS = {
    "pruned": {"max_age": 2, "activation": 0.9},
    "evicting": {"evict": True, "capacity": 12, "activation": 0.95},
    "three steps": {"n_step": 3, "activation": 0.8},
}


@pytest.mark.parametrize("options", MAPS.values(), ids=list(MAPS))
@pytest.mark.parametrize("warm_up", [1, 60])
def test_an_edge_of_a_map_stays_the_same_item_until_it_is_removed(
    options: dict[str, Any], warm_up: int
) -> None:
    """Against the edges' counts before and after each row."""
    storage, writer = vector_map(**options)
    memory = ReplayMemory(storage, VisitSampler(), writer, seed=0)
    diagnostics = ReplayDiagnostics(memory)
    block = walk_block(np.random.default_rng(3), 400)
    passed, ever = np.full(5000, -1), np.zeros(5000, bool)
    removed = 0
    for row in range(400):
        before = np.zeros(5000)
        before[: len(storage._edges)] = storage._edges["count"]
        own = memory.extend(part(block, slice(row, row + 1))).numpy()
        after = np.zeros(5000)
        after[: len(storage._edges)] = storage._edges["count"]
        made = own[(own >= 0) & (after[own] == 1)]  # perhaps where another was removed
        passed[(after != before) & (after > 0)] = row
        passed[made] = row
        ever &= (after > 0) & (after >= before)
        ever[made] = False
        removed += np.count_nonzero(after < before)
        if row < warm_up or not len(memory):
            continue
        batch = memory.draw(4, 1)
        learn(diagnostics, batch)
        index = batch["index"][0].numpy()
        ever[index] = True
        found = diagnostics.columns()
        assert found["sample_age_max"] == (row - passed[index]).max()
        assert found["sample_age_mean"] == pytest.approx((row - passed[index]).mean())
        assert found["sampled_fraction"] == ever.sum() / np.count_nonzero(after)
    assert (removed > 0) == ("n_step" not in options)


def test_a_saved_state_gives_the_same_rows(tmp_path: Path) -> None:
    rows = []
    for name in ("whole", "resumed"):
        memory, diagnostics = ring(30, UniformSampler())
        for seed in range(6):
            memory.extend(vector_block(7, seed))
            learn(diagnostics, memory.draw(5, 2))
            if name == "resumed" and seed == 3:
                memory.save(tmp_path / "memory")
                save_state(tmp_path / "diagnostics", diagnostics.state_dict())
                memory, diagnostics = ring(30, UniformSampler())
                diagnostics.load_state_dict(load_state(tmp_path / "diagnostics"))
                memory.load(tmp_path / "memory")
            if seed > 2:
                rows.append(diagnostics.columns())
    assert rows[:3] == rows[3:]


def test_a_state_that_is_kept_stays_as_it_is() -> None:
    memory, diagnostics = ring(30, UniformSampler())
    memory.extend(vector_block(20))
    learn(diagnostics, memory.sample(5, 2))
    state = diagnostics.state_dict()
    kept = copy.deepcopy(state)
    memory.extend(vector_block(20, 1))
    learn(diagnostics, memory.sample(5, 2))
    for name in ("written", "drawn"):
        np.testing.assert_array_equal(state[name], kept[name])
    assert state["values"] == kept["values"]


def test_of_what_was_written_before_no_age_is_known() -> None:
    memory, _ = ring(20)
    memory.extend(vector_block(10))
    diagnostics = ReplayDiagnostics(memory)
    row = draw(memory, diagnostics, [0, 9])
    assert (row["sample_age_mean"], row["sampled_fraction"]) == (None, 2 / 10)
    memory.extend(vector_block(2))
    row = draw(memory, diagnostics, [0, 10])
    assert (row["sample_age_mean"], row["batch_overlap"]) == (1, 1 / 2)


def test_the_memorys_bytes_are_its_own() -> None:
    memory, _ = ring(20)
    bare = ReplayMemory(
        FrameStorage(20, frame_shape=(4,), dtype=np.float32), Chosen(), RingWriter(), seed=0
    )
    for each in (memory, bare):
        each.extend(vector_block(10))
    assert memory.footprint() == bare.footprint()


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [["memory=per"], ["memory=none"], ["memory=gwr"], ["memory=gwr", "memory/sampler=prioritized"]],
    ids=" ".join,
)
def test_a_run_is_the_same_without_diagnostics(given: list[str], tmp_path: Path) -> None:
    for name, switch in (("on", "true"), ("off", "false")):
        run(tmp_path / name, *given, f"log.diagnostics={switch}")
    on, off = (rows_of(tmp_path / name / "metrics.csv") for name in ("on", "off"))
    assert set(on[0]) - set(off[0]) == set(DIAGNOSTICS) - {"loss"}
    same = set(off[0]) - TIMINGS - {"loss"}
    assert [{k: r[k] for k in same} for r in on] == [{k: r[k] for k in same} for r in off]
    pairs = zip(on, off, strict=True)
    assert all(b["loss"] in ("", a["loss"]) for a, b in pairs)
    left, right = (
        (tmp_path / name / "checkpoints/last/model.safetensors").read_bytes()
        for name in ("on", "off")
    )
    assert left == right


@given(
    rows=st.integers(1, 12),
    features=st.integers(2, 30),
    threshold=st.sampled_from([0.2, 0.5, 0.8]),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=50)
def test_the_correlation_count_agrees_with_numpy(
    rows: int, features: int, threshold: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(rows, features)) + 2 * rng.normal(size=features)
    matrix = np.abs(np.corrcoef(states)).reshape(rows, rows)
    pairs = matrix[np.triu_indices(rows, 1)]
    if (np.abs(pairs - threshold) < 1e-4).any():
        return  # float32 and float64 may part there
    count = correlation_count(torch.from_numpy(states).float(), threshold)
    assert count == (pairs > threshold).sum()


@pytest.mark.parametrize("at_once", [1, 7, 40, 100])
def test_the_correlation_count_is_the_same_however_many_are_compared_at_once(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
    pairs = np.abs(np.corrcoef(states.numpy()))[np.triu_indices(40, 1)]
    monkeypatch.setattr(diagnostics, "PAIRED", at_once)
    assert correlation_count(states, 0.5) == (pairs > 0.5).sum() > 20


@pytest.mark.parametrize("size", [7, 12])
@pytest.mark.parametrize("value", [2.0, 0.1])  # the mean of seven .1 is another number
def test_a_constant_state_correlates_with_none(size: int, value: float) -> None:
    states = torch.stack([torch.full((size,), value), torch.full((size,), 3 * value)])
    assert correlation_count(states) == 0


def test_opposite_states_correlate() -> None:
    state = torch.randint(256, (1, 4, 9, 9), dtype=torch.uint8)
    assert correlation_count(torch.cat([state, 255 - state, state])) == 3


def test_td_errors_are_summarized_by_their_size() -> None:
    mean, median, largest, deviation = summarize_td_errors(torch.tensor([-3.0, 1.0, 2.0]))
    assert (mean, median, largest) == (2.0, 2.0, 3.0)
    assert deviation == pytest.approx(np.std([3, 1, 2]))
