"""What all pictures share: their style, their files, frames as images."""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from PIL import Image

STYLE: Any = {
    "svg.fonttype": "none",  # text stays text
    "text.parse_math": False,  # a label with dollars is no formula
    "svg.hashsalt": "rlmem",  # the same runs give the same file
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "legend.frameon": False,
    "legend.fontsize": 8,
}
COLOURS_OF_PNG = 128  # half the bytes of all colours, and nobody sees the difference
DPI = 130  # of a PNG
PLANES: Any = [  # a colour for each channel of an image that has several, as 0/1 planes do
    *("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#ee8866"),
    *("#77aadd", "#99ddff"),
]


def figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, Any]:
    """A figure and its axes, [rows, columns]."""
    drawn = Figure(figsize=(width, height), layout="constrained")
    return drawn, drawn.subplots(rows, columns, squeeze=False)


@rc_context(STYLE)
def save(drawn: Figure, folder: Path, name: str) -> str:
    """Write NAME.png, in a palette of COLOURS_OF_PNG, and NAME.svg; the SVG's text."""
    text, pixels = BytesIO(), BytesIO()
    drawn.savefig(text, format="svg", metadata={"Date": None})
    drawn.set_layout_engine("none")  # as it was laid out for the SVG; half the time
    drawn.savefig(pixels, format="png", dpi=DPI)
    picture = Image.open(pixels).convert("RGB")
    picture = picture.quantize(COLOURS_OF_PNG, dither=Image.Dither.NONE)
    picture.save(folder / f"{name}.png", optimize=True)
    (folder / f"{name}.svg").write_bytes(text.getvalue())
    return text.getvalue().decode()


def image(frame: np.ndarray) -> np.ndarray:
    """A frame [C, H, W] as an image: grey [H, W], colours, or planes in a colour each."""
    if len(frame) == 1:
        return frame[0]
    if len(frame) == 3 and frame.max(initial=0) > 1:
        return frame.transpose(1, 2, 0)
    drawn = np.zeros((*frame.shape[1:], 3), np.uint8)
    for number, plane in enumerate(frame):
        code = PLANES[number % len(PLANES)]
        drawn[plane > 0] = [int(code[i : i + 2], 16) for i in (1, 3, 5)]
    return drawn
