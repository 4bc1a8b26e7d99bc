"""Actors with critics over discrete actions, by name: what an observation is worth, and the logits
of its actions, from one body; some with a state that goes from step to step.

Parts of the group `network/policy`, made as `cls(observation_shape, num_actions, hidden=,
input_scale=)`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import nn

from rlmem import registry
from rlmem.networks.base import network_class
from rlmem.networks.conv import MinatarNet, NatureNet
from rlmem.registry import part
from rlmem.settings import Settings, setting

GROUP = "network/policy"


@dataclass
class PolicySettings(Settings):
    """The keys of an actor with its critic."""

    kind: str = setting()
    hidden: list[int] = setting(at_least=1, at_most=65_536, idle=lambda s: _fixed(s))
    # What kinds take of a game's screen, for `env`: see conf/agent/a3c.yaml.
    screens: dict[str, Any] = setting()


def _fixed(settings: PolicySettings) -> tuple[str, ...]:
    chosen = registry.parts(GROUP).get(settings.kind)
    return () if chosen is None or chosen.cls.reads_hidden else ("kind",)


class Policy(nn.Module):
    """Base of the networks.

    A subclass makes `body` (observations [N, ...] -> features [N, F]) and may have a recurrent
    layer `memory`; then its state goes from step to step.

    Args:
        features: F, or what the recurrent layer gives of them.
        num_actions: A.
    """

    memory: nn.LSTM | nn.GRU | None
    reads_hidden: ClassVar[bool] = True  # whether `hidden` says its widths

    def __init__(self, features: int, num_actions: int) -> None:
        super().__init__()
        self.memory = None
        self.actor = nn.Linear(features, num_actions)
        self.critic = nn.Linear(features, 1)
        # Small logits: the first policy is nearly uniform whatever is seen.
        for layer, size in ((self.actor, 0.01), (self.critic, 1.0)):
            nn.init.normal_(layer.weight)
            with torch.no_grad():
                layer.weight *= size / layer.weight.norm(dim=1, keepdim=True)
            nn.init.zeros_(layer.bias)

    def body(self, observation: torch.Tensor) -> torch.Tensor:
        """Features [N, F] of observations [N, *observation_shape]."""
        raise NotImplementedError

    def observe(self, observation: torch.Tensor) -> None:
        """Take what was played, [N, *observation_shape], into running statistics, if any."""

    @property
    def state_size(self) -> int:
        """Numbers of the state; 0: none."""
        if self.memory is None:
            return 0
        return self.memory.hidden_size * (2 if isinstance(self.memory, nn.LSTM) else 1)

    def first_state(self, envs: int) -> torch.Tensor:
        """What an episode begins with: zeros [envs, state_size]."""
        return torch.zeros(envs, self.state_size, dtype=torch.float32)

    def forward(
        self, observation: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Run over T steps of E environments in which no episode begins but at the first.

        Args:
            observation: [T, E, *observation_shape].
            state: [E, state_size], before the first.

        Returns:
            Logits [T, E, A], values [T, E], and the state after the last.
        """
        steps, envs = observation.shape[:2]
        features = self.body(observation.flatten(0, 1)).unflatten(0, (steps, envs))
        if isinstance(self.memory, nn.LSTM):
            before = tuple(half.contiguous() for half in state.unsqueeze(0).chunk(2, -1))
            features, after = self.memory(features, before)
            state = torch.cat(after, -1)[0]
        elif self.memory is not None:
            features, after = self.memory(features, state.unsqueeze(0))
            state = after[0]
        return self.actor(features), self.critic(features).squeeze(-1), state

    @classmethod
    def fits(cls, observation_shape: Sequence[int]) -> bool:
        """Whether it can take such observations."""
        return True

    @classmethod
    def suits(cls, observation_shape: Sequence[int]) -> bool:
        """Whether `kind=auto` takes it for such observations."""
        return False


@part(GROUP, "mlp")
class MLPPolicy(Policy):
    """Of vectors float32 [D]; wider observations are flattened. Its layers end in a tanh."""

    def __init__(
        self,
        observation_shape: Sequence[int],
        num_actions: int,
        *,
        hidden: Sequence[int],
        input_scale: float,
    ) -> None:
        features = int(torch.Size(observation_shape).numel())
        super().__init__(hidden[-1] if hidden else features, num_actions)
        self.scale = input_scale
        layers: list[nn.Module] = []
        for before, after in pairwise([features, *hidden]):
            layers += [nn.Linear(before, after), nn.Tanh()]
        self.layers = nn.Sequential(*layers)

    def body(self, observation: torch.Tensor) -> torch.Tensor:
        return self.layers(observation.flatten(1).float() * self.scale)

    @classmethod
    def suits(cls, observation_shape: Sequence[int]) -> bool:
        return len(observation_shape) != 3


