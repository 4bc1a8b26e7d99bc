"""How figures show a memory: one colour, the same on all pages, and a second sign beside it.

A memory's part declares its slots: `colours = {"uniform": 0}` in its class, by the names of its
options. Slots that share a colour (8 apart) have other lines and marks.
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any

from rlmem.registry import parts

# Told apart by people who see colours otherwise (Okabe and Ito 2008), on white and on dark ground.
COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#e69f00"),
    *("#cc79a7", "#56b4e9", "#8c6bb1", "#808080"),
)
DASHES: Any = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (9, 2)))
MARKS = "osD^vPX<>*"


@dataclass(frozen=True)
class Look:
    """Of a setting.

    Attributes:
        colour: #rrggbb, its memory's.
        dash, mark: matplotlib's line style and marker.
    """

    colour: str
    dash: Any
    mark: str


def look(slot: int, turn: int) -> Look:
    """Of the setting that is number `turn` of its memory's on a page."""
    second = slot // len(COLOURS) + turn
    return Look(COLOURS[slot % len(COLOURS)], DASHES[second % len(DASHES)],
                MARKS[(slot + turn) % len(MARKS)])  # fmt: skip


def slots(memories: Iterable[str]) -> dict[str, int]:
    """The slot of each memory: the declared one, and for unknown names one that no other has, if
    there is one in a colour of its own, sought from a place that the name decides."""
    wanted = set(memories)
    found = {name: slot for name, slot in _declared().items() if name in wanted}
    for name in sorted(wanted - found.keys()):
        taken = {slot % len(COLOURS) for slot in found.values()}
        start = zlib.crc32(name.encode())
        order = [(start + k) % len(COLOURS) for k in range(len(COLOURS))]
        free = next((place for place in order if place not in taken), order[0])
        again = count(free, len(COLOURS))  # the same colour with another line and mark
        found[name] = next(slot for slot in again if slot not in found.values())
    return found


def _declared() -> dict[str, int]:
    return {
        name: slot
        for part in parts("memory").values()
        for name, slot in getattr(part.cls, "colours", {}).items()
    }
