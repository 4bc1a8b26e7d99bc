"""Steps from lists of gradients, against torch's own."""

import copy

import pytest
import torch
from torch import nn

from rlmem.agents.optimizers import OPTIMIZERS, FusedAdam, apply_gradients, make_optimizer


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))


def gradients_of(net: nn.Module, step: int) -> list[torch.Tensor]:
    inputs = torch.randn(7, 3, generator=torch.Generator().manual_seed(step))
    return list(torch.autograd.grad(net(inputs).square().sum(), list(net.parameters())))


def same(left: nn.Module, right: nn.Module) -> bool:
    pairs = zip(left.parameters(), right.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("max_norm", [None, 0.5, 1e9])
def test_adam_steps_as_torchs_fused_one(max_norm: float | None) -> None:
    own, other = network(), network()
    adam = FusedAdam(own.parameters(), lr=0.01, eps=1e-4)
    torchs = torch.optim.Adam(other.parameters(), lr=0.01, eps=1e-4, fused=True)
    for step in range(5):
        apply_gradients(adam, 0, gradients_of(own, step), max_norm)
        for weight, gradient in zip(other.parameters(), gradients_of(other, step), strict=True):
            weight.grad = gradient
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(other.parameters(), max_norm)
        torchs.step()
    assert same(own, other)
    assert adam.state_dict()["state"].keys() == torchs.state_dict()["state"].keys()
    for values, expected in zip(adam.state.values(), torchs.state.values(), strict=True):
        assert values.keys() == expected.keys()
        assert all(torch.equal(values[name], expected[name]) for name in values)


def test_a_loaded_state_is_gone_on_with() -> None:
    own, other = network(), network()
    adam = FusedAdam(own.parameters(), lr=0.01)
    apply_gradients(adam, 0, gradients_of(own, 0))
    later = FusedAdam(other.parameters(), lr=0.01)
    apply_gradients(later, 0, gradients_of(other, 9))  # a state that the loaded one replaces
    other.load_state_dict(own.state_dict())
    later.load_state_dict(copy.deepcopy(adam.state_dict()))
    for net, optimizer in ((own, adam), (other, later)):
        apply_gradients(optimizer, 0, gradients_of(net, 1))
    assert same(own, other)
    assert float(next(iter(later.state.values()))["step"]) == 2


def test_a_group_is_stepped_by_itself() -> None:
    first, second = network(0), network(1)
    groups = [{"params": list(net.parameters()), "lr": 0.01} for net in (first, second)]
    adam, before = FusedAdam(groups), network(0)
    apply_gradients(adam, 1, gradients_of(second, 0))
    assert same(first, before)
    assert not same(second, network(1))


def test_other_optimizers_step_as_they_do_by_themselves() -> None:
    own, other = network(), network()
    for net, apply in ((own, True), (other, False)):
        optimizer = torch.optim.RMSprop(net.parameters(), lr=0.01, centered=True)
        for step in range(3):
            gradients = gradients_of(net, step)
            if apply:
                apply_gradients(optimizer, 0, gradients)
                continue
            for weight, gradient in zip(net.parameters(), gradients, strict=True):
                weight.grad = gradient
            optimizer.step()
    assert same(own, other)


class Sums(nn.Module):
    """Two terms, of which one gradient is that of both; a bias whose gradient has no strides."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Conv2d(2, 4, 3).to(memory_format=torch.channels_last)
        self.one, self.two, self.bias = (nn.Parameter(torch.randn(4)) for _ in range(3))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        made = self.net(image).mean((2, 3)) * (self.one + self.two)
        return made.square().sum() + self.bias.sum()


@pytest.mark.parametrize("max_norm", [None, 0.1])
@pytest.mark.parametrize("optimizer", [FusedAdam, torch.optim.SGD])
def test_gradients_that_lie_otherwise_or_in_one_place_step_as_torchs(
    optimizer: type[torch.optim.Optimizer], max_norm: float | None
) -> None:
    own, image = Sums(), torch.randn(32, 2, 8, 8)
    other = copy.deepcopy(own)
    ours, weights = optimizer(own.parameters(), lr=0.01), list(own.parameters())
    kind = torch.optim.Adam if optimizer is FusedAdam else optimizer
    torchs = kind(other.parameters(), lr=0.01)
    with torch.backends.mkldnn.flags(enabled=False):  # its convolutions give them as weights lie
        for _ in range(3):
            apply_gradients(ours, 0, torch.autograd.grad(own(image), weights), max_norm)
            torchs.zero_grad()
            other(image).backward()
            if max_norm is not None:
                nn.utils.clip_grad_norm_(other.parameters(), max_norm)
            torchs.step()
    for ours_, theirs in zip(own.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours_, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", list(OPTIMIZERS))
def test_a_frozen_layer_stays(kind: str) -> None:
    net = network()
    net[0].requires_grad_(False)
    before = copy.deepcopy(net.state_dict())
    optimizer = make_optimizer(kind, net, 0.01, 1e-8)
    weights = optimizer.param_groups[0]["params"]
    apply_gradients(optimizer, 0, torch.autograd.grad(net(torch.randn(4, 3)).sum(), weights))
    after = net.state_dict()
    assert {name for name in after if not torch.equal(after[name], before[name])} == {
        "2.weight",
        "2.bias",
    }
