"""Each write of a process, counted: before one of them, something happens."""

import os
from collections.abc import Callable
from typing import Any, Self

CALLS = ("replace", "rename", "link", "mkdir", "unlink", "rmdir", "fsync", "ftruncate", "truncate")
TAKING_ROOM = ("link", "mkdir", "fsync", "ftruncate", "write")  # what a full disk refuses


class Writes:
    """Counts what this process writes, from `begin` on.

    Args:
        before: told the number of a write and what it is, such as `3, "fsync"`, just before it
            is done. Of a file's content, half is written by then.
    """

    def __init__(self, before: Callable[[int, str], None]) -> None:
        self.count, self._before = 0, before

    def begin(self) -> None:
        """Count from now on; a process does it once."""
        for name in CALLS:
            setattr(os, name, self._counted(name, getattr(os, name)))
        plain = os.fdopen

        def opened(descriptor: int, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            file = plain(descriptor, mode, *arguments, **options)
            return file if mode in ("r", "rb") else _File(file, self)

        os.fdopen = opened  # pyright: ignore[reportAttributeAccessIssue]

    def note(self, name: str) -> None:
        """A write is about to be done."""
        self.count += 1
        self._before(self.count, name)

    def _counted(self, name: str, call: Callable) -> Callable:
        def noted(*arguments: Any, **options: Any) -> Any:
            self.note(name)
            return call(*arguments, **options)

        return noted


class _File:
    """A file whose writes are counted."""

    def __init__(self, file: Any, writes: Writes) -> None:
        self._file, self._writes = file, writes

    def write(self, data: Any) -> int:
        half = len(data) // 2
        self._file.write(data[:half])
        self._file.flush()
        self._writes.note("write")
        return half + self._file.write(data[half:])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
