"""Findings in Markdown: what is shown, and what is never run or fetched."""

import pytest

from rlmem.analysis.findings import findings_html

TEXT = """# Answers

**More bytes**, see [the table](table.md) and `results.csv`.

- one
- two

| question | answer |
|---|---|
| saved? | no |
"""


def test_the_parts_of_a_text_are_shown() -> None:
    html = findings_html(TEXT)
    assert "<h2>Answers</h2>" in html
    assert "<strong>More bytes</strong>" in html
    assert '<a href="table.md">the table</a>' in html
    assert "<code>results.csv</code>" in html
    assert "<li>two</li>" in html
    assert "<td>no</td>" in html


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "a <img src=x onerror=alert(1)> b",
        "<!-- -->\n<iframe src=http://a.b></iframe>",
        "![picture](http://a.b/c.png)",
        "[x](javascript:alert(1)) [y](JaVaScRiPt:alert(1)) [z](data:text/html,a) <javascript:a>",
        '[x](a"onclick=alert "b\\"c")',
    ],
)
def test_nothing_is_run_or_fetched(text: str) -> None:
    html = findings_html(text)
    for part in ("<script", "<img", "<iframe", 'href="javascript', 'href="data', '" onclick'):
        assert part not in html.lower()


def test_an_empty_text_is_no_section() -> None:
    assert findings_html(" \n") == ""
