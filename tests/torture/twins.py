"""Any order of calls on a memory of any kind, beside a twin that is only written to and drawn from.

What a memory holds of a map, of goals that are lent or of consolidated states is no list of
transitions. So the reference is the same memory without what must change nothing: reading, refused
blocks, saving and loading, states, pickle and copies. Both must draw the same, bit for bit, count
the same bytes, and hold together.
"""

import copy
import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from rlmem.memories import ReplayMemory
from tests.memories.states import CASES, assert_equal, footprint, learn, load, states_of
from tests.memories.test_refused_blocks import REFUSED

# Of these, what is wrong in any block, whatever its observations and actions are.
WRONG = {name: REFUSED[name] for name in ("reward of two numbers", "terminated of two flags")}
WRONG["env_id out of range"] = lambda block: {**block, "env_id": block["env_id"] + 99}
WRONG["observation of another rank"] = lambda block: {
    **block, "observation": block["observation"][..., None, None]
}  # fmt: skip
WRONG["no reward"] = lambda block: {
    **block, "next": {k: v for k, v in block["next"].items() if k != "reward"}
}  # fmt: skip
WRONG["rows of another number"] = lambda block: {**block, "action": block["action"][:-1]}


class Twins(RuleBasedStateMachine):
    """A memory, its twin, and how many transitions both were given."""

    steps = 0  # of all machines

    @initialize(case=st.sampled_from(sorted(CASES)), seed=st.integers(0, 2**16))
    def begin(self, case: str, seed: int) -> None:
        self.make, self.blocks = CASES[case]
        self.memory, self.twin = self.make(), self.make()
        self.rng, self.given = np.random.default_rng(seed), 0

    @rule(rows=st.integers(1, 45))
    def extend(self, rows: int) -> None:
        block = self.blocks(self.rng, rows)
        slots = [each.extend(copy.deepcopy(block)) for each in (self.memory, self.twin)]
        assert torch.equal(*map(torch.as_tensor, slots))
        self.given += rows
        assert self.memory.transitions_seen == self.given

    @rule()
    def draw(self) -> None:
        drawn = [learn(each) for each in (self.memory, self.twin)]
        assert (drawn[0] is None) == (drawn[1] is None)
        if drawn[0] is not None and drawn[1] is not None:
            assert_equal(drawn[0].to_dict(), drawn[1].to_dict())

    @rule(wrong=st.sampled_from(sorted(WRONG)))
    def refuse(self, wrong: str) -> None:
        before = states_of(self.memory)
        block = self.blocks(np.random.default_rng(0), 4)
        with pytest.raises((ValueError, RuntimeError, IndexError, KeyError)):
            self.memory.extend(WRONG[wrong](block))
        assert_equal(states_of(self.memory), before)

    @rule()
    def read(self) -> None:
        if len(self.memory):
            slots = self.memory.storage.locate(torch.arange(len(self.memory)))
            self.memory.storage.get(slots)
        with pytest.raises((IndexError, ValueError)):
            self.memory.storage.get(torch.tensor([2**40]))

    @rule()
    def save(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.memory.save(Path(folder))
            other = self.make()
            other.load(Path(folder))
        self.go_on_with(other)

    @rule()
    def state(self) -> None:
        other = self.make()
        load(other, states_of(self.memory))
        other.transitions_seen = self.memory.transitions_seen
        self.go_on_with(other)

    @rule()
    def own_state(self) -> None:
        load(self.memory, states_of(self.memory))

    @rule()
    def pickled(self) -> None:
        self.go_on_with(pickle.loads(pickle.dumps(self.memory)))

    @rule()
    def copied(self) -> None:
        self.go_on_with(copy.deepcopy(self.memory))

    def go_on_with(self, other: ReplayMemory) -> None:
        assert len(other) == len(self.memory)
        self.memory = other

    def teardown(self) -> None:
        if hasattr(self, "memory"):
            for each in (self.memory, self.twin):
                each.sampler.synchronise(each.storage)
                each.check_valid()
            assert footprint(self.memory) == footprint(self.twin)

    def check_invariants(self, *arguments: Any, **options: Any) -> None:
        """After each step."""
        type(self).steps += 1
        super().check_invariants(*arguments, **options)
