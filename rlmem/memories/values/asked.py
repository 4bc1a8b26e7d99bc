"""A memory that is asked and nothing else: no minibatch is drawn, each step is learned as it comes.

For agents without a network, whose keys the memory makes of the observations themselves. It stands
in the place of a `ReplayMemory`: counted, saved and resumed in the same way.
"""

from pathlib import Path
from typing import Any

import numpy as np

from rlmem.errors import UserError
from rlmem.memories.base.blocks import as_block, check_rewards
from rlmem.memories.base.build import Needs
from rlmem.memories.base.serialize import State, load_state, where_saved
from rlmem.memories.base.storage import ReplayStorage
from rlmem.memories.base.writer import ReplayWriter
from rlmem.memories.memory import ReplayMemory
from rlmem.memories.replay import read_budget
from rlmem.memories.samplers.base import NothingDrawn
from rlmem.memories.values.base import ValueMemory, Visits
from rlmem.memories.values.checks import LostKeys, checked_keys, no_key


class ValuesStorage(ReplayStorage):
    """What a memory that answers holds, as the storage of a run's memory.

    Args:
        values: the memory.
        unit: of its entries.
    """

    def __init__(self, values: ValueMemory, unit: str) -> None:
        super().__init__(values.capacity)
        self.values, self.unit = values, unit

    def __len__(self) -> int:
        return self.values.entries

    @property
    def transitions_represented(self) -> int:
        """None: no sample is drawn, and an entry is of a state, however often it was met."""
        return 0

    def footprint(self) -> dict[str, int]:
        return self.values.footprint()

    def projected_footprint(self) -> dict[str, int]:
        return self.values.projected_footprint()

    def state_views(self) -> State:
        return self.values.state_views()

    def check_state(self, state: State) -> None:
        self.values.check_state(state)

    def take_over(self, state: State) -> None:
        self.values.take_over(state)

    def check_valid(self) -> None:
        self.values.check_valid()


class AskedMemory(ReplayMemory):
    """Passes each transition on to a memory that answers.

    Args:
        values: the memory.
        needs: of the run; of its observations the memory makes keys.
        unit: of the memory's entries.
        budget: bytes that the memory was made for, for the run's summary.
    """

    draws = False

    def __init__(
        self,
        values: ValueMemory,
        needs: Needs,
        unit: str,
        budget: int | None = None,
    ) -> None:
        super().__init__(ValuesStorage(values, unit), NothingDrawn(), ReplayWriter(), seed=0)
        self.values, self.budget = values, budget
        self._spec = needs.spec

    def extend(self, block: Any) -> np.ndarray:
        """Learn from a block of transitions; -1 for each: none can be drawn.

        Raises:
            UserError: a reward or an observation is no number; nothing was changed.
        """
        spec = self._spec
        rows = as_block(block, spec.frame_shape, spec.dtype, spec.num_envs, (), np.dtype(np.int64))
        check_rewards(rows)
        key, next_key = self._keys(rows.observation), self._keys(rows.next_observation)
        count = len(rows)
        self.values.visited(
            Visits(
                key=key,
                hash=np.zeros(count, np.int64),
                action=rows.action,
                target=np.zeros(count, np.float32),
                reward=rows.reward,
                next_key=next_key,
                terminated=rows.terminated,
                truncated=rows.truncated,
                env_id=rows.env_id,
            )
        )
        self.transitions_seen += count
        return np.full(count, -1)

    def _keys(self, observation: np.ndarray) -> np.ndarray:
        try:
            return checked_keys(self.values.embed(observation), self.values.key_size)
        except LostKeys:
            raise no_key() from None

    def save_answers(self, folder: Path) -> None:
        """Write what the agent needs to play."""
        self.storage.save(folder / "storage")

    def load_answers(self, folder: Path) -> None:
        """Take over what `save_answers` or `save` wrote.

        Raises:
            FileNotFoundError, ValueError: see `load`.
        """
        self.storage.load_state_dict(load_state(where_saved(folder, "storage")))


def check_asked(settings: Any, run: Any) -> None:
    """What every such memory needs of its run.

    Raises:
        UserError: the agent learns from minibatches.
    """
    if not run.agent.part.cls.asks:
        raise UserError(
            f"memory={settings.name}: nothing is drawn from it, and agent={run.agent.name} learns "
            "from minibatches; use agent=tabular, or memory=uniform"
        )
    if settings.budget is not None:
        read_budget(settings.budget)
    elif settings.capacity < 2:
        raise UserError(f"memory.capacity={settings.capacity}: must be at least 2")


def key_size(settings: Any, needs: Needs) -> int:
    """Numbers of a key that is an observation itself.

    Raises:
        UserError: observations are images, which hardly ever come twice, or actions no numbers; the
            agent has other keys, or learns over several steps.
    """
    spec = needs.spec
    if needs.columns:
        raise UserError(
            f"memory={settings.name}: its keys are observations, and this agent makes keys of its "
            "own; use agent=tabular, or memory=dnd"
        )
    if needs.n_step > 1:
        raise UserError(
            f"agent.n_step={needs.n_step}: memory={settings.name} learns from single steps; use "
            "agent.n_step=1"
        )
    if len(spec.frame_shape) != 1 or not spec.num_actions:
        what = "images" if len(spec.frame_shape) != 1 else "of an env with continuous actions"
        raise UserError(
            f"memory={settings.name}: its keys are observations, and these are {what}; use vectors "
            "and discrete actions, such as env=mini_maze with env.observation=position"
        )
    return int(spec.frame_shape[0])


def capacity_of(settings: Any, entries: int, make: Any) -> tuple[int, int | None]:
    """Entries of a memory, and the budget that they were found from.

    Args:
        entries: where there is no budget.
        make: entries -> the memory.

    Raises:
        UserError: the budget does not hold two entries.
    """
    if settings.budget is None:
        return entries, None
    budget = read_budget(settings.budget)
    if (most := entries_within(budget, make)) < 2:
        raise UserError(f"memory.budget={settings.budget}: use {_full(make, 2)} bytes or more")
    return most, budget


def _full(make: Any, entries: int) -> int:
    return sum(make(entries).projected_footprint().values())


def entries_within(budget: int, make: Any) -> int:
    """The most entries of a memory that a budget holds; 0: fewer than two.

    Args:
        make: entries -> the memory, whose bytes when full are a constant and about so many an entry
            (arrays in tiles take more).
    """
    few, many = _full(make, 1024), _full(make, 2048)
    most = max(2, 1024 + (budget - few) * 1024 // (many - few))
    while most >= 2 and _full(make, most) > budget:
        most -= max(1, most // 1000)
    return most if most >= 2 else 0
