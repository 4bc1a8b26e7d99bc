"""What somebody beside a memory is told of it: what is written, goes, is drawn and was learned."""

from collections.abc import Mapping

import numpy as np
import torch

from rlmem.memories.base.batch import Batch


class Observer:
    """Base of those who watch a `ReplayMemory` (its `observers`): is told, changes nothing.

    An item is what is drawn: a transition of a ring, a temporal edge of a map. It stands at its
    slot until it is forgotten. Slots are int64 [n].
    """

    def forgotten(self, slots: np.ndarray) -> None:
        """The items at these slots are gone; new ones may stand there already."""

    def written(self, slots: np.ndarray, numbers: np.ndarray) -> None:
        """Items were written at these slots, or edges of a map passed again.

        Args:
            numbers: int64 [n], of each write's transition among all that the memory was given,
                from 0. Of a slot given twice, the last stands.
        """

    def drawn(self, index: np.ndarray) -> None:
        """Minibatches were drawn: slots int64 [U, B], in the order in which they are used."""

    def learned(self, batch: Batch, outputs: Mapping[str, torch.Tensor]) -> None:
        """The agent learned from a batch, before the next round is played.

        Args:
            batch: its tensors are overwritten by the next draw; copy what is to be kept.
            outputs: what the agent's `update` returned.
        """
