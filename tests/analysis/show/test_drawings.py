"""Figures as they stand in a page: what is written on them is seen, and each id is there once."""

import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from rlmem.analysis.show.report import write_report
from tests.analysis.helpers import make_run


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a grid of both thresholds and of two memories, five seeds each, and two more games."""
    folder = tmp_path_factory.mktemp("sweep")
    for seed in range(5):
        for k, memory in enumerate(("per", "uniform")):
            make_run(folder / f"{memory}{seed}", memory, seed, final=50.0 * k + seed**2)
        for a in (0.7, 0.9):
            for h in (0.45, 0.85):
                given = {"threshold.activation": a, "threshold.habituation": h}
                make_run(folder / f"gwr{a}{h}{seed}", "gwr", seed, final=30 * a + h, config=given)
    for env_id in ("Acrobot-v1", "Pong"):
        for memory in ("per", "uniform"):
            make_run(folder / f"{env_id}{memory}", memory, env_id=env_id)
    write_report([folder], folder / "report")
    return folder / "report/index.html"


def styles_of_texts(page: str) -> dict[str, list[str]]:
    """Text of each figure's texts -> their styles, those of classes resolved."""
    rules = dict(re.findall(r"\.(s[0-9a-f]+)\{([^}]*)\}", page))
    found: dict[str, list[str]] = {}
    for attributes, text in re.findall(r"<text([^>]*)>([^<]*)<", page):
        style = " ".join(re.findall(r'style="([^"]*)"', attributes))
        style += " ".join(rules[name] for name in re.findall(r'class="([^"]*)"', attributes))
        found.setdefault(text, []).append(style)
    return found


def test_numbers_on_a_coloured_ground_have_an_ink_of_their_own(page: Path) -> None:
    """White is the page's paper and black its ink, which turn with dark mode; a ground does not."""
    styles = styles_of_texts(page.read_text())
    assert not [text for text, each in styles.items() if any("fill: none" in s for s in each)]
    on_ground = [text for text in styles if re.fullmatch(r"[01]\.00|2[17]\.\d+", text)]
    assert len(on_ground) >= 4, "numbers of the heatmap and of the matrix"
    for text in on_ground:
        assert any(re.search("fill: #(fefefe|010101)", style) for style in styles[text]), text


def test_an_interval_has_each_id_once(page: Path) -> None:
    svg = (page.parent / "figures/bytes-CartPole-v1.svg").read_text()
    for text in (svg, page.read_text()):
        ids = re.findall(r'\bid="([^"]*)"', text)
        assert len(ids) == len(set(ids))
    assert "-point2-" in svg, "no interval was drawn"


def test_each_panel_begins_with_a_drawing_and_what_is_not_drawn_is_said(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the page has room for few."""
    folder = page.parents[1]
    monkeypatch.setattr("rlmem.analysis.show.page.MOST_BYTES", 130_000)
    write_report([folder], folder / "small")
    small = (folder / "small/index.html").read_text()
    panels = re.findall(r"<div class=switch>.*?</figure>", small, re.S)
    assert len(panels) == 3
    assert all("<svg" in panel for panel in panels)
    missing = [
        each for each in re.findall(r"<figure.*?</figure>", small, re.S) if "<svg" not in each
    ]
    assert missing
    assert all("Not drawn here, the page would be too large:" in each for each in missing)
