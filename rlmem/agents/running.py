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
        return _deviation(self.spread, int(self.count))

    def normalise(self, samples: torch.Tensor, newest: torch.Tensor | None = None) -> torch.Tensor:
        """Samples [n, *shape] with mean 0 and variance 1, float32.

        Args:
            newest: [1 or n, *shape], a sample that has not been counted, and counts for this once.
                What never varied before has a deviation of 1e-4 only: a sample in which it does
                would be normalised to 10,000, counted it is at most the root of all samples.
        """
        mean, spread, count = self.mean, self.spread, int(self.count)
        if newest is not None:
            count += 1
            distance = newest - mean
            mean = mean + distance / count
            spread = torch.addcmul(spread, distance, newest - mean)
        return (samples - mean).div_(_deviation(spread, count)).float()


def _deviation(spread: torch.Tensor, count: int) -> torch.Tensor:
    if count < 2:
        return torch.ones_like(spread)
    return spread.div(count - 1).add_(EPS).sqrt_()
