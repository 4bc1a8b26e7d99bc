"""What a graph memory is made of, for its loops in numba.

Nodes lie at slots [0, book[NODES]), without holes: a full graph puts a node where the least
recently used one was. An edge is in two lists, of the node that it leaves and of the node that it
enters; each begins at the node (`out`, `into`) and goes on from edge to edge (`next_out`,
`next_in`), -1 ends it. Free edges form a list too, through `next_out`.
"""

from typing import NamedTuple

import numpy as np

# `book` int64 [5]: nodes, edges ever used, the first free edge, the clock of uses, nodes ever made.
NODES, MARK, FREE, CLOCK, MADE = range(5)

NODE = np.dtype(
    [
        ("used", np.int64),  # clock of the last use
        ("made", np.int64),  # its number among all nodes ever made: who stands at a slot can change
        ("out", np.int32),
        ("into", np.int32),
        ("outs", np.int32),
        ("ins", np.int32),
        ("terminal", np.bool_),
    ]
)
EDGE = np.dtype(
    [
        ("source", np.int32),
        ("action", np.int32),
        ("target", np.int32),
        ("next_out", np.int32),
        ("next_in", np.int32),
        ("visits", np.int32),
        ("weight", np.float32),
        ("reward", np.float32),
    ]
)
STEPS_MEANT = 1000
TARGET, REWARD, ZERO, RETURN = range(4)  # `Rule.first`


class GraphArrays(NamedTuple):
    """What a graph of at most N nodes and E edges holds."""

    keys: np.ndarray  # float32 [N, d]
    nodes: np.ndarray  # NODE [N]
    edges: np.ndarray  # EDGE [E]
    book: np.ndarray  # int64 [5]
    scratch: np.ndarray  # float64 [2, A]: of each action a node's value, and visits behind it
    # Steps so far (at most `STEPS_MEANT`), and the mean of the logarithms of how far each moved in
    # keys, the newer ones counting more: float64 [2].
    step: np.ndarray
    # Slots of the nodes that were used longest ago, oldest first, and when each had been used: who
    # was used since is no candidate any more. int64 [N / 16, 2].
    oldest: np.ndarray
    turn: np.ndarray  # int64 [2], how far `oldest` was gone through, and its length


class Rule(NamedTuple):
    """How edges are learned."""

    eta: float
    gamma: float
    dist_th: float
    pairs: bool  # one edge a pair of nodes, whatever the action
    first: int  # an edge's first weight: TARGET, REWARD, ZERO, RETURN
    in_steps: bool  # `dist_th` is in units of a typical step
    returns: bool  # weights go to returns; False: to the one-step rule's targets


class Rows(NamedTuple):
    """n transitions, as in `Visits`."""

    key: np.ndarray
    action: np.ndarray
    target: np.ndarray  # the return
    reward: np.ndarray
    next_key: np.ndarray
    terminated: np.ndarray
