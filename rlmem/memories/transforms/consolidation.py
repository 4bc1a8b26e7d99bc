"""Consolidation in place of a large memory (MeDQN: Lan, Pan, Luo, Mahmood 2023, arXiv 2205.10868).

A batch is given states at which the agent holds its network to its target network, so that what
was learned elsewhere is kept without being stored. `BoundedStates` draws them between the bounds of
all that was seen (MeDQN(U): the memory itself may then be one minibatch), `StoredStates` from the
memory (MeDQN(R)).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from rlmem.errors import UserError
from rlmem.memories.base.batch import Batch
from rlmem.memories.base.blocks import both_frames
from rlmem.memories.base.build import Needs
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import Stateful, array_of, count_of, number_of
from rlmem.memories.base.storage import ReplayStorage
from rlmem.memories.replay import Replay, ReplaySettings
from rlmem.memories.ring.ring import RingStorage
from rlmem.memories.samplers.base import draw_uniform
from rlmem.memories.transforms.base import ReplayTransform
from rlmem.registry import part
from rlmem.settings import Settings, alike, setting

_NOISE = (
    "memory.consolidation.states=bounds: screens of {} drawn pixel by pixel are noise; use "
    "memory=medqn_r, or memory.consolidation.states=stored"
)


class States(Protocol):
    """Where states to consolidate come from."""

    def check(self, block: Any) -> None:
        """Shown each block before it is written.

        Raises:
            ValueError: no states can be made of it.
        """
        ...

    def observe(self, block: Any) -> None:
        """Take notice of a block that was written."""
        ...

    def draw(self, count: int, rng: torch.Generator) -> torch.Tensor:
        """States [count, *observation_shape] of the observations' dtype."""
        ...

    def footprint(self) -> dict[str, int]:
        """Component -> bytes held."""
        ...

    def state_views(self) -> State:
        """See `Stateful`."""
        ...

    def check_state(self, state: State) -> None:
        """See `Stateful`."""
        ...

    def take_over(self, state: State) -> None:
        """See `Stateful`."""
        ...


class BoundedStates(Stateful):
    """Uniform between the smallest and the largest value of each dimension seen so far.

    Whole numbers where observations are integers: 0 or 1 where planes are binary, and 0 where a
    plane was never set.

    Args:
        shape: of an observation.
        dtype: of an observation, float32 or uint8.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        if self.dtype not in (np.float32, np.uint8):
            raise ValueError(f"dtype={dtype}: states are drawn as float32 or uint8")
        self._bounds = np.zeros((2, *self.shape), self.dtype)  # low, high
        self._seen = False

    def check(self, block: Any) -> None:
        """Observations have the shape and dtype of the bounds.

        Raises:
            ValueError: they have not.
        """
        both_frames(block, self.shape, self.dtype)

    def observe(self, block: Any) -> None:
        """Widen the bounds to a block's observations and next observations."""
        low, high = self._bounds
        for states in both_frames(block, self.shape, self.dtype):
            if len(states) == 0:
                return
            if not self._seen:
                low[...] = high[...] = states[0]
                self._seen = True
            np.minimum(low, states.min(0), out=low)
            np.maximum(high, states.max(0), out=high)

    def draw(self, count: int, rng: torch.Generator) -> torch.Tensor:
        """States [count, *shape].

        Raises:
            RuntimeError: no observation was seen.
        """
        if not self._seen:
            raise RuntimeError(
                "BoundedStates has seen no observation: it sees those that are written from when "
                "it is put beside a storage; take an empty one"
            )
        low, high = torch.from_numpy(self._bounds.copy()).float()
        whole = self.dtype.kind in "iu"
        share = torch.rand(count, *self.shape, generator=rng, dtype=torch.float32, device="cpu")
        states = low + share * (high - low + whole)
        # Rounding can give high + 1, a value that no observation has: hence the minimum.
        return torch.minimum(states.floor(), high).to(torch.uint8) if whole else states

    def footprint(self) -> dict[str, int]:
        return {"bounds": self._bounds.nbytes}

    def state_views(self) -> State:
        return {"bounds": self._bounds, "seen": self._seen}

    def check_state(self, state: State) -> None:
        array_of(state, "bounds", self.dtype, self._bounds.shape)
        number_of(state, "seen")

    def take_over(self, state: State) -> None:
        self._bounds[:] = state["bounds"]
        self._seen = bool(state["seen"])


class StoredStates(Stateful):
    """Observations of the memory, each transition with the same probability."""

    def __init__(self, storage: ReplayStorage) -> None:
        self.storage = storage

    def check(self, block: Any) -> None:
        """Nothing: the storage looks at it."""

    def observe(self, block: Any) -> None:
        """Nothing: they are stored."""

    def draw(self, count: int, rng: torch.Generator) -> torch.Tensor:
        """States [count, *observation_shape]."""
        slots = draw_uniform(self.storage, count, rng).numpy()
        return self.storage.read(slots)["observation"]

    def footprint(self) -> dict[str, int]:
        return {}


