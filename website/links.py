"""The pages of the repository, and the links in them."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_CODE = re.compile(r"^```.*?^```|^ {4}.*?$|`[^`\n]*`", re.M | re.S)


def findings() -> list[Path]:
    """What was found in each study that has been run."""
    return sorted(ROOT.glob("studies/*/findings.md"))


def results() -> list[Path]:
    """What each benchmark measured."""
    return sorted(ROOT.glob("benchmarks/results/*.md"))


def pages() -> list[Path]:
    """All pages that somebody wrote."""
    top = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "README.md"]
    return [*top, *sorted((ROOT / "docs").rglob("*.md")), *findings(), *results()]


def links(page: Path) -> Iterator[str]:
    """The targets of a page's links and pictures, but for those in code."""
    text = _CODE.sub("", page.read_text())
    yield from re.findall(r"\]\(([^)\s]+)\)", text)


def target(page: Path, link: str) -> Path | None:
    """The file or folder that a link names, None for an address of the web."""
    if re.match(r"\w+:", link):
        return None
    path = link.partition("#")[0]
    return (page.parent / path).resolve() if path else page
