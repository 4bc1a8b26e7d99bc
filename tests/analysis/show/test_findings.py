"""Findings in Markdown: what is shown, and what is never run or fetched."""

from pathlib import Path

import pytest

from rlmem.analysis.show.findings import read_findings

TEXT = """# Answers

**More bytes**, see [the table](table.md) and `results.csv`.

- one
- two

| question | answer |
|---|---|
| saved? | no |
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "findings.md"
    path.write_text(text)
    return path


def shown(path: Path) -> str:
    """All of a text as the page has it."""
    found = read_findings(path)
    return found.claim + found.shown + found.rest


def test_the_first_paragraph_is_the_claim_and_a_picture_below_it_the_figure(tmp_path: Path) -> None:
    text = "**Found.** Five seeds.\n\n![seen](figures/a.png)\n\nMore.\n"
    found = read_findings(write(tmp_path, text))
    assert found.claim == "<p><strong>Found.</strong> Five seeds.</p>\n"
    assert (found.picture, found.words) == ("a", "seen")
    assert "More." in found.rest
    assert "seen" not in found.rest


def test_the_parts_of_a_text_are_shown(tmp_path: Path) -> None:
    html = shown(write(tmp_path, TEXT))
    assert "<h2>Answers</h2>" in html
    assert "<strong>More bytes</strong>" in html
    assert '<a href="../table.md">the table</a>' in html
    assert "<code>results.csv</code>" in html
    assert "<li>two</li>" in html
    assert "<td>no</td>" in html


def test_relative_links_are_those_of_a_page_in_a_folder_beside(tmp_path: Path) -> None:
    html = shown(write(tmp_path, "[a](#b) [c](https://d.e) [f](../../docs/g.md)"))
    assert [part.split('"')[0] for part in html.split('href="')[1:]] == [
        *("#b", "https://d.e", "../../../docs/g.md")
    ]


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "a <img src=x onerror=alert(1)> b",
        "<!-- -->\n<iframe src=http://a.b></iframe>",
        "![picture](http://a.b/c.png)",
        "![picture](../a.png) ![picture](figures/../a.png) ![picture](/etc/a.png)",
        "[x](javascript:alert(1)) [y](JaVaScRiPt:alert(1)) [z](data:text/html,a) <javascript:a>",
        '[x](a"onclick=alert "b\\"c")',
    ],
)
def test_nothing_is_run_or_fetched(tmp_path: Path, text: str) -> None:
    html = shown(write(tmp_path, text))
    for part in ("<script", "<img", "<iframe", 'href="javascript', 'href="data', '" onclick'):
        assert part not in html.lower()


def test_an_empty_text_or_none_is_no_section(tmp_path: Path) -> None:
    assert shown(tmp_path / "findings.md") == ""
    assert shown(write(tmp_path, " \n")) == ""


def test_pictures_of_its_own_folder_are_part_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures/a.png").write_bytes(b"picture")
    html = shown(write(tmp_path, "![A](figures/a.png) ![B](figures/b.png)"))
    assert '<img src="data:image/png;base64,cGljdHVyZQ==" alt="A" />' in html
    assert html.count("<img") == 1
    assert "B</p>" in html


def test_a_picture_that_the_page_draws_is_a_link_to_its_place(tmp_path: Path) -> None:
    text = 'Found.\n\nMore: ![seen <b> & "so"](figures/a.png)\n'
    found = read_findings(write(tmp_path, text), ["a"])
    assert '<a href="#a">seen &lt;b&gt; &amp; &#34;so&#34;</a>' in found.rest


def test_no_file_elsewhere_becomes_part_of_the_page(tmp_path: Path) -> None:
    study = tmp_path / "study"
    (study / "figures").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(b"picture")
    (study / "figures/a.png").symlink_to(tmp_path / "secret")
    assert "<img" not in shown(write(study, "![A](figures/a.png)"))
    (study / "findings.md").unlink()
    (study / "findings.md").symlink_to(tmp_path / "secret")
    assert shown(study / "findings.md") == ""
