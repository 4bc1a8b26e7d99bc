"""Sparse first weights, for networks that learn from one sample at a time."""

import math

import torch
from torch import nn


@torch.no_grad()
def sparse_init(network: nn.Module, share: float = 0.9) -> None:
    """Give each unit of fully connected layers and convolutions few incoming weights.

    Weights are uniform within 1 / sqrt(fan-in), of each unit's a random share is 0, biases are 0
    (Elsayed et al. 2024, arXiv 2410.14606, algorithm 1). At least one weight of a unit is not 0: of
    four inputs, nine tenths would be all.

    Args:
        share: of the incoming weights that are 0, [0, 1]; one is kept at least.
    """
    for module in network.modules():
        if not isinstance(module, nn.Linear | nn.Conv2d):
            continue
        rows = module.weight.new_empty((len(module.weight), module.weight[0].numel()))
        fan_in = rows.shape[1]
        rows.uniform_(-1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))
        zeros = min(math.ceil(share * fan_in), fan_in - 1)
        for row in rows:
            row[torch.randperm(fan_in)[:zeros]] = 0
        module.weight.copy_(rows.view(module.weight.shape))
        if module.bias is not None:
            module.bias.zero_()
