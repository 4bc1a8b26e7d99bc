"""What the pictures of a map show, and what they say that they leave out."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from rlmem.drawing import save
from rlmem.memories.gwr import pictures_figures
from rlmem.memories.gwr.pictures_figures import map_figure, prototype_sheet
from tests.memories.gwr.test_pictures_data import make_data


def lines_of(drawn: Figure, panel: int) -> LineCollection:
    (lines,) = [c for c in drawn.axes[panel].collections if isinstance(c, LineCollection)]
    return lines


def caption(drawn: Figure) -> str:
    return drawn.legends[0].get_title().get_text()


def test_every_node_is_drawn_in_both_panels() -> None:
    drawn = map_figure(make_data(), "a map")
    for at in drawn.axes[:2]:
        (points,) = [c for c in at.collections if not isinstance(c, LineCollection)]
        assert len(points.get_offsets()) == 50  # type: ignore[arg-type]


def test_a_pair_that_is_passed_more_is_wider_and_stronger() -> None:
    lines = lines_of(map_figure(make_data(edges=[(0, 2, 100), (4, 6, 1), (8, 10, 10)]), "a map"), 0)
    assert np.all(np.diff(lines.get_linewidths()) > 0)  # type: ignore[arg-type]
    assert np.all(np.diff(np.asarray(lines.get_colors())[:, 3]) > 0)
    data = make_data(edges=[(0, 2, 100)])
    assert np.asarray(lines.get_segments()[-1]) == pytest.approx(data.plane[[0, 1]])


def test_edges_of_one_pair_are_drawn_as_one_line() -> None:
    data = make_data(edges=[(0, 2, 4), (0, 2, 4), (2, 0, 4)])
    drawn = map_figure(data, "a map")
    assert len(lines_of(drawn, 0).get_segments()) == 2
    assert "8 passages" in [text.get_text() for text in drawn.legends[0].get_texts()]


def test_edges_from_a_node_to_itself_are_left_out_and_counted() -> None:
    drawn = map_figure(make_data(edges=[(0, 0, 9), (0, 2, 1)]), "a map")
    assert len(lines_of(drawn, 0).get_segments()) == 1
    assert "1 edge from a node to itself" in caption(drawn)


def test_of_too_many_edges_the_most_passed_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures_figures, "MOST_LINES", 2)
    monkeypatch.setattr(pictures_figures, "MOST_LINKS", 2)
    data = make_data(edges=[(0, 2, 1), (2, 4, 9), (4, 6, 5)], links=[(0, 2), (2, 4), (4, 6)])
    drawn = map_figure(data, "a map")
    segments = np.asarray(lines_of(drawn, 0).get_segments())
    assert segments == pytest.approx(data.plane[[[2, 3], [1, 2]]])
    assert "the 2 most passed of 3 pairs" in caption(drawn)
    assert "2 of 3 links" in caption(drawn)


def test_an_agent_without_values_is_said_to_have_none() -> None:
    drawn = map_figure(make_data(value=None), "a map")
    assert "no value: a test's" in caption(drawn)
    labels = [at.get_xlabel() for at in drawn.axes]
    assert not any(label.startswith("value") for label in labels)


def test_both_axes_have_one_scale(tmp_path: Path) -> None:
    drawn = map_figure(make_data(), "a map", reach=0.5)
    save(drawn, tmp_path, "map")
    at = drawn.axes[0]
    box = at.get_window_extent()
    (left, right), (low, high) = at.get_xlim(), at.get_ylim()
    assert (right - left) / box.width == pytest.approx((high - low) / box.height, rel=0.01)


def test_a_node_far_off_is_counted_and_leaves_the_others_their_room() -> None:
    data = make_data()
    data.plane[0] = 1e4
    data.core[0] = False
    drawn = map_figure(data, "a map")
    assert drawn.axes[0].get_xlim()[1] < 100
    assert "outside the axes: 1 node" in caption(drawn)


@pytest.mark.parametrize("size", [1, 2])
def test_a_map_that_has_just_begun_is_drawn(size: int, tmp_path: Path) -> None:
    data = make_data(size, edges=[], links=[], value=np.zeros(size))
    save(map_figure(data, "a map", reach=0.1), tmp_path, "map")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_a_large_map_is_an_image_within_its_svg(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    edges = [(int(a), int(b), 1) for a, b in 2 * rng.integers(0, 4000, (8000, 2))]
    text = save(map_figure(make_data(4000, edges=edges), "a map"), tmp_path, "map")
    assert "<image" in text
    assert len(text) < 2**21
    panels = save(map_figure(make_data(), "a map"), tmp_path, "small").split('<g id="axes_3')[0]
    assert "<image" not in panels


def test_the_same_map_gives_the_same_file(tmp_path: Path) -> None:
    once, again = (save(map_figure(make_data(), "a map"), tmp_path, name) for name in "ab")
    assert once == again


def test_a_contact_sheet_has_its_captions(tmp_path: Path) -> None:
    frames = np.zeros((11, 1, 6, 6), np.uint8)
    captions = [f"{k} firings" for k in range(11)]
    sheet = prototype_sheet([("most", frames, captions), ("least", frames[:2], captions[:2])])
    sheet.savefig(tmp_path / "a.png")
    shown = [at.get_title() for at in sheet.axes if at.images]
    assert shown == [*captions, *captions[:2]]
