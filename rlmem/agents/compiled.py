"""An agent's update as one compiled graph: forward, backward and Adam's step without Python between.

It is the same function, so it learns the same up to the rounding of sums. Compiling takes from ten
seconds to more than a minute and pays for long runs of small networks on a CPU.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch._dynamo
from torch._inductor.exc import InvalidCxxCompiler

from rlmem.agents.base import Learner
from rlmem.agents.optimizers import FusedAdam
from rlmem.compiling import compiling
from rlmem.errors import UserError

REPAYS_FROM = 500_000  # gradient steps


class CompiledUpdate:
    """In place of the function of an agent that learns from one minibatch.

    Args:
        update: the function; its arguments are tensors and plain values.
    """

    def __init__(self, update: Any) -> None:
        self._compiled = torch.compile(
            update, fullgraph=True, dynamic=False, options={"guard_filter_fn": _of_arguments}
        )
        self._known: set[tuple[Any, ...]] = set()

    def __call__(self, *columns: Any, **options: Any) -> Any:
        kind = (len(columns), len(columns[0]), *options.values())
        if kind in self._known:
            return self._compiled(*columns, **options)
        self._known.add(kind)
        # The setting lets the graph hold its own backward pass.
        with compiling("the update"), torch._dynamo.config.patch(trace_autograd_ops=True):
            return self._compiled(*columns, **options)


def _of_arguments(guards: Sequence[Any]) -> list[bool]:
    """Which of a graph's conditions are looked at in each call: those of its arguments. Networks
    and optimizer stay as they are, and to look at each of their tensors takes as long as the
    graph."""
    return [guard.name.startswith("L[") and "L['self']" not in guard.name for guard in guards]


def compile_update(agent: Learner, asked: bool | str, grad_steps: int) -> None:
    """Compile what an agent does with a minibatch, if that is asked for and possible.

    Args:
        asked: `trainer.compile`: true, false, or auto: where the run is long enough.
        grad_steps: of the run.

    Raises:
        UserError: the agent cannot be compiled.
    """
    if not asked:
        return
    small = not any(getattr(module, "many_threads", False) for module in agent.modules())
    fits = agent.compiles and isinstance(agent.optimizer, FusedAdam)
    if asked == "auto" and not (fits and small and grad_steps >= REPAYS_FROM):
        return
    if not fits:
        raise UserError(
            f"trainer.compile={asked}: the update of this agent and its optimizer cannot be "
            "compiled; leave the key out"
        )
    try:
        from torch._inductor.cpp_builder import get_cpp_compiler

        get_cpp_compiler()
    except InvalidCxxCompiler:
        print("trainer.compile: no C++ compiler is found (g++); the update is not compiled")
        return
    agent.optimizer.prepare()
    agent._update = CompiledUpdate(agent._update)
