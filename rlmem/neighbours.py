"""What the processes of one machine tell each other: numbers through sockets, gradients through
memory that they share.

gloo goes through the network on one machine too: over it two processes with a core each were slower
than one (docs/scaling.md). A process that ends, however it ends, closes its sockets: whoever waits
for it is told at once. The memory has no name, so nothing is left behind.
"""

import mmap
import os
import socket
import struct
from collections.abc import Sequence
from itertools import combinations

import torch

AVAILABLE = hasattr(os, "memfd_create")  # Linux


class Neighbours:
    """The other processes of a run on this machine, for the one with the number `rank`.

    Args:
        rank: of this process, from 0.
        sockets: to each other process, by its number.
    """

    def __init__(self, rank: int, sockets: dict[int, socket.socket]) -> None:
        self.rank, self.size = rank, len(sockets) + 1
        self.sockets = sockets
        self._map: mmap.mmap | None = None  # what all write their tensors into, each its own row
        self._second = False  # which half of it the next ones go into

    @classmethod
    def meet(cls, size: int) -> "list[Neighbours]":
        """One for each of `size` processes, to be given to them when they start."""
        sockets: list[dict[int, socket.socket]] = [{} for _ in range(size)]
        for one, other in combinations(range(size), 2):
            sockets[one][other], sockets[other][one] = socket.socketpair()
        return [cls(rank, row) for rank, row in enumerate(sockets)]

    def close(self) -> None:
        """Nothing more is said or heard; the others are told."""
        for link in self.sockets.values():
            link.close()

    def largest(self, numbers: Sequence[int]) -> list[int]:
        """Of each of some whole numbers (64 bits) the largest that a process gives.

        Raises:
            RuntimeError: another process is gone.
        """
        told = struct.Struct(f"{len(numbers)}q")
        found = [tuple(numbers)]
        try:
            for link in self.sockets.values():
                link.sendall(told.pack(*numbers))
            for number, link in self.sockets.items():
                row = link.recv(told.size, socket.MSG_WAITALL)
                if len(row) < told.size:
                    raise RuntimeError(f"process {number} has closed its socket")
                found.append(told.unpack(row))
        except OSError as error:
            raise RuntimeError(str(error)) from error
        return [max(column) for column in zip(*found, strict=True)]

    @torch.no_grad()
    def average(self, tensors: list[torch.Tensor] | tuple[torch.Tensor, ...]) -> None:
        """Replace tensors on the CPU, of one type, by their means over the processes, in place.

        All add in the order of the processes, so all get the same bits.

        Raises:
            RuntimeError: another process is gone.
        """
        rows = self._rows(sum(t.numel() for t in tensors), tensors[0].dtype)
        torch.cat([t.reshape(-1) for t in tensors], out=rows[self.rank])
        self.largest([0])  # all have written
        if self.size == 2:  # a sum of two is the same in either order, and one's own are here
            rows = [rows[1 - self.rank]]
        else:
            torch._foreach_copy_(tensors, _like(tensors, rows.pop(0)))  # pyright: ignore[reportPrivateImportUsage]
        for row in rows:
            torch._foreach_add_(tensors, _like(tensors, row))  # pyright: ignore[reportPrivateImportUsage]
        torch._foreach_div_(tensors, self.size)  # pyright: ignore[reportPrivateImportUsage]

    def _rows(self, length: int, dtype: torch.dtype) -> list[torch.Tensor]:
        """Each process's row in the memory, [length] of a type.

        There are two halves, used in turn. Without them a process could write its next tensors into
        a row that another one still reads: it waits for the others before it reads, not after. Once
        all have written into one half, all have read the other.
        """
        room = -(-length * dtype.itemsize // 64) * 64  # bytes of a row
        if self._map is None or len(self._map) < 2 * self.size * room:
            self._map, self._second = self._share(2 * self.size * room), False
        begin = len(self._map) // 2 if self._second else 0
        self._second = not self._second
        return [
            torch.frombuffer(self._map, dtype=dtype, count=length, offset=begin + rank * room)
            for rank in range(self.size)
        ]

    def _share(self, length: int) -> mmap.mmap:
        """So many bytes that all processes see. All ask for them at the same time, as they average
        the same tensors: process 0 makes them and gives them to the others."""
        try:
            if self.rank:
                _, (handle,), *_ = socket.recv_fds(self.sockets[0], 1, 1)
            else:
                handle = os.memfd_create("rlmem")
                os.ftruncate(handle, length)
                for link in self.sockets.values():
                    socket.send_fds(link, [b"m"], [handle])
        except (OSError, ValueError) as error:  # ValueError: process 0 is gone and sent none
            raise RuntimeError(f"no memory from process 0 ({error})") from error
        try:
            return mmap.mmap(handle, length)
        finally:
            os.close(handle)


def _like(tensors: Sequence[torch.Tensor], row: torch.Tensor) -> list[torch.Tensor]:
    """Numbers in a row, cut into the shapes of tensors."""
    parts = row.split([t.numel() for t in tensors])
    return [part.view(t.shape) for part, t in zip(parts, tensors, strict=True)]
