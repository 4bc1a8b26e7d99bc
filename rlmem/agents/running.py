"""Running means and variances in float64, of what comes one at a time."""

import torch
from torch import nn

EPS = 1e-8  # of a variance


class RunningStatistics(nn.Module):
    """Mean and variance of all samples so far (Welford 1962).

    Args:
        shape: of a sample.

    Attributes:
        mean, spread: float64 [*shape], the mean and the sum of squared distances from it.
        count: samples.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.mean: torch.Tensor
        self.spread: torch.Tensor
        self.count: torch.Tensor
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("spread", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def note(self, sample: torch.Tensor) -> None:
        """Count a sample [*shape]."""
        # In place by methods: a module looks at what is assigned to it, which takes longer.
        mean, count = self.mean, self.count.add_(1)
        distance = sample - mean
        mean.add_(distance / count)
        self.spread.addcmul_(distance, sample - mean)

    def deviation(self) -> torch.Tensor:
        """Standard deviations float64 [*shape]; 1 before there are two samples."""
        others = int(self.count) - 1
        if others < 1:
            return torch.ones_like(self.mean)
        return self.spread.div(others).add_(EPS).sqrt_()

    def normalise(self, samples: torch.Tensor) -> torch.Tensor:
        """Samples [n, *shape] with mean 0 and variance 1, float32."""
        return (samples - self.mean).div_(self.deviation()).float()
