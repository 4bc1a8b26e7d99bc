"""An agent's update on a GPU as one launch: kernels are recorded once and replayed (CUDA graphs).

A small network's update is some two hundred kernels of a few microseconds each, and Python takes
longer to start one than the GPU to run it. A replay runs the same kernels with the same random
numbers, so it learns the same, bit for bit.
"""

from collections import Counter
from types import MethodType
from typing import Any, NamedTuple

import torch

from rlmem.compiling import compiling
from rlmem.errors import UserError
from rlmem.memories.base.batch import Batch

PLAIN = 3  # calls before the recording: in them libraries and the optimizer make what they keep


class _Recording(NamedTuple):
    """Kernels, and the tensors that they read and write each time."""

    graph: torch.cuda.CUDAGraph
    row: Batch
    found: dict[str, torch.Tensor]


class RecordedUpdate:
    """In place of the method of an agent that learns from one minibatch on a GPU.

    Kernels read and write the places in memory that they had when they were recorded. So a
    minibatch is copied to where the recorded one lay, what is found is copied from where it lies,
    and weights, moments and buffers must be changed in place, as `load_state_dict` does.

    Args:
        update: the method; it takes a minibatch and plain values, and asks the GPU for no number.
    """

    def __init__(self, update: MethodType) -> None:
        self._update = update
        self._calls: Counter[tuple[Any, ...]] = Counter()
        self._recordings: dict[tuple[Any, ...], _Recording] = {}

    def __call__(self, row: Batch, *options: Any) -> dict[str, torch.Tensor]:
        row = {name: column for name, column in row.items() if column.is_cuda}
        kind = (*((name, column.shape) for name, column in row.items()), *options)
        recording = self._recordings.get(kind)
        if recording is None:
            self._calls[kind] += 1
            if self._calls[kind] <= PLAIN:
                return self._update(row, *options)
            recording = self._recordings[kind] = self._record(row, *options)
        torch._foreach_copy_(  # pyright: ignore[reportPrivateImportUsage]
            [*recording.row.values()], [row[name] for name in recording.row]
        )
        recording.graph.replay()
        return {name: value.clone() for name, value in recording.found.items()}

    def _record(self, row: Batch, *options: Any) -> _Recording:
        """What the update does, without doing it.

        Raises:
            UserError: it waits for the GPU, which a recording cannot. Torch (2.11) then draws no
                random number on this GPU any more, in this process.
        """
        own = {name: column.clone() for name, column in row.items()}
        graph = torch.cuda.CUDAGraph()
        try:
            with compiling("the update"), torch.cuda.graph(graph):
                found = self._update(own, *options)
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:
            why = str(error).strip().partition("\n")[0]
            raise UserError(
                f"trainer.compile=true: the update cannot be recorded on this GPU ({why}); "
                "use trainer.compile=false, in a new process"
            ) from error
        return _Recording(graph, own, found)
