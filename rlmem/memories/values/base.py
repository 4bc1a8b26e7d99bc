"""Memories that answer: they are asked for Q(s, a) when the agent acts, and told what came of it.

How one meets agent and collector, in the order of a round:

1. `agent.join(memory)`, once: the agent keeps `memory.values`, and gives `memory.look` what makes
   keys and state values of observations (`Look`).
2. The agent acts: it makes a key of each observation, calls `values.read(keys)` and plays. From
   `explore` it returns `visit_columns` beside its actions: the key, the value of the
   state, and a hash of the observation.
3. `memory.extend(block)` (`EpisodicMemory`) queues the round's transitions, each environment's
   apart. A transition leaves the queue when its return over N steps is known: N steps later, or
   when its episode ends. What leaves goes to `values.visited`, and, with its return as `reward`,
   into the replay that the agent's network learns from.
4. The agent learns: `values.near(keys, actions)` gives what the asked action's values are made of,
   and `weighted` makes values of it through which gradients reach the keys.

An episode that ended gives all its rows at once, the last of them marked `terminated` or
`truncated`: a memory that works on whole episodes does so in `visited` when it meets the mark.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rlmem.memories.base.state import Stateful

# Observations [n, *observation_shape] -> keys float32 [n, d] and state values float32 [n].
Look = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def visit_columns(key_size: int) -> dict[str, tuple[tuple[int, ...], Any]]:
    """What an agent that asks adds to each transition: name -> (shape, dtype)."""
    return {
        "key": ((key_size,), np.float32),
        "value": ((), np.float32),  # max_a Q(s, a), as it was read when the agent acted
        "hash": ((), np.int64),  # of the observation (`hashes`)
    }


@dataclass(slots=True)
class Visits:
    """n transitions of which the return is known; each environment's are in the order of time."""

    key: np.ndarray  # float32 [n, d], as it was when the agent acted
    hash: np.ndarray  # int64 [n]
    action: np.ndarray  # int64 [n]
    target: np.ndarray  # float32 [n], the return over N steps
    reward: np.ndarray  # float32 [n], of this step alone
    next_key: np.ndarray  # float32 [n, d], of the observation that followed, also of a last one
    terminated: np.ndarray  # bool [n]
    truncated: np.ndarray  # bool [n]
    env_id: np.ndarray  # int64 [n]

    def __len__(self) -> int:
        return len(self.action)


@dataclass(slots=True)
class Neighbours:
    """What was found near N keys, for each of A actions p places, nearest first."""

    slot: np.ndarray  # int64 [N, A, p]; -1: there are fewer
    distance: np.ndarray  # float64 [N, A, p], squared Euclidean; infinite where there are fewer
    known: np.ndarray  # bool [N, A]: whether an entry says what the action is worth


@dataclass(slots=True)
class Near:
    """What the values of one action for each of B keys are made of; copies."""

    key: np.ndarray  # float32 [B, p, d]
    value: np.ndarray  # float32 [B, p]
    held: np.ndarray  # bool [B, p], False: there are fewer than p


def state_values(values: np.ndarray, near: Neighbours) -> np.ndarray:
    """max_a Q(s, a) float32 [N] of what was read, over the actions that are known; 0 where none is.

    An untried action counts 0 where one is chosen. That is no value to learn from: where rewards
    are negative it would stand above all that is known.
    """
    best = np.where(near.known, values, -np.inf).max(-1)
    return np.where(near.known.any(-1), best, 0.0).astype(np.float32)


def hashes(observation: np.ndarray) -> np.ndarray:
    """Hashes int64 [n] of observations [n, ...]: equal where these are, bit for bit."""
    digests = (
        hashlib.blake2b(row, digest_size=8).digest() for row in np.ascontiguousarray(observation)
    )
    return np.frombuffer(b"".join(digests), np.int64)


class ValueMemory(Stateful):
    """Base of the memories that answer; what it holds is saved and counted like any part.

    Attributes:
        name: of its folder in a saved memory, and of its bytes.
        key_size: d, numbers of a key.
        num_actions: A.
        trains: whether the agent's network makes the keys and learns; False: `embed` makes them.
        delta: of `weighted`, where a network learns.
    """

    name = "values"
    key_size: int
    num_actions: int
    trains = True
    delta = 1e-3

    def embed(self, observation: np.ndarray) -> np.ndarray:
        """Keys float32 [n, d] of observations [n, *observation_shape], where none are learned: the
        observations themselves, if nothing else is said."""
        return observation.reshape(len(observation), -1).astype(np.float32, copy=False)

    def read(self, keys: np.ndarray, *, touch: bool = True) -> tuple[np.ndarray, Neighbours]:
        """The values of all actions.

        Args:
            keys: float32 [N, d].
            touch: whether what was found counts as used. False in evaluation: it changes nothing.

        Returns:
            Values float32 [N, A], 0 for an action without entries, and what they come from.
        """
        raise NotImplementedError

    def near(self, keys: np.ndarray, actions: np.ndarray) -> Near:
        """What the values of one action for each key are made of; it counts as used.

        Args:
            keys: float32 [B, d].
            actions: int64 [B].
        """
        raise NotImplementedError

    def write(
        self,
        keys: np.ndarray,
        actions: np.ndarray,
        values: np.ndarray,
        hashes: np.ndarray | None = None,
    ) -> np.ndarray:
        """Enter n values.

        Args:
            keys: float32 [n, d].
            actions: int64 [n].
            values: float32 [n].
            hashes: int64 [n], equal where states are; None: states are equal where keys are.

        Returns:
            Their slots, int64 [n].

        Raises:
            ValueError: other shapes, actions out of range, or numbers that are not finite; nothing
                was changed.
        """
        raise NotImplementedError

    def visited(self, visits: Visits) -> None:
        """Told of transitions once their returns are known. A memory of steps and episodes, rather
        than of returns, looks at `reward`, `next_key` and the marks of an end."""
        self.write(visits.key, visits.action, visits.target, visits.hash)

    @property
    def ready(self) -> bool:
        """Whether it knows enough for the agent to learn from it."""
        return True

    @property
    def entries(self) -> int:
        """Entries held, in its own unit."""
        raise NotImplementedError

    @property
    def capacity(self) -> int:
        """Entries held at most."""
        raise NotImplementedError

    def footprint(self) -> dict[str, int]:
        """Component -> bytes held."""
        raise NotImplementedError

    def projected_footprint(self) -> dict[str, int]:
        """Component -> bytes held when full."""
        raise NotImplementedError

    def check_valid(self) -> None:
        """Assert the invariants."""


def weighted(
    keys: torch.Tensor, near: torch.Tensor, values: torch.Tensor, held: torch.Tensor, delta: float
) -> torch.Tensor:
    """Values by inverse distance: sum_i w_i v_i / sum_i w_i, w_i = 1 / (|h - h_i|^2 + delta).

    Gradients reach the keys that are asked with, through the weights (Pritzel et al. 2017, eq. 5).

    Args:
        keys: float32 [B, d], h.
        near: float32 [B, p, d], h_i.
        values: float32 [B, p], v_i.
        held: bool [B, p], which of them there are.
        delta: keeps a weight finite.

    Returns:
        float32 [B], 0 where there are none.
    """
    squared = (keys.unsqueeze(1) - near).square().sum(-1)
    weight = held / (squared + delta)
    total = weight.sum(-1)
    # By 1 where there are none: by a number that is nearly 0, a gradient would be no number.
    return (weight * values).sum(-1) / total.masked_fill(total == 0, 1)
