"""What a block will add to a ring, reckoned before anything is entered."""

import numpy as np
from numba import njit

from rlmem.memories.ring.records import Records, arrays_of, same_bytes

COMPILED_WITH = {"records": "109bac0e96e1"}


@njit(cache=True)
def continues(
    memory: np.ndarray,
    env: np.ndarray,
    done: np.ndarray,
    observation: np.ndarray,
    following: np.ndarray,
    tails: np.ndarray,
) -> np.ndarray:
    """Whether each row's observation is the newest frame of its environment's chain, bool [N].

    Args:
        memory: of the ring.
        observation, following: bytes of the rows' frames, uint8 [N, bytes].
        tails: bytes of each chain's newest frame, uint8 [E, bytes].
    """
    chains = arrays_of(memory).chains
    result = np.zeros(len(env), np.bool_)
    # Each environment's row before this one in the block; -1: its newest frame is in the chain.
    before = np.full(len(chains), -1, np.int64)
    for row in range(len(env)):
        e = env[row]
        if before[e] >= 0:
            result[row] = not done[before[e]] and same_bytes(observation[row], following[before[e]])
        elif chains[e].running:
            result[row] = same_bytes(observation[row], tails[e])
        before[e] = row
    return result


@njit(cache=True)
def frames_added(env: np.ndarray, follows: np.ndarray, num_envs: int) -> np.ndarray:
    """Frames that a block adds to each chain, int64 [E]."""
    frames = np.zeros(num_envs, np.int64)
    for row in range(len(env)):
        frames[env[row]] += 1 if follows[row] else 2
    return frames


@njit(cache=True)
def chunks_needed(frames: np.ndarray, chains: Records, length: int) -> int:
    """Chunks that so many frames more in each chain (int64 [E]) begin."""
    total = 0
    for e in range(len(chains)):
        left = length - 1 - chains[e].position if chains[e].chunk >= 0 else 0
        if frames[e] > left:
            total += (frames[e] - left + length - 1) // length
    return total
