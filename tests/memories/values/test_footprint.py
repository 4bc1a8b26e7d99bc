"""Counted bytes of a graph against what the system gave to the process."""

import json

import pytest

from tests.memories.helpers import run_measured

GRAPH = """
import json
import numpy as np, psutil, torch
from rlmem.memories.values.base import Visits
from rlmem.memories.values.graph import GraphMemory, Learning
from rlmem.memories.values.graph_reconstruction import Reconstruction

ROWS, SIZE = 500, 1024
rng = np.random.default_rng(0)
keys = rng.random((ROWS + 1, SIZE)).astype(np.float32)
zero, no = np.zeros(ROWS, np.int64), np.zeros(ROWS, bool)

def make(capacity):
    rule, generator = Learning(gamma=0.9), torch.Generator().manual_seed(0)
    return GraphMemory(capacity, SIZE, 4, rule, Reconstruction(key_nodes="cross"), generator)

def fill(graph, nodes):
    for part in range(nodes // ROWS):
        keys[:, 0] = part
        rewards = np.ones(ROWS, np.float32)
        graph.visited(Visits(keys[:-1], zero, zero, rewards, rewards, keys[1:], no, no, zero))

def rss():
    return psutil.Process().memory_info().rss

fill(make(1000), 1000)  # compiles
before = rss()
graph = make(12_500)
fill(graph, 5_000)
print(json.dumps([rss() - before, sum(graph.footprint().values())]))
"""


@pytest.mark.slow
def test_the_bytes_of_5000_nodes_are_what_the_process_grew_by() -> None:
    grown, counted = json.loads(run_measured(GRAPH))
    assert counted == pytest.approx(grown, rel=0.02)
