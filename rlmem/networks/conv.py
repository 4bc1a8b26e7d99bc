"""The Q networks of images: the Nature CNN for screens, MinAtar's small one for boards."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import nn

from rlmem.networks.base import QNetwork
from rlmem.networks.heads import head
from rlmem.registry import part


class ConvNet(QNetwork):
    """Q network of an image observation uint8 [B, C, H, W].

    Attributes:
        layers: (channels, kernel, stride) of each convolution.
    """

    layers: ClassVar[tuple[tuple[int, int, int], ...]]

    def __init__(
        self,
        observation_shape: Sequence[int],
        num_actions: int,
        *,
        hidden: Sequence[int],
        dueling: bool,
        input_scale: float,
    ) -> None:
        super().__init__()
        self.scale = input_scale
        body: list[nn.Module] = []
        channels = observation_shape[0]
        for width, kernel, stride in self.layers:
            body += [nn.Conv2d(channels, width, kernel, stride), nn.ReLU()]
            channels = width
        self.body = nn.Sequential(*body)
        with torch.no_grad():
            features = self.body(torch.zeros(1, *observation_shape)).numel()
        self.head = head(features, hidden, num_actions, dueling)
        # NHWC is what the convolution kernels are fastest on, on the CPU and on GPUs.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Q values [B, num_actions]."""
        # First the order and then the type: a fourth of the time of both at once.
        image = observation.contiguous(memory_format=torch.channels_last).to(torch.float32)
        if self.scale != 1.0:
            image = image.mul_(self.scale) if image is not observation else image * self.scale
        return self.head(self.body(image).flatten(1))


@part("network", "nature")
class NatureNet(ConvNet):
    """Mnih et al. 2015; screens of at least 36 x 36."""

    layers = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
    many_threads = True

    @classmethod
    def fits(cls, observation_shape: Sequence[int]) -> bool:
        return len(observation_shape) == 3 and min(observation_shape[1:]) >= 36

    suits = fits


@part("network", "minatar")
class MinatarNet(ConvNet):
    """Young & Tian 2019; boards of 10 x 10."""

    layers = ((16, 3, 1),)

    @classmethod
    def fits(cls, observation_shape: Sequence[int]) -> bool:
        return len(observation_shape) == 3

    @classmethod
    def suits(cls, observation_shape: Sequence[int]) -> bool:
        return cls.fits(observation_shape) and min(observation_shape[1:]) < 36
