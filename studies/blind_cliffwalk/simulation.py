"""Prioritized replay on the Blind Cliffwalk: a study of the samplers alone, without a network.

The example of Schaul et al. 2016, "Prioritized Experience Replay", section 3.1 and appendix B.1: n
states in a row with two actions each. The right one leads on, from the last state to the end with
the reward 1; the wrong one ends the episode with nothing. The memory holds what all 2^n sequences
of actions give, in random order: 2^(n + 1) - 2 transitions, one of them with a reward. Tabular
Q-learning replays one transition an update (step 1/4, discount 1 - 1/n, Q from a normal
distribution of deviation 0.1) until the mean squared error over the 2n values is below 0.001.

The samplers are the trainer's own, with the constants of conf/memory/sampler. New transitions have
the largest priority, and each takes that of its TD error when it is replayed. There are no
importance weights: as in the paper's example, and as transitions are certain here, so that how
often one is replayed moves no value's fixed point; a weight would only shorten the step. `oracle`
is the paper's lower bound: each update is of the transition that lowers the error most.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numba import njit

from rlmem.collect.config import derive_seed
from rlmem.memories import PrioritizedSampler, RankSampler, UniformSampler
from rlmem.memories.samplers.base import ReplaySampler

from .results import Result

SAMPLERS = ("uniform", "prioritized", "rank", "oracle")
STEP, ERROR, DEVIATION = 0.25, 1e-3, 0.1
MOST = 100  # updates for each transition of the memory; a run that needs more is given up
DRAWN = 4096  # at once, of a sampler that priorities do not change
LARGEST = 20  # states: two million transitions


@dataclass(frozen=True)
class Transitions:
    """A memory that is full: states 0 .. n - 1, action 1 is the right one."""

    state: np.ndarray  # int64 [N]
    action: np.ndarray  # int64 [N]
    following: np.ndarray  # int64 [N], -1 at an episode's end
    reward: np.ndarray  # float64 [N]

    def __len__(self) -> int:
        return len(self.state)

    @property
    def max_size(self) -> int:
        """Slots: all are taken."""
        return len(self)


def all_transitions(n: int, rng: np.random.Generator) -> Transitions:
    """What the 2^n sequences of n actions, each cut at its first wrong one, give."""
    reached = 2 ** np.arange(n, 0, -1)  # state i by 2^(n - i) of them, half of which go on
    state = np.repeat(np.arange(n), reached)
    action = np.concatenate([np.arange(count) % 2 for count in reached])
    order = rng.permutation(len(state))
    state, action = state[order], action[order]
    on, last = action == 1, state == n - 1
    return Transitions(state, action, np.where(on & ~last, state + 1, -1), (on & last) * 1.0)


def true_values(n: int) -> np.ndarray:
    """Q*, float64 [n, 2]: gamma^(steps to the reward) of the right action, 0 of the wrong one."""
    values = np.zeros((n, 2))
    values[:, 1] = (1 - 1 / n) ** np.arange(n - 1, -1, -1)
    return values


@njit(cache=True)
def learn(
    q: np.ndarray,
    truth: np.ndarray,
    state: np.ndarray,
    action: np.ndarray,
    following: np.ndarray,
    reward: np.ndarray,
    index: np.ndarray,
) -> tuple[int, bool, float]:
    """Replay transitions in order until the values q [n, 2] are close to the truth.

    Returns:
        How many were replayed, whether the values are close, and the last TD error.
    """
    n = q.shape[0]
    squares, error = ((q - truth) ** 2).sum(), 0.0
    for k in range(index.shape[0]):
        i = index[k]
        s, a, after = state[i], action[i], following[i]
        value = max(q[after, 0], q[after, 1]) if after >= 0 else 0.0
        error = reward[i] + (1 - 1 / n) * value - q[s, a]
        squares -= (q[s, a] - truth[s, a]) ** 2
        q[s, a] += STEP * error
        squares += (q[s, a] - truth[s, a]) ** 2
        if squares < ERROR * 2 * n:
            return k + 1, True, error
    return index.shape[0], False, error


def first_values(n: int, rng: np.random.Generator) -> np.ndarray:
    """Q before learning, float64 [n, 2]."""
    return rng.normal(0.0, DEVIATION, (n, 2))


def updates_needed(n: int, name: str, seed: int) -> Result:
    """Run one sampler on n states. The same seed gives every sampler the same memory and values."""
    rng = np.random.default_rng([n, seed])
    memory, q, truth = all_transitions(n, rng), first_values(n, rng), true_values(n)
    if name == "oracle":
        return Result(n, name, seed, _oracle(q, truth), True)
    sampler = _sampler(name, len(memory))
    sampler._rng = torch.Generator().manual_seed(derive_seed(n, seed))
    sampler.extend(torch.arange(len(memory)))
    columns = memory.state, memory.action, memory.following, memory.reward
    fixed = type(sampler) is UniformSampler
    storage: Any = memory  # of which a sampler asks no more than its length
    updates, close = 0, False
    while not close and updates < MOST * len(memory):
        index, _ = sampler.sample(storage, DRAWN if fixed else 1)
        made, close, error = learn(q, truth, *columns, index.numpy())
        updates += made
        if not fixed:
            sampler.update_priority(index, torch.tensor([error], dtype=torch.float64))
    return Result(n, name, seed, updates, close)


def _sampler(name: str, capacity: int) -> ReplaySampler:
    if name == "uniform":
        return UniformSampler()
    return PrioritizedSampler(capacity) if name == "prioritized" else RankSampler(capacity)


def _oracle(q: np.ndarray, truth: np.ndarray) -> int:
    """Updates of q when each is the one that lowers the squared error most."""
    n = len(q)
    for updates in range(1, 10_000 * n):
        after = np.append(q[1:].max(1), 0.0)  # of the right action
        goals = np.stack([np.zeros(n), (1 - 1 / n) * after], axis=1)
        goals[-1, 1] = 1.0
        moved = q + STEP * (goals - q)
        best = np.argmax((q - truth) ** 2 - (moved - truth) ** 2)
        q.flat[best] = moved.flat[best]
        if ((q - truth) ** 2).mean() < ERROR:
            return updates
    raise RuntimeError(f"the oracle does not converge on {n} states")
