"""What somebody found, written in Markdown beside a study, as HTML of its page."""

import base64
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from rlmem.errors import need
from rlmem.run_files import MOST_TEXT, UNREADABLE, read_bytes

REFUSED = ("html_block", "html_inline")  # nothing is run
OWN_LINK = re.compile(r"(?![a-zA-Z][\w+.-]*:|[/#])")  # relative: neither scheme, root nor place
NOTHING = Markup()
MOST_EMBEDDED = 60_000  # bytes of pictures; the others are named
MOST_PICTURE = 2**24  # of one that is looked at
OWN_PICTURE = re.compile(r"figures/[\w.=,-]+\.png")


@dataclass(frozen=True)
class Findings:
    """A findings.md as parts of its page.

    Attributes:
        claim: its first paragraph: what was found and how sure it is.
        picture: name of the figure below it, without ending; "" if there is none.
        words: what is said of that figure.
        shown: that figure.
        rest: all else.
    """

    claim: Markup = NOTHING
    picture: str = ""
    words: str = ""
    shown: Markup = NOTHING
    rest: Markup = NOTHING


def read_findings(path: Path, own: Collection[str] = ()) -> Findings:
    """Paragraphs, headings, lists, tables, links, bold, code and the study's own pictures.

    Its relative links are turned into those of a page in report/ beside the file. HTML in it is
    shown as text, links to `javascript:`, `data:` and the like stay text, and of
    pictures those in figures/ beside the file become part of the page: nothing is fetched.

    Args:
        path: of a Markdown file; without one the answer is empty.
        own: names of the figures that the page draws itself, to which it links.

    Raises:
        UserError: markdown-it-py is missing.
    """
    text = _content(path, path.parent, MOST_TEXT).decode(errors="replace")
    if not text.strip():
        return Findings()
    markdown = need("markdown_it", "findings.md", "plot")
    parser = markdown.MarkdownIt("commonmark", {"html": False}).enable("table").disable(REFUSED)
    tokens = parser.parse(text)
    first = [token.type for token in tokens[:2]] == ["paragraph_open", "inline"]
    claim, tokens = (tokens[:3], tokens[3:]) if first else ([], tokens)
    picture, words, shown = "", "", []
    if claim and len(tokens) > 1 and [c.type for c in tokens[1].children or []] == ["image"]:
        (image,) = tokens[1].children
        picture, words = Path(str(image.attrGet("src"))).stem, str(image.content)
        shown, tokens = tokens[:3], tokens[3:]
    room = MOST_EMBEDDED
    for token in [*claim, *shown, *tokens]:
        if token.type.startswith("heading"):  # h1 is the page's
            token.tag = f"h{min(6, int(token.tag[1]) + 1)}"
        for child in token.children or []:
            if child.type == "image":
                room -= _embed(child, path.parent, own, room)
            elif child.type == "link_open" and OWN_LINK.match(href := str(child.attrGet("href"))):
                child.attrSet("href", f"../{href}")  # the page lies in report/, beside the file

    def html(part: Any) -> Markup:
        return Markup(parser.renderer.render(part, parser.options, {}))

    return Findings(html(claim), picture, words, html(shown), html(tokens))


def _content(path: Path, folder: Path, most_bytes: int) -> bytes:
    """Of a file in a folder; nothing where there is none, or a link that leads out of it."""
    try:
        return read_bytes(path, most_bytes, folder)
    except UNREADABLE:
        return b""


def _embed(image: Any, folder: Path, own: Collection[str], room: int) -> int:
    """Make the study's own picture part of the page, one that the page draws a link to its place,
    and any other its caption; its bytes."""
    source = str(image.attrGet("src"))
    if Path(source).stem in own:
        place, words = escape(Path(source).stem), escape(image.content)
        image.type, image.content = "html_inline", f'<a href="#{place}">{words}</a>'
        return 0
    if OWN_PICTURE.fullmatch(source):
        content = _content(folder / source, folder, MOST_PICTURE)
        if 0 < len(content) <= room:
            image.attrSet("src", f"data:image/png;base64,{base64.b64encode(content).decode()}")
            return len(content)
        image.content += f" ({source})" if content else ""
    image.type, image.tag = "text", ""
    return 0