class Consolidation(ReplayTransform):
    """Adds to a batch `consolidation` [U, E, B', *observation_shape], states of the observations'
    dtype, and `consolidation_weight`, lambda, float32 [U] (Lan et al. 2023, arXiv 2205.10868).

    Args:
        states: where they come from.
        steps: E, gradient steps on each minibatch, with states of its own each.
        batch_size: B', states a gradient step.
        weight_start, weight_end: lambda, rising linearly over the run.
        weight_steps: env steps over which it rises.
    """

    name = "consolidation"

    def __init__(
        self,
        states: States,
        *,
        steps: int,
        batch_size: int,
        weight_start: float,
        weight_end: float,
        weight_steps: int,
    ) -> None:
        self.states = states
        self.steps, self.batch_size = steps, batch_size
        self.weight_start, self.weight_end = weight_start, weight_end
        self.weight_steps = weight_steps
        self.weight = weight_start
        self._gaps, self._minibatches = torch.zeros(()), 0  # since the last row

    def learned(self, batch: Batch, outputs: Mapping[str, torch.Tensor]) -> None:
        gaps = outputs["consolidation_loss"]
        self._gaps = gaps.sum() + self._gaps
        self._minibatches += len(gaps)

    def metrics(self) -> dict[str, float | None]:
        """A mean, as the gap is 0 at each copy of the target network and grows until the next."""
        gap = float(self._gaps) / self._minibatches if self._minibatches else None
        self._gaps, self._minibatches = torch.zeros(()), 0
        return {"consolidation_loss": gap, "consolidation_weight": self.weight}

    def anneal(self, env_steps: int) -> None:
        fraction = min(1.0, env_steps / self.weight_steps)
        self.weight = self.weight_start + fraction * (self.weight_end - self.weight_start)

    def check(self, block: Any) -> None:
        self.states.check(block)

    def extend(self, block: Any, index: torch.Tensor) -> None:
        self.states.observe(block)

    def apply(self, batch: Batch) -> Batch:
        shape = (len(batch["index"]), self.steps, self.batch_size)
        states = self.states.draw(int(np.prod(shape)), self._rng)
        batch["consolidation"] = states.unflatten(0, shape)
        batch["consolidation_weight"] = torch.full(
            shape[:1], self.weight, dtype=torch.float32, device="cpu"
        )
        return batch

    def fixed_bytes(self) -> int:
        return sum(self.footprint().values())

    def footprint(self) -> dict[str, int]:
        return self.states.footprint()

    def state_views(self) -> State:
        row = {"gaps": float(self._gaps), "minibatches": self._minibatches, "weight": self.weight}
        return {**self.states.state_views(), **row}

    def check_state(self, state: State) -> None:
        self.states.check_state(state)
        number_of(state, "gaps")
        count_of(state, "minibatches")
        if "weight" in state:  # if not, the schedule says it before the next draw
            number_of(state, "weight")

    def take_over(self, state: State) -> None:
        self.states.take_over(state)
        self._gaps = torch.tensor(state["gaps"])
        self._minibatches = int(state["minibatches"])
        self.weight = float(state.get("weight", self.weight))

    def check_valid(self) -> None:
        assert self.steps >= 1
        assert self.batch_size >= 1


@dataclass(kw_only=True)
class ConsolidationSettings(Settings):
    """States at which an agent is held to its target network."""

    states: str = setting(choices=("bounds", "stored"))
    batch_size: int = setting(at_least=1, at_most=2**20, divided=True)
    inner_steps: int = setting(at_least=1, at_most=10**6)
    weight_start: float = setting(at_least=0)
    weight_end: float = setting(at_least=0)
    weight_steps: int = setting(at_least=1, free=True, idle=alike("weight_start", "weight_end"))


@dataclass(kw_only=True)
class MedqnSettings(ReplaySettings):
    """Consolidation in place of a large memory (Lan et al. 2023)."""

    consolidation: ConsolidationSettings = setting()


@part("memory", "medqn", settings=MedqnSettings)
class ConsolidatedReplay(Replay):
    """A ring whose batches bring states to consolidate."""

    colours: ClassVar = {"medqn_u": 4, "medqn_r": 12}  # in figures

    @classmethod
    def check(cls, settings: MedqnSettings, run: Any) -> None:
        """The agent has values to hold, the environment states that can be drawn.

        Raises:
            UserError: not so.
        """
        super().check(settings, run)
        if not run.agent.part.cls.consolidates(run.agent):
            raise UserError(
                f"memory={settings.name}: holds Q values to those of a target network, which "
                f"agent={run.agent.name} cannot do as it is set; use agent=dqn"
            )
        screens = getattr(run.env.part.cls, "screens", False)
        if settings.consolidation.states == "bounds" and screens:
            raise UserError(_NOISE.format(f"env={run.env.name}"))

    @classmethod
    def transforms(
        cls, settings: MedqnSettings, needs: Needs, storage: RingStorage
    ) -> Sequence[ReplayTransform]:
        """States to consolidate.

        Raises:
            UserError: they would be drawn of pixels.
        """
        own, spec = settings.consolidation, needs.spec
        bounded = own.states == "bounds"
        screens = len(spec.frame_shape) > 1 and spec.dtype == np.uint8
        if bounded and screens and getattr(spec, "highest", 1) > 1:
            raise UserError(_NOISE.format(getattr(spec, "env_id", "the environment")))
        if bounded and getattr(spec, "stack", 1) > 1:
            raise UserError(
                "memory=medqn_u: it draws single frames within bounds, and the agent sees stacks "
                f"of {spec.stack}; use memory=medqn_r"
            )
        return (
            Consolidation(
                BoundedStates(spec.frame_shape, spec.dtype) if bounded else StoredStates(storage),
                steps=own.inner_steps,
                batch_size=own.batch_size,
                weight_start=own.weight_start,
                weight_end=own.weight_end,
                weight_steps=own.weight_steps,
            ),
        )
