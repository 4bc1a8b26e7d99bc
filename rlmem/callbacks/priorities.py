"""Closing the loop of prioritized replay."""

from typing import Any

from tensordict import TensorDict

from rlmem.memories.memory import ReplayMemory


class PriorityFeedback:
    """Gives the memory the TD errors of each batch before the next one is drawn."""

    def __init__(self, memory: ReplayMemory) -> None:
        self.memory = memory

    def learned(self, batch: TensorDict, outputs: dict[str, Any]) -> None:
        """TD errors [U, B] of the batch's indices [U, B]."""
        if batch.shape[0]:
            self.memory.update_priority(batch["index"], outputs["td_error"])
