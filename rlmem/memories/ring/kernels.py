"""Index arithmetic of the ring storages: which slot a transition gets, which frames it stands for.

It copies no frame. Frames lie in chains, one an environment: the observations of an episode and its
last next observation, one after the other, cut into chunks of `length` frames. A frame's place is
`chunk * length + position`; a transition points to the oldest frame of its stack, and all that it
needs lies ahead of it in the chain.

Slots form a ring that may grow: a new slot is added only when the cursor stands at the ring's end
and every slot is in use, so the order of the slots remains the order of time.
"""

from typing import Any

import numpy as np
from numba import njit

Records = Any  # array of one of the dtypes below

ROW = np.dtype(  # one transition
    [
        ("chunk", np.int32),  # of the oldest frame of its stack
        ("link", np.int32),  # transitions until its successor; 0: none
        ("reward", np.float32),
        ("position", np.uint8),  # of that frame in the chunk
        ("depth", np.uint8),  # frames from there to the observation
        ("terminated", np.bool_),
        ("truncated", np.bool_),
    ]
)
CHUNK = np.dtype(
    [
        ("next", np.int32),  # chunk that follows in the environment's chain; -1: none yet
        ("env", np.int32),
        ("ordinal", np.int32),  # number of the chunk in its environment's chain
        ("closed", np.int32),  # number among all chunks in the order of filling; -1: open
    ]
)
CHAIN = np.dtype(  # one environment
    [
        ("head", np.int32),  # oldest chunk held; -1: none
        ("chunk", np.int32),  # newest chunk
        ("position", np.int32),  # of the newest frame in it
        ("chunks", np.int32),  # chunks ever begun
        ("depth", np.int32),  # frames of the episode before the newest one, at most stack - 1
        ("running", np.bool_),  # whether the newest frame waits for its transition
        ("slot", np.int64),  # of the newest transition
        ("seq", np.int64),  # of the newest transition
    ]
)
RING = np.dtype(
    [
        ("size", np.int64),  # slots in use or waiting to be
        ("cursor", np.int64),  # slot after the newest
        ("window", np.int64),  # transitions held
        ("written", np.int64),  # transitions ever written
        ("chunks", np.int64),  # chunk places touched
        ("free", np.int64),  # of these, free ones
        ("closed", np.int64),  # chunks ever filled
    ]
)


@njit(cache=True)
def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    different = np.uint8(0)
    for i in range(a.shape[0]):
        different |= a[i] ^ b[i]
    return different == 0


@njit(cache=True)
def continues(
    env: np.ndarray,
    done: np.ndarray,
    observation: np.ndarray,
    following: np.ndarray,
    chains: Records,
    tails: np.ndarray,
) -> np.ndarray:
    """Whether each row's observation is the newest frame of its environment's chain, bool [N].

    Args:
        observation, following: bytes of the rows' frames, uint8 [N, bytes].
        tails: bytes of each chain's newest frame, uint8 [E, bytes].
    """
    result = np.zeros(len(env), np.bool_)
    before = np.full(len(chains), -1, np.int64)
    for row in range(len(env)):
        e = env[row]
        if before[e] >= 0:
            result[row] = not done[before[e]] and _equal(observation[row], following[before[e]])
        elif chains[e].running:
            result[row] = _equal(observation[row], tails[e])
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


