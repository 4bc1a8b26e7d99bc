"""What stands on a network's features: fully connected layers, dueling streams."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import nn

MakeLayer = Callable[[int, int], nn.Module]


class Layers(nn.Sequential):
    """Layers one after the other, without the hooks that a module's call looks for: in a small
    network that takes a fifth of what its layers take."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """[B, features] -> [B, outputs of the last layer]."""
        for layer in self:
            features = layer.forward(features)
        return features


class DuelingHead(nn.Module):
    """Q = V + A - mean A (Wang et al. 2016), each stream with one hidden layer.

    Args:
        atoms: K numbers an action instead of one, each of which is such a Q; None: one.
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        num_actions: int,
        atoms: int | None = None,
        layer: MakeLayer = nn.Linear,
    ) -> None:
        super().__init__()
        numbers = atoms or 1
        self.value = Layers(layer(features, hidden), nn.ReLU(), layer(hidden, numbers))
        self.advantage = Layers(
            layer(features, hidden), nn.ReLU(), layer(hidden, num_actions * numbers)
        )
        self.atoms = atoms

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """[B, features] -> Q values [B, num_actions], or [B, num_actions, K]."""
        value, advantage = self.value(features), self.advantage(features)
        if self.atoms is None:
            return value + advantage - advantage.mean(-1, keepdim=True)
        advantage = advantage.unflatten(-1, (-1, self.atoms))
        return value.unsqueeze(-2) + advantage - advantage.mean(-2, keepdim=True)


def head(
    features: int,
    hidden: Sequence[int],
    num_actions: int,
    dueling: bool,
    atoms: int | None = None,
    layer: MakeLayer = nn.Linear,
) -> nn.Module:
    """Fully connected layers [B, features] -> [B, num_actions], the last of them dueling or not.

    Args:
        hidden: their widths.
        atoms: K: the head gives [B, num_actions, K].
        layer: makes each, of (inputs, outputs).
    """
    layers: list[nn.Module] = []
    widths = [features, *(hidden[:-1] if dueling else hidden)]
    for before, after in pairwise(widths):
        layers += [layer(before, after), nn.ReLU()]
    if dueling:
        layers.append(DuelingHead(widths[-1], hidden[-1], num_actions, atoms, layer))
        return Layers(*layers)
    layers.append(layer(widths[-1], num_actions * (atoms or 1)))
    return Layers(*layers) if atoms is None else Layers(*layers, nn.Unflatten(-1, (-1, atoms)))
