"""Entering transitions into a ring: which slot each gets, which places its frames get, and what has
to go for them.

Between two calls these hold (`RingCheckpoint.check_valid` asserts them):
- A chain's chunks lead from `head` to `chunk` by `next`, their ordinals without a gap; all but the
  newest are full. What lies in no chain is on the stack of free places.
- A transition's chunk is held, and so is all that follows it in its chain.
- A transition's link leads to the successor of its environment; 0 if that is not yet written, or
  if an episode ends between them.
"""

from typing import Any

import numpy as np
from numba import njit

from rlmem.memories.ring.records import (
    FAR,
    Records,
    RingArrays,
    arrays_of,
    copy_bytes,
    same_bytes,
)

COMPILED_WITH = {"records": "109bac0e96e1"}


@njit(cache=True)
def write(
    memory: np.ndarray,
    held: tuple[np.ndarray, np.ndarray],
    env: np.ndarray,
    observation: np.ndarray,
    following: np.ndarray,
    action: np.ndarray,
    reward: np.ndarray,
    ends: tuple[np.ndarray, np.ndarray],
) -> tuple[int, int]:
    """Write the first rows of a block where frames are held as they are and nothing can be refused:
    as many as there are slots in a row, behind the newest one.

    Args:
        memory: of the ring.
        held: actions [capacity, .], and bytes of the frames by place, uint8 [1 + places, bytes],
            of which row 0 is no place.
        observation, following: bytes of the rows' frames, uint8 [N, bytes].
        action: [N, .].
        ends: `terminated` and `truncated`, bool [N].

    Returns:
        The first slot, and how many rows were written.
    """
    ring = arrays_of(memory)
    head, rows, chunks, chains = ring.counts[0], ring.rows, ring.chunks, ring.chains
    actions, frames = held
    terminated, truncated = ends
    count = len(env)
    if head.cursor == head.size and head.window == head.size and head.size < head.capacity:
        first_slot = head.cursor  # the ring is full of what is held: it grows
        count = min(count, head.capacity - head.size)
    else:
        first_slot = head.cursor % head.size
        count = min(count, head.size - first_slot)  # up to the end; the rest is another run
        over = count - (head.size - head.window)
        if over > 0:
            _evict(ring, over)
    _take_slots(head, first_slot, count)
    for row in range(count):
        e, slot, seq = env[row], first_slot + row, head.written + row - count
        chain, recent = chains[e], ring.recent[e]
        # Rows are entered in turn, so the newest frame of a chain is that of the row before.
        follows = chain.running and same_bytes(observation[row], frames[1 + recent[-1]])
        _link(head, chain, rows, slot, seq, terminated[row] or truncated[row], follows)
        first, ahead = _place(head, chain, e, rows[slot], chunks, recent, follows)
        if first >= 0:
            copy_bytes(observation[row], frames[1 + first])
        copy_bytes(following[row], frames[1 + ahead])
        for k in range(action.shape[1]):
            actions[slot, k] = action[row, k]
        rows[slot].reward = reward[row]
        if terminated[row] or truncated[row]:
            rows[slot].after = FAR + terminated[row] + 2 * truncated[row]
    return first_slot, count