class ConvPolicy(Policy):
    """Of images uint8 [C, H, W]: convolutions, then fully connected or recurrent layers.

    Attributes:
        layers: (channels, kernel, stride, padding) of each convolution.
        side: pixels, height and width; None: any.
        frames: C; None: any.
        recurrent: the class of the layer behind the convolutions, of 256 units; None: there are
            `hidden` ones.
    """

    layers: ClassVar[tuple[tuple[int, int, int, int], ...]]
    side: ClassVar[int | None] = None
    frames: ClassVar[int | None] = None
    recurrent: ClassVar[Any] = None
    nonlinearity: ClassVar[Any] = nn.ReLU

    def __init__(
        self,
        observation_shape: Sequence[int],
        num_actions: int,
        *,
        hidden: Sequence[int],
        input_scale: float,
    ) -> None:
        convolutions: list[nn.Module] = []
        channels = observation_shape[0]
        for width, kernel, stride, padding in self.layers:
            convolutions += [nn.Conv2d(channels, width, kernel, stride, padding)]
            convolutions += [self.nonlinearity()]
            channels = width
        body = nn.Sequential(*convolutions, nn.Flatten())
        with torch.no_grad():
            features = body(torch.zeros(1, *observation_shape)).numel()
        widths = [] if self.recurrent else list(hidden)
        for before, after in pairwise([features, *widths]):
            body += nn.Sequential(nn.Linear(before, after), self.nonlinearity())
        last = 256 if self.recurrent else (widths or [features])[-1]
        super().__init__(last, num_actions)
        self.scale, self.convolutions = input_scale, body
        if self.recurrent:
            self.memory = self.recurrent(features, last)

    def body(self, observation: torch.Tensor) -> torch.Tensor:
        return self.convolutions(self.scaled(observation))

    def scaled(self, observation: torch.Tensor) -> torch.Tensor:
        """Images as the first layer takes them, float32."""
        image = observation.float()
        return image if self.scale == 1.0 else image * self.scale

    @classmethod
    def fits(cls, observation_shape: Sequence[int]) -> bool:
        if len(observation_shape) != 3:
            return False
        frames, height, width = observation_shape
        right_size = cls.side is None or (height, width) == (cls.side, cls.side)
        return right_size and cls.frames in (None, frames)


@part(GROUP, "nature")
class NaturePolicy(ConvPolicy):
    """The convolutions of Mnih et al. 2015; screens of at least 36 x 36."""

    layers = tuple((*layer, 0) for layer in NatureNet.layers)

    @classmethod
    def fits(cls, observation_shape: Sequence[int]) -> bool:
        return NatureNet.fits(observation_shape)

    suits = fits


@part(GROUP, "minatar")
class MinatarPolicy(ConvPolicy):
    """MinAtar's convolution; boards of 10 x 10."""

    layers = tuple((*layer, 0) for layer in MinatarNet.layers)

    @classmethod
    def suits(cls, observation_shape: Sequence[int]) -> bool:
        return MinatarNet.suits(observation_shape)


class _FourLayers(ConvPolicy):
    """Four convolutions of 32 channels, each half as high and wide as the one before."""

    layers = ((32, 3, 2, 1),) * 4
    nonlinearity = nn.ELU

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)  # pyright: ignore[reportArgumentType]


@part(GROUP, "gru160")
class GRU160(_FourLayers):
    """One frame of 160 x 160 and a GRU of 256."""

    side, frames, recurrent, reads_hidden = 160, 1, nn.GRU, False


@part(GROUP, "stack160")
class Stack160(_FourLayers):
    """Four frames of 160 x 160 and fully connected layers."""

    side, frames = 160, 4


@part(GROUP, "lstm42")
class LSTM42(_FourLayers):
    """One frame of 42 x 42, less its running mean and over its running deviation, and an LSTM of
    256.

    Attributes:
        mean, deviation: running means of the frames' own means and deviations.
        count: frames that they were made of.
    """

    side, frames, recurrent, reads_hidden = 42, 1, nn.LSTM, False
    keep = 0.9999  # of the running means at each frame

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.mean: torch.Tensor
        self.deviation: torch.Tensor
        self.count: torch.Tensor
        for name in ("mean", "deviation", "count"):
            self.register_buffer(name, torch.zeros(()))

    def scaled(self, observation: torch.Tensor) -> torch.Tensor:
        """Frames less the mean, over the deviation; before any was seen only over 255."""
        image = super().scaled(observation)
        # A running mean that began at 0 is too small by this factor (as in Adam).
        known = (1 - self.keep**self.count).clamp_min(1e-12)
        if not self.count:
            return image
        return (image - self.mean / known) / (self.deviation / known + 1e-8)

    @torch.no_grad()
    def observe(self, observation: torch.Tensor) -> None:
        frames = super().scaled(observation).flatten(1)
        # All frames at once: the newest counts 1 - keep, the ones before keep times that, ...
        fading = self.keep ** torch.arange(len(frames) - 1, -1, -1, dtype=torch.float32)
        share = (1 - self.keep) * fading
        self.mean.mul_(self.keep ** len(frames)).add_(share @ frames.mean(1))
        self.deviation.mul_(self.keep ** len(frames)).add_(share @ frames.std(1, correction=0))
        # Beyond a million the factor above is 1, and float32 still counts exactly.
        self.count.add_(len(frames)).clamp_(max=1e6)


def make_policy(
    kind: str,
    observation_shape: Sequence[int],
    num_actions: int,
    hidden: Sequence[int],
    input_scale: float,
) -> Policy:
    """Build an actor with its critic; `kind` auto takes the one that suits.

    Raises:
        UserError: there is none, or it does not take such observations.
    """
    cls = network_class(kind, observation_shape, GROUP)
    return cls(tuple(observation_shape), num_actions, hidden=hidden, input_scale=input_scale)
