"""Any order of calls on a memory of any ring or free slots and any sampler, against a list of
transitions; on every kind of memory, maps among them, against a twin (`twins`)."""

import copy
import pickle
import random
import tempfile
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rlmem.memories import ReplayMemory, RingWriter, SlotStorage
from rlmem.memories.base.serialize import State
from rlmem.memories.base.writer import ReplayWriter
from tests.memories.helpers import RandomEnvs
from tests.memories.ring.test_ring_storages import make
from tests.memories.states import BUDGETS, CAPACITY, FRAME, SAMPLERS, assert_equal, states_of
from tests.memories.test_refused_blocks import REFUSED, changed
from tests.torture.runner import Told
from tests.torture.twins import Twins

BATCH, EXAMPLES, STEPS = 8, 10, 50
SHORT = {
    f"{name} of another shape": changed(key, lambda x: x[..., :3])
    for name, key in (("observation", "observation"), ("next observation", "next.observation"))
}
WRONG = {**REFUSED, **SHORT}
SLOTS = "free slots"
KINDS = [*sorted(BUDGETS), SLOTS]
OF_SLOTS = ("uniform", "prioritized", "rank")  # samplers that need no order of time


class AnySlot(ReplayWriter):
    """Writes to free slots and over any that are held, and leaves some rows out."""

    def extend(self, data: Any) -> torch.Tensor:
        rows = len(self._storage.read_block(data))
        slots = torch.randint(-1, self._storage.max_size, (rows,), generator=self._rng)
        self._storage.set(slots.numpy(), data)
        return slots

    def state_views(self) -> State:
        return {}

    def take_over(self, state: State) -> None:
        pass


class AnyOrder(RuleBasedStateMachine):
    """A memory; `rows` is what it was given, the newest of which it must hold, and
    `at` the number of the row that was last written to each slot."""

    steps = 0  # of all machines

    @initialize(
        kind=st.sampled_from(KINDS),
        sampler=st.sampled_from(sorted(SAMPLERS)),
        budget=st.booleans(),
        seed=st.integers(0, 2**16),
    )
    def begin(self, kind: str, sampler: str, budget: bool, seed: int) -> None:
        if kind == SLOTS and sampler not in OF_SLOTS:
            sampler = OF_SLOTS[seed % len(OF_SLOTS)]
        self.made = kind, sampler, BUDGETS.get(kind) if budget else None
        self.memory, self.rows, self.seed = self.new(), [], seed
        self.at: dict[int, int] = {}
        self.envs = RandomEnvs(np.random.default_rng(seed), FRAME, np.uint8, end=0.2, change=0.3)

    def new(self) -> ReplayMemory:
        kind, sampler, budget = self.made
        if kind == SLOTS:
            storage = SlotStorage(CAPACITY, FRAME)
            return ReplayMemory(storage, SAMPLERS[sampler](), AnySlot(), seed=0)
        storage = make(kind, CAPACITY, FRAME, budget=budget)
        return ReplayMemory(storage, SAMPLERS[sampler](), RingWriter(), seed=0, budget=budget)

    @rule(rows=st.integers(0, CAPACITY + 5))
    def extend(self, rows: int) -> None:
        block = self.envs.block(rows)
        if not rows:
            block["observation"] = block["next"]["observation"] = np.zeros((0, *FRAME), np.uint8)
        slots = self.memory.extend(block)
        for n, slot in enumerate(slots.tolist()):
            if slot >= 0:
                self.at[slot] = len(self.rows)
            following = {name: column[n] for name, column in block["next"].items()}
            self.rows.append((block["observation"][n], block["action"][n], following))

    @rule(wrong=st.sampled_from(sorted(WRONG)))
    def refuse(self, wrong: str) -> None:
        before = states_of(self.memory)
        block = RandomEnvs(np.random.default_rng(self.seed), FRAME, np.uint8).block(4)
        with pytest.raises((ValueError, RuntimeError, IndexError)):
            self.memory.extend(WRONG[wrong](block))
        assert_equal(states_of(self.memory), before)

    @precondition(lambda self: self.rows)
    @rule()
    def learn(self) -> None:
        if not self.memory.available(BATCH, 1):
            return
        batch = self.memory.sample(BATCH)
        self.compare(batch["index"], batch)
        self.memory.update_priority(batch["index"], batch["next", "reward"].abs() + 0.1)

    @rule()
    def read(self) -> None:
        slots = self.memory.storage.locate(torch.arange(len(self.memory)))
        newest = list(range(len(self.rows) - len(slots), len(self.rows)))
        held = sorted(self.at.values()) if self.made[0] == SLOTS else newest
        assert sorted(self.at[slot] for slot in slots.tolist()) == held
        if len(slots):
            self.compare(slots, self.memory.storage.get(slots))

    @rule()
    def save(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.memory.save(Path(folder))
            other = self.new()
            other.load(Path(folder))
        self.go_on_with(other)

    @rule()
    def state(self) -> None:
        other = self.new()
        for name, part in other._parts().items():
            part.load_state_dict(self.memory._parts()[name].state_dict())
        other.generator.set_state(self.memory.generator.get_state())
        self.go_on_with(other)

    @rule()
    def pickled(self) -> None:
        self.go_on_with(pickle.loads(pickle.dumps(self.memory)))

    @rule()
    def copied(self) -> None:
        self.go_on_with(copy.deepcopy(self.memory))

    def go_on_with(self, other: ReplayMemory) -> None:
        assert len(other) == len(self.memory)
        self.memory = other

    def compare(self, slots: torch.Tensor, batch: Any) -> None:
        """Transitions at slots against the list."""
        for n, slot in enumerate(slots.tolist()):
            observation, action, following = self.rows[self.at[slot]]
            np.testing.assert_array_equal(batch["observation"][n], observation)
            np.testing.assert_array_equal(batch["next", "observation"][n], following["observation"])
            assert batch["action"][n].item() == action
            for name in ("reward", "terminated"):
                np.testing.assert_array_equal(batch["next", name][n], following[name])

    def teardown(self) -> None:
        if hasattr(self, "memory"):
            self.memory.check_valid()
            held, room = len(self.memory), min(len(self.rows), CAPACITY)
            if self.made[0] == SLOTS:
                assert held == len(self.at)
            else:
                assert held == room or (self.made[2] and held <= room)

    def check_invariants(self, *arguments: Any, **options: Any) -> None:
        """After each step."""
        type(self).steps += 1
        super().check_invariants(*arguments, **options)


def trial(rng: random.Random, folder: Path) -> Told:
    """Some machines of a seed, of either kind."""
    machine = rng.choice([AnyOrder, Twins])
    found = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # shrinking takes minutes
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    run_state_machine_as_test(hypothesis.seed(rng.getrandbits(32))(machine), settings=found)
    kind = "against a list" if machine is AnyOrder else "against a twin"
    return Told(f"{machine.steps} steps {kind}", machine.steps, (f"series {kind}",) * EXAMPLES)
