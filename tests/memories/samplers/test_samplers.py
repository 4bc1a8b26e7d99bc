"""The samplers: what they draw, how often, and with which weights."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torchrl.data.replay_buffers.scheduler import LinearScheduler

from rlmem.memories import (
    CombinedSampler,
    FrameStorage,
    LatestSampler,
    PrioritizedSampler,
    RankSampler,
    UniformSampler,
)
from tests.memories.helpers import vector_block

N = 40
DRAWS = 100_000
prioritized = pytest.mark.parametrize("kind", [PrioritizedSampler, RankSampler])


def storage_of(n: int, capacity: int = 64) -> FrameStorage:
    storage = FrameStorage(capacity, (4,), np.float32)
    if n:
        storage.set(torch.arange(n), vector_block(n))
    return storage


def seeded(sampler: Any, seed: int = 0) -> Any:
    sampler._rng = torch.Generator().manual_seed(seed)
    return sampler


def frequencies(index: torch.Tensor, n: int = N) -> np.ndarray:
    return np.bincount(index.numpy(), minlength=n) / len(index)


def assert_drawn_as(index: torch.Tensor, probability: np.ndarray) -> None:
    """Each frequency lies within five standard deviations of its probability."""
    deviation = np.sqrt(probability * (1 - probability) / len(index))
    assert (np.abs(frequencies(index, len(probability)) - probability) < 5 * deviation).all()


@pytest.fixture(name="td_error")
def td_errors() -> np.ndarray:
    return np.random.default_rng(1).normal(size=N) * np.linspace(0.01, 3, N)


def test_uniform_draws_each_transition_equally_often() -> None:
    index, info = seeded(UniformSampler()).sample(storage_of(N), DRAWS)
    assert_drawn_as(index, np.full(N, 1 / N))
    assert not info


def test_combined_ends_with_the_newest_and_draws_the_rest_uniformly() -> None:
    sampler, storage = seeded(CombinedSampler()), storage_of(N)
    sampler.extend(torch.arange(10, 20))
    index = torch.stack([sampler.sample(storage, 50)[0] for _ in range(2000)])
    assert (index[:, -1] == 19).all()
    assert_drawn_as(index[:, :-1].flatten(), np.full(N, 1 / N))


def test_latest_gives_the_oldest_unused_in_order_across_the_rings_end() -> None:
    sampler = LatestSampler(history=5)
    for slots in ([5, 6, 7, 8], [9, 0, 1]):
        sampler.extend(torch.tensor(slots))
    index, _ = sampler.sample(storage_of(10, 10), 5)
    assert index.tolist() == [5, 6, 7, 8, 9]


def test_latest_waits_until_a_batch_has_come() -> None:
    sampler, storage = LatestSampler(history=6), storage_of(10, 10)
    sampler.extend(torch.arange(4))
    assert not sampler.can_sample(storage, 5)
    with pytest.raises(RuntimeError, match="4 unused transitions, 5 are asked for"):
        sampler.sample(storage, 5)
    sampler.extend(torch.arange(4, 5))
    assert sampler.can_sample(storage, 5)


@pytest.mark.parametrize(
    "sampler", [UniformSampler(), CombinedSampler(), PrioritizedSampler(9), RankSampler(9)]
)
def test_an_empty_memory_cannot_be_sampled(sampler: Any) -> None:
    with pytest.raises(RuntimeError, match="the memory is empty"):
        sampler.sample(storage_of(0), 4)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_proportional_frequencies_are_the_priorities_to_the_power_alpha(
    alpha: float, td_error: np.ndarray
) -> None:
    sampler = seeded(PrioritizedSampler(64, alpha=alpha, eps=0.1))
    sampler.extend(torch.arange(N))
    sampler.update_priority(torch.arange(N), torch.from_numpy(td_error))
    index, _ = sampler.sample(storage_of(N), DRAWS)
    probability = (np.abs(td_error) + 0.1) ** alpha
    assert_drawn_as(index, probability / probability.sum())


def test_proportional_draws_are_stratified(td_error: np.ndarray) -> None:
    sampler = seeded(PrioritizedSampler(64, alpha=0.6))
    sampler.extend(torch.arange(N))
    sampler.update_priority(torch.arange(N), torch.from_numpy(td_error))
    prefix = np.cumsum((np.abs(td_error) + 1e-6) ** 0.6)
    ends = prefix / prefix[-1]
    starts = np.append(0, ends[:-1])
    for _ in range(50):
        index, _ = sampler.sample(storage_of(N), 16)
        stratum = np.arange(16) / 16
        assert (ends[index] >= stratum).all()
        assert (starts[index] <= stratum + 1 / 16).all()


@pytest.mark.parametrize("beta", [0.4, 1.0])
def test_proportional_weights_are_n_p_to_the_minus_beta_over_the_largest(
    beta: float, td_error: np.ndarray
) -> None:
    sampler = seeded(PrioritizedSampler(64, alpha=0.6, beta_start=beta, eps=0.01))
    sampler.extend(torch.arange(N))
    sampler.update_priority(torch.arange(N), torch.from_numpy(td_error))
    index, info = sampler.sample(storage_of(N), 32)
    probability = (np.abs(td_error) + 0.01) ** 0.6
    weight = (N * probability[index] / probability.sum()) ** -beta
    np.testing.assert_allclose(info["priority_weight"], weight / weight.max(), rtol=1e-6)
    assert info["priority_weight"].dtype == torch.float32


def test_rank_frequencies_are_the_ranks_to_the_power_minus_alpha(td_error: np.ndarray) -> None:
    sampler = seeded(RankSampler(64, alpha=0.7, sort_every=N))
    sampler.update_priority(torch.arange(N), torch.from_numpy(td_error))
    index, _ = sampler.sample(storage_of(N), DRAWS)
    rank = 1 + np.argsort(np.argsort(-np.abs(td_error)))
    probability = rank**-0.7
    assert_drawn_as(index, probability / probability.sum())


def test_rank_weights_are_n_p_to_the_minus_beta_over_the_largest(td_error: np.ndarray) -> None:
    sampler = seeded(RankSampler(64, alpha=0.7, beta_start=0.5, sort_every=N))
    sampler.update_priority(torch.arange(N), torch.from_numpy(td_error))
    index, info = sampler.sample(storage_of(N), 32)
    probability = (1 + np.argsort(np.argsort(-np.abs(td_error)))) ** -0.7
    weight = (N * probability[index] / probability.sum()) ** -0.5
    np.testing.assert_allclose(info["priority_weight"], weight / weight.max(), rtol=1e-6)


def test_the_heap_is_sorted_anew_after_sort_every_updates() -> None:
    sampler, rng = seeded(RankSampler(64, sort_every=100)), np.random.default_rng(0)
    for _ in range(10):
        priority = rng.random(10)
        index = rng.choice(N, 10, replace=False)
        sampler.update_priority(torch.from_numpy(index), torch.from_numpy(priority))
    state = sampler.state_dict()
    assert (np.diff(state["priority"][state["order"]]) <= 0).all()


@prioritized
def test_a_new_transition_gets_the_largest_priority_so_far(kind: Any) -> None:
    sampler = seeded(kind(64, alpha=1.0, beta_start=1.0))
    sampler.extend(torch.arange(10))
    sampler.update_priority(torch.arange(10), torch.full((10,), 1e-3))
    sampler.update_priority(torch.tensor([3]), torch.tensor([-50.0]))
    sampler.update_priority(torch.tensor([3]), torch.tensor([1e-3]))
    assert sampler.default_priority == 50.0
    sampler.extend(torch.tensor([10]))
    index, _ = sampler.sample(storage_of(11), 1000)
    assert frequencies(index, 11).argmax() == 10


@prioritized
def test_where_all_items_were_removed_any_is_drawn(kind: Any) -> None:
    sampler = seeded(kind(64))
    sampler.extend(torch.arange(10))
    sampler.remove(np.arange(10))
    index, _ = sampler.sample(storage_of(10), 100)
    assert set(index.tolist()) <= set(range(10))


@prioritized
def test_a_slot_that_is_written_again_is_new_again(kind: Any) -> None:
    sampler = seeded(kind(64))
    sampler.extend(torch.arange(10))
    sampler.update_priority(torch.arange(10), torch.full((10,), 1e-3))
    before = frequencies(sampler.sample(storage_of(10), 1000)[0], 10)[0]
    sampler.extend(torch.tensor([0]))
    assert frequencies(sampler.sample(storage_of(10), 1000)[0], 10)[0] > 2 * before
    sampler.check_valid()


@prioritized
def test_beta_rises_linearly_and_stays_at_its_end(kind: Any) -> None:
    sampler = kind(64, beta_start=0.4, beta_end=0.8, beta_steps=1000)
    seen = []
    for env_steps in (0, 500, 1000, 5000):
        sampler.anneal(env_steps)
        seen.append(sampler.beta)
    assert seen == pytest.approx([0.4, 0.6, 0.8, 0.8])


@prioritized
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_td_error_that_is_not_finite_is_refused(kind: Any, bad: float) -> None:
    sampler = kind(64)
    sampler.extend(torch.arange(4))
    with pytest.raises(ValueError, match="not finite: the network has diverged"):
        sampler.update_priority(torch.arange(3), torch.tensor([1.0, bad, 2.0]))


@prioritized
def test_of_a_transition_drawn_twice_the_last_td_error_stands(kind: Any) -> None:
    twice, once = seeded(kind(64)), seeded(kind(64))
    for sampler in (twice, once):
        sampler.extend(torch.arange(10))
    twice.update_priority(torch.tensor([2, 5, 2]), torch.tensor([0.9, 0.5, 0.1]))
    once.update_priority(torch.tensor([5, 2]), torch.tensor([0.5, 0.1]))
    key = "leaves" if kind is PrioritizedSampler else "priority"
    np.testing.assert_array_equal(twice.state_dict()[key], once.state_dict()[key])


PRIORITIZED = {
    "proportional": PrioritizedSampler,
    "rank": partial(RankSampler, sort_every=7),
}
each_prioritized = pytest.mark.parametrize("kind", PRIORITIZED)


def learned(kind: str, alpha: float, capacity: int = 64) -> Any:
    """A sampler of N items, of which some have priorities and two were removed."""
    sampler, rng = seeded(PRIORITIZED[kind](capacity, alpha=alpha)), np.random.default_rng(0)
    sampler.extend(torch.arange(N))
    sampler.update_priority(torch.arange(0, N, 2), torch.from_numpy(rng.exponential(size=N // 2)))
    sampler.remove(np.array([3, 4]))
    return sampler


def assert_draw_alike(sampler: Any, twin: Any) -> None:
    storage = storage_of(N)
    for _ in range(5):
        (index, info), (expected, own) = (each.sample(storage, 32) for each in (sampler, twin))
        assert torch.equal(index, expected)
        torch.testing.assert_close(info["priority_weight"], own["priority_weight"])
        for each in (sampler, twin):
            each.update_priority(index, torch.linspace(0, 3, 32))
    sampler.check_valid()


@each_prioritized
@pytest.mark.parametrize("alphas", [(0.9, 0.4), (0.3, 1.0), (0.6, 0.2, 0.8, 0.6), (0.7, 0.0)])
def test_a_new_alpha_holds_for_what_has_priorities_already(
    kind: str, alphas: tuple[float, ...]
) -> None:
    first, *others = alphas
    sampler, twin = learned(kind, first), learned(kind, others[-1])
    sampler.sample(storage_of(N), 8)
    seeded(sampler)
    for alpha in others:
        sampler.alpha = torch.tensor(alpha, dtype=torch.float64)
    assert sampler.alpha == alphas[-1]
    assert_draw_alike(sampler, twin)


def test_an_alpha_raised_from_0_counts_all_items_as_new() -> None:
    sampler = learned("proportional", 0.0)
    sampler.alpha = 0.5
    leaves = sampler.state_dict()["leaves"][:N]
    wanted = np.full(N, np.sqrt(sampler.default_priority + sampler.eps))
    wanted[[3, 4]] = 0.0
    np.testing.assert_allclose(leaves, wanted)


@each_prioritized
@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf"), torch.tensor(-0.1)])
def test_an_exponent_that_is_negative_or_not_finite_is_refused(
    kind: str, name: str, bad: Any
) -> None:
    sampler, twin = learned(kind, 0.6), learned(kind, 0.6)
    with pytest.raises(ValueError, match=f"{name}=.*: give 0 or more"):
        setattr(sampler, name, bad)
    with pytest.raises(ValueError, match="give 0 or more"):
        PRIORITIZED[kind](8, **{"alpha": bad} if name == "alpha" else {"beta_start": bad})
    assert_draw_alike(sampler, twin)


def test_an_alpha_for_which_no_number_holds_the_weights_is_refused_and_changes_nothing() -> None:
    sampler, twin = learned("proportional", 0.6), learned("proportional", 0.6)
    with pytest.raises(ValueError, match="finite"):
        sampler.alpha = 1e15
    assert sampler.alpha == 0.6
    assert_draw_alike(sampler, twin)


def test_a_state_with_an_alpha_of_any_size_is_taken_whole() -> None:
    sampler, other = learned("proportional", 0.6), learned("proportional", 0.6)
    state = sampler.state_dict() | {"alpha": 1e15}
    other.load_state_dict(state)
    assert other.alpha == 1e15
    np.testing.assert_array_equal(other.state_dict()["leaves"], state["leaves"])


@each_prioritized
def test_a_state_brings_the_alpha_of_its_weights(kind: str) -> None:
    sampler, other = learned(kind, 0.9), learned(kind, 0.6)
    sampler.alpha = 0.4
    other.load_state_dict(sampler.state_dict())
    assert other.alpha == 0.4
    assert_draw_alike(seeded(other), seeded(sampler))


@each_prioritized
@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize("first", [0.2, torch.tensor(0.2)])
def test_torchrls_schedulers_move_the_exponents(kind: str, name: str, first: Any) -> None:
    sampler, storage = learned(kind, 0.6), storage_of(N)
    setattr(sampler, name, first)
    scheduler = LinearScheduler(sampler, name, final_value=torch.tensor(0.9), num_steps=10)
    for _ in range(12):
        scheduler.step()
        index, _ = sampler.sample(storage, 8)
        sampler.update_priority(index, torch.rand(8))
        sampler.check_valid()
    assert getattr(sampler, name) == pytest.approx(0.9)
    save = sampler.state_dict()
    assert all(isinstance(v, np.ndarray | float | int) for v in save.values())


@pytest.mark.parametrize(
    "make",
    [
        UniformSampler,
        CombinedSampler,
        lambda: PrioritizedSampler(64),
        lambda: RankSampler(64),
    ],
    ids=["uniform", "combined", "prioritized", "rank"],
)
def test_a_generator_decides_the_draws(make: Any) -> None:
    storage, draws = storage_of(N), []
    for _ in range(2):
        sampler = seeded(make(), seed=3)
        sampler.extend(torch.arange(N))
        draws.append(torch.cat([sampler.sample(storage, 8)[0] for _ in range(3)]))
    assert torch.equal(*draws)


def test_a_round_that_brings_nothing_takes_no_unused_transition_away() -> None:
    storage, sampler = storage_of(20), LatestSampler(4)
    sampler.extend(torch.arange(12))
    sampler.extend(torch.empty(0, dtype=torch.int64))
    assert sampler.available(storage, 4, 8) == 3
