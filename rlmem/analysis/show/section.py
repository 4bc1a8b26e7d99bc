"""A part of a report's page: a heading, words, a table of texts, figures, and files beside it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(slots=True)
class Section:
    """What a page shows below one heading.

    Attributes:
        text: paragraph above the table.
        table: texts, a column a head; those whose heads are in `words` are set to the left.
        remarks: lines below the table.
        figures: file's name -> caption and figure.
        files: name -> content of NAME.csv.
    """

    title: str
    text: str = ""
    table: pd.DataFrame | None = None
    words: tuple[str, ...] = ()
    remarks: list[str] = field(default_factory=list)
    figures: dict[str, tuple[str, "Figure"]] = field(default_factory=dict)
    files: dict[str, pd.DataFrame] = field(default_factory=dict)
