"""The linked lists of a GWR map in numba: links, temporal edges, and nodes with theirs.

Records link each other by int32 positions, -1 is "none". A link is a pair of half-edges at
positions 2k and 2k + 1 (h ^ 1 is h's twin), one in the list of each of its nodes. A temporal edge
stands in its source's out-list and in its target's in-list, so that removing a node costs
O(degree). A freed record waits in a free list that runs through its first list pointer.

In the signatures `m` is a `MapArrays`, `rule` a `Rule`.
"""

from numba import njit

from rlmem.memories.gwr.records import BOOK, GONE, MADE, PASSED

# For numba's cache: tests/memories/test_compiled_with.py says why, and what to write here.
COMPILED_WITH = {"records": "9eeed3e75ef1"}


@njit(cache=True)
def _add_half(m, half, owner, other):
    """Put a half-edge in front of its owner's list."""
    first = m.nodes[owner].link
    m.halves[half].node = other
    m.halves[half].next = first
    m.halves[half].prev = -1
    m.halves[half].age = 0
    if first >= 0:
        m.halves[first].prev = half
    m.nodes[owner].link = half


@njit(cache=True)
def add_link(m, a, b):
    """Link two nodes that have no link, at age 0."""
    half = m.book[BOOK.link_free]
    if half >= 0:  # free links are named by their even half, and listed through its pointer
        m.book[BOOK.link_free] = m.halves[half].next
    else:
        half = 2 * m.book[BOOK.link_mark]
        m.book[BOOK.link_mark] += 1
    m.book[BOOK.links] += 1
    _add_half(m, half, a, b)
    _add_half(m, half + 1, b, a)


@njit(cache=True)
def find_link(m, a, b):
    """The half-edge from a to b, or -1."""
    half = m.nodes[a].link
    while half >= 0 and m.halves[half].node != b:
        half = m.halves[half].next
    return half


@njit(cache=True)
def _remove_half(m, half):
    """Close the gap that a half-edge leaves in its owner's list; its twin names the owner."""
    following, previous = m.halves[half].next, m.halves[half].prev
    if following >= 0:
        m.halves[following].prev = previous
    if previous >= 0:
        m.halves[previous].next = following
    else:
        m.nodes[m.halves[half ^ 1].node].link = following


@njit(cache=True)
def remove_link(m, half):
    """Take a half-edge and its twin out."""
    _remove_half(m, half)
    _remove_half(m, half ^ 1)
    even = half - half % 2
    # A node of -1 marks both as free. Only after the lists are closed: twins name owners.
    m.halves[even].node = -1
    m.halves[even + 1].node = -1
    m.halves[even].next = m.book[BOOK.link_free]
    m.book[BOOK.link_free] = even
    m.book[BOOK.links] -= 1


@njit(cache=True)
def _touch(m, edge):
    """Enter an edge into the log, once between two drains: `dirty` says that it stands there."""
    if not m.edges[edge].dirty:
        m.edges[edge].dirty = PASSED
        m.touched[m.book[BOOK.touched]] = edge
        m.book[BOOK.touched] += 1


@njit(cache=True)
def visit_edge(m, source, target, entry, action, terminated, truncated, rule):
    """Count one passage of a temporal edge, made if it is not there; returns its position, -1
    where there is no room for one more."""
    # Before each turn: no edge ahead of `edge` in the source's list is this one. Lists are short,
    # as few nodes follow one.
    edge = m.nodes[source].out
    while edge >= 0:
        e = m.edges[edge]
        if e.target == target and (
            rule.node_terminals
            or (
                e.action == entry.action
                and e.steps == entry.steps
                and e.terminated == terminated
                and e.truncated == truncated
            )
        ):
            e.count += 1
            # Actions are equal here, or the newest counts (`node_terminals`).
            e.reward = rule.phi * entry.partial + (1.0 - rule.phi) * e.reward
            e.action = entry.action
            for k in range(action.shape[0]):
                old = m.actions[edge, k]
                m.actions[edge, k] = rule.phi * action[k] + (1.0 - rule.phi) * old
            _touch(m, edge)
            return edge
        edge = e.out_next
    if m.book[BOOK.edges] >= m.limits[2]:
        return -1
    # A freed record first: its `dirty` tells whether the log names it already. One that was never
    # used holds anything.
    edge = m.book[BOOK.edge_free]
    if edge >= 0:
        m.book[BOOK.edge_free] = m.edges[edge].out_next
    else:
        edge = m.book[BOOK.edge_mark]
        m.book[BOOK.edge_mark] += 1
        m.edges[edge].dirty = 0
    m.book[BOOK.edges] += 1
    e = m.edges[edge]
    e.source, e.target, e.action, e.reward = source, target, entry.action, entry.partial
    e.count, e.steps, e.terminated, e.truncated = 1, entry.steps, terminated, truncated
    # In front of both lists: what an agent did last it often does next.
    e.out_prev, e.out_next = -1, m.nodes[source].out
    e.in_prev, e.in_next = -1, m.nodes[target].into
    if e.out_next >= 0:
        m.edges[e.out_next].out_prev = edge
    if e.in_next >= 0:
        m.edges[e.in_next].in_prev = edge
    m.nodes[source].out = edge
    m.nodes[target].into = edge
    m.actions[edge] = action
    _touch(m, edge)
    # Also where the log has it as another's: who reads it learns that the one it knew is gone.
    m.edges[edge].dirty = MADE
    return edge


@njit(cache=True)
def remove_edge(m, edge):
    """Take a temporal edge out; a count of 0 marks the free record."""
    e = m.edges[edge]
    # Out of both lists: neighbours close the gap, or the node's head moves on.
    if e.out_next >= 0:
        m.edges[e.out_next].out_prev = e.out_prev
    if e.out_prev >= 0:
        m.edges[e.out_prev].out_next = e.out_next
    else:
        m.nodes[e.source].out = e.out_next
    if e.in_next >= 0:
        m.edges[e.in_next].in_prev = e.in_prev
    if e.in_prev >= 0:
        m.edges[e.in_prev].in_next = e.in_next
    else:
        m.nodes[e.target].into = e.in_next
    e.count = 0
    e.out_next = m.book[BOOK.edge_free]
    m.book[BOOK.edge_free] = edge
    m.book[BOOK.edges] -= 1
    _touch(m, edge)


@njit(cache=True)
def remove_node(m, node):
    """Take a node out with its links and its temporal edges."""
    # Each removal takes the head off a list, until none is left.
    while m.nodes[node].link >= 0:
        remove_link(m, m.nodes[node].link)
    while m.nodes[node].out >= 0:
        remove_edge(m, m.nodes[node].out)
    while m.nodes[node].into >= 0:
        remove_edge(m, m.nodes[node].into)  # an edge to itself went with the list before
    m.alive[node] = GONE
    # What it stood for is let go later, outside compiled code (`keep_exemplars`).
    if m.book[BOOK.removed] < m.removed.shape[0]:
        m.removed[m.book[BOOK.removed]] = node
        m.book[BOOK.removed] += 1
    m.nodes[node].link = m.book[BOOK.node_free]
    m.book[BOOK.node_free] = node
    m.book[BOOK.nodes] -= 1
