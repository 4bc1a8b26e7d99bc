"""How a memory shows itself: pictures while a run trains, pictures and tables after it.

A memory's part says what it can draw by a static method

    pictures(memory, context) -> Iterable[Picture | Table]

which imports what draws when it is called (matplotlib is an extra). Modules whose names begin with
`pictures` are left alone until then. A part without the method draws nothing.

In a film of an episode, what the memory says of the present state stands beside the game if the
part has a static method

    overlay(memory, context) -> Overlay | None

None: there is nothing to show yet.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from rlmem.memories.base.spec import TransitionSpec

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Embed = Callable[[np.ndarray], np.ndarray]  # observations [n, ...] -> rows [n, d]
Overlay = Callable[[np.ndarray], np.ndarray]  # an observation -> RGB uint8 [height, width, 3]
Play = Callable[[Embed], Mapping[str, list[np.ndarray]]]


class Picture(NamedTuple):
    """A figure; NAME.png and, with `vector`, NAME.svg. The first one is the memory's `map` at W&B,
    others are map/NAME."""

    name: str
    figure: "Figure"
    caption: str = ""
    vector: bool = True


class Table(NamedTuple):
    """NAME.csv, and what people read of it."""

    name: str
    rows: "pd.DataFrame"
    text: str = ""


@dataclass(frozen=True)
class PictureContext:
    """What a picture may show beside the memory.

    Attributes:
        run: the settings of the whole run.
        agent: as it plays now.
        spec: of the environment.
        env_steps: that were made.
        play: plays episodes by the run's policy and at random; policy -> the observations of each
            episode [length + 1, d], its last among them, embedded as they come. None while a run
            trains: then only what is drawn in seconds is.
        folder: the run's map/, for what its pictures share, such as where they lay things out; it
            need not be there. None: nothing is shared.
    """

    run: Any
    agent: Any
    spec: TransitionSpec
    env_steps: int
    play: Play | None = None
    folder: Path | None = None

    @torch.no_grad()
    def values(self, observations: Iterable[np.ndarray]) -> np.ndarray | None:
        """The agent's values (`agent.value_name`) of states in blocks [n, *observation_shape],
        float64 [of all blocks]; None where it has none."""
        if self.agent.value_name is None:
            return None
        found = [np.zeros(0)]
        for rows in observations:
            values = self.agent.state_values(torch.from_numpy(rows).to(self.agent.device))
            found.append(values.double().cpu().numpy())
        return np.concatenate(found)
