"""A table of Q values, one row a state that was met (Watkins 1989): the yardstick of the graphs.

A row takes 4 d + 4 A + 8 bytes. States are equal where their keys are.
"""

import numpy as np

from rlmem.errors import UserError
from rlmem.memories.base.lazy import lazy_zeros
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import array_of, count_of
from rlmem.memories.values.base import Near, Neighbours, ValueMemory, Visits


class QTable(ValueMemory):
    """Q(s, a) += eta (r + gamma max_a' Q(s', a') - Q(s, a)), from zeros.

    Args:
        capacity: states; the least recently used goes for one more.
        key_size: d.
        num_actions: A.
        gamma: discount a step.
        eta: learning rate.

    Raises:
        ValueError: fewer than two states.

    Examples:
        >>> import numpy as np
        >>> table = QTable(100, 2, 4, gamma=0.9, eta=0.5)
        >>> table.read(np.zeros((1, 2), np.float32))[0].tolist()
        [[0.0, 0.0, 0.0, 0.0]]
    """

    name = "q_table"
    trains = False

    def __init__(
        self, capacity: int, key_size: int, num_actions: int, *, gamma: float, eta: float
    ) -> None:
        if capacity < 2:
            raise ValueError(f"capacity={capacity}: a table has two states at least")
        self.key_size, self.num_actions = key_size, num_actions
        self.gamma, self.eta = gamma, eta
        self._keys = lazy_zeros((capacity, key_size), np.float32)
        self._values = lazy_zeros((capacity, num_actions), np.float32)
        self._used = lazy_zeros((capacity,), np.int64)  # clock of the last use
        self._count, self._clock = 0, 0

    def _find(self, key: np.ndarray) -> int:
        """The row of a state; -1: it has none."""
        found = (self._keys[: self._count] == key).all(1)
        row = int(found.argmax()) if self._count else 0
        return row if self._count and found[row] else -1

    def _row(self, key: np.ndarray, spared: int = -1) -> int:
        """The row of a state, made if there is none. `spared` does not make room for it."""
        row = self._find(key)
        if row < 0:
            if self._count < self.capacity:
                row = self._count
                self._count += 1
            else:
                oldest = self._used.argpartition(1)[:2]  # two, as one may be spared
                oldest = oldest[self._used[oldest].argsort()]
                row = int(oldest[1] if oldest[0] == spared else oldest[0])
            self._keys[row], self._values[row] = key, 0.0
        self._used[row] = self._clock
        self._clock += 1
        return row

    def read(self, keys: np.ndarray, *, touch: bool = True) -> tuple[np.ndarray, Neighbours]:
        """See `ValueMemory.read`; a state without a row is worth 0 in all actions."""
        rows = np.array([self._find(key) for key in keys], np.int64)
        held = rows >= 0
        if touch:
            self._used[rows[held]] = self._clock
            self._clock += 1
        values = np.where(held[:, None], self._values[rows], np.float32(0))
        slot = rows[:, None, None].repeat(self.num_actions, 1)
        return values, Neighbours(slot, np.where(slot < 0, np.inf, 0.0), slot[..., 0] >= 0)

    def near(self, keys: np.ndarray, actions: np.ndarray) -> Near:
        """See `ValueMemory.near`: the state itself, if it has a row."""
        rows = self.read(keys)[1].slot[:, :1, 0]
        value = self._values[rows[:, 0], actions][:, None]
        return Near(self._keys[rows], value, rows >= 0)

    def visited(self, visits: Visits) -> None:
        """Learn from transitions, one after the other."""
        for i in range(len(visits)):
            row = self._row(visits.key[i])
            target = visits.reward[i]
            if not visits.terminated[i]:
                following = self._row(visits.next_key[i], spared=row)
                target = target + np.float32(self.gamma) * self._values[following].max()
            value = self._values[row, visits.action[i]]
            self._values[row, visits.action[i]] = value + np.float32(self.eta) * (target - value)

    @property
    def entries(self) -> int:
        """States."""
        return self._count

    @property
    def capacity(self) -> int:
        """States at most."""
        return len(self._keys)

    def node_keys(self) -> np.ndarray:
        """The key of each state, float32 [states, d], a copy."""
        return self._keys[: self._count].copy()

    def node_values(self) -> np.ndarray:
        """The best value of each state, float32 [states]."""
        return self._values[: self._count].max(1)

    def footprint(self) -> dict[str, int]:
        return self._bytes(self._count)

    def projected_footprint(self) -> dict[str, int]:
        return self._bytes(self.capacity)

    def _bytes(self, rows: int) -> dict[str, int]:
        a_row = self._values[:1].nbytes + self._used.itemsize
        return {"keys": rows * self._keys[:1].nbytes, "values": rows * a_row}

    def state_views(self) -> State:
        rows = slice(self._count)
        return {
            "keys": self._keys[rows],
            "values": self._values[rows],
            "used": self._used[rows],
            "clock": self._clock,
        }

    def check_state(self, state: State) -> None:
        keys = array_of(state, "keys", np.float32, (-1, self.key_size))
        array_of(state, "values", np.float32, (len(keys), self.num_actions))
        array_of(state, "used", np.int64, (len(keys),))
        count_of(state, "clock")
        if len(keys) > self.capacity:
            raise UserError(f"the saved table has {len(keys)} states, this one {self.capacity}")

    def take_over(self, state: State) -> None:
        self._count, self._clock = len(state["keys"]), int(state["clock"])
        for name, mine in (("keys", self._keys), ("values", self._values), ("used", self._used)):
            mine[: self._count] = state[name]

    def check_valid(self) -> None:
        keys = self._keys[: self._count]
        assert len(np.unique(keys, axis=0)) == self._count, "a state has two rows"
        assert np.isfinite(self._values[: self._count]).all(), "a value is no finite number"
