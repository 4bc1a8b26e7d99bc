"""What all pictures share."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from rlmem.drawing import image


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (np.full((1, 2, 2), 7, np.uint8), np.full((2, 2), 7)),
        (np.full((3, 2, 2), 7, np.uint8), np.full((2, 2, 3), 7)),
    ],
)
def test_frames_are_grey_or_in_colours(frame: np.ndarray, expected: Any) -> None:
    assert np.array_equal(image(frame), expected)


def test_planes_have_a_colour_each() -> None:
    frame = np.zeros((4, 2, 2), np.uint8)
    frame[0, 0, 0] = frame[3, 1, 1] = 1
    drawn = image(frame)
    assert drawn.shape == (2, 2, 3)
    assert not drawn[0, 1].any()
    assert drawn[0, 0].any()
    assert not np.array_equal(drawn[0, 0], drawn[1, 1])
