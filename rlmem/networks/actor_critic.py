"""Actor and critic for continuous actions, both MLPs of vectors."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from rlmem.networks.heads import head


class Actor(nn.Module):
    """Policy of a vector observation: float32 [B, D] -> actions float32 [B, A] in a box.

    Args:
        low, high: float32 [A], the box; a tanh is scaled to it.
    """

    def __init__(
        self, features: int, hidden: Sequence[int], low: torch.Tensor, high: torch.Tensor
    ) -> None:
        super().__init__()
        self.centre: torch.Tensor
        self.half_range: torch.Tensor
        self.register_buffer("centre", (high + low) / 2, persistent=False)
        self.register_buffer("half_range", (high - low) / 2, persistent=False)
        self.head = head(features, hidden, len(low), dueling=False)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Actions [B, A]."""
        return self.centre + self.half_range * torch.tanh(self.head(observation))


class Critic(nn.Module):
    """Q(observation, action) of vectors: float32 [B, D], float32 [B, A] -> [B, 1].

    Args:
        action_layer: the layer that takes the action beside the features before it, from 1.
    """

    def __init__(
        self, features: int, num_actions: int, hidden: Sequence[int], action_layer: int
    ) -> None:
        super().__init__()
        before, after = hidden[: action_layer - 1], hidden[action_layer - 1 :]
        layers: list[nn.Module] = []
        for width, following in pairwise([features, *before]):
            layers += [nn.Linear(width, following), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        joined = (before[-1] if before else features) + num_actions
        self.head = head(joined, after, 1, dueling=False)

    def forward(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Q values [B, 1]."""
        return self.head(torch.cat((self.body(observation), action), -1))
