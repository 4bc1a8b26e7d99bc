"""Random changes of the images of a batch, so that few transitions serve for many updates."""

from dataclasses import dataclass

import torch

from rlmem.settings import Settings, setting


@dataclass(kw_only=True)
class AugmentSettings(Settings):
    """How much images are changed (Kostrikov et al. 2021, arXiv 2004.13649, appendix G)."""

    shift: int = setting(at_least=0, at_most=1000)
    intensity: float = setting(at_least=0, at_most=0.49)

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        return self.shift > 0 or self.intensity > 0

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        """Images [B, C, H, W], each shifted as a whole and brightened or darkened on its own."""
        if self.shift:
            image = shifted(image, self.shift)
        if self.intensity:
            noise = torch.randn(len(image), 1, 1, 1, device=image.device).clamp_(-2, 2)
            image = image * (1 + self.intensity * noise)
        return image


def shifted(image: torch.Tensor, most: int) -> torch.Tensor:
    """Images [B, C, H, W], each moved by up to `most` pixels in both directions, the edge repeated
    where nothing is: a random crop of the image padded with its edge."""
    b, c, h, w = image.shape
    moves = torch.randint(-most, most + 1, (2, b, 1), device=image.device)
    rows, columns = (
        (torch.arange(size, device=image.device) + move).clamp_(0, size - 1)
        for size, move in zip((h, w), moves, strict=True)
    )
    places = (rows.unsqueeze(-1) * w + columns.unsqueeze(-2)).view(b, 1, h * w)
    return image.reshape(b, c, h * w).gather(2, places.expand(b, c, h * w)).view_as(image)
