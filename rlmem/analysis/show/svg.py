"""A figure's SVG as a part of a page: its ids unique there, its bytes few."""

import re
import zlib
from collections import Counter
from itertools import count

from markupsafe import Markup, escape

OFTEN = 3  # times that a style is used until it is a class
BROAD = 400  # points; a wider figure scrolls on a phone
PIXELS = 1.4  # of a point where it scrolls: legends of 8 points can be read
NUMBER = re.compile(r"-?\d+\.\d{2,}")
# matplotlib's ink and paper, which are the page's own in it: it has a dark form.
INK = re.compile(r"(fill|stroke): #(?:000000|262626)")
PAPER = re.compile(r"fill: #ffffff")
FONTS = re.compile(r"font-family: ('DejaVu Sans'), [^;\"]*(sans-serif)")
LINE = re.compile(r"M (-?[\d.]+ -?[\d.]+) ?((?:\nL -?[\d.]+ -?[\d.]+ ?)+)")
UNTURNED = re.compile(r' transform="rotate\(-0 [^"]*\)"')
USED = re.compile(r'url\(#([^")]+)\)|href="#([^"]+)"')


def in_page(name: str, svg: str, spoken: str) -> Markup:
    """matplotlib's SVG of a figure, as wide as the page.

    Args:
        name: unique in the page.
        spoken: what who cannot see it is told.
    """
    svg = re.sub(r"<!--.*?-->", "", svg[svg.index("<svg") :], flags=re.S)
    # matplotlib leaves quotes in texts as they are, and what follows looks for attributes.
    svg = re.sub(r">[^<]*<", lambda text: text[0].replace('"', "&quot;"), svg)
    wide = float(re.findall(r'<svg[^>]*? width="([\d.]+)', svg)[0])
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, count=1, flags=re.S)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    broad = f' style="min-width:{wide * PIXELS:.0f}px"' if wide > BROAD else ""
    svg = UNTURNED.sub("", svg)
    svg = LINE.sub(_stepwise, svg)
    svg = re.sub(r' (?:d|x|y|points|transform)="[^"]*"', _rounded, svg)
    svg = PAPER.sub("fill: none", INK.sub(r"\1: currentColor", svg))
    svg = _shorter(_with_few_ids(name, FONTS.sub(r"font-family: \1, \2", svg)))
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(spoken)}"{broad} ', 1)
    return Markup(svg)  # matplotlib has escaped its texts


def said_before(svg: Markup, words: str) -> Markup:
    """The same, with words at the start of what who cannot see it is told."""
    return Markup(str(svg).replace('aria-label="', f'aria-label="{escape(words)} ', 1))


def _rounded(found: re.Match[str]) -> str:
    """Places to a tenth of a point: the page has half the bytes."""
    return NUMBER.sub(lambda n: f"{float(n[0]):.1f}".removesuffix(".0"), found[0])


def _stepwise(found: re.Match[str]) -> str:
    """A line as its first place and the steps from it, in tenths: half the bytes again."""
    tenths = [round(10 * float(place)) for place in re.findall(r"-?[\d.]+", found[0])]
    first = " ".join(map(_tenth, tenths[:2]))
    steps = [after - before for before, after in zip(tenths, tenths[2:], strict=False)]
    return f"M{first}l{' '.join(map(_tenth, steps))}"


def _tenth(count: int) -> str:
    """-5 -> '-.5', 120 -> '12'."""
    whole, rest = divmod(abs(count), 10)
    digits = f"{whole or ''}.{rest}" if rest else f"{whole}"
    return f"-{digits}" if count < 0 else digits


def _with_few_ids(name: str, svg: str) -> str:
    """Of all ids those that are used, short ones; a setting's parts have its number in their place.

    Two figures of a page have other ids: the name is in them.
    """
    number, start = count(), f"{zlib.crc32(name.encode()):x}"
    used = {one or other for one, other in USED.findall(svg)}
    ids = {old: f"{start}-{next(number)}" for old in sorted(used)}
    svg = re.sub(r' id="c(\d+)-[^"]*"', r' data-setting="\1"', svg)
    svg = re.sub(r' id="([^"]*)"', lambda i: f' id="{ids[i[1]]}"' if i[1] in ids else "", svg)
    svg = re.sub(r'(?:xlink:)?href="#([^"]+)"', lambda i: f'href="#{ids[i[1]]}"', svg)
    return re.sub(r'url\(#([^")]+)\)', lambda i: f"url(#{ids[i[1]]})", svg)


def _shorter(svg: str) -> str:
    """The same with a class for each style that is used often, and no group that says
    nothing.

    Two figures of a page may have a class of one name: its style is in the name.
    """
    svg = re.sub(r"\n\s*", "\n", _ungrouped(svg))
    often = Counter(re.findall(r' style="([^"]*)"', svg))
    classes = {
        style: f"s{zlib.crc32(style.encode()):x}" for style, n in often.items() if n >= OFTEN
    }
    rules = "".join(f".{name}{{{style}}}" for style, name in classes.items())
    svg = re.sub(
        r' style="([^"]*)"',
        lambda found: f' class="{classes[found[1]]}"' if found[1] in classes else found[0],
        svg,
    )
    return svg.replace("</style>", f"{rules}</style>", 1)


def _ungrouped(svg: str) -> str:
    """Without the groups that have no attribute, whose parts stay."""
    kept: list[bool] = []

    def tag(found: re.Match[str]) -> str:
        if found[0] == "</g>":
            return found[0] if kept.pop() else ""
        if not found[0].endswith("/>"):
            kept.append(found[0] != "<g>")
        return found[0] if found[0] != "<g>" else ""

    return re.sub(r"<g\b[^>]*>|</g>", tag, svg)
