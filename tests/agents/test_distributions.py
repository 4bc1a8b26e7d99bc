"""Distributions of returns, against loops over atoms in float64."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlmem import registry
from rlmem.agents.distributions import GROUP, Categorical, Mean, Quantiles
from rlmem.errors import UserError

CFG = SimpleNamespace(atoms=11, support=[-2.0, 3.0], loss="huber")
ROWS = 5


def draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_all_three_are_parts() -> None:
    assert sorted(registry.parts(GROUP)) == ["c51", "none", "qr"]


@given(
    seed=st.integers(0, 10_000),
    reward=st.floats(-6, 6),
    discount=st.sampled_from([0.0, 0.5, 0.99]),
)
def test_c51_projects_as_a_loop_over_atoms_does(seed: int, reward: float, discount: float) -> None:
    part = Categorical(CFG)
    following = draw(seed, 1, CFG.atoms)
    target = part.target(following, torch.tensor([[reward]]), torch.tensor([[discount]]))
    support = np.linspace(-2, 3, CFG.atoms)
    chances = following.double().softmax(-1).numpy()[0]
    wanted = np.zeros(CFG.atoms)
    for atom, chance in zip(support, chances, strict=True):
        place = (np.clip(reward + discount * atom, -2, 3) + 2) / 0.5
        below = int(np.floor(place + 1e-9))
        above = min(below + 1, CFG.atoms - 1)
        wanted[below] += chance * (1 - (place - below))
        wanted[above] += chance * (place - below)
    np.testing.assert_allclose(target.numpy()[0], wanted, atol=2e-5)
    assert target.sum().item() == pytest.approx(1, abs=1e-5)


def test_c51_keeps_the_mean_of_returns_within_its_support() -> None:
    part = Categorical(CFG)
    following, reward = draw(0, ROWS, CFG.atoms), 0.3 * torch.ones(ROWS, 1)
    target = part.target(following, reward, torch.full((ROWS, 1), 0.5))
    mean = 0.3 + 0.5 * part.values(following.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(part.mean(target), mean, atol=1e-5, rtol=0)


def test_c51_reckons_its_means_in_float32_under_autocast() -> None:
    part, outputs = Categorical(CFG), draw(3, ROWS, 4, CFG.atoms)
    plain = part.values(outputs), part.mean(outputs[:, 0].softmax(-1))
    with torch.autocast("cpu", torch.bfloat16):
        mixed = part.values(outputs), part.mean(outputs[:, 0].softmax(-1))
    assert [m.dtype for m in mixed] == [torch.float32] * 2
    torch.testing.assert_close(mixed, plain)


def test_c51_loss_is_the_cross_entropy() -> None:
    part = Categorical(CFG)
    taken, target = draw(1, ROWS, CFG.atoms), draw(2, ROWS, CFG.atoms).softmax(-1)
    wanted = -(target * taken.softmax(-1).log()).sum(-1)
    torch.testing.assert_close(part.losses(taken, target), wanted)
    torch.testing.assert_close(part.priority(torch.zeros(ROWS), wanted), wanted)


def test_quantile_loss_is_that_of_all_pairs() -> None:
    part = Quantiles(CFG)
    taken, target = draw(3, ROWS, CFG.atoms), draw(4, ROWS, CFG.atoms)
    wanted = np.zeros(ROWS)
    for row in range(ROWS):
        for i in range(CFG.atoms):
            tau = (i + 0.5) / CFG.atoms
            for j in range(CFG.atoms):
                u = float(target[row, j] - taken[row, i])
                huber = 0.5 * u**2 if abs(u) <= 1 else abs(u) - 0.5
                wanted[row] += abs(tau - (u < 0)) * huber / CFG.atoms
    np.testing.assert_allclose(part.losses(taken, target).numpy(), wanted, rtol=1e-5)


def test_quantiles_come_to_those_of_what_is_drawn() -> None:
    part, taken = Quantiles(CFG), torch.zeros(1, CFG.atoms, requires_grad=True)
    optimizer = torch.optim.Adam([taken], 0.5)
    returns = torch.linspace(0, 100, 1001).unsqueeze(0)
    for _ in range(600):
        optimizer.zero_grad()
        part.losses(taken, returns).sum().backward()
        optimizer.step()
    wanted = 100 * (torch.arange(CFG.atoms) + 0.5) / CFG.atoms
    # Up to the unit of the Huber loss, within which quantiles are drawn to the mean.
    torch.testing.assert_close(taken.detach()[0], wanted, atol=1.0, rtol=0)


def test_the_mean_is_plain_q_learning() -> None:
    part = Mean(CFG)
    following, reward, discount = draw(5, ROWS), torch.ones(ROWS, 1), torch.full((ROWS, 1), 0.5)
    torch.testing.assert_close(part.target(following, reward, discount), 1 + 0.5 * following)
    td_error = draw(6, ROWS)
    torch.testing.assert_close(part.priority(td_error, td_error.square()), td_error)


def test_one_atom_is_no_distribution() -> None:
    with pytest.raises(UserError, match=r"agent.atoms=1: c51 needs 2"):
        Categorical(SimpleNamespace(atoms=1, support=[-1, 1]))
