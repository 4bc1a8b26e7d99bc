"""Optimizers that a checkpoint keeps."""

from pathlib import Path
from typing import Any

import pytest
import torch

from rlmem.callbacks.weights import optimizer_tensors, take_optimizer


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.NAdam, {}),
        (torch.optim.Adam, {"amsgrad": True}),
        (torch.optim.RMSprop, {"momentum": 0.9, "centered": True}),
        (torch.optim.SGD, {"momentum": 0.9}),
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
