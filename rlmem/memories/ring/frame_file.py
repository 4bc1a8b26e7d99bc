"""An array in a file, its room on the disk taken before it is written to."""

import mmap
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import psutil

from rlmem.errors import UserError

LEAST_STEP, MOST_STEP = 2**20, 64 * 2**20  # bytes that are taken at once


class FrameFile:
    """A memory-mapped array [rows, size] in an unnamed file of a directory.

    Args:
        directory: made if it is not there.
        shape: rows, values a row.
        dtype: of a value.
        needed: bytes that will be written when full.
        key: of the configuration, what to lower if there is less room.

    Raises:
        UserError: the directory cannot be written to, or has less room than `needed`.
    """

    in_memory: bool  # as /dev/shm and often /tmp are: its files take memory

    def __init__(
        self, directory: Path, shape: tuple[int, int], dtype: np.dtype, needed: int, key: str
    ) -> None:
        self.directory = directory
        self._taken, self._owner = 0, os.getpid()
        try:
            directory.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(directory).free
            if free < needed:
                raise UserError(
                    f"memory.storage.directory={directory}: {free / 2**30:.1f} GiB are free, the "
                    f"frames need {needed / 2**30:.1f} GiB when full; use a smaller {key} or "
                    "another disk"
                )
            self.in_memory = _in_memory(directory)
            # In memory what is taken is held at once, so no more than is needed.
            step = min(MOST_STEP, max(LEAST_STEP, needed // 16))
            self._step = mmap.PAGESIZE if self.in_memory else step
            self._file = tempfile.TemporaryFile(prefix="rlmem-", dir=directory)  # noqa: SIM115
            self._row = shape[1] * dtype.itemsize
            self._size = shape[0] * self._row
            os.truncate(self._file.fileno(), self._size)  # address space only, no room yet
            self.array = np.memmap(self._file, dtype, "r+", shape=shape)
        except OSError as error:
            raise UserError(
                f"memory.storage.directory={directory}: cannot write there ({error.strerror})"
            ) from None

    def reserve(self, rows: int) -> None:
        """Take the room of the first `rows` rows; a write past it could kill the process.

        Raises:
            UserError: the disk is full, or the process is a fork of the one that made the file:
                they share it, and each would write over the other's frames.
        """
        if os.getpid() != self._owner:
            raise UserError(
                f"memory.storage.directory={self.directory}: a forked process shares the file of "
                "the frames with the one that made it; make a storage in each process that writes"
            )
        end = rows * self._row
        if end <= self._taken:
            return
        end = min(-(-end // self._step) * self._step, self._size)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file.fileno(), self._taken, end - self._taken)
        except OSError as error:
            raise UserError(
                f"memory.storage.directory={self.directory}: no room for more frames "
                f"({error.strerror}) at {self._taken / 2**30:.1f} GiB; make room there, or use "
                "another directory"
            ) from None
        self._taken = end

    def clear(self) -> None:
        """All rows are zeros. What was taken of memory goes back; room on a disk is kept."""
        if self.in_memory:
            os.truncate(self._file.fileno(), 0)
            os.truncate(self._file.fileno(), self._size)
            self._taken = 0


def _in_memory(directory: Path) -> bool:
    """Whether a directory's file system keeps its files in memory."""
    own = directory.resolve()
    mounted = {
        Path(each.mountpoint): each.fstype
        for each in psutil.disk_partitions(all=True)
        if own.is_relative_to(each.mountpoint)
    }
    nearest = max(mounted, key=lambda place: len(place.parts), default=None)
    return nearest is not None and mounted[nearest] in ("tmpfs", "ramfs")
