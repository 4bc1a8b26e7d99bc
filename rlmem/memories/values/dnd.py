"""The differentiable neural dictionary of NEC (Pritzel et al. 2017, arXiv 1703.01988).

Each action has a slab of keys and values. What it is worth at a key h is made of the values of the
p nearest keys: sum_i w_i v_i / sum_i w_i, w_i = 1 / (|h - h_i|^2 + delta). A state that is known
takes its latest key, and v += alpha (R - v); another is appended; in a full slab the entry goes
that was not found or written for the longest time. The search is exact (`search`).

Model-free episodic control (Blundell et al. 2016, arXiv 1606.04460) is the same with other
settings: fixed random projections as keys, the mean of k = 11 values, v = max(v, R), and a state
that is known has its own value.

An entry costs 4 d bytes of key, d + 40 of screen, 20 of value, state and age, and 8 to 16 in the
table of states: 720 bytes or so at d = 128. No gradient reaches what is stored, as in the builds
that reproduce the paper; the key that is asked with learns.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rlmem.errors import UserError
from rlmem.memories.base.lazy import give_back_all, lazy_zeros
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import below
from rlmem.memories.gwr.embedding import Embedding
from rlmem.memories.values.base import Near, Neighbours, ValueMemory
from rlmem.memories.values.checks import check_entries, checked_actions, checked_keys
from rlmem.memories.values.enter import (
    Lookup,
    Rows,
    Rule,
    answer,
    enter,
    hash_rows,
    reindex,
    rescreen,
    touch,
)
from rlmem.memories.values.search import search
from rlmem.memories.values.slabs import (
    bytes_of,
    bytes_when_full,
    make_slabs,
    make_work,
    oldest_noted,
    table_size,
    turn,
)

_SAMPLE = 4096  # keys that the principal axes are those of
_PROJECTION = "projection."  # before the names of the projection's state
_FIRST_FIT = 1024  # entries written before the axes are first found


@dataclass(frozen=True)
class DNDRule:
    """How values are read and changed.

    Attributes:
        neighbours: p, entries of an action that its value is made of.
        delta: keeps a weight finite; None: the mean, and the value of a known state itself.
        alpha: step of a known state's value; None: the greater value stays.
    """

    neighbours: int = 50
    delta: float | None = 1e-3
    alpha: float | None = 0.1


class Entries(NamedTuple):
    """Entries of a dictionary."""

    key: np.ndarray  # float32 [..., d]
    value: np.ndarray  # float32 [...]
    hash: np.ndarray  # int64 [...], of the state


class DND(ValueMemory):
    """A dictionary of keys and values for each action (Pritzel et al. 2017, arXiv 1703.01988).

    Args:
        num_actions: A.
        key_size: d, numbers of a key.
        capacity: entries an action.
        rule: how values are read and changed.
        projection: makes the keys, if no network does.

    Raises:
        ValueError: p is below 1 or more than the capacity, or there would be 2^31 entries in all.

    Examples:
        >>> import numpy as np
        >>> dictionary = DND(num_actions=2, key_size=3, capacity=100, rule=DNDRule(neighbours=2))
        >>> keys = np.eye(3, dtype=np.float32)
        >>> slots = dictionary.write(keys, np.array([0, 0, 1]), np.array([1, 3, 5], np.float32))
        >>> values, neighbours = dictionary.read(np.zeros((1, 3), np.float32))
        >>> values.tolist(), neighbours.slot.tolist()
        ([[2.0, 5.0]], [[[0, 1], [0, -1]]])
    """

    def __init__(
        self,
        num_actions: int,
        key_size: int,
        capacity: int,
        rule: DNDRule | None = None,
        projection: Embedding | None = None,
    ) -> None:
        self.rule = rule or DNDRule()
        self.num_actions, self.key_size = num_actions, key_size
        self._capacity, self._projection = capacity, projection
        self.trains = projection is None
        if self.rule.delta is not None:
            self.delta = self.rule.delta
        if num_actions * capacity >= 2**31:
            raise UserError(
                f"memory.entries={capacity}: {num_actions} actions have room for 2^31 entries in "
                f"all; use memory.entries={(2**31 - 1) // num_actions} or fewer"
            )
        if not 1 <= self.rule.neighbours <= capacity:
            raise ValueError(
                f"neighbours={self.rule.neighbours}: use 1 to {capacity}, the entries of an action"
            )
        self._slabs = make_slabs(num_actions, key_size, capacity)
        self._work = make_work(self._slabs, self.rule.neighbours)
        self._lookup = Lookup(
            table=np.full(table_size(1), -1, np.int32),
            oldest=lazy_zeros((num_actions, oldest_noted(capacity), 2), np.int64),
            turn=np.zeros((num_actions, 2), np.int64),
            clock=np.zeros(1, np.int64),
        )
        self._all = np.arange(num_actions)
        self._fit_at = _FIRST_FIT  # writes after which the axes are found anew
        self._writes = 0
        self._write_rule = Rule(self.rule.alpha or 0.0, best=self.rule.alpha is None, by_key=False)

    def embed(self, observation: np.ndarray) -> np.ndarray:
        assert self._projection is not None, "a network makes the keys"
        return self._projection.embed(observation)

    def read(self, keys: np.ndarray, *, touch: bool = True) -> tuple[np.ndarray, Neighbours]:
        keys = checked_keys(keys, self.key_size)
        actions = np.broadcast_to(self._all, (len(keys), self.num_actions))
        return self._read(keys, np.ascontiguousarray(actions), touch)

    def _read(
        self, keys: np.ndarray, actions: np.ndarray, touching: bool
    ) -> tuple[np.ndarray, Neighbours]:
        shape = (*actions.shape, self.rule.neighbours)
        slot, distance = np.empty(shape, np.int64), np.empty(shape)
        search(self._slabs, keys, actions, self._work, slot, distance)
        values = np.empty(actions.shape, np.float32)
        delta = -1.0 if self.rule.delta is None else self.rule.delta
        answer(self._slabs, actions, slot, distance, delta, values)
        if touching:
            touch(self._slabs, self._lookup, actions, slot)
        return values, Neighbours(slot, distance, slot[..., 0] >= 0)

    def near(self, keys: np.ndarray, actions: np.ndarray) -> Near:
        actions = checked_actions(actions, len(keys), self.num_actions)
        _, found = self._read(checked_keys(keys, self.key_size), actions[:, None], True)
        slot, action = found.slot[:, 0], actions[:, None]
        return Near(self._slabs.key[action, slot], self._slabs.value[action, slot], slot >= 0)

    def write(
        self,
        keys: np.ndarray,
        actions: np.ndarray,
        values: np.ndarray,
        hashes: np.ndarray | None = None,
    ) -> np.ndarray:
        # One zero in place of two, 0.0 and -0.0, before it is hashed.
        keys = checked_keys(keys, self.key_size) + np.float32(0)
        actions = checked_actions(actions, len(keys), self.num_actions)
        values = np.ascontiguousarray(values, np.float32)
        if values.shape != actions.shape or not np.isfinite(values).all():
            raise ValueError(f"values must be {len(keys)} finite numbers")
        if hashes is None:
            states = np.empty(len(keys), np.int64)
            hash_rows(keys.view(np.int32), states)
        else:
            states = np.ascontiguousarray(hashes, np.int64)
            if states.shape != actions.shape:
                raise ValueError(f"hashes of shape {states.shape} were given for {len(keys)} keys")
        rows = Rows(keys, actions, values, states, np.empty(len(keys), np.int64))
        rule = self._write_rule._replace(by_key=hashes is None)
        done = 0
        while True:
            done = enter(self._slabs, self._lookup, rows, rule, done, self._work.row)
            if done == len(keys):
                break
            if self._slabs.count[actions[done]] < self._capacity:
                self._make_table(self.entries + 1)
            else:
                self._find_oldest(int(actions[done]))
        self._writes += len(keys)
        if self._writes >= self._fit_at:
            self.fit()
        return rows.slot

    def _make_table(self, entries: int) -> None:
        """Make the table anew, for so many entries: its size follows from what is held alone, so
        that a dictionary that was loaded takes the bytes of the one that was saved."""
        table = np.full(table_size(entries), -1, np.int32)
        self._lookup = self._lookup._replace(table=table)
        reindex(self._slabs, self._lookup)

    def _find_oldest(self, action: int) -> None:
        """Note an action's entries that were used the longest time ago. Until one of them is used,
        they stay the oldest in this order: what is used gets a later time than all."""
        lookup, used = self._lookup, self._slabs.used[action, : self._slabs.count[action]]
        slots = np.argsort(used, kind="stable")[: lookup.oldest.shape[1]]
        lookup.oldest[action, : len(slots), 0] = slots
        lookup.oldest[action, : len(slots), 1] = used[slots]
        lookup.turn[action] = 0, len(slots)

    def fit(self) -> None:
        """Turn the screen to the principal axes of the keys held: done now and then by itself, as
        it makes searches faster. It changes no result."""
        if self.entries == 0:
            return  # no keys, no axes
        s, count = self._slabs, self._slabs.count
        self._fit_at = self._writes + max(_FIRST_FIT, self.entries // 2)
        numbers = np.linspace(0, self.entries - 1, min(self.entries, _SAMPLE)).astype(np.int64)
        action = np.searchsorted(np.cumsum(count), numbers, side="right")
        before = np.concatenate(([0], np.cumsum(count)))
        keys = s.key[action, numbers - before[action]].astype(np.float64)
        turn(s, keys)
        rescreen(s, self._work.row)

    @property
    def ready(self) -> bool:
        """Whether each action has the p entries that its value is made of."""
        return bool(self._slabs.count.min() >= self.rule.neighbours)

    @property
    def entries(self) -> int:
        """Entries of all actions."""
        return int(self._slabs.count.sum())

    @property
    def capacity(self) -> int:
        """Entries of all actions at most."""
        return self.num_actions * self._capacity

    @property
    def counts(self) -> np.ndarray:
        """Entries of each action, int64 [A]."""
        return self._slabs.count.copy()

    def look_at(self, action: np.ndarray, slot: np.ndarray) -> Entries:
        """Entries at actions and slots, int64 [...] each, which are held; copies."""
        s = self._slabs
        return Entries(s.key[action, slot], s.value[action, slot], s.hash[action, slot])

    def footprint(self) -> dict[str, int]:
        table, count = len(self._lookup.table), self._slabs.count
        # An action that is full has a list of its oldest, which is made again after a load.
        oldest = self._lookup.oldest.shape[1] * int((count == self._capacity).sum())
        p = self.rule.neighbours
        return self._with_projection(bytes_of(count, self.key_size, p, table, oldest))

    def projected_footprint(self) -> dict[str, int]:
        sizes = self.num_actions, self._capacity, self.key_size, self.rule.neighbours
        return self._with_projection(bytes_when_full(*sizes))

    def _with_projection(self, held: dict[str, int]) -> dict[str, int]:
        return held | {"projection": self._projection.footprint()} if self._projection else held

    def _held(self, array: np.ndarray) -> np.ndarray:
        """The rows of all actions one after the other, a copy."""
        return np.concatenate([array[a, :n] for a, n in enumerate(self._slabs.count)])

    def state_views(self) -> State:
        """Entries by action and slot. Neither screen nor table: they are made again from these."""
        s = self._slabs
        arrays = {name: getattr(s, name) for name in ("key", "value", "hash", "used")}
        held = {name: lambda a=array: self._held(a) for name, array in arrays.items()}
        projection = self._projection.state_views() if self._projection else {}
        made_by = {f"{_PROJECTION}{name}": value for name, value in projection.items()}
        return {**held, "count": s.count, "clock": int(self._lookup.clock[0]), **made_by}

    def check_state(self, state: State) -> None:
        """See `Stateful`; it must be of as many actions and no larger, its keys of one maker."""
        check_entries(state, self.num_actions, self._capacity, self.key_size)
        projection = below(state, _PROJECTION)
        if projection and self._projection is None:
            raise UserError(
                "memory.keys=network: the saved dictionary's keys are of a random projection; use "
                "memory.keys=random_projection"
            )
        # One that was saved before projections were is of the run's own seed.
        if projection and self._projection is not None:
            self._projection.check_state(projection)

    def take_over(self, state: State) -> None:
        projection = below(state, _PROJECTION)
        if projection and self._projection is not None:
            self._projection.take_over(projection)
        s, count = self._slabs, np.array(state["count"])
        ends = np.cumsum(count)
        for name in ("key", "value", "hash", "used"):
            array = state[name]
            give_back_all(getattr(s, name))
            for action, end in enumerate(ends):
                getattr(s, name)[action, : count[action]] = array[end - count[action] : end]
        s.count[:] = count
        self._lookup.clock[0], self._lookup.turn[:] = int(state["clock"]), 0
        self._work.hint[:] = np.inf
        self._make_table(max(1, self.entries))
        self._writes = 0
        self._fit_at = _FIRST_FIT
        if self.entries >= _FIRST_FIT:
            self.fit()
        else:
            rescreen(s, self._work.row)

    def check_valid(self) -> None:
        s, t = self._slabs, self._lookup
        numbers = t.table[t.table >= 0]
        assert len(numbers) == self.entries == len(np.unique(numbers)), "the table lost an entry"
        action, slot = np.divmod(numbers, self._capacity)
        assert (slot < s.count[action]).all(), "the table has an entry that is none"
        assert (self._held(s.used) <= t.clock[0]).all(), "an entry was used in the future"
