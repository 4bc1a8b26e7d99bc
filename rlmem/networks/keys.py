"""A network whose outputs are keys: points whose distances mean something."""

import torch
from torch import nn

from rlmem import distributed

RATE = 0.01  # of the running statistics, once a hundred batches are seen
EPS = 1e-12  # of a variance; one number of an untrained network's keys varies by 1e-8


class StandardKeys(nn.Module):
    """Keys [B, d] whose numbers have mean 0 and variance 1/d over a minibatch, of several processes
    over all of theirs.

    Batch normalisation without a scale and an offset of its own (Ioffe & Szegedy 2015, arXiv
    1502.03167). Two states drawn at random then have keys at a squared distance of about 2,
    whatever the weights are. Without it nothing holds keys where they are: all gradients together
    move them along one common direction, away from those that are stored, faster than they part
    states.

    Attributes:
        mean, square: running means float64 [d] of the network's outputs and of their squares, with
            which keys are made outside training.
        batches: that they were made of.
    """

    def __init__(self, network: nn.Module, key_size: int) -> None:
        super().__init__()
        self.network = network
        self.mean: torch.Tensor
        self.square: torch.Tensor
        self.batches: torch.Tensor
        self.register_buffer("mean", torch.zeros(key_size, dtype=torch.float64))
        self.register_buffer("square", torch.ones(key_size, dtype=torch.float64))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Keys float32 [B, d] of observations [B, *observation_shape]."""
        outputs = self.network(observation).float()
        if self.training:
            self._note(outputs.detach(), RATE)
            if distributed.size == 1:
                variance, mean = torch.var_mean(outputs, 0, correction=0)
            else:
                mean = distributed.mean(outputs.mean(0))
                variance = distributed.mean((outputs - mean).square().mean(0))
        else:
            mean = self.mean.float()
            variance = (self.square - self.mean.square()).clamp_min(0).float()
        return (outputs - mean) * (outputs.shape[-1] * (variance + EPS)).rsqrt()

    def observe(self, observation: torch.Tensor) -> None:
        """Take observations into the statistics, which are then those of all observed: they come
        one after the other and are alike, so that the newest hundred would say little."""
        with torch.no_grad():
            self._note(self.network(observation), 0.0)

    def _note(self, outputs: torch.Tensor, least: float) -> None:
        self.batches += 1
        rate = max(1 / int(self.batches), least)
        outputs = outputs.double()
        mean, square = outputs.mean(0), outputs.square().mean(0)
        distributed.average((mean, square))
        self.mean.lerp_(mean, rate)
        self.square.lerp_(square, rate)
