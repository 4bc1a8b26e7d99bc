"""Q networks: MLP for vectors, the Nature CNN for frames, MinAtar's small CNN; dueling heads.
For continuous actions: an actor and its critic, both MLPs of vectors.

Q networks take the observation as it is stored (uint8 frames, 0/1 planes, float vectors) and scale
it.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from rlmem.errors import UserError


class DuelingHead(nn.Module):
    """Q = V + A - mean A (Wang et al. 2016), each stream with one hidden layer."""

    def __init__(self, features: int, hidden: int, num_actions: int) -> None:
        super().__init__()
        self.value = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.advantage = nn.Sequential(
            nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, num_actions)
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """[B, features] -> Q values [B, num_actions]."""
        advantage = self.advantage(features)
        return self.value(features) + advantage - advantage.mean(-1, keepdim=True)


def _head(features: int, hidden: Sequence[int], num_actions: int, dueling: bool) -> nn.Module:
    layers: list[nn.Module] = []
    widths = [features, *(hidden[:-1] if dueling else hidden)]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    if dueling:
        layers.append(DuelingHead(widths[-1], hidden[-1], num_actions))
    else:
        layers.append(nn.Linear(widths[-1], num_actions))
    return nn.Sequential(*layers)


class MLP(nn.Module):
    """Q network of a vector observation float32 [B, D]; wider observations are flattened."""

    def __init__(
        self,
        features: int,
        scale: float,
        hidden: Sequence[int],
        num_actions: int,
        dueling: bool,
    ) -> None:
        super().__init__()
        self.scale = scale
        self.head = _head(features, hidden, num_actions, dueling)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Q values [B, num_actions]."""
        vector = observation.flatten(1).float()
        return self.head(vector if self.scale == 1.0 else vector * self.scale)


class ConvNet(nn.Module):
    """Q network of an image observation uint8 [B, C, H, W].

    Args:
        layers: (channels, kernel, stride) of each convolution.
        scale: factor on the observation.
    """

    def __init__(
        self,
        observation_shape: Sequence[int],
        layers: Sequence[tuple[int, int, int]],
        scale: float,
        hidden: Sequence[int],
        num_actions: int,
        dueling: bool,
    ) -> None:
        super().__init__()
        self.scale = scale
        body: list[nn.Module] = []
        channels = observation_shape[0]
        for width, kernel, stride in layers:
            body += [nn.Conv2d(channels, width, kernel, stride), nn.ReLU()]
            channels = width
        self.body = nn.Sequential(*body)
        with torch.no_grad():
            features = self.body(torch.zeros(1, *observation_shape)).numel()
        self.head = _head(features, hidden, num_actions, dueling)
        # NHWC is what the convolution kernels are fastest on, on the CPU and on GPUs.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Q values [B, num_actions]."""
        image = observation.to(torch.float32, memory_format=torch.channels_last)
        if self.scale != 1.0:
            image = image * self.scale
        return self.head(self.body(image).flatten(1))


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
        self.head = _head(features, hidden, len(low), dueling=False)

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
        self.head = _head(joined, after, 1, dueling=False)

    def forward(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Q values [B, 1]."""
        return self.head(torch.cat((self.body(observation), action), -1))


NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # Mnih et al. 2015
MINATAR = ((16, 3, 1),)  # Young & Tian 2019


def network_kind(observation_shape: Sequence[int]) -> str:
    """The network that fits an observation: mlp, minatar (small images) or nature."""
    if len(observation_shape) != 3:
        return "mlp"
    return "nature" if min(observation_shape[1:]) >= 36 else "minatar"


def make_network(
    kind: str,
    observation_shape: Sequence[int],
    num_actions: int,
    hidden: Sequence[int],
    dueling: bool,
    input_scale: float,
    init: str = "torch",
) -> nn.Module:
    """Build a Q network: observation [B, *observation_shape] -> [B, num_actions].

    Args:
        kind: auto, mlp, nature or minatar.
        hidden: widths of the fully connected layers.
        input_scale: factor on the observation.
        init: torch, PyTorch's own, or kaiming: uniform weights that keep the variance of what
            passes a ReLU, biases 0 (He et al. 2015); PyTorch's own weights are 2.4 times smaller.
    """
    if kind == "auto":
        kind = network_kind(observation_shape)
    if dueling and not hidden:
        raise UserError("agent.network.hidden=[]: dueling heads need a hidden layer, such as [512]")
    fits = network_kind(observation_shape)
    if kind == "nature" != fits or (kind == "minatar" and fits == "mlp"):
        raise UserError(
            f"agent.network.kind={kind}: it does not fit observations of shape "
            f"{tuple(observation_shape)}; use agent.network.kind={fits}"
        )
    if kind == "mlp":
        features = int(torch.Size(observation_shape).numel())
        network: nn.Module = MLP(features, input_scale, hidden, num_actions, dueling)
    else:
        layers = NATURE if kind == "nature" else MINATAR
        network = ConvNet(observation_shape, layers, input_scale, hidden, num_actions, dueling)
    if init == "kaiming":
        network.apply(_kaiming)
    return network


def _kaiming(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Conv2d):
        nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
        if module.bias is not None:
            nn.init.zeros_(module.bias)
