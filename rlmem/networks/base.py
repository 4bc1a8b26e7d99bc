"""Q networks by name: observation [B, *observation_shape] as it is stored -> [B, num_actions]."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from rlmem import registry
from rlmem.errors import UserError
from rlmem.networks.heads import head
from rlmem.networks.noisy import NoisyLinear
from rlmem.settings import Settings, setting

# Number of features -> module from features [B, F] to what the agent asks of them.
MakeHead = Callable[[int], nn.Module]


@dataclass
class QNetworkSettings(Settings):
    """The Q-network's keys."""

    kind: str = setting()
    hidden: list[int] = setting(at_least=1, at_most=65_536)
    init: str = setting(choices=("torch", "kaiming", "orthogonal"))

    def make(
        self,
        observation_shape: Sequence[int],
        outputs: int,
        input_scale: float,
        dueling: bool = False,
        **of_head: Any,
    ) -> "QNetwork":
        """The network that they say; see `make_network`."""
        return make_network(
            self.kind,
            observation_shape,
            outputs,
            list(self.hidden),
            dueling,
            input_scale,
            self.init,
            **of_head,
        )


class QNetwork(nn.Module):
    """Base of the Q networks; each is a part of the group `network`.

    It is made as `cls(observation_shape, make_head, input_scale=)`, where `make_head` takes the
    number of its features and gives what stands on them.

    Attributes:
        head: that.
    """

    head: nn.Module

    many_threads = False  # whether a second thread makes its update faster

    @classmethod
    def fits(cls, observation_shape: Sequence[int]) -> bool:
        """Whether it can take such observations."""
        return True

    @classmethod
    def suits(cls, observation_shape: Sequence[int]) -> bool:
        """Whether `kind=auto` takes it for such observations."""
        return False


def network_class(kind: str, observation_shape: Sequence[int], group: str = "network") -> Any:
    """The class of a kind of network; `auto` is the one that suits the observations.

    Args:
        group: of parts, whose classes have `fits` and `suits`.

    Raises:
        UserError: there is none, or it does not take such observations.
    """
    shape = tuple(observation_shape)
    chosen = registry.find_suited(group, kind, "agent.network.kind", shape)
    if not chosen.cls.fits(shape):
        suited = registry.find_suited(group, registry.AUTO, "agent.network.kind", shape)
        raise UserError(
            f"agent.network.kind={kind}: it does not fit observations of shape {shape}; "
            f"use agent.network.kind={suited.name}"
        )
    return chosen.cls


def check_kind(settings: QNetworkSettings) -> None:
    """Raise a UserError unless the kind is `auto` or a network's name."""
    registry.check_name("network", settings.kind, "agent.network.kind")


def make_network(
    kind: str,
    observation_shape: Sequence[int],
    num_actions: int,
    hidden: Sequence[int],
    dueling: bool,
    input_scale: float,
    init: str = "torch",
    **of_head: Any,
) -> QNetwork:
    """Build a Q network: observation [B, *observation_shape] -> [B, num_actions].

    Args:
        kind: auto, or the name of a network.
        hidden: widths of the fully connected layers.
        input_scale: factor on the observation.
        init: torch, PyTorch's own, or kaiming: uniform weights that keep the variance of what
            passes a ReLU, biases 0 (He et al. 2015); PyTorch's own weights are 2.4 times smaller;
            or orthogonal: orthogonal weights times the root of 2, biases 0 (Saxe et al. 2014).
        of_head: see `rlmem.networks.heads.head`.
    """
    if dueling and not hidden:
        raise UserError("agent.network.hidden=[]: dueling heads need a hidden layer, such as [512]")

    def make_head(features: int) -> nn.Module:
        return head(features, hidden, num_actions, dueling, **of_head)

    network = network_class(kind, observation_shape)(
        observation_shape, make_head, input_scale=input_scale
    )
    if init != "torch":
        network.apply(_INITS[init])
    return network


WEIGHTED = nn.Linear | nn.Conv2d | NoisyLinear  # of noisy layers the weights without their noise


def _kaiming(module: nn.Module) -> None:
    if isinstance(module, WEIGHTED):
        nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def _orthogonal(module: nn.Module) -> None:
    if isinstance(module, WEIGHTED):
        # Made apart: torch cannot fill weights that lie in memory channels last.
        rows = nn.init.orthogonal_(torch.empty(module.weight.shape), 2**0.5)
        with torch.no_grad():
            module.weight.copy_(rows)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


_INITS = {"kaiming": _kaiming, "orthogonal": _orthogonal}
