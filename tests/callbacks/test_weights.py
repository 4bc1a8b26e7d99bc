"""Optimizers that a checkpoint keeps."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rlmem.agents.optimizers import FusedAdam
from rlmem.callbacks.weights import begins_anew, optimizer_tensors, take_optimizer, take_weights
from rlmem.errors import UserError


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.NAdam, {}),
        (torch.optim.Adam, {"amsgrad": True}),
        (torch.optim.RMSprop, {"momentum": 0.9, "centered": True}),
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.Adafactor, {}),  # sums over rows and columns
        (torch.optim.ASGD, {}),  # numbers
    ],
)
def test_an_optimizer_of_torch_goes_on_from_its_tensors(kind: Any, options: dict) -> None:
    torch.manual_seed(0)
    first, second = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    own, other = (kind(net.parameters(), lr=0.1, **options) for net in (first, second))
    inputs = torch.randn(4, 3)

    def step(net: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        net(inputs).square().sum().backward()
        optimizer.step()

    step(first, own)
    second.load_state_dict(first.state_dict())
    saved = {name: tensor.clone() for name, tensor in optimizer_tensors(own).items()}
    take_optimizer(other, saved, Path("optimizer.safetensors"))
    for net, optimizer in ((first, own), (second, other)):
        step(net, optimizer)
    torch.testing.assert_close(second.state_dict(), first.state_dict(), rtol=0, atol=0)


def test_an_optimizer_that_keeps_no_tensors_is_refused_at_the_save() -> None:
    network = torch.nn.Linear(3, 2)
    optimizer = torch.optim.LBFGS(network.parameters())

    def loss() -> Any:
        optimizer.zero_grad()
        total = network(torch.ones(4, 3)).square().sum()
        total.backward()
        return total

    optimizer.step(loss)
    with pytest.raises(UserError, match=r"^the agent's LBFGS keeps \w+, which is no tensor"):
        optimizer_tensors(optimizer)


def test_a_second_optimizer_is_found_in_a_list_too() -> None:
    own, other = (torch.optim.Adam(torch.nn.Linear(3, 2).parameters()) for _ in range(2))
    agent = SimpleNamespace(optimizer=own, first=own, others=[other], by_name={"a": other})
    assert begins_anew(agent) == ["by_name", "others"]


@pytest.mark.parametrize("value", ["inf", "nan"])
def test_only_what_was_infinite_at_first_may_be_so(value: str) -> None:
    """A mask of -inf is no diverged network; weights that became infinite are."""
    network, saved = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    for net in (network, saved):
        net.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
    take_weights(network, saved.state_dict(), Path("model.safetensors"))
    torch.testing.assert_close(network.weight, saved.weight)
    tensors = {k: tensor.clone() for k, tensor in saved.state_dict().items()}
    tensors["weight"][0, 0] = float(value)
    with pytest.raises(ValueError, match=r"model\.safetensors: weight holds"):
        take_weights(network, tensors, Path("model.safetensors"))


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 2, 2, 2)])
def test_moments_lie_in_memory_as_their_weight(shape: tuple[int, ...]) -> None:
    """Adam's fused step goes through memory, whatever the strides are."""
    torch.manual_seed(0)
    start = torch.randn(shape[::-1]).permute(*reversed(range(len(shape))))
    first, second = (torch.nn.Parameter(start.clone()) for _ in range(2))
    own, other = (FusedAdam([weight], lr=0.1) for weight in (first, second))

    def step(weight: torch.Tensor, optimizer: FusedAdam, number: int) -> None:
        generator = torch.Generator().manual_seed(number)
        optimizer.apply(
            0, [torch.empty_like(weight).copy_(torch.randn(shape, generator=generator))]
        )

    for number in range(3):
        step(first, own, number)
    with torch.no_grad():
        second.copy_(first)
    as_saved = {"memory_format": torch.contiguous_format}
    saved = {name: t.clone(**as_saved) for name, t in optimizer_tensors(own).items()}
    take_optimizer(other, saved, Path("optimizer.safetensors"))
    for number in range(3, 6):
        step(first, own, number)
        step(second, other, number)
    assert not first.is_contiguous()
    torch.testing.assert_close(second, first, rtol=0, atol=0)
