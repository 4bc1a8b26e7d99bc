"""What somebody found, written in Markdown beside a study, as HTML of its page."""

from rlmem.errors import UserError

REFUSED = ("image", "html_block", "html_inline")  # nothing is fetched, nothing is run


def findings_html(text: str) -> str:
    """Paragraphs, headings, lists, tables, links, bold and code; HTML in it is shown as text.

    Links to `javascript:`, `data:` and the like stay text.

    Raises:
        UserError: markdown-it-py is missing.
    """
    if not text.strip():
        return ""
    try:
        from markdown_it import MarkdownIt
    except ImportError:
        raise UserError("findings.md needs markdown-it-py: pip install 'rlmem[plot]'") from None
    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable(REFUSED)
    tokens = parser.parse(text)
    for token in tokens:
        if token.type.startswith("heading"):  # h1 is the page's
            token.tag = f"h{min(6, int(token.tag[1]) + 1)}"
    html = parser.renderer.render(tokens, parser.options, {})
    return f"<section class=findings>\n{html}</section>"
