"""The loops of a graph memory in numba: finding and making nodes, values, learning from steps.

In the signatures `g` is a `GraphArrays`, `rule` a `Rule`; `graph_records` says how they hang
together. `by` is what nodes are found by: `graph_search.By`, or None for a scan over all; the
compiler leaves out the branch that it does not need.
"""

from typing import Any

import numpy as np
from numba import njit

from rlmem.memories.values.graph_edges import (
    drop_in_edges,
    drop_out_edges,
    find_edge,
    make_edge,
    oldest_node,
)
from rlmem.memories.values.graph_records import (
    CLOCK,
    MADE,
    NODES,
    RETURN,
    REWARD,
    STEPS_MEANT,
    TARGET,
)
from rlmem.memories.values.screen import hide, set_screen
from rlmem.memories.values.search import search

# For numba's cache: tests/memories/test_compiled_with.py says why, and what to write here.
COMPILED_WITH = {
    "graph_edges": "d22b9800ef2e",
    "graph_records": "1139d2018442",
    "screen": "bb27795c426a",
    "search": "54005d4f9d4a",
}


@njit(cache=True)
def _scan(g, key, terminal):
    """As `nearest`, by looking at all nodes."""
    best, least = -1, np.inf
    for i in range(g.book[NODES]):
        if g.nodes[i].terminal == terminal:
            total = 0.0
            for k in range(key.shape[0]):
                gap = np.float64(g.keys[i, k]) - key[k]
                total += gap * gap
                if total >= least:
                    break
            if total < least:
                best, least = i, total
    return best, least


@njit(cache=True)
def nearest(g: Any, key: Any, terminal: bool, by: Any) -> Any:
    """The node nearest to a key and its squared distance; -1 and infinity where there is none.

    States that end an episode are nodes apart: a state nearby that does not end it is another.
    """
    if by is None:
        return _scan(g, key, terminal)
    else:  # an else, so that the compiler sees that one of the two is never taken
        if terminal:  # hidden from the search; an episode has one
            return _scan(g, key, True)
        slot, distance = np.empty((1, 1, 1), np.int64), np.empty((1, 1, 1))
        actions = np.zeros((1, 1), np.int64)
        search(by.slabs, key.reshape(1, -1), actions, by.one, slot, distance)
        return slot[0, 0, 0], distance[0, 0, 0]


@njit(cache=True)
def unit_of(g: Any, rule: Any) -> float:
    """The length of what distances are given in: a typical step (the geometric mean, which a few
    that go far do not change much), or 1."""
    if not rule.in_steps:
        return 1.0
    return np.exp(g.step[1]) if g.step[0] > 0 else 0.0


@njit(cache=True)
def _measure_step(g, key, following):
    total = 0.0
    for k in range(key.shape[0]):
        gap = np.float64(key[k]) - following[k]
        total += gap * gap
    if total > 0.0:
        g.step[0] = min(g.step[0] + 1.0, STEPS_MEANT)
        g.step[1] += (0.5 * np.log(total) - g.step[1]) / g.step[0]


@njit(cache=True)
def place(g: Any, rule: Any, key: Any, terminal: bool, spared: int, by: Any) -> int:
    """The node of a key: the nearest within `dist_th`, whose key moves, or one made for it.

    Args:
        spared: a node that does not make room; -1: none.
    """
    node, squared = nearest(g, key, terminal, by)
    unit = unit_of(g, rule)
    if node >= 0 and squared <= (rule.dist_th * unit) ** 2:
        # (old + distance * new) / (1 + distance): as in the released code.
        distance = np.sqrt(squared) / unit if squared > 0.0 else 0.0
        for k in range(key.shape[0]):
            g.keys[node, k] = (g.keys[node, k] + distance * key[k]) / (1.0 + distance)
    else:
        if g.book[NODES] < g.nodes.shape[0]:
            node = g.book[NODES]
            g.book[NODES] += 1
        else:
            node = oldest_node(g, spared)
            drop_out_edges(g, node)
            drop_in_edges(g, node)
            if by is not None and g.nodes[node].terminal:
                by.slabs.hidden[0] -= 1
        if by is not None and terminal:
            by.slabs.hidden[0] += 1
        g.keys[node] = key
        n = g.nodes[node]
        n.out, n.into, n.outs, n.ins, n.terminal = -1, -1, 0, 0, terminal
        n.made = g.book[MADE]
        g.book[MADE] += 1
    if by is not None:  # the screen follows the key, whether it moved or came
        by.slabs.count[0] = g.book[NODES]
        set_screen(by.slabs, 0, node, by.one.row)
        if terminal:
            hide(by.slabs, 0, node)
    g.nodes[node].used = g.book[CLOCK]
    g.book[CLOCK] += 1
    return node


