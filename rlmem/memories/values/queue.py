"""Transitions that wait until their return over N steps is known.

R_t = r_t + ... + gamma^(N-1) r_(t+N-1) + gamma^N max_a Q(s_(t+N), a), where the value is the one
that was read when the agent acted at t + N. Where an episode ends before, what comes after is 0 if
it terminated, and the value of its last observation if it was truncated. A transition costs its
frame, its key and some 40 bytes while it waits; room for N and a stack of frames is held for each
environment.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from rlmem.errors import UserError
from rlmem.memories.base.blocks import Block
from rlmem.memories.base.serialize import State
from rlmem.memories.base.spec import TransitionSpec
from rlmem.memories.base.state import Stateful, array_of
from rlmem.memories.values.base import Look, Visits

T = TypeVar("T", Visits, Block)


class ReturnQueue(Stateful):
    """The last transitions of each environment's episode.

    Args:
        spec: of the environments.
        n_step: N.
        gamma: discount a step.
        key_size: numbers of a key.
    """

    def __init__(self, spec: TransitionSpec, n_step: int, gamma: float, key_size: int) -> None:
        self.n_step, self.gamma, self._spec = n_step, gamma, spec
        row: list[Any] = [
            ("frame", spec.dtype, spec.frame_shape),
            ("key", np.float32, (key_size,)),
            ("hash", np.int64),
            ("action", np.int64),
            ("reward", np.float32),
        ]
        # Row t of an episode stands at place t modulo the length: the last N, the one that comes,
        # and frames before them that stacks reach back to.
        length = n_step + max(1, spec.stack)
        self._rows = np.zeros((spec.num_envs, length), row)
        self._first = np.zeros(spec.num_envs, np.int64)  # the oldest that waits
        self._next = np.zeros(spec.num_envs, np.int64)  # steps of the episode so far
        self._discounts = gamma ** np.arange(n_step)

    def __len__(self) -> int:
        return int((self._next - self._first).sum())

    def newest(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Frame and key of the state in which the first environment acted last; None: its episode
        has ended."""
        if self._next[0] == 0:
            return None
        row = self._rows[0, (self._next[0] - 1) % self._rows.shape[1]]
        return row["frame"].copy(), row["key"].copy()

    def push(self, block: Block, look: Look) -> tuple[Visits, Block] | None:
        """Take in a block, which has `key`, `value` and `hash` among its columns.

        Args:
            look: is shown the last observation of each episode that ends.

        Returns:
            The transitions whose returns became known, in the order in which they did, and the same
            as a block for a replay, with the return as reward; None: there are none.
        """
        known = [
            part
            for row, env in enumerate(block.env_id)
            for part in self._push(block, row, int(env), look)
        ]
        if len(known) < 2:
            return known[0] if known else None
        visits, rows = zip(*known, strict=True)
        return _joined(visits), _joined(rows)

    def _push(self, block: Block, row: int, env: int, look: Look) -> list[tuple[Visits, Block]]:
        rows, length = self._rows[env], self._rows.shape[1]
        columns, at = block.columns, self._next[env] % length
        rows["frame"][at], rows["action"][at] = block.observation[row], block.action[row]
        rows["key"][at], rows["hash"][at] = columns["key"][row], columns["hash"][row]
        rows["reward"][at] = block.reward[row]
        first, last = int(self._first[env]), int(self._next[env])
        self._next[env] += 1
        found = []
        if last - first == self.n_step:
            # The row that came is that of s_(t+N): its value was read when the agent acted there.
            waited = rows["reward"][np.arange(first, last) % length] @ self._discounts
            target = waited + self.gamma**self.n_step * columns["value"][row]
            found.append(self._known(env, first, first + 1, np.array([target])))
            first += 1
            self._first[env] = first
        if block.terminated[row] or block.truncated[row]:
            found.append(self._end(block, row, env, look))
            self._first[env] = self._next[env] = 0
        return found

    def _end(self, block: Block, row: int, env: int, look: Look) -> tuple[Visits, Block]:
        """All rows of an episode that ended."""
        first, end = int(self._first[env]), int(self._next[env])
        key, value = look(self._last_observation(block, row, env)[None])
        target = 0.0 if block.terminated[row] else float(value[0])
        reward = self._rows["reward"][env]
        targets = np.empty(end - first)
        for t in range(end - 1, first - 1, -1):
            target = float(reward[t % len(reward)]) + self.gamma * target
            targets[t - first] = target
        last = block.next_observation[row], key[0]
        visits, rows = self._known(env, first, end, targets, last)
        visits.terminated[-1], visits.truncated[-1] = block.terminated[row], block.truncated[row]
        return visits, rows

    def _last_observation(self, block: Block, row: int, env: int) -> np.ndarray:
        """The observation after an episode's last step, [*observation_shape]; zeros before its
        first."""
        spec, end = self._spec, int(self._next[env])
        frames = np.zeros((spec.stack, *spec.frame_shape), spec.dtype)
        frames[-1] = block.next_observation[row]
        for back in range(1, min(spec.stack - 1, end) + 1):
            frames[-1 - back] = self._rows["frame"][env, (end - back) % self._rows.shape[1]]
        return frames.reshape(spec.observation_shape)

    def _known(
        self,
        env: int,
        first: int,
        end: int,
        targets: np.ndarray,
        last: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> tuple[Visits, Block]:
        """Rows [first, end) of an episode with their returns.

        Args:
            last: frame and key that follow the last of them; None: the next row's.
        """
        n, length = end - first, self._rows.shape[1]
        taken = self._rows[env][np.arange(first, end + (last is None)) % length]
        frames, keys = taken["frame"], taken["key"]
        if last is not None:
            frames = np.concatenate((frames, last[0][None]))
            keys = np.concatenate((keys, last[1][None]))
        taken = taken[:n]
        targets = targets.astype(np.float32)
        marks = np.zeros((2, n), np.bool_)
        visits = Visits(
            key=keys[:n],
            hash=taken["hash"],
            action=taken["action"],
            target=targets,
            reward=taken["reward"],
            next_key=keys[1:],
            terminated=marks[0],
            truncated=marks[1],
            env_id=np.full(n, env),
        )
        rows = Block(
            observation=frames[:n],
            action=visits.action,
            next_observation=frames[1:],
            reward=targets,
            terminated=marks[0],
            truncated=marks[1],
            env_id=visits.env_id,
        )
        return visits, rows

    def footprint(self) -> dict[str, int]:
        """Component -> bytes held."""
        arrays = self._rows, self._first, self._next, self._discounts
        return {"waiting": sum(array.nbytes for array in arrays)}

    projected_footprint = footprint

    def state_views(self) -> State:
        return {"rows": self._rows.view(np.uint8), "first": self._first, "next": self._next}

    def check_state(self, state: State) -> None:
        """See `Stateful`; it must be of as many steps, environments and equal frames and keys."""
        of, hint = "queue", "; give the same agent.n_step, agent.key_size and env.num_envs"
        array_of(state, "rows", np.uint8, self._rows.view(np.uint8).shape, of, hint)
        first = array_of(state, "first", np.int64, self._first.shape, of)
        following = array_of(state, "next", np.int64, self._next.shape, of)
        waiting = following - first
        if first.min() < 0 or waiting.min() < 0 or waiting.max() > self.n_step:
            raise UserError("the saved queue is damaged: its steps are out of order")

    def take_over(self, state: State) -> None:
        self._rows.view(np.uint8)[:] = state["rows"]
        self._first[:], self._next[:] = state["first"], state["next"]

    def check_valid(self) -> None:
        """Assert the invariants."""
        waiting = self._next - self._first
        assert ((waiting >= 0) & (waiting <= self.n_step)).all(), "a step was lost"


def _joined(parts: Sequence[T]) -> T:
    """Visits or blocks, one after the other."""
    kind: Any = type(parts[0])
    names = [f.name for f in fields(kind) if f.name != "columns"]
    return kind(**{n: np.concatenate([getattr(part, n) for part in parts]) for n in names})
