"""From blocks of transitions to the stream of observations that the GWR map is shown.

Each observation of an episode comes once: its first one, then each row's next one (which is the
next row's observation). A row whose observation is not the next one that its environment wrote
before begins an episode, as after a reset, even if no end was flagged. Frame stacks are put
together here, zero frames before an episode's first.

The released code of GWR-R joins what a time limit cuts: the next episode's first observation is led
to from the last one by an edge of action 0 and reward 0.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from rlmem.errors import UserError
from rlmem.memories.base.blocks import Block, check_rewards
from rlmem.memories.gwr.graph import MapGraph
from rlmem.memories.ring.records import same_bytes

COMPILED_WITH = {"records": "109bac0e96e1"}

_I4, _U1 = np.int32, np.uint8
_FARTHEST = 1e15  # value of an observation: its square and their sum have room in float32
EVENT = np.dtype(
    [
        *(("env", _I4), ("row", _I4), ("slot", _I4), ("action", _I4), ("reward", np.float32)),
        *(("start", _U1), ("fresh", _U1), ("edge", _U1)),  # its frame; an empty stack; led to
        *(("terminated", _U1), ("truncated", _U1)),
    ]
)
PENDING = np.dtype(
    [("partial", np.float64), ("node", _I4), ("action", _I4), ("row", _I4), ("steps", _I4)]
)


class Arrivals(NamedTuple):
    """Observations of a block in the order in which a map is shown them, as single frames."""

    events: np.ndarray  # EVENT [M], one an observation; `row` says which frame is its newest
    actions: np.ndarray  # float32 [M, A], of the edge that leads here; A is 0 for discrete ones
    first: np.ndarray  # frames [N, F] at the start of each row
    following: np.ndarray  # and at its end

    def part(self, rows: slice) -> "Arrivals":
        """Some of the observations; the frames stay."""
        return Arrivals(self.events[rows], self.actions[rows], self.first, self.following)


class StreamArrays(NamedTuple):
    """Where each environment stands in the map."""

    last: np.ndarray  # int32 [E], the node of the last observation, -1 if none
    contexts: np.ndarray  # float32 [E * K, d], the global contexts
    pending: np.ndarray  # PENDING [E, n_step], edges that wait for their target, oldest first
    actions: np.ndarray  # float32 [E, n_step, A], their continuous actions
    waiting: np.ndarray  # int32 [E], how many of them
    moves: np.ndarray  # int64 [1], prototypes moved so far: the counter of the rounding's hash


def empty_streams(storage: MapGraph, num_envs: int, n_step: int) -> StreamArrays:
    """Streams that stand before their first observation."""
    contexts, dims = storage.contexts, storage.embedding_dims
    action_dims = storage.arrays.actions.shape[1]
    return StreamArrays(
        last=np.full(num_envs, -1, np.int32),
        contexts=np.zeros((num_envs * contexts, dims), np.float32),
        pending=np.zeros((num_envs, n_step), PENDING),
        actions=np.zeros((num_envs, n_step, action_dims), np.float32),
        waiting=np.zeros(num_envs, np.int32),
        moves=np.zeros(1, np.int64),
    )


def check_block(block: Block, num_actions: int) -> None:
    """Refuse rows that a map cannot be shown.

    Raises:
        UserError: an observation has no finite distance to others, a reward or an action is not
            finite, or an action is none of `num_actions`.
    """
    check_rewards(block)
    for frames in (block.observation, block.next_observation):
        if frames.dtype == np.float32 and not np.abs(frames).max(initial=0.0) < _FARTHEST:
            raise UserError(
                f"an observation has values that are not finite or beyond {_FARTHEST:g}: the map "
                "knows no distance to it; end the episode before, or clip them"
            )
    action = block.action
    if action.dtype.kind == "f" and not np.isfinite(action).all():
        raise UserError("an action has values that are not finite: the policy has diverged")
    if num_actions and len(block) and not 0 <= action.min() <= action.max() < num_actions:
        raise UserError(
            f"actions {action.min()} .. {action.max()}: the map has num_actions={num_actions}"
        )


def check_streams(streams: StreamArrays, live_nodes: np.ndarray, begun: np.ndarray) -> None:
    """Assert that the streams point at live nodes only, and that envs without an episode under way
    (bool [E], not `begun`) have left nothing behind."""
    num_envs, n_step = streams.pending.shape
    waiting = np.arange(n_step) < streams.waiting[:, None]
    assert (streams.waiting < n_step).all(), "an edge is overdue"
    nodes = np.concatenate([streams.last, streams.pending["node"][waiting]])
    assert np.isin(nodes[nodes >= 0], live_nodes).all(), "a stream points at a removed node"
    steps = streams.waiting[:, None] - np.arange(n_step)
    assert (streams.pending["steps"] == steps)[waiting].all(), "a waiting edge lost a step"
    assert np.isfinite(streams.pending["partial"][waiting]).all(), "a return is not finite"
    assert np.isfinite(streams.actions[waiting]).all(), "an action is not finite"
    assert np.isfinite(streams.contexts).all(), "a context is not finite"
    assert (streams.last[~begun] == -1).all(), "an ended episode has a last node"
    assert (streams.waiting[~begun] == 0).all(), "an ended episode waits for edges"
    contexts = streams.contexts.reshape(num_envs, -1)
    assert not contexts[~begun].any(), "an ended episode's contexts are not empty"


@njit(cache=True)
def plan_events(env, action, reward, terminated, truncated, frames, newest, fresh, joined, events):
    """List a block's observations: the first of each episode and each row's next one.

    Args:
        env, action, reward, terminated, truncated: the block's columns [N].
        frames: bytes of the frames at the start and at the end of each row, uint8 [N, bytes] each.
        newest: those of each env's newest frame, uint8 [E, bytes]; any where its row is to begin
            an episode.
        fresh: bool [E], whether the env's next row begins an episode; changed in place.
        joined: whether an edge without action and reward leads to an episode's first observation.
        events: EVENT [2 N].

    Returns:
        How many events are set.
    """
    first, following = frames
    before = np.full(len(fresh), -1, np.int64)  # each env's row before this one in the block
    n = 0
    for row in range(env.shape[0]):
        last = before[env[row]]
        known = following[last] if last >= 0 else newest[env[row]]
        if not fresh[env[row]] and not same_bytes(first[row], known):
            fresh[env[row]] = True
        before[env[row]] = row
        for start in (1, 0):
            if start and not fresh[env[row]]:
                continue
            e = events[n]
            e.env, e.row, e.start, e.fresh = env[row], row, start, start
            if start:
                e.slot, e.action, e.reward, e.edge = -1, 0, 0.0, joined
                e.terminated, e.truncated = 0, 0
            else:
                e.slot, e.action, e.reward, e.edge = row, action[row], reward[row], 1
                e.terminated, e.truncated = terminated[row], truncated[row]
            n += 1
        fresh[env[row]] = terminated[row] or truncated[row]
    return n


@njit(cache=True)
def push_frames(events, first, following, stacks, out):
    """Push each event's frame into its env's stack and copy the stack out.

    Args:
        events: EVENT [M].
        first, following: frames [N, F] at the start and at the end of each row.
        stacks: [E, P], newest frame last, changed in place; zero before an episode's first frame.
        out: [M, P].
    """
    size = first.shape[1]
    kept = stacks.shape[1] - size
    for i in range(events.shape[0]):
        e = events[i]
        stack = stacks[e.env]
        if e.fresh:
            stack[:] = 0
        for j in range(kept):
            stack[j] = stack[j + size]
        stack[kept:] = first[e.row] if e.start else following[e.row]
        out[i] = stack


class Episodes:
    """Where each environment stands in its episode: its stack of frames, what its next row follows.

    Args:
        num_envs: E.
        size: values of a stack.
        dtype: of a frame.
        action_dims: A, of a continuous action.
        joined: whether a time limit joins two episodes.
    """

    def __init__(
        self, num_envs: int, size: int, dtype: np.dtype, action_dims: int, joined: bool
    ) -> None:
        self.joined, self._action_dims = joined, action_dims
        self._stacks = np.zeros((num_envs, size), dtype)
        self.fresh = np.ones(num_envs, np.bool_)  # whether the next row begins an episode

    @property
    def begun(self) -> np.ndarray:
        """Bool [E], whether an episode is under way, or goes on from the one before."""
        return ~self.fresh | self.joined

    @property
    def newest(self) -> np.ndarray:
        """Each environment's newest frame that was pushed, at the end of its stack [E, P]."""
        return self._stacks

    def plan(self, block: Block, newest: np.ndarray) -> Arrivals:
        """A block's observations.

        Args:
            newest: values that end with each environment's newest frame, [E, any].
        """
        n = len(block)
        events = np.zeros(2 * n, EVENT)
        action = np.zeros(n, np.int64) if self._action_dims else block.action
        columns = block.env_id, action, block.reward, block.terminated, block.truncated
        first, following = (
            np.ascontiguousarray(frames).reshape(n, math.prod(frames.shape[1:]))
            for frames in (block.observation, block.next_observation)
        )
        size = first.shape[1]
        count = plan_events(
            *columns,
            (first.view(np.uint8), following.view(np.uint8)),
            np.ascontiguousarray(newest[:, newest.shape[1] - size :]).view(np.uint8),
            self.fresh,
            self.joined,
            events,
        )
        events = events[:count]
        vectors = np.zeros((len(events), self._action_dims), np.float32)
        if self._action_dims:  # none leads to an episode's first observation
            later = events["start"] == 0
            vectors[later] = block.action.reshape(n, self._action_dims)[events["row"][later]]
        return Arrivals(events, vectors, first, following)

    def push(self, shown: Arrivals) -> np.ndarray:
        """The stacks that these observations are, [M, P]."""
        out = np.empty((len(shown.events), self._stacks.shape[1]), self._stacks.dtype)
        push_frames(shown.events, shown.first, shown.following, self._stacks, out)
        return out

    def clear(self) -> None:
        """Stand before the first row."""
        for array in self.arrays().values():
            array[:] = 0
        self.fresh[:] = True

    def arrays(self) -> dict[str, np.ndarray]:
        """What makes up the state, as views."""
        return {"stacks": self._stacks, "fresh": self.fresh}

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._stacks.nbytes + self.fresh.nbytes
