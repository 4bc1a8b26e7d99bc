"""The Q networks of images: for screens the Nature CNN, a small and a large one, and MinAtar's for
boards."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import nn

from rlmem.networks.base import MakeHead, QNetwork
from rlmem.registry import part


class ConvNet(QNetwork):
    """Q network of an image observation uint8 [B, C, H, W].

    Attributes:
        layers: (channels, kernel, stride) of each convolution.
    """

    layers: ClassVar[tuple[tuple[int, int, int], ...]]

    def __init__(
        self, observation_shape: Sequence[int], make_head: MakeHead, *, input_scale: float
    ) -> None:
        super().__init__()
        self.scale = input_scale
        self.body = self.make_body(observation_shape[0])
        with torch.no_grad():
            features = self.body(torch.zeros(1, *observation_shape)).numel()
        self.head = make_head(features)
        # NHWC is what the convolution kernels are fastest on, on the CPU and on GPUs.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def make_body(self, channels: int) -> nn.Module:
        """Images float32 [B, channels, H, W] -> features."""
        body: list[nn.Module] = []
        for width, kernel, stride in self.layers:
            body += [nn.Conv2d(channels, width, kernel, stride), nn.ReLU()]
            channels = width
        return nn.Sequential(*body)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """What the head gives: Q values [B, num_actions]."""
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


@part("network", "data_efficient")
class DataEfficientNet(ConvNet):
    """Van Hasselt et al. 2019 (arXiv 1906.05243, appendix E): two layers, 576 features of a screen
    of 84 x 84; screens of at least 25 x 25."""

    layers = ((32, 5, 5), (64, 5, 5))
    many_threads = True

    @classmethod
    def fits(cls, observation_shape: Sequence[int]) -> bool:
        return len(observation_shape) == 3 and min(observation_shape[1:]) >= 25


class _Residual(nn.Sequential):
    """x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int) -> None:
        layers = {"before": nn.ReLU(), "first": nn.Conv2d(channels, channels, 3, padding=1)}
        layers |= {"between": nn.ReLU(), "second": nn.Conv2d(channels, channels, 3, padding=1)}
        super().__init__(OrderedDict(layers))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image + super().forward(image)


@part("network", "impala")
class ImpalaNet(ConvNet):
    """Espeholt et al. 2018 (arXiv 1802.01561, figure 3, the large one): three stages of a
    convolution, a pooling and two residual blocks; ten times the arithmetic of the Nature CNN."""

    widths = (16, 32, 32)
    many_threads = True

    def make_body(self, channels: int) -> nn.Module:
        body: list[nn.Module] = []
        for width in self.widths:
            body += [nn.Conv2d(channels, width, 3, padding=1), nn.MaxPool2d(3, 2, 1)]
            body += [_Residual(width), _Residual(width)]
            channels = width
        return nn.Sequential(*body, nn.ReLU())

    @classmethod
    def fits(cls, observation_shape: Sequence[int]) -> bool:
        return len(observation_shape) == 3


@part("network", "minatar")
class MinatarNet(ConvNet):
    """Young & Tian 2019; boards of 10 x 10, and of 3 x 3 at least."""

    layers = ((16, 3, 1),)

    @classmethod
    def fits(cls, observation_shape: Sequence[int]) -> bool:
        return len(observation_shape) == 3 and min(observation_shape[1:]) >= 3

    @classmethod
    def suits(cls, observation_shape: Sequence[int]) -> bool:
        return cls.fits(observation_shape) and min(observation_shape[1:]) < 36
