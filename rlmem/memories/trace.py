"""The newest transition, and what an agent without replay keeps of those before: its trace.

An eligibility trace is as long as the weights; statistics that observations and rewards are
normalised by belong to it. These are tensors of the agent, which works on them in place. Here they
are counted, saved and resumed, so that an agent that stores no transition shows what it holds all
the same.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from rlmem.errors import UserError
from rlmem.memories.base.build import Needs
from rlmem.memories.base.serialize import State
from rlmem.memories.base.state import array_of
from rlmem.memories.memory import ReplayMemory
from rlmem.memories.replay import NoReplay, ReplaySettings
from rlmem.memories.ring.ring import RingStorage
from rlmem.memories.transforms.base import ReplayTransform
from rlmem.registry import part

Tensors = Mapping[str, Mapping[str, torch.Tensor]]  # by component and name


class Trace(ReplayTransform):
    """Counts and saves tensors of the agent; batches stay as they are."""

    name = "trace"

    def __init__(self) -> None:
        self._held: Callable[[], Tensors] = dict

    def hold(self, tensors: Callable[[], Tensors]) -> None:
        """Count these tensors as the memory's.

        Args:
            tensors: gives them by component and name, each name once. It is asked each time, as
                moving an agent to another device makes them anew.
        """
        self._held = tensors

    def _tensors(self) -> dict[str, torch.Tensor]:
        return {name: tensor for part in self._held().values() for name, tensor in part.items()}

    def footprint(self) -> dict[str, int]:
        return {
            component: sum(tensor.nbytes for tensor in part.values())
            for component, part in self._held().items()
        }

    def state_views(self) -> State:
        # Flat, as files have no arrays without a dimension, and single numbers are among these.
        return {
            name: tensor.detach().cpu().numpy().reshape(-1)
            for name, tensor in self._tensors().items()
        }

    def check_state(self, state: State) -> None:
        for name, own in self.state_views().items():
            array_of(state, name, own.dtype, own.shape)

    def take_over(self, state: State) -> None:
        for name, tensor in self._tensors().items():
            tensor.copy_(torch.from_numpy(np.array(state[name])).view(tensor.shape))


def trace_of(memory: ReplayMemory) -> Trace:
    """The trace of a memory that has one."""
    return next(part for part in memory.transforms if isinstance(part, Trace))


@dataclass(kw_only=True)
class TraceSettings(ReplaySettings):
    """The keys of a ring, which holds the newest transition."""

    extends = "trace"


@part("memory", "trace", settings=TraceSettings)
class TraceMemory(NoReplay):
    """No replay: each transition is learned from once, as it comes.

    Attributes:
        traces: that it counts what an agent keeps of earlier steps.
    """

    colours: ClassVar = {"trace": 14}  # in figures

    traces = True

    @classmethod
    def check(cls, settings: TraceSettings, run: Any) -> None:
        """The agent has a trace.

        Raises:
            UserError: it has none, or a budget is given.
        """
        if not run.agent.part.cls.traces:
            raise UserError(
                f"memory={settings.name}: it holds an agent's eligibility trace, and "
                f"agent={run.agent.name} has none; use agent=stream_q, or memory=none"
            )
        super().check(settings, run)
        if settings.capacity != 1:
            raise UserError(
                f"memory.capacity={settings.capacity}: memory={settings.name} holds the newest "
                "transition, which is learned from once; leave the key out"
            )

    @classmethod
    def transforms(
        cls, settings: Any, needs: Needs, storage: RingStorage
    ) -> Sequence[ReplayTransform]:
        """The trace."""
        return (Trace(),)
