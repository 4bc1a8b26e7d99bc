"""What somebody found, written in Markdown beside a study, as HTML of its page."""

import base64
import re
from pathlib import Path
from typing import Any

from markupsafe import Markup

from rlmem.errors import need

REFUSED = ("html_block", "html_inline")  # nothing is run
OWN_LINK = re.compile(r"(?![a-zA-Z][\w+.-]*:|[/#])")  # relative: neither scheme, root nor place
OWN_PICTURE = re.compile(r"figures/[\w.=,-]+\.png")


def findings_html(path: Path) -> Markup:
    """Paragraphs, headings, lists, tables, links, bold, code and the study's own pictures.

    Its relative links are turned into those of a page in report/ beside the file. HTML in it is
    shown as text, links to `javascript:`, `data:` and the like stay text, and of
    pictures those in figures/ beside the file become part of the page: nothing is fetched.

    Args:
        path: of a Markdown file; without one the answer is empty.

    Raises:
        UserError: markdown-it-py is missing.
    """
    text = path.read_text(errors="replace") if path.is_file() else ""
    if not text.strip():
        return Markup()
    markdown = need("markdown_it", "findings.md", "plot")
    parser = markdown.MarkdownIt("commonmark", {"html": False}).enable("table").disable(REFUSED)
    tokens = parser.parse(text)
    for token in tokens:
        if token.type.startswith("heading"):  # h1 is the page's
            token.tag = f"h{min(6, int(token.tag[1]) + 1)}"
        for child in token.children or []:
            if child.type == "image":
                _embed(child, path.parent)
            elif child.type == "link_open" and OWN_LINK.match(href := str(child.attrGet("href"))):
                child.attrSet("href", f"../{href}")  # the page lies in report/, beside the file
    html = parser.renderer.render(tokens, parser.options, {})
    return Markup(f"<section class=findings>\n{html}</section>")


def _embed(image: Any, folder: Path) -> None:
    """Make the study's own picture part of the page, and any other its caption."""
    source = str(image.attrGet("src"))
    if OWN_PICTURE.fullmatch(source) and (folder / source).is_file():
        content = base64.b64encode((folder / source).read_bytes()).decode()
        image.attrSet("src", f"data:image/png;base64,{content}")
    else:
        image.type, image.tag = "text", ""
