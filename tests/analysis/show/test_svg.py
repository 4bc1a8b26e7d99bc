"""A figure's SVG in a page: the same drawing in fewer bytes, its ids unique."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib")

from rlmem.analysis.show.svg import in_page
from rlmem.drawing import figure, save


def drawn(folder: Path) -> str:
    """Points, lines and a band, as a report draws them."""
    made, axes = figure(4, 3)
    at = axes[0, 0]
    at.plot([0, 1, 2, 3.5], [1, 3, -2, 1.23], gid="c7-line-0")
    at.plot([0, 1, 2], [1, 2, 1], "o", gid="c8-point0-0", clip_on=False)
    at.fill_between([0, 1], [0, 0], [1, 2])
    return save(made, folder, "a")


def places(svg: str) -> list[tuple[float, float]]:
    """Of all points of lines, absolute or as steps."""
    found = []
    for path in re.findall(r' d="([^"]*)"', svg):
        for kind, rest in re.findall(r"([MLl])([^A-Za-z]*)", path):
            numbers = [float(n) for n in re.findall(r"-?\d*\.?\d+", rest)]
            for x, y in zip(numbers[::2], numbers[1::2], strict=True):
                before = found[-1] if kind == "l" else (0, 0)
                found.append((before[0] + x, before[1] + y))
    return found


def test_lines_go_where_they_went_in_fewer_bytes(tmp_path: Path) -> None:
    text = drawn(tmp_path)
    short = str(in_page("a", text, "said"))
    assert len(places(text)) > 20
    assert places(short) == [pytest.approx(place, abs=0.051) for place in places(text)]
    assert len(short) < 0.65 * len(text)


def test_what_is_used_has_an_id_that_no_other_figure_has(tmp_path: Path) -> None:
    text = drawn(tmp_path)
    ids = []
    for name in ("a", "b"):
        svg = str(in_page(name, text, "said"))
        ElementTree.fromstring(svg)
        here = re.findall(r' id="([^"]*)"', svg)
        assert set(here) == set(re.findall(r'(?:url\(|href=")#([^")]*)', svg))
        assert set(re.findall(r'data-setting="(\d+)"', svg)) == {"7", "8"}
        ids += here
    assert len(ids) == len(set(ids)) > 4


def test_a_group_that_says_nothing_is_left_out(tmp_path: Path) -> None:
    assert "<g>" not in in_page("a", drawn(tmp_path), "said")
