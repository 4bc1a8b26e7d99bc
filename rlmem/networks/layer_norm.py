"""Layer normalisation in any Q network, for agents that learn without a target network.

Without one, what a network bootstraps from moves with every step. Normalised features bound how far
(Gallici et al. 2024, arXiv 2407.04811, section 4; Elsayed et al. 2024, arXiv 2410.14606).
"""

from collections.abc import Callable

from torch import nn

from rlmem.networks.base import QNetwork


def normalise_layers(
    network: QNetwork, affine: bool = True, activation: Callable[[], nn.Module] = nn.ReLU
) -> None:
    """Put a layer norm before each ReLU.

    What a convolution gives is normalised over channels and places of a sample together, and scale
    and offset are one a channel.

    Args:
        network: is changed in place.
        affine: whether norms have a learned scale and offset.
        activation: makes what stands in the place of these ReLUs.
    """
    # The list first: layers are exchanged while it is walked.
    for module in [m for m in network.modules() if isinstance(m, nn.Sequential)]:
        layers = list(module)
        for at in reversed(range(len(layers))):
            if isinstance(layers[at], nn.ReLU):
                layers[at : at + 1] = [_norm(layers[:at], layers[at + 1 :], affine), activation()]
        for _ in range(len(module)):
            del module[0]
        module.extend(layers)


def _norm(before: list[nn.Module], after: list[nn.Module], affine: bool) -> nn.Module:
    """The norm of what the last layer of those before gives, or where there is none, as a residual
    block begins with a ReLU, of what the first one after takes."""
    for layer in reversed(_weighted(before)):
        if isinstance(layer, nn.Linear):
            return nn.LayerNorm(layer.out_features, elementwise_affine=affine)
        return nn.GroupNorm(1, layer.out_channels, affine=affine)
    layer = _weighted(after)[0]
    if isinstance(layer, nn.Linear):
        return nn.LayerNorm(layer.in_features, elementwise_affine=affine)
    return nn.GroupNorm(1, layer.in_channels, affine=affine)


def _weighted(layers: list[nn.Module]) -> list[nn.Linear | nn.Conv2d]:
    """The fully connected layers and convolutions in them, in their order."""
    found = (part for layer in layers for part in layer.modules())
    return [part for part in found if isinstance(part, nn.Linear | nn.Conv2d)]
