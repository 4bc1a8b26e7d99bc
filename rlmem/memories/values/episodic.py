"""A memory that answers, with the queue that feeds it and the replay that its network learns from.

The replay is a ring of (observation, action, return): what the agent draws as `reward` is the
return over N steps as it was at the visit (Pritzel et al. 2017). It holds frames like any other
ring, compressed for images.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlmem.errors import UserError
from rlmem.memories.base.blocks import Block, check_rewards
from rlmem.memories.base.build import Needs
from rlmem.memories.base.serialize import load_state, save_state, where_saved
from rlmem.memories.memory import ReplayMemory
from rlmem.memories.replay import Replay, ReplaySettings, read_budget
from rlmem.memories.ring.ring import RingStorage
from rlmem.memories.ring.writer import RingWriter
from rlmem.memories.values.base import Look, ValueMemory, visit_columns
from rlmem.memories.values.queue import ReturnQueue
from rlmem.settings import setting


@dataclass(kw_only=True)
class EpisodicSettings(ReplaySettings):
    """What every memory that answers has: entries, and a replay beside them."""

    capacity: int = setting(at_least=1, at_most=10**9, divided=True)
    entries: int = setting(at_least=1, at_most=10**9, divided=True)
    share: float = setting(above=0, at_most=1)


# What a memory without a replay beside it does not read, as its yaml gives it.
_NO_REPLAY = {"memory/storage": "auto", "memory/sampler": "uniform", "memory.share": 0.5}


def check_no_replay(settings: EpisodicSettings, why: str) -> None:
    """Refuse keys of a replay that is not there: they would change nothing.

    Args:
        why: it is not, for the message.

    Raises:
        UserError: one of them is set.
    """
    chosen = {
        "memory/storage": settings.storage.part.name,
        "memory/sampler": settings.sampler.part.name,
        "memory.share": settings.share,
    }
    for key, value in chosen.items():
        if value != _NO_REPLAY[key]:
            raise UserError(f"{key}={value}: {why}; leave the key out")


class Episodic(Replay):
    """Base of the parts that make memories that answer. Subclasses say how values are kept."""

    takes_keys = True

    @classmethod
    def check(cls, settings: EpisodicSettings, run: Any) -> None:
        """The agent asks what it plays.

        Raises:
            UserError: it does not, or the replay fits nothing.
        """
        if not run.agent.part.cls.asks:
            raise UserError(
                f"agent={run.agent.name}: it does not ask its memory what to play, which is what "
                f"memory={settings.name} is for; use agent=nec"
            )
        if cls.learns(settings):  # from minibatches of the replay
            super().check(settings, run)
        elif settings.budget is not None:
            read_budget(settings.budget)

    @classmethod
    def build(cls, settings: EpisodicSettings, needs: Needs) -> "EpisodicMemory":
        """Compose the memory.

        Raises:
            UserError: the environment does not have what it needs, or a budget is too small.
        """
        budget = None if settings.budget is None else read_budget(settings.budget)
        queue = ReturnQueue(needs.spec, needs.n_step, needs.gamma, needs.columns["key"][0][0])
        limit = None
        if budget is not None and cls.learns(settings):
            limit = int(budget * settings.share)
        elif budget is not None:  # all but the queue and a ring that nothing is written into
            ring = sum(unwritten_storage(settings, needs).footprint().values())
            limit = budget - ring - sum(queue.projected_footprint().values())
        return EpisodicMemory(cls.values(settings, needs, limit), queue, settings, needs, budget)

    @classmethod
    def learns(cls, settings: Any) -> bool:
        """Whether a network learns, and so has a replay beside the values."""
        return True

    @classmethod
    def values(cls, settings: Any, needs: Needs, budget: int | None) -> ValueMemory:
        """Make what answers.

        Args:
            needs: `columns["key"]` says how large a key is.
            budget: bytes that it may hold when full, or None.
        """
        raise NotImplementedError


def unwritten_storage(settings: EpisodicSettings, needs: Needs) -> RingStorage:
    """The least ring there is, for a memory whose network learns nothing."""
    return settings.storage.build(replace(needs, n_step=1, columns={}), 1)


class EpisodicMemory(ReplayMemory):
    """A `ValueMemory`, a queue, and a replay.

    Args:
        values: what answers.
        queue: transitions whose returns are not known yet.
        settings: of the replay.
        needs: of the run; its `n_step` is that of the returns, its columns those of `explore`.
        budget: bytes that all may hold together.

    Attributes:
        look: what the queue shows the last observation of an episode to; the agent's, from `join`.

    Raises:
        UserError: the budget does not hold the values and a minibatch.
    """

    look: Look

    def __init__(
        self,
        values: ValueMemory,
        queue: ReturnQueue,
        settings: Any,
        needs: Needs,
        budget: int | None = None,
    ) -> None:
        self.values, self.queue = values, queue
        left = None
        if budget is not None:
            held = {**values.projected_footprint(), **self.queue.projected_footprint()}
            left = budget - sum(held.values())
            if left <= 0:
                raise UserError(
                    f"memory.budget={budget}: the entries that the agent asks take {budget - left} "
                    "bytes when full, which leaves none for the replay; use a larger "
                    "memory.budget, or a smaller memory.share"
                )
        if values.trains:
            needs = replace(needs, n_step=1, columns={})  # returns are made here, not at sampling
            least = needs.batch_size + settings.sampler.part.cls.rows_of_a_round(needs)
            storage = settings.storage.build(needs, max(settings.capacity, least), left)
        else:
            storage, left = unwritten_storage(settings, needs), None
        sampler = settings.sampler.build(needs, storage.max_size)
        super().__init__(storage, sampler, RingWriter(), seed=needs.seed, budget=left)
        self.budget, self.draws = budget, values.trains

    def _parts(self) -> dict[str, Any]:
        return {**super()._parts(), self.values.name: self.values, "queue": self.queue}

    @property
    def columns(self) -> Mapping[str, Any]:
        return visit_columns(self.values.key_size)

    @property
    def entries(self) -> int:
        return self.values.entries

    @property
    def room(self) -> str:
        entries = f"{self.values.capacity:,} entries"
        return f"{entries}, {super().room}" if self.values.trains else entries

    @property
    def transitions_represented(self) -> int:
        return len(self.storage) or self.values.entries

    def projected_footprint(self) -> dict[str, int]:
        full = super().projected_footprint()
        if not self.values.trains:  # then the ring stays as it is
            most, now = self.storage.projected_footprint(), self.storage.footprint()
            full |= {name: full[name] - most[name] + now[name] for name in now}
        return full

    def extend(self, block: Block) -> np.ndarray:
        """Take in a round's transitions; those whose returns became known are entered.

        Returns:
            Slots of the replay, int64 [n].
        """
        check_rewards(block)  # before anything is changed
        known = self.queue.push(block, self.look)
        if known is None:
            nothing = torch.empty(0, dtype=torch.int64)
            if self.values.trains:
                self.sampler.extend(nothing)  # what was the newest of a round is none of this one
            return nothing.numpy()
        visits, rows = known
        self.values.visited(visits)
        if self.values.trains:
            return np.asarray(super().extend(rows))
        self.transitions_seen += len(rows)
        return np.empty(0, np.int64)

    def available(self, batch_size: int, num_batches: int) -> int:
        """None before the values are known well enough, or where no network learns."""
        if not (self.values.trains and self.values.ready):
            return 0
        return super().available(batch_size, num_batches)

    def save_answers(self, folder: Path) -> None:
        """Write what the agent needs to play."""
        save_state(folder / self.values.name, self.values.state_views())

    def load_answers(self, folder: Path) -> None:
        """Take over what `save_answers` or `save` wrote.

        Raises:
            FileNotFoundError, ValueError: see `load`.
        """
        self.values.load_state_dict(load_state(where_saved(folder, self.values.name)))
