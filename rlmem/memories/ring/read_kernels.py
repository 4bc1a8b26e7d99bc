"""Finding a ring's transitions again: the places of their frames, and their successors."""

import numpy as np
from numba import njit

from rlmem.memories.ring.records import FAR, RingArrays, arrays_of, copy_bytes, link_of

COMPILED_WITH = {"records": "109bac0e96e1"}
COLUMNS = (  # of a sample of B transitions, one behind the other, [B] each
    ("last", np.int64),  # slots at whose next observations the returns end
    ("steps", np.int64),
    ("reward", np.float32),
    ("terminated", np.bool_),
    ("truncated", np.bool_),
)


@njit(cache=True)
def read(
    memory: np.ndarray,
    actions: np.ndarray,
    index: np.ndarray,
    n_step: int,
    gamma: float,
    places: np.ndarray,
    action: np.ndarray,
    columns: np.ndarray,
) -> bool:
    """All of the transitions at the slots `index` but their frames, of which the places.

    Args:
        memory: of the ring.
        actions: those that are held, [capacity, .].
        places: filled, int64. [B, stack + 1]: a stack and the frame after it, if n_step is 1;
            [2 * B, stack]: all stacks, then those at the other ends. -1 stands for the zeros
            before an episode.
        action: filled, [B, .].
        columns: filled, bytes of COLUMNS.

    Returns:
        Whether all slots hold a transition; if not, nothing was read.
    """
    ring = arrays_of(memory)
    rows, head, n = ring.rows, ring.counts[0], len(index)
    size, stack = head.size, head.stack
    for b in range(n):
        slot = index[b]
        if slot < 0 or slot >= size or (head.cursor - 1 - slot) % size >= head.window:
            return False
    last, steps = columns[: 8 * n].view(np.int64), columns[8 * n : 16 * n].view(np.int64)
    reward = columns[16 * n : 20 * n].view(np.float32)
    terminated = columns[20 * n : 21 * n].view(np.bool_)
    truncated = columns[21 * n : 22 * n].view(np.bool_)
    both = len(places) == 2 * n
    scratch = np.empty(stack + 1, np.int64)
    for b in range(n):
        slot = index[b]
        for k in range(action.shape[1]):
            action[b, k] = actions[slot, k]
        value = np.float64(rows[slot].reward)
        discount, count = 1.0, 1
        if both:
            _walk(ring, slot, scratch)
            places[b] = scratch[:-1]
        # A link is there only if no episode ends in between, and if the successor is still held:
        # the sum stops at whichever comes first.
        while count < n_step:
            link = link_of(ring, slot)
            if link == 0:
                break
            slot = (slot + link) % size
            discount *= gamma
            value += discount * rows[slot].reward
            count += 1
        if both:
            _walk(ring, slot, scratch)
            places[n + b] = scratch[1:]
        else:  # the two stacks overlap: one walk gives both
            _walk(ring, slot, places[b])
        reward[b] = value
        ends = max(np.int64(rows[slot].after), FAR) - FAR
        terminated[b] = ends & 1 > 0
        truncated[b] = ends & 2 > 0
        steps[b] = count
        last[b] = slot
    return True


@njit(cache=True)
def _walk(ring: RingArrays, slot: int, places: np.ndarray) -> None:
    """Fill `places` with a transition's newest frames, the next observation last, -1 before."""
    row, length = ring.rows[slot], ring.counts[0].length
    chunk, position = row.chunk, np.int64(row.position)
    first = len(places) - 2 - np.int64(row.depth)
    for k in range(first):
        places[k] = -1
    for k in range(first, len(places)):
        places[k] = chunk * length + position
        position += 1
        if position == length:  # the chain goes on in another chunk
            chunk, position = ring.chunks[chunk].next, 0


@njit(cache=True)
def gather(frames: np.ndarray, places: np.ndarray, out: np.ndarray) -> None:
    """Copy the frames at places [N, count], bytes uint8 [1 + places, bytes], to `out` [N, count,
    bytes]; row 0 stands for place -1."""
    for n in range(places.shape[0]):
        for k in range(places.shape[1]):
            copy_bytes(frames[1 + places[n, k]], out[n, k])


@njit(cache=True)
def relink(memory: np.ndarray) -> None:
    """Set the links of all transitions held, from where their observations stand."""
    ring = arrays_of(memory)
    head, rows, chains = ring.counts[0], ring.rows, ring.chains
    # Of each environment: the number in its chain of the frame that the newest transition so far
    # led to (-1: an episode ended there), that transition's slot, and its number among those held.
    frame = np.full(len(chains), -1, np.int64)
    slot_of, number_of = np.empty(len(chains), np.int64), np.empty(len(chains), np.int64)
    for number in range(head.window):
        slot = (head.cursor - head.window + number) % head.size
        chunk = ring.chunks[rows[slot].chunk]
        e = chunk.env
        own = np.int64(chunk.ordinal) * head.length + rows[slot].position + rows[slot].depth
        done = rows[slot].after > FAR
        if not done:
            rows[slot].after = 0
        if frame[e] == own:  # it begins where that one led to: it is the successor
            rows[slot_of[e]].after = min(number - number_of[e], FAR)
        frame[e] = -1 if done else own + 1
        slot_of[e], number_of[e] = slot, number
