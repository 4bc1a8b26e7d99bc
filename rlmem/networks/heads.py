"""What stands on a network's features: fully connected layers, dueling streams."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn


class Layers(nn.Sequential):
    """Layers one after the other, without the hooks that a module's call looks for: in a small
    network that takes a fifth of what its layers take."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """[B, features] -> [B, outputs of the last layer]."""
        for layer in self:
            features = layer.forward(features)
        return features


class DuelingHead(nn.Module):
    """Q = V + A - mean A (Wang et al. 2016), each stream with one hidden layer."""

    def __init__(self, features: int, hidden: int, num_actions: int) -> None:
        super().__init__()
        self.value = Layers(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.advantage = Layers(
            nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, num_actions)
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """[B, features] -> Q values [B, num_actions]."""
        advantage = self.advantage(features)
        return self.value(features) + advantage - advantage.mean(-1, keepdim=True)


def head(features: int, hidden: Sequence[int], num_actions: int, dueling: bool) -> nn.Module:
    """Fully connected layers [B, features] -> [B, num_actions], the last of them dueling or not."""
    layers: list[nn.Module] = []
    widths = [features, *(hidden[:-1] if dueling else hidden)]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    if dueling:
        layers.append(DuelingHead(widths[-1], hidden[-1], num_actions))
    else:
        layers.append(nn.Linear(widths[-1], num_actions))
    return Layers(*layers)
