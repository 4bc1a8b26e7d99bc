"""Index arithmetic of `FrameStorage`: which row of the frame array holds what. It copies no frame.

Rows of the frame array: 0 is all zeros (the padding before an episode), then the ring, then the
pool.
"""

from typing import Any

import numpy as np
from numba import njit

RING = 1  # first row of the ring


@njit(cache=True)
def _followed(done: np.ndarray, env: np.ndarray, num_envs: int) -> np.ndarray:
    """bool [N]: rows whose successor comes later in the same block."""
    follows = np.zeros(len(done), np.bool_)
    later = np.zeros(num_envs, np.bool_)
    for row in range(len(done) - 1, -1, -1):
        follows[row] = later[env[row]] and not done[row]
        later[env[row]] = True
    return follows


@njit(cache=True)
def _release(slot: Any, link: np.ndarray, pool_free: np.ndarray, pool_size: np.ndarray) -> None:
    if link[slot] < 0:
        pool_free[pool_size[1]] = -1 - link[slot]
        pool_size[1] += 1


@njit(cache=True)
def plan_write(
    written: int,
    done: np.ndarray,
    env: np.ndarray,
    back: np.ndarray,
    link: np.ndarray,
    newest: np.ndarray,
    pool_free: np.ndarray,
    pool_size: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Link N <= capacity new rows into the ring, from seq `written` on.

    Returns:
        int64 [N] frame row of each observation; int64 [N] frame row that each next observation
        needs of its own, or -1 where the successor's observation serves.
    """
    capacity, ring = len(link), len(back)
    follows = _followed(done, env, len(newest))
    current, final = np.empty(len(done), np.int64), np.full(len(done), -1, np.int64)
    for row in range(len(done)):
        seq = written + row
        slot, at, e = seq % capacity, seq % ring, env[row]
        if seq >= capacity:
            _release(slot, link, pool_free, pool_size)
        current[row] = RING + at
        link[slot] = 0
        back[at] = 0
        before = newest[e]
        if before >= 0:
            if seq - before < ring:
                back[at] = seq - before
            if seq - before < capacity:
                _release(before % capacity, link, pool_free, pool_size)
                link[before % capacity] = seq - before
        if not follows[row]:
            if pool_size[1] > 0:
                pool_size[1] -= 1
                free = pool_free[pool_size[1]]
            else:
                free = pool_size[0]
                pool_size[0] += 1
            final[row] = RING + ring + free
            link[slot] = -1 - free
        newest[e] = -1 if done[row] else seq
    return current, final


@njit(cache=True)
def _stack(seq: int, written: int, back: np.ndarray, rows: np.ndarray) -> None:
    """Fill `rows`, oldest first, with the frames up to seq, zeros before the episode."""
    ring = len(back)
    for k in range(len(rows) - 1, -1, -1):
        if seq < 0:
            rows[k] = 0
            continue
        at = seq % ring
        rows[k] = RING + at
        seq = seq - back[at] if back[at] > 0 and written - (seq - back[at]) <= ring else -1


@njit(cache=True)
def plan_read(
    written: int,
    index: np.ndarray,
    stack: int,
    n_step: int,
    gamma: float,
    back: np.ndarray,
    link: np.ndarray,
    column_reward: np.ndarray,
    rows: np.ndarray,
    reward: np.ndarray,
    steps: np.ndarray,
    last: np.ndarray,
) -> None:
    """Find the frames, n-step rewards, steps and last slots of the slots `index`.

    `rows` [B, stack + 1] holds a stack and the frame after it (n_step = 1), or [B, 2 * stack]
    the stacks at both ends.
    """
    capacity, ring, total = len(link), len(back), rows.shape[1]
    for b in range(len(index)):
        seq = written - 1 - (written - 1 - index[b]) % capacity
        _stack(seq, written, back, rows[b, :stack])
        discount, count = 1.0, 1
        value = np.float64(column_reward[index[b]])
        ahead = link[seq % capacity]
        while count < n_step and ahead > 0:
            seq += ahead
            discount *= gamma
            value += discount * column_reward[seq % capacity]
            count += 1
            ahead = link[seq % capacity]
        if total > stack + 1:
            _stack(seq, written, back, rows[b, stack : total - 1])
        if ahead > 0:
            rows[b, total - 1] = RING + (seq + ahead) % ring
        else:
            rows[b, total - 1] = RING + ring - 1 - ahead
        reward[b] = value
        steps[b] = count
        last[b] = seq % capacity
