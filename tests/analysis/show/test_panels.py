"""One panel of a page: its labels, and bytes on an axis."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("matplotlib")

import itertools

import numpy as np
from matplotlib import rc_context

from rlmem.analysis.compare.looks import look
from rlmem.analysis.show.panels import (
    PANEL,
    Named,
    bytes_axis,
    bytes_upward,
    lines_of,
    name_beside,
    no_sign_change,
    panel,
)

LABELS = [
    "uniform",
    *(f"{kind}a_T .9, exemplar, 32 dims{end}" for kind in ("", "FIFO of the bytes of ")
      for end in ("", ", no links")),
]  # fmt: skip


def setting(number: int, label: str) -> Any:
    return SimpleNamespace(number=number, label=label, look=look(number, 0))


def test_labels_at_one_height_do_not_lie_on_each_other_and_are_told_in_full() -> None:
    settings = [setting(k, label) for k, label in enumerate(LABELS)]
    drawn, at = panel(settings)
    at.set_ylim(0, 1)
    name_beside(at, [Named(each, 0.5) for each in settings])
    drawn.canvas.draw()
    boxes = sorted((text.get_window_extent() for text in at.texts), key=lambda box: box.y0)
    assert len(boxes) == len(LABELS)
    assert all(below.y1 <= above.y0 + 2 for below, above in itertools.pairwise(boxes))
    assert len({text.get_text() for text in at.texts}) == len(LABELS)
    told = [" ".join(lines_of(each)).replace("\u00a0", " ") for each in settings]
    assert told == LABELS


@pytest.mark.parametrize(
    ("label", "lines"),
    [
        ("FIFO of the bytes of a_T .05", ["FIFO of the", "bytes of a_T .05"]),
        ("FIFO, newest of 4 MiB", ["FIFO, newest", "of 4 MiB"]),
        ("DQN with 10,000 transitions", ["DQN with 10,000", "transitions"]),
    ],
)
def test_a_number_stays_with_its_unit_and_its_name(label: str, lines: list[str]) -> None:
    found = lines_of(setting(0, label))
    assert [line.replace("\u00a0", " ") for line in found] == lines


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [((0.0, 5.0), 0, None), ((-9.0, -0.01), None, 0), ((-2.0, 3.0), None, None)],
)
def test_an_axis_ends_at_0_where_all_lies_on_one_side(
    values: tuple[float, float], low: float | None, high: float | None
) -> None:
    _, at = panel()
    at.fill_between([0, 1], *values)
    wide = at.get_ylim()
    no_sign_change(at)
    assert at.get_ylim() == (wide[0] if low is None else low, wide[1] if high is None else high)


@pytest.mark.parametrize(
    ("most", "ticks"),
    [
        (900, ["0 B", "250 B", "500 B", "750 B"]),
        (300 * 1024, ["0 B", "100 KiB", "200 KiB", "300 KiB"]),
        (40 * 2**20, ["0 B", "10 MiB", "20 MiB", "30 MiB", "40 MiB"]),
        (5.3 * 2**30, ["0 B", "2 GiB", "4 GiB"]),
    ],
)
def test_bytes_have_the_unit_that_fits_the_largest(most: float, ticks: list[str]) -> None:
    drawn, at = panel()
    at.set_ylim(0, most)
    bytes_upward(at)
    drawn.canvas.draw()
    assert [tick.get_text() for tick in at.get_yticklabels()] == ticks


@pytest.mark.parametrize(
    "values",
    [
        *((18e6, 27e6), (6e6, 7.5e6), (5e6, 19e6), (900.0, 1500.0), (1.1e5, 2.65e5)),
        *((1.47e6, 1.4722e6), (6.02e6, 6.09e6), (17.5e6, 90e6), (900.0, 3e6)),
    ],
)
def test_bytes_of_much_the_same_size_have_two_ticks_or_more(values: tuple[float, float]) -> None:
    drawn, at = panel()
    at.plot(values, (0, 1))
    bytes_axis(at, np.array(values))
    drawn.canvas.draw()
    low, high = at.get_xlim()
    seen = [t.get_text() for t in at.get_xticklabels() if low <= t.get_position()[0] <= high]
    assert 2 <= len(set(seen)) == len(seen) <= 4


@pytest.mark.parametrize("octaves", [2.1, 2.9, 2.99, 3.5, 3.99, 5.5, 8.9, 11.9, 20])
@pytest.mark.parametrize("least", [2**7.01, 2**16.99, 2**17.01, 2**17.5])
def test_bytes_in_equal_ratios_have_labels_that_do_not_touch(least: float, octaves: float) -> None:
    with rc_context(PANEL):
        drawn, at = panel()
        sizes = np.array([least, least * 2**octaves])
        at.plot(sizes, (0, 1))
        bytes_axis(at, sizes)
        drawn.canvas.draw()
    boxes = [label.get_window_extent() for label in at.get_xticklabels()]
    assert len(boxes) >= 2
    assert all(left.x1 + 3 < right.x0 for left, right in itertools.pairwise(boxes))


def test_bytes_that_no_memory_has_are_drawn_all_the_same() -> None:
    """As a damaged summary.json may hold them."""
    drawn, at = panel()
    bytes_axis(at, np.array([-2000.0, -5.0]))
    drawn.canvas.draw()
    assert len(at.get_xticks()) == 1


def test_bytes_of_one_setting_have_one_tick() -> None:
    drawn, at = panel()
    at.plot([4.2e6], [1], "o")
    bytes_axis(at, np.array([4.2e6]))
    drawn.canvas.draw()
    assert [t.get_text() for t in at.get_xticklabels()] == ["4 MiB"]
