"""GWR-R in plain NumPy float64: dictionaries and loops, written from the equations alone."""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np


@dataclass
class Node:
    w: np.ndarray
    c: np.ndarray  # [K, d]
    h: float = 1.0
    stamp: int = 0  # of its last visit
    terminal: bool = True  # so far


@dataclass
class ReferenceGWR:
    """Nodes, links {a, b} -> age, and edges -> [count, reward, action].

    An edge is known by (source, target) with `node_terminals`, else by (source, target, action,
    terminated, truncated, steps), where a continuous action (an array) is left out. `margin` is the
    narrowest decision so far: below float32's rounding error the two implementations may rightly
    differ.
    """

    dims: int
    activation_threshold: float
    habituation_threshold: float
    capacity: int
    contexts: int = 0
    n_step: int = 1
    gamma: float = 0.99
    max_age: int = 10
    eps_b: float = 0.1
    eps_n: float = 0.001
    tau_b: float = 0.3
    tau_n: float = 0.1
    kappa: float = 1.05
    beta: float = 0.7
    phi: float = 0.7
    scale: float = 1.0
    links_on: bool = True
    node_terminals: bool = False
    joined: bool = False
    evict: bool = False
    moving: bool = True
    margin: float = np.inf
    pruned: int = 0
    clock: int = 0
    nodes: dict[int, Node] = field(default_factory=dict)
    links: dict[frozenset, int] = field(default_factory=dict)
    edges: dict[tuple, list] = field(default_factory=dict)

    def __post_init__(self) -> None:
        alphas = np.exp(-np.arange(self.contexts + 1.0))
        self.alphas = alphas / alphas.sum()
        self.born = 0
        self.last: dict[int, int] = {}
        self.begun: set[int] = set()
        self.pending: dict[int, list] = defaultdict(list)
        self.global_contexts: dict[int, np.ndarray] = defaultdict(
            lambda: np.zeros((self.contexts, self.dims))
        )

    def step(self, env, observation, action, reward, following, terminated, truncated) -> None:
        """A row, as it comes from an environment."""
        if env not in self.begun:
            joins = self.joined and env in self.last
            nothing = action * 0 if joins else None  # an edge of action 0 and reward 0
            self.arrive(env, observation, nothing, 0.0, False, False)
            self.begun.add(env)
        self.arrive(env, following, action, reward, terminated, truncated)
        if terminated or truncated:
            self.begun.remove(env)
        if truncated and not self.joined:
            self.last.pop(env, None)
        if (terminated or truncated) and not self.joined:
            self.global_contexts.pop(env)

    def arrive(self, env, x, action, reward, terminated, truncated) -> None:
        """Show an observation, to which an action led (None: it begins an episode)."""
        node = self.present(env, x)
        self.clock += 1
        self.nodes[node].stamp = self.clock
        self.nodes[node].terminal &= terminated
        source, pending = self.last.get(env), self.pending[env]
        if action is not None:
            # A node that left the map while its edge waited took the edge with it.
            pending.append([source if source in self.nodes else None, action, 0.0, 0])
        for entry in pending:
            entry[2] += self.gamma ** entry[3] * reward
            entry[3] += 1
        while pending and (terminated or truncated or pending[0][3] == self.n_step):
            start, act, value, steps = pending.pop(0)
            if start is not None:
                self.visit(start, node, act, terminated, truncated, steps, value)
        self.last[env] = node
        if terminated:
            del self.last[env]

    def visit(self, source, target, action, terminated, truncated, steps, value) -> None:
        continuous, key = isinstance(action, np.ndarray), (source, target)
        if not self.node_terminals:
            key += (None if continuous else action, terminated, truncated, steps)
        if key not in self.edges:
            self.edges[key] = [1, value, action]
            return
        count, old, old_action = self.edges[key]
        if continuous:
            action = self.phi * action + (1 - self.phi) * old_action
        self.edges[key] = [count + 1, self.phi * value + (1 - self.phi) * old, action]

    def insert(self, x: np.ndarray, contexts: np.ndarray) -> int:
        self.nodes[self.born] = Node(np.array(x, np.float64), contexts.copy())
        self.born += 1
        return self.born - 1

    def distance(self, x: np.ndarray, contexts: np.ndarray, node: Node) -> float:
        gaps = [np.linalg.norm(x - node.w)]
        gaps += [np.linalg.norm(contexts[k] - node.c[k]) for k in range(self.contexts)]
        return float(self.alphas @ gaps)

    def present(self, env: int, x: np.ndarray) -> int:
        contexts = self.global_contexts[env]
        node = self.insert(x, contexts) if len(self.nodes) < 2 else self.match(x, contexts)
        chain = np.concatenate([self.nodes[node].w[None], self.nodes[node].c])
        self.global_contexts[env] = self.beta * chain[1:] + (1 - self.beta) * chain[:-1]
        return node

    def match(self, x: np.ndarray, contexts: np.ndarray) -> int:
        ranked = sorted((self.distance(x, contexts, n), i) for i, n in self.nodes.items())
        (d, b), (_, s) = ranked[:2]
        activity = np.exp(-d / self.scale)
        self.margin = min(self.margin, *(v[0] - u[0] for u, v in pairwise(ranked[:3])))
        self.margin = min(self.margin, abs(activity - self.activation_threshold))
        if self.habituation_threshold < 1:
            self.margin = min(self.margin, abs(self.nodes[b].h - self.habituation_threshold))
        new = activity < self.activation_threshold and (
            self.nodes[b].h <= self.habituation_threshold
        )
        if new and self.evict and len(self.nodes) == self.capacity:
            self.remove(min(self.nodes.keys() - {b, s}, key=lambda i: self.nodes[i].stamp))
        if new and len(self.nodes) < self.capacity:
            node = self.insert(x, contexts)
            self.links.pop(frozenset((b, s)), None)
            self.join(b, node)
            self.join(s, node)
        else:
            node = b
            self.join(b, s)
            self.adapt(b, x, contexts, self.eps_b, self.tau_b)
            for n in [n for link in self.links if b in link for n in link - {b}]:
                self.adapt(n, x, contexts, self.eps_n, self.tau_n)
        self.age(b)
        return node

    def join(self, a: int, b: int) -> None:
        if self.links_on:
            self.links[frozenset((a, b))] = 0

    def adapt(self, i: int, x: np.ndarray, contexts: np.ndarray, eps: float, tau: float) -> None:
        node = self.nodes[i]
        if self.moving:
            node.w += eps * node.h * (x - node.w)
            node.c += eps * node.h * (contexts - node.c)
        node.h += tau * self.kappa * (1 - node.h) - tau

    def age(self, b: int) -> None:
        for link in [link for link in self.links if b in link]:
            self.links[link] += 1
            if self.links[link] > self.max_age:
                del self.links[link]
                (n,) = link - {b}
                if not any(n in other for other in self.links):
                    self.remove(n)

    def remove(self, n: int) -> None:
        self.pruned += 1
        del self.nodes[n]
        self.links = {link: age for link, age in self.links.items() if n not in link}
        self.edges = {k: v for k, v in self.edges.items() if n not in k[:2]}
        for pending in self.pending.values():
            for entry in pending:
                entry[0] = None if entry[0] == n else entry[0]