@njit(cache=True)
def evict(
    count: int,
    stack: int,
    length: int,
    ring: Records,
    rows: Records,
    chunks: Records,
    free: np.ndarray,
    chains: Records,
    recent: np.ndarray,
) -> np.ndarray:
    """Drop the `count` oldest transitions; the chunks that nothing needs any more, int32."""
    r = ring[0]
    # From one transition to the next of its environment, and from the last one to the frames that
    # wait for their transition, the oldest frame moves by stack + 1 at most.
    freed = np.empty((count + len(chains)) * ((stack + 1) // length + 2), np.int32)
    num_freed = 0
    for _ in range(count):
        chunk = rows[(r.cursor - r.window) % r.size].chunk
        num_freed = _drop_before(
            chunk, chains[chunks[chunk].env], r, chunks, free, freed, num_freed
        )
        r.window -= 1
    if r.window == 0:
        for e in range(len(chains)):
            chain = chains[e]
            if chain.head >= 0:
                chunk = recent[e, stack - 1 - chain.depth] // length
                num_freed = _drop_before(chunk, chain, r, chunks, free, freed, num_freed)
    return freed[:num_freed]


@njit(cache=True)
def _drop_before(
    chunk: Any,
    chain: Any,
    ring: Any,
    chunks: Records,
    free: np.ndarray,
    freed: np.ndarray,
    num_freed: int,
) -> int:
    """Let go of a chain's chunks before one of them; how many are in `freed` then."""
    while chain.head != chunk:
        freed[num_freed] = chain.head
        free[ring.free] = chain.head
        ring.free += 1
        num_freed += 1
        chain.head = chunks[chain.head].next
    return num_freed


@njit(cache=True)
def _append(chain: Any, e: int, length: int, ring: Any, chunks: Records, free: np.ndarray) -> Any:
    """Place of one more frame of environment e."""
    if chain.chunk < 0 or chain.position == length - 1:
        if ring.free > 0:
            ring.free -= 1
            chunk = free[ring.free]
        else:
            chunk = np.int32(ring.chunks)
            ring.chunks += 1
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
    if chain.position == length - 1:
        chunks[chain.chunk].closed = ring.closed
        ring.closed += 1
    return chain.chunk * length + chain.position


@njit(cache=True)
def _push(recent: np.ndarray, place: int) -> None:
    for k in range(len(recent) - 1):
        recent[k] = recent[k + 1]
    recent[-1] = place


@njit(cache=True)
def plan_write(
    first_slot: int,
    env: np.ndarray,
    done: np.ndarray,
    follows: np.ndarray,
    stack: int,
    length: int,
    ring: Records,
    rows: Records,
    chunks: Records,
    free: np.ndarray,
    chains: Records,
    recent: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Enter N transitions into the slots from `first_slot` on, their frames into the chains.

    Args:
        follows: bool [N], see `continues`.
        recent: places of each chain's newest frames, int64 [E, stack], the newest last.

    Returns:
        int64 [N] place of each observation, -1 where it is there already; int64 [N] place of each
        next observation.
    """
    r = ring[0]
    first, ahead = np.empty(len(env), np.int64), np.empty(len(env), np.int64)
    _take_slots(first_slot, len(env), r)
    for row in range(len(env)):
        first[row], ahead[row] = _enter(
            env[row],
            first_slot + row,
            r.written + row - len(env),
            done[row],
            follows[row],
            stack,
            length,
            r,
            rows,
            chunks,
            free,
            chains,
            recent,
        )
    return first, ahead


@njit(cache=True)
def _take_slots(first_slot: int, count: int, ring: Any) -> None:
    """The next `count` transitions stand at the slots from `first_slot` on."""
    ring.cursor = first_slot + count
    ring.size = max(ring.size, ring.cursor)
    ring.window += count
    ring.written += count


@njit(cache=True)
def _enter(
    e: int,
    slot: int,
    seq: int,
    done: bool,
    follows: bool,
    stack: int,
    length: int,
    ring: Any,
    rows: Records,
    chunks: Records,
    free: np.ndarray,
    chains: Records,
    recent: np.ndarray,
) -> tuple[int, int]:
    """Enter the transition number `seq` of environment e; the places of its observation, -1 where
    that is there already, and of its next observation."""
    chain = chains[e]
    first = -1
    if follows:
        if chain.seq >= ring.written - ring.window:  # its predecessor is still held
            rows[chain.slot].link = seq - chain.seq
    else:
        first = _append(chain, e, length, ring, chunks, free)
        chain.depth = 0
        _push(recent[e], first)
    start = recent[e, stack - 1 - chain.depth]
    rows[slot].chunk = start // length
    rows[slot].position = start % length
    rows[slot].depth = chain.depth
    rows[slot].link = 0
    ahead = _append(chain, e, length, ring, chunks, free)
    _push(recent[e], ahead)
    chain.depth = min(chain.depth + 1, stack - 1)
    chain.running = not done
    chain.slot = slot
    chain.seq = seq
    return first, ahead


@njit(cache=True)
def write(
    env: np.ndarray,
    observation: np.ndarray,
    following: np.ndarray,
    action: np.ndarray,
    reward: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    capacity: int,
    stack: int,
    length: int,
    ring: Records,
    rows: Records,
    chunks: Records,
    free: np.ndarray,
    chains: Records,
    recent: np.ndarray,
    held_action: np.ndarray,
    frames: np.ndarray,
) -> tuple[int, int]:
    """Write the first rows of a block where frames are held as they are and nothing can be refused:
    as many as there are slots in a row, behind the newest one.

    Args:
        observation, following: bytes of the rows' frames, uint8 [N, bytes].
        action: [N, .]; held_action: [capacity, .].
        frames: bytes of the frames by place, uint8 [1 + places, bytes]; row 0 is no place.

    Returns:
        The first slot, and how many rows were written.
    """
    r = ring[0]
    count = len(env)
    if r.cursor == r.size and r.window == r.size and r.size < capacity:
        first_slot = r.cursor
        count = min(count, capacity - r.size)
    else:
        first_slot = r.cursor % r.size
        count = min(count, r.size - first_slot)
        over = count - (r.size - r.window)
        if over > 0:
            evict(over, stack, length, ring, rows, chunks, free, chains, recent)
    _take_slots(first_slot, count, r)
    for row in range(count):
        e, slot, done = env[row], first_slot + row, terminated[row] or truncated[row]
        # Rows are entered in turn, so the newest frame of a chain is that of the row before.
        follows = chains[e].running and _equal(observation[row], frames[1 + recent[e, -1]])
        seq = r.written + row - count
        first, ahead = _enter(
            e, slot, seq, done, follows, stack, length, r, rows, chunks, free, chains, recent
        )
        if first >= 0:
            _copy(observation[row], frames[1 + first])
        _copy(following[row], frames[1 + ahead])
        for k in range(action.shape[1]):
            held_action[slot, k] = action[row, k]
        rows[slot].reward = reward[row]
        rows[slot].terminated = terminated[row]
        rows[slot].truncated = truncated[row]
    return first_slot, count


@njit(cache=True)
def _copy(source: np.ndarray, target: np.ndarray) -> None:
    for i in range(source.shape[0]):
        target[i] = source[i]


@njit(cache=True)
def _walk(row: Any, chunks: Records, length: int, places: np.ndarray) -> None:
    """Fill `places` with the newest frames up to and with the next observation, -1 before."""
    chunk, position = row.chunk, np.int64(row.position)
    first = len(places) - 2 - np.int64(row.depth)
    for k in range(first):
        places[k] = -1
    for k in range(first, len(places)):
        places[k] = chunk * length + position
        position += 1
        if position == length:
            chunk, position = chunks[chunk].next, 0


@njit(cache=True)
def read(
    index: np.ndarray,
    stack: int,
    length: int,
    n_step: int,
    gamma: float,
    ring: Records,
    rows: Records,
    chunks: Records,
    held_action: np.ndarray,
    places: np.ndarray,
    action: np.ndarray,
    reward: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    steps: np.ndarray,
    last: np.ndarray,
) -> bool:
    """All of the transitions at the slots `index` but their frames, of which the places.

    `places` [B, stack + 1] holds a stack and the frame after it (n_step = 1), or [B, 2 * stack] the
    stacks at both ends; -1 stands for the zeros before an episode.

    Returns:
        Whether all slots hold a transition; if not, nothing was read.
    """
    size = ring[0].size
    for b in range(len(index)):
        slot = index[b]
        if slot < 0 or slot >= size or (ring[0].cursor - 1 - slot) % size >= ring[0].window:
            return False
    both = places.shape[1] == 2 * stack and n_step > 1
    scratch = np.empty(stack + 1, np.int64)
    for b in range(len(index)):
        slot = index[b]
        for k in range(action.shape[1]):
            action[b, k] = held_action[slot, k]
        value = np.float64(rows[slot].reward)
        discount, count = 1.0, 1
        if both:
            _walk(rows[slot], chunks, length, scratch)
            places[b, :stack] = scratch[:-1]
        while count < n_step and rows[slot].link > 0:
            slot = (slot + rows[slot].link) % size
            discount *= gamma
            value += discount * rows[slot].reward
            count += 1
        if both:
            _walk(rows[slot], chunks, length, scratch)
            places[b, stack:] = scratch[1:]
        else:
            _walk(rows[slot], chunks, length, places[b])
        reward[b] = value
        terminated[b] = rows[slot].terminated
        truncated[b] = rows[slot].truncated
        steps[b] = count
        last[b] = slot
    return True


@njit(cache=True)
def gather(frames: np.ndarray, places: np.ndarray, out: np.ndarray) -> None:
    """Copy the frames at places [N, count], bytes uint8 [1 + places, bytes], to `out` [N, count,
    bytes]; row 0 stands for place -1."""
    for n in range(places.shape[0]):
        for k in range(places.shape[1]):
            _copy(frames[1 + places[n, k]], out[n, k])


@njit(cache=True)
def relink(ring: Records, rows: Records, chunks: Records, length: int, chains: Records) -> None:
    """Set the links of all transitions held, from where their observations stand."""
    r = ring[0]
    frame = np.full(len(chains), -1, np.int64)  # of each environment's next observation
    slot_of, number_of = np.empty(len(chains), np.int64), np.empty(len(chains), np.int64)
    for number in range(r.window):
        slot = (r.cursor - r.window + number) % r.size
        chunk = chunks[rows[slot].chunk]
        e = chunk.env
        own = np.int64(chunk.ordinal) * length + rows[slot].position + rows[slot].depth
        rows[slot].link = 0
        if frame[e] == own:
            rows[slot_of[e]].link = number - number_of[e]
        done = rows[slot].terminated or rows[slot].truncated
        frame[e] = -1 if done else own + 1
        slot_of[e], number_of[e] = slot, number
