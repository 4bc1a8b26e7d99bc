"""Shifts and brightness of a batch's images."""

import numpy as np
import torch

from rlmem.agents.augment import AugmentSettings, shifted


def test_each_image_is_a_crop_of_itself_padded_with_its_edge() -> None:
    torch.manual_seed(0)
    image = torch.randint(256, (64, 3, 12, 10), dtype=torch.uint8)
    moved, seen = shifted(image, 2), set()
    assert moved.dtype == torch.uint8
    assert moved.shape == image.shape
    for before, after in zip(image.numpy(), moved.numpy(), strict=True):
        padded = np.pad(before, ((0, 0), (2, 2), (2, 2)), mode="edge")
        crops = {(y, x): padded[:, y : y + 12, x : x + 10] for y in range(5) for x in range(5)}
        found = [at for at, crop in crops.items() if np.array_equal(crop, after)]
        assert len(found) == 1
        seen.add(found[0])
    assert {y for y, _ in seen} == {x for _, x in seen} == set(range(5))


def test_brightness_is_one_factor_an_image_within_two_deviations() -> None:
    torch.manual_seed(0)
    image = torch.full((500, 4, 3, 3), 100, dtype=torch.uint8)
    changed = AugmentSettings(shift=0, intensity=0.05)(image)
    factors = changed[:, 0, 0, 0] / 100
    assert (changed == changed[:, :1, :1, :1]).all()
    assert 0.899 < factors.min() < 0.95 < 1.05 < factors.max() < 1.101
    assert abs(factors.std() - 0.05) < 0.01


def test_nothing_is_changed_where_nothing_is_asked() -> None:
    image = torch.randint(256, (2, 1, 4, 4), dtype=torch.uint8)
    none = AugmentSettings(shift=0, intensity=0.0)
    assert not none.changes
    assert none(image) is image
