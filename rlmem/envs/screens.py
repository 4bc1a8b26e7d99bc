"""A part of the emulator's screen, made smaller: for networks that see the playing field alone."""

from collections.abc import Sequence

import numpy as np
import torch


class ScreenPart:
    """Cuts rows out of grey screens and averages them down to a square.

    Args:
        rows: [first, end] of the rows that are kept, all columns with them.
        size: pixels, height and width of what comes out.
        height, width: of a screen.

    Examples:
        >>> import numpy as np
        >>> part = ScreenPart([2, 4], 1, 4, 2)
        >>> part(np.array([[[[0, 0], [0, 0], [10, 20], [30, 41]]]], np.uint8)).tolist()
        [[[[25]]]]
    """

    def __init__(self, rows: Sequence[int], size: int, height: int, width: int) -> None:
        self.first, self.end = rows
        assert 0 <= self.first < self.end <= height, rows
        self._tall = area_weights(self.end - self.first, size)
        self._wide = area_weights(width, size).T.contiguous()
        self._same = self.end - self.first == width == size

    def __call__(self, screens: np.ndarray) -> np.ndarray:
        """uint8 [E, 1, height, width] -> uint8 [E, 1, size, size], an array of its own."""
        kept = screens[:, :, self.first : self.end]
        if self._same:
            return kept.copy()
        image = torch.from_numpy(kept).float()
        return (self._tall @ image @ self._wide).round_().to(torch.uint8).numpy()


def area_weights(pixels: int, size: int) -> torch.Tensor:
    """How much of each of `pixels` lies in each of `size` equal parts: float32 [size, pixels], rows
    that sum to 1. Resizing by it is averaging over areas, OpenCV's INTER_AREA."""
    edges = np.linspace(0, pixels, size + 1)
    starts = np.arange(pixels)
    shared = np.minimum(edges[1:, None], starts + 1) - np.maximum(edges[:-1, None], starts)
    return torch.from_numpy((np.maximum(shared, 0) * size / pixels).astype(np.float32))
