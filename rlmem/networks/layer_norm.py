"""Layer normalisation in any Q network, for agents that learn without a target network.

Without one, what a network bootstraps from moves with every step. Normalised features bound how far
(Gallici et al. 2024, arXiv 2407.04811, section 4; Elsayed et al. 2024, arXiv 2410.14606).
"""

from collections.abc import Callable

from torch import nn

from rlmem.networks.base import QNetwork

NO_NORMS = (
    "agent.network: it gets no layer norms, which stand in the place of a target network: none of "
    "its layers is an nn.ReLU of an nn.Sequential"
)


def normalise_layers(
    network: QNetwork, affine: bool = True, activation: Callable[[], nn.Module] = nn.ReLU
) -> int:
    """Put a layer norm before each ReLU that activates a fully connected layer or a convolution.

    What a convolution gives is normalised over channels and places of a sample together, and scale
    and offset are one a channel.

    Args:
        network: is changed in place.
        affine: whether norms have a learned scale and offset.
        activation: makes what stands in the place of these ReLUs.

    Returns:
        How many norms there are now; 0 where no ReLU is a layer of a `Sequential`.
    """
    count = 0
    # The list first: layers are exchanged while it is walked.
    for module in [m for m in network.modules() if isinstance(m, nn.Sequential)]:
        layers = list(module)
        for at in reversed(range(len(layers))):
            if isinstance(layers[at], nn.ReLU):
                norm = _norm(layers[:at], layers[at + 1 :], affine)
                layers[at : at + 1] = [*([norm] if norm else []), activation()]
                count += norm is not None
        for _ in range(len(module)):
            del module[0]
        module.extend(layers)
    return count


# What keeps the units or channels that it is given.
_KEEPS = nn.Identity | nn.Dropout | nn.MaxPool2d | nn.AvgPool2d | nn.ReLU


def _norm(before: list[nn.Module], after: list[nn.Module], affine: bool) -> nn.Module | None:
    """The norm of what the last layer of those before gives, or where none is before, as a residual
    block begins with a ReLU, of what the next one takes; None where the size is not known."""
    near = [layer for layer in before if not isinstance(layer, _KEEPS)]
    if near:
        weighted = _weighted(near[-1])
        if not weighted:
            return None
        last = weighted[-1]
        size = last.out_features if isinstance(last, nn.Linear) else last.out_channels
    else:
        weighted = _weighted(after[0]) if after else []
        if not weighted:
            return None
        last = weighted[0]
        size = last.in_features if isinstance(last, nn.Linear) else last.in_channels
    if isinstance(last, nn.Linear):
        return nn.LayerNorm(size, elementwise_affine=affine)
    return nn.GroupNorm(1, size, affine=affine)


def _weighted(layer: nn.Module) -> list[nn.Linear | nn.Conv2d]:
    """The fully connected layers and convolutions in it, in their order."""
    return [part for part in layer.modules() if isinstance(part, nn.Linear | nn.Conv2d)]