@njit(cache=True)
def action_values(g: Any, rule: Any, node: int) -> None:
    """Put a node's values of actions, and the visits behind them, into `g.scratch`.

    An action that led to several nodes is worth the mean over its visits. Of pairs, whose edges
    each bear the action that made them last, it is worth the best such edge.
    """
    value, visits = g.scratch[0], g.scratch[1]
    value[:], visits[:] = 0.0, 0.0
    edge = g.nodes[node].out
    while edge >= 0:
        e = g.edges[edge]
        if not rule.pairs:
            value[e.action] += e.visits * e.weight
        elif visits[e.action] == 0 or e.weight > value[e.action]:
            value[e.action] = e.weight
        visits[e.action] += e.visits
        edge = e.next_out
    if not rule.pairs:
        for a in range(value.shape[0]):
            if visits[a] > 0:
                value[a] /= visits[a]


@njit(cache=True)
def best(g: Any, rule: Any, node: int) -> float:
    """The value of a node: its best action that was tried; 0 where none was."""
    if g.nodes[node].out < 0:
        return 0.0
    action_values(g, rule, node)
    highest = -np.inf
    for a in range(g.scratch.shape[1]):
        if g.scratch[1, a] > 0 and g.scratch[0, a] > highest:
            highest = g.scratch[0, a]
    return highest


@njit(cache=True)
def values_of(g: Any, rule: Any, slots: Any) -> Any:
    """Values of actions float64 [n, A] and whether each was tried, of nodes int64 [n]; -1: none."""
    values = np.zeros((slots.shape[0], g.scratch.shape[1]))
    tried = np.zeros((slots.shape[0], g.scratch.shape[1]), np.bool_)
    for i in range(slots.shape[0]):
        if slots[i] >= 0:
            action_values(g, rule, slots[i])
            values[i] = g.scratch[0]
            tried[i] = g.scratch[1] > 0
    return values, tried


@njit(cache=True)
def find(g: Any, rule: Any, keys: Any, slots: Any, distances: Any) -> None:
    """Write into [N, 1] the nodes that keys are, and their squared distances."""
    for i in range(keys.shape[0]):
        node, squared = nearest(g, keys[i], False, None)
        if squared <= (rule.dist_th * unit_of(g, rule)) ** 2:
            slots[i, 0], distances[i, 0] = node, squared


@njit(cache=True)
def mean_values(g: Any, rule: Any, slots: Any, distances: Any, delta: float) -> Any:
    """Values of actions over nodes int64 [N, p], float32 [N, A]: the mean over those of the p that
    tried the action, by 1 / (squared distance + delta); 0 where none did. And whether any did."""
    means = np.zeros((slots.shape[0], g.scratch.shape[1]), np.float32)
    known = np.zeros(means.shape, np.bool_)
    for i in range(slots.shape[0]):
        values, tried = values_of(g, rule, slots[i])
        for a in range(means.shape[1]):
            total, weights = 0.0, 0.0
            for k in range(slots.shape[1]):
                if tried[k, a]:
                    weight = 1.0 / (distances[i, k] + delta)
                    total += weight * values[k, a]
                    weights += weight
            if weights > 0:
                means[i, a], known[i, a] = total / weights, True
    return means, known


@njit(cache=True)
def visit(g: Any, rule: Any, rows: Any, nodes: Any, made: Any, by: Any) -> None:
    """Learn from transitions, one after the other.

    Args:
        nodes, made: int32 [n] and int64 [n], where the node that each row led to is written, and
            who stood there then (`NODE.made`): a later row may have another take its place.
    """
    for i in range(rows.action.shape[0]):
        if rule.in_steps:
            _measure_step(g, rows.key[i], rows.next_key[i])
        source = place(g, rule, rows.key[i], False, -1, by)
        target = place(g, rule, rows.next_key[i], rows.terminated[i], source, by)
        edge = find_edge(g, rule, source, rows.action[i], target)
        reward, worth = rows.reward[i], np.float64(rows.target[i])
        if not rule.returns:
            # Before an edge is made, which might be one from the next node.
            worth = reward + rule.gamma * best(g, rule, target)
        if edge < 0:
            edge = make_edge(g, source, target)
            e = g.edges[edge]
            e.reward = reward
            if rule.first == TARGET:
                e.weight = worth
            elif rule.first == RETURN:
                e.weight = rows.target[i]
            else:
                e.weight = reward if rule.first == REWARD else rule.eta * worth
        else:
            e = g.edges[edge]
            e.weight += rule.eta * (worth - e.weight)
            # One edge a pair is of whatever came last; an edge of an action has a mean reward.
            e.reward = reward if rule.pairs else e.reward + (reward - e.reward) / (e.visits + 1)
        e.action = rows.action[i]
        e.visits += 1
        nodes[i], made[i] = target, g.nodes[target].made
