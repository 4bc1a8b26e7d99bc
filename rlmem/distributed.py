"""The processes that train one agent together, and what they tell each other.

Alone, which is the rule, everything here returns at once. Control goes over the CPU (gloo), as
small tensors and JSON; gradients go where they are made (gloo on CPUs, NCCL on GPUs). Between the
processes that a run makes on its own machine, numbers and gradients on the CPU take a shorter way
(`rlmem.neighbours`). All processes call the same functions in the same order: what decides the
order must be the same in all of them.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch

from rlmem.errors import UserError, one_line
from rlmem.neighbours import Neighbours

size = 1  # processes of the run
rank = 0  # number of this one
PATIENCE = timedelta(days=2)  # all wait for an evaluation; a process that dies is told at once
_flat: dict[tuple[torch.device, torch.dtype], torch.Tensor] = {}  # what is averaged, in one row
_neighbours: Neighbours | None = None  # if all processes are of this machine, and made here
_why: Callable[[], str | None] | None = None  # a process was lost; see `join`


class LostError(UserError):
    """Another process of the run is gone."""


def join(
    number: int,
    processes: int,
    store: Any = None,
    *,
    gpu: bool = False,
    neighbours: Neighbours | None = None,
    why: Callable[[], str | None] | None = None,
) -> None:
    """Meet the other processes; returns once all are there.

    Args:
        number: of this process, from 0.
        store: where they meet; None: where torchrun's or srun's environment variables say.
        gpu: whether gradients are made on GPUs.
        neighbours: the others, if all are of this machine.
        why: asked for the reason when another process is lost.
    """
    global size, rank, _why, _neighbours
    import torch.distributed as dist

    _why = why
    with _connected():
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if gpu else "gloo",
            rank=number,
            world_size=processes,
            store=store,
            timeout=PATIENCE,
        )
    size, rank, _neighbours = processes, number, neighbours


def leave() -> None:
    """This process goes on alone."""
    global size, rank, _neighbours
    size, rank = 1, 0
    _flat.clear()
    if _neighbours is not None:
        _neighbours.close()
        _neighbours = None
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@contextmanager
def _connected() -> Iterator[None]:
    """What torch raises when a process cannot be reached, as one line."""
    try:
        yield
    except RuntimeError as error:
        lost = f"process {rank} of {size} lost the others ({one_line(error)})"
        raise LostError((_why and _why()) or lost) from error


def gather(value: Any) -> list[Any]:
    """The values that all processes give, by their numbers; JSON values."""
    if size == 1:
        return [value]
    text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    (longest,) = largest([len(text)])
    row = torch.full((longest,), ord(" "), dtype=torch.uint8)
    row[: len(text)] = text
    rows = [torch.empty_like(row) for _ in range(size)]
    with _connected():
        torch.distributed.all_gather(rows, row)
    return [json.loads(bytes(row.numpy())) for row in rows]


def from_first(value: Any) -> Any:
    """What process 0 gives; of the others it does not count. A JSON value."""
    return gather(value if rank == 0 else None)[0]


def largest(numbers: Sequence[int]) -> list[int]:
    """Of each of some whole numbers the largest that a process gives."""
    if size == 1:
        return list(numbers)
    if _neighbours is not None:
        with _connected():
            return _neighbours.largest(numbers)
    found = torch.tensor(numbers, dtype=torch.int64)
    with _connected():
        torch.distributed.all_reduce(found, torch.distributed.ReduceOp.MAX)
    return found.tolist()


def wait() -> None:
    """Until all processes are here."""
    largest([0])


def share_first(tensors: Iterable[torch.Tensor]) -> None:
    """Give all processes the values of process 0, in place."""
    if size > 1:
        for tensor in tensors:
            with _connected():
                torch.distributed.broadcast(tensor, 0)


def average(tensors: list[torch.Tensor] | tuple[torch.Tensor, ...]) -> None:
    """Replace tensors by their means over the processes, in place; the same bits in all of them."""
    if size == 1:
        return
    if _neighbours is not None and tensors[0].device.type == "cpu":
        with _connected():
            _neighbours.average(tensors)
        return
    device, dtype, length = tensors[0].device, tensors[0].dtype, sum(t.numel() for t in tensors)
    flat = _flat.get((device, dtype))
    if flat is None or len(flat) < length:
        flat = _flat[device, dtype] = torch.empty(length, dtype=dtype, device=device)
    flat = flat[:length]
    with torch.no_grad(), _connected():
        torch.cat([t.reshape(-1) for t in tensors], out=flat)
        torch.distributed.all_reduce(flat)
        flat.div_(size)
        parts = flat.split([t.numel() for t in tensors])
        torch._foreach_copy_(  # pyright: ignore[reportPrivateImportUsage]
            tensors, [part.view(t.shape) for part, t in zip(parts, tensors, strict=True)]
        )


class _Mean(torch.autograd.Function):
    """The mean over the processes. What each process's loss says of it is averaged on the way back,
    so that with averaged gradients all learn from the mean of their losses."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        found = tensor.clone()
        average([found])
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        found = gradients[0].clone()
        average([found])
        return found


def mean(tensor: torch.Tensor) -> torch.Tensor:
    """The mean of a tensor over the processes, through which gradients go."""
    found = _Mean.apply(tensor)
    assert isinstance(found, torch.Tensor)
    return found
