"""Fully connected layers with noise in their weights, for exploration."""

import math

import torch
from torch import nn
from torch.nn import functional

from rlmem import distributed


class NoisyLinear(nn.Module):
    """y = (W + S * E) x + b + s * e with learned W, S, b, s and factored noise E = e_out e_in^T
    (Fortunato et al. 2018, arXiv 1706.10295, section 3b).

    E is never made: (S * E) x is e_out * S (e_in * x), two products more of a vector instead of a
    third matrix.

    Args:
        std: sigma_0: the first S are sigma_0 / sqrt(inputs), the first s sigma_0 / sqrt(outputs),
            as in the common implementations of Rainbow; the paper has sqrt(inputs) for both.

    Attributes:
        quiet: whether the noise is left out.
    """

    def __init__(self, inputs: int, outputs: int, std: float = 0.5) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        self.weight_std = nn.Parameter(torch.full((outputs, inputs), std * bound))
        self.bias_std = nn.Parameter(torch.full((outputs,), std / math.sqrt(outputs)))
        self.noise_in: torch.Tensor
        self.noise_out: torch.Tensor
        self.register_buffer("noise_in", torch.zeros(inputs))
        self.register_buffer("noise_out", torch.zeros(outputs))
        self.quiet = False

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """[B, inputs] -> [B, outputs]."""
        mean = functional.linear(features, self.weight, self.bias)
        if self.quiet:
            return mean
        noise = functional.linear(features * self.noise_in, self.weight_std, self.bias_std)
        scale = self.noise_out
        if scale.dtype != noise.dtype:  # autocast; for one observation each call counts
            scale = scale.to(noise.dtype)
        return torch.addcmul(mean, noise, scale)


def noisy_layers(network: nn.Module) -> list[NoisyLinear]:
    """Those of a network."""
    return [module for module in network.modules() if isinstance(module, NoisyLinear)]


@torch.no_grad()
def draw_noise(layers: list[NoisyLinear]) -> None:
    """New noise for all layers, from torch's generator: sign(x) sqrt(|x|) of normal x. Several
    processes that learn together have the first one's."""
    sizes = [size for layer in layers for size in (len(layer.noise_in), len(layer.noise_out))]
    if not sizes:
        return
    normal = torch.randn(sum(sizes), device=layers[0].noise_in.device)
    distributed.share_first([normal])
    parts = iter((normal.sign() * normal.abs().sqrt()).split(sizes))
    for layer in layers:
        layer.noise_in.copy_(next(parts))
        layer.noise_out.copy_(next(parts))
