"""The Q network of vectors."""

from collections.abc import Sequence

import torch

from rlmem.networks.base import MakeHead, QNetwork
from rlmem.registry import part


@part("network", "mlp")
class MLP(QNetwork):
    """Q network of a vector observation float32 [B, D]; wider observations are flattened."""

    def __init__(
        self, observation_shape: Sequence[int], make_head: MakeHead, *, input_scale: float
    ) -> None:
        super().__init__()
        self.scale = input_scale
        self.head = make_head(int(torch.Size(observation_shape).numel()))

    @classmethod
    def suits(cls, observation_shape: Sequence[int]) -> bool:
        return len(observation_shape) != 3

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """What the head gives: Q values [B, num_actions]."""
        vector = observation
        # Each of these takes a hundredth of a round, even where it has nothing to do.
        if vector.ndim > 2:
            vector = vector.flatten(1)
        if vector.dtype is not torch.float32:
            vector = vector.float()
        return self.head.forward(vector if self.scale == 1.0 else vector * self.scale)
