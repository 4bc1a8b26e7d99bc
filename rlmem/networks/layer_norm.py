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
    """Put a layer norm before each ReLU that follows a fully connected layer or a convolution.

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
        for at in reversed(range(1, len(layers))):
            before = layers[at - 1]
            if not isinstance(layers[at], nn.ReLU):
                continue
            if isinstance(before, nn.Linear):
                norm: nn.Module = nn.LayerNorm(before.out_features, elementwise_affine=affine)
            elif isinstance(before, nn.Conv2d):
                norm = nn.GroupNorm(1, before.out_channels, affine=affine)
            else:
                continue
            layers[at : at + 1] = [norm, activation()]
        for _ in range(len(module)):
            del module[0]
        module.extend(layers)
