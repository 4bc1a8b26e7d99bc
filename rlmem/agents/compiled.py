"""An agent's update as one compiled graph: forward, backward and Adam without Python between.

It is the same function, so it learns the same up to the rounding of sums. Compiling takes from ten
seconds to more than a minute and pays for long runs of small networks on a CPU.
"""

import itertools
from types import FunctionType, MethodType
from typing import Any

import torch
import torch._dynamo
from torch._inductor.exc import InvalidCxxCompiler

from rlmem import distributed
from rlmem.agents.base import Learner
from rlmem.agents.optimizers import FusedAdam
from rlmem.agents.recorded import RecordedUpdate
from rlmem.compiling import compiling
from rlmem.errors import UserError
from rlmem.memories.base.batch import Batch

REPAYS_FROM = 500_000  # gradient steps


class CompiledUpdate:
    """In place of the method of an agent that learns from one minibatch.

    Torch would look at each tensor of the networks in each call, to know whether a graph is still
    right; that takes as long as the graph. Here none is looked at, so there is a graph for each
    kind of call, and none is shared: torch keeps them by code object, and each has its own.

    Args:
        update: the method; it takes a minibatch and plain values.
    """

    def __init__(self, update: MethodType) -> None:
        self._update = update
        self._graphs: dict[tuple[Any, ...], Any] = {}

    def __call__(self, row: Batch, *options: Any) -> Any:
        kind = (*(column.shape for column in row.values()), *options)
        graph = self._graphs.get(kind)
        if graph is not None:
            return graph(row, *options)
        graph = self._graphs[kind] = torch.compile(
            self._copy(),
            fullgraph=True,
            options={
                "guard_filter_fn": torch.compiler.skip_all_guards_unsafe,
                "size_asserts": False,  # shapes are this call's key
            },
        )
        # The setting lets the graph hold its own backward pass.
        with compiling("the update"), torch._dynamo.config.patch(trace_autograd_ops=True):
            return graph(row, *options)

    def _copy(self) -> MethodType:
        """The method with a code object of its own."""
        function: Any = self._update.__func__
        code = function.__code__.replace(co_name=f"{function.__name__}_{next(_numbers)}")
        copy = FunctionType(
            code, function.__globals__, None, function.__defaults__, function.__closure__
        )
        return MethodType(copy, self._update.__self__)


_numbers = itertools.count()


def check_compiles(agent: type[Learner], on_gpu: bool) -> None:
    """Refuse an agent whose update cannot be compiled, or recorded on a GPU.

    Raises:
        UserError: it is one.
    """
    if not (agent.recordable if on_gpu else agent.compiles):
        where = "GPU" if on_gpu else "CPU"
        raise UserError(
            f"trainer.compile=true: on a {where} the update of this agent cannot be compiled; use "
            "trainer.compile=false"
        )


def compile_update(agent: Learner, asked: bool | str, grad_steps: int) -> None:
    """Compile what an agent does with a minibatch, if that is asked for and possible; on a GPU,
    record it.

    Args:
        asked: `trainer.compile`: true, false, or auto: on a CPU, where the run is long enough.
        grad_steps: of the run.

    Raises:
        UserError: the agent cannot be compiled.
    """
    if not asked or (asked == "auto" and distributed.size > 1):  # gradients are averaged outside
        return
    on_gpu = agent.device.type == "cuda"
    small = not any(getattr(module, "many_threads", False) for module in agent.modules())
    fused = isinstance(agent.optimizer, FusedAdam)
    fits = agent.compiles and fused and small and grad_steps >= REPAYS_FROM and not on_gpu
    if asked == "auto" and not fits:
        return
    check_compiles(type(agent), on_gpu)
    if not fused:
        raise UserError(
            "trainer.compile=true: only the optimizer adam can be compiled; use "
            "trainer.compile=false"
        )
    if on_gpu:
        agent._update = RecordedUpdate(agent._update)
        return
    try:
        from torch._inductor.cpp_builder import get_cpp_compiler

        get_cpp_compiler()
    except InvalidCxxCompiler:
        print("trainer.compile: no C++ compiler is found (g++); the update is not compiled")
        return
    agent.optimizer.prepare()
    agent._update = CompiledUpdate(agent._update)
