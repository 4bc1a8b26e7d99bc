"""Runs of consecutive transitions, for agents with a recurrent network (Hausknecht & Stone 2015).

Each run begins at a transition drawn uniformly and follows its environment's links, so it never
leaves an episode. Where the episode, or what is held of it, is shorter, the run's last transition
stands for the missing ones and `mask` is 0. It keeps nothing: 0 bytes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numba import njit

from rlmem.errors import UserError
from rlmem.memories.base.build import Needs
from rlmem.memories.ring.records import arrays_of, link_of
from rlmem.memories.ring.ring import RingStorage
from rlmem.memories.samplers.base import ReplaySampler, draw_uniform
from rlmem.registry import part
from rlmem.settings import Settings, setting

COMPILED_WITH = {"records": "109bac0e96e1"}


@dataclass(kw_only=True)
class SequenceSettings(Settings):
    """The sampler's keys."""

    length: int = setting(8, at_least=1, at_most=10**6, help="transitions of a run")


@part("memory/sampler", "sequence", settings=SequenceSettings)
class SequenceSampler(ReplaySampler):
    """Runs of T transitions: a batch is [U, B, T, ...], with `mask` float32 [U, B, T, 1].

    Args:
        length: T.
    """

    in_order = draws_runs = True

    @classmethod
    def check(cls, settings: SequenceSettings, run: Any) -> None:
        """The agent learns from runs.

        Raises:
            UserError: it does not.
        """
        if not run.agent.part.cls.takes_sequences:
            raise UserError(
                f"memory/sampler=sequence: agent={run.agent.name} learns from single transitions; "
                "use memory/sampler=uniform"
            )

    @classmethod
    def build(cls, settings: SequenceSettings, needs: Needs, capacity: int) -> "SequenceSampler":
        """Make the sampler for a run."""
        return cls(settings.length)

    def __init__(self, length: int) -> None:
        super().__init__()
        if length < 1:
            raise ValueError(f"length={length}: a run has at least one transition")
        self.length = length

    def check_storage(self, storage: Any) -> None:
        """Only rings know which transition comes after another.

        Raises:
            ValueError: it is another storage.
        """
        if not isinstance(storage, RingStorage):
            raise ValueError(f"sequences are drawn from a ring, not from {type(storage).__name__}")

    def draw(
        self, storage: RingStorage, batch_size: int, num_batches: int
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Slots int64 [U, B, T], and `mask` float32 [U, B, T]."""
        first = draw_uniform(storage, batch_size * num_batches, self._rng).numpy()
        index = np.empty((len(first), self.length), np.int64)
        mask = np.empty((len(first), self.length), np.float32)
        _follow(first, storage.arrays.memory, index, mask)
        shape = num_batches, batch_size, self.length
        return index.reshape(shape), {"mask": mask.reshape(shape)}

    def sample(self, storage: Any, batch_size: int) -> tuple[torch.Tensor, dict]:
        """Runs int64 [batch_size, T] and their `mask`, [batch_size, T, 1] as rewards are."""
        index, columns = self.draw(storage, batch_size, 1)
        return torch.from_numpy(index[0]), {
            "mask": torch.from_numpy(columns["mask"][0]).unsqueeze(-1)
        }


@njit(cache=True)
def _follow(first: np.ndarray, memory: np.ndarray, index: np.ndarray, mask: np.ndarray) -> None:
    """Fill runs [n, T] from their first slots on."""
    ring = arrays_of(memory)
    size = ring.counts[0].size
    for run in range(len(first)):
        slot, real = first[run], np.float32(1.0)
        for step in range(index.shape[1]):
            index[run, step], mask[run, step] = slot, real
            link = link_of(ring, slot)
            slot = (slot + link) % size
            if link == 0:
                real = np.float32(0.0)  # the last one stands for what is missing
