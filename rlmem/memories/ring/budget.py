"""A budget in bytes for a ring storage: the oldest transitions go before a new one is entered.

All that a run of a block adds is reckoned beforehand: its slots, the chunks that it begins, and the
bytes of its frames, so that nothing is evicted or refused half-way through it. How far frames
compress is known only once they are held; if it is less than those before, the rest is evicted
behind the run.
"""

from typing import TYPE_CHECKING

import numpy as np

from rlmem.errors import UserError
from rlmem.memories.ring.plan_kernels import chunks_needed, frames_added

if TYPE_CHECKING:
    from rlmem.memories.ring.ring import RingStorage

SHARE = 64  # of the budget, which a run may take at most: so much of it lies idle at worst
MOST_SLOTS = 0.75  # of the budget: slots stay for ever, and compressed frames may need more later


class BudgetError(UserError):
    """A budget that does not even hold the newest transitions.

    Attributes:
        missing: bytes by which it is too small.
    """

    def __init__(self, budget: int, missing: int) -> None:
        super().__init__(
            f"memory.budget={budget}: too small for this memory, {missing} bytes are missing for "
            "the newest transitions alone; use more, or fewer env.num_envs"
        )
        self.missing = missing


class RingBudget:
    """Places the runs of a ring storage within a budget.

    Args:
        storage: whose bytes are counted.
        limit: bytes that it may hold.

    Raises:
        BudgetError: it would never hold more than a few transitions.
    """

    def __init__(self, storage: "RingStorage", limit: int) -> None:
        self.storage, self.limit = storage, limit
        self._a_slot = storage.row_bytes + storage.slot_bytes
        self.most_slots = storage.max_size
        if storage.compresses:
            index = storage.chunk_bytes / storage.chunk  # of a frame, which stays as well
            turns = int(MOST_SLOTS * limit / (storage.num_envs * (self._a_slot + index)))
            self.most_slots = min(self.most_slots, storage.num_envs * max(1, turns))
        if (missing := storage.least - limit) > 0:
            raise BudgetError(limit, missing)

    @property
    def longest_run(self) -> int:
        """Rows that are written at once: whole turns of the environments, so that each has as many
        transitions as the others."""
        storage = self.storage
        a_turn = storage.num_envs * (self._a_slot + storage.likely_frame)
        return storage.num_envs * max(1, self.limit // (SHARE * a_turn))

    def place(self, env_id: np.ndarray, follows: np.ndarray) -> tuple[int, int]:
        """First slot and length of a block's next run, whose room is made.

        Args:
            env_id, follows: of the rows to come, int64 and bool [N], N at most `longest_run`.

        Raises:
            BudgetError: a run of one transition an environment does not fit.
        """
        storage, count = self.storage, len(env_id)
        num_envs = storage.num_envs
        size, cursor, window = storage.arrays.cursors()
        missing = 0
        if cursor == size and window == size and size < self.most_slots:  # a new slot is next
            rows = min(count, self.most_slots - size)
            spare = storage.spare if size else 0
            while rows:
                missing = self._missing(rows, *self._needs(env_id[:rows], follows[:rows]), spare)
                if missing <= 0:
                    return size, rows
                rows = self._fewer(rows)
        if size == 0:
            raise BudgetError(self.limit, missing)
        first = cursor % size
        count = min(count, size - first)
        storage.evict(count - (size - window))
        while (missing := self._missing(0, *self._needs(env_id[:count], follows[:count]))) > 0:
            if len(storage):
                storage.evict(min(num_envs, len(storage)))
            elif not (count := self._fewer(count)):
                raise BudgetError(self.limit, missing)
        return first, count

    def _fewer(self, rows: int) -> int:
        """About half as many rows, in whole turns; 0: it was a turn already."""
        turn = self.storage.num_envs
        return max(turn, rows // 2 // turn * turn) if rows > turn else 0

    def _needs(self, env_id: np.ndarray, follows: np.ndarray) -> tuple[int, int, int]:
        """Chunks that a run begins, bytes of frames beside them, and bytes to be stored away."""
        storage = self.storage
        frames = frames_added(env_id, follows, storage.num_envs)
        chunks = chunks_needed(frames, storage.arrays.chains, storage.chunk)
        return chunks, *storage.likely_bytes(frames)

    def _missing(self, slots: int, chunks: int, opened: int, stored: int, spare: int = 0) -> int:
        """Bytes by which a run would pass the budget, once what nothing needs is given back.

        Args:
            slots: how many of the run are new.
            chunks, opened, stored: its needs.
            spare: bytes to be left.
        """
        storage = self.storage
        begun = max(0, chunks - int(storage.arrays.head["free"]))
        added = slots * self._a_slot + begun * storage.chunk_bytes + opened
        over = storage.nbytes + added + storage.growth(stored) + spare - self.limit
        return over - storage.give_back(over, stored) if over > 0 else over

    def settle(self) -> None:
        """Evict what a run took more than was reckoned.

        Raises:
            BudgetError: nothing is left to evict.
        """
        if self.storage.compresses and not self.shrink():
            raise BudgetError(self.limit, self.storage.nbytes - self.limit)

    def shrink(self, room: int = 0) -> bool:
        """Evict what is over the budget, or leaves less than `room` bytes of it; whether that was
        possible."""
        storage = self.storage
        while (over := storage.nbytes + room - self.limit) > 0:
            if storage.give_back(over, 0) >= over:
                break
            if len(storage) == 0 or not storage.gives_back:
                return False
            storage.evict(min(storage.num_envs, len(storage)))
        return True