@njit(cache=True)
def plan_write(
    memory: np.ndarray, first_slot: int, env: np.ndarray, done: np.ndarray, follows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Enter N transitions into the slots from `first_slot` on, their frames into the chains.

    Args:
        memory: of the ring.
        done: bool [N].
        follows: bool [N], see `plan_kernels.continues`.

    Returns:
        int64 [N] place of each observation, -1 where it is there already; int64 [N] place of each
        next observation.
    """
    ring = arrays_of(memory)
    head, rows, chunks, chains = ring.counts[0], ring.rows, ring.chunks, ring.chains
    first, ahead = np.empty(len(env), np.int64), np.empty(len(env), np.int64)
    _take_slots(head, first_slot, len(env))
    for row in range(len(env)):
        e, slot, seq = env[row], first_slot + row, head.written + row - len(env)
        _link(head, chains[e], rows, slot, seq, done[row], follows[row])
        first[row], ahead[row] = _place(
            head, chains[e], e, rows[slot], chunks, ring.recent[e], follows[row]
        )
    return first, ahead


@njit(cache=True)
def _take_slots(head: Any, first_slot: int, count: int) -> None:
    """The next `count` transitions stand at the slots from `first_slot` on."""
    head.cursor = first_slot + count
    head.size = max(head.size, head.cursor)
    head.window += count
    head.written += count


@njit(cache=True)
def _link(
    head: Any, chain: Any, rows: Records, slot: int, seq: int, done: bool, follows: bool
) -> None:
    """Make the transition number `seq` the newest of its environment's chain."""
    # The predecessor may have gone, although the frame that it led to is still there.
    if follows and chain.seq >= head.written - head.window:
        rows[chain.slot].after = min(seq - chain.seq, FAR)
    rows[slot].after = 0
    chain.running = not done
    chain.slot = slot
    chain.seq = seq


@njit(cache=True)
def _place(
    head: Any, chain: Any, e: int, row: Any, chunks: Records, recent: np.ndarray, follows: bool
) -> tuple[int, int]:
    """Give a transition's frames their places in the chain of environment e.

    Args:
        row: of the transition, which is pointed to its stack.
        recent: places of the chain's newest frames, int64 [stack].

    Returns:
        Place of its observation, -1 where that is there already, and of its next observation.
    """
    first = -1
    if not follows:
        first = _append(head, chain, e, chunks, recent)
        chain.depth = 0  # the stack holds nothing of what came before
    # The newest frame is the observation; its stack begins `depth` frames before.
    start = recent[len(recent) - 1 - chain.depth]
    row.chunk = start // head.length
    row.position = start % head.length
    row.depth = chain.depth
    ahead = _append(head, chain, e, chunks, recent)
    chain.depth = min(chain.depth + 1, len(recent) - 1)
    return first, ahead


@njit(cache=True)
def _append(head: Any, chain: Any, e: int, chunks: Records, recent: np.ndarray) -> int:
    """Place of one more frame of environment e, which is its newest from here on."""
    if chain.chunk < 0 or chain.position == head.length - 1:
        # No chunk yet, or a full one. Free places go first: no more are touched than needed.
        if head.free > 0:
            head.free -= 1
            chunk = chunks[head.free].free
        else:
            chunk = np.int32(head.chunks)
            head.chunks += 1
        if chain.chunk >= 0:
            chunks[chain.chunk].next = chunk
        if chain.head < 0:
            chain.head = chunk
        chunks[chunk].next = -1
        chunks[chunk].env = e
        chunks[chunk].ordinal = chain.chunks
        chunks[chunk].closed = -1
        chain.chunks += 1
        chain.chunk = chunk
        chain.position = 0
    else:
        chain.position += 1
    if chain.position == head.length - 1:
        # Numbered when it is full: from here on it never changes, and a save may link it.
        chunks[chain.chunk].closed = head.closed
        head.closed += 1
    for k in range(len(recent) - 1):
        recent[k] = recent[k + 1]
    recent[-1] = chain.chunk * head.length + chain.position
    return recent[-1]


@njit(cache=True)
def evict(memory: np.ndarray, count: int) -> np.ndarray:
    """Drop the `count` oldest transitions; the chunks that nothing needs any more, int32."""
    return _evict(arrays_of(memory), count)


@njit(cache=True)
def _evict(ring: RingArrays, count: int) -> np.ndarray:
    head, chains = ring.counts[0], ring.chains
    # From one transition to the next of its environment, and from the last one to the frames that
    # wait for their transition, the oldest frame moves by stack + 1 at most.
    freed = np.empty((count + len(chains)) * ((head.stack + 1) // head.length + 2), np.int32)
    num_freed = 0
    # A chain's transitions go in the order of its frames, so what lies before the oldest frame of
    # the one that goes is needed by none. Its own chunk stays until the next one goes.
    for _ in range(count):
        chunk = ring.rows[(head.cursor - head.window) % head.size].chunk
        num_freed = _drop_before(ring, chunk, ring.chunks[chunk].env, freed, num_freed)
        head.window -= 1
    if head.window == 0:  # only the stacks that wait for their transition are left
        for e in range(len(chains)):
            if chains[e].head >= 0:
                chunk = ring.recent[e, head.stack - 1 - chains[e].depth] // head.length
                num_freed = _drop_before(ring, chunk, e, freed, num_freed)
    return freed[:num_freed]


@njit(cache=True)
def _drop_before(ring: RingArrays, chunk: int, e: int, freed: np.ndarray, num_freed: int) -> int:
    """Let go of a chain's chunks before one of them; how many are in `freed` then."""
    head, chain = ring.counts[0], ring.chains[e]
    while chain.head != chunk:  # it is reached: a transition's chunk is in its chain
        freed[num_freed] = chain.head
        ring.chunks[head.free].free = chain.head
        head.free += 1
        num_freed += 1
        chain.head = ring.chunks[chain.head].next
    return num_freed
