"""A machine that has no more of something: the disk, open files or memory end while a run trains.

The run says one line and ends with an exit code that is not 0, or, where what is missing was not
needed, goes on; the checkpoint before is whole, and once there is room the run ends as one that was
let alone.
"""

import errno
import os
import random
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import psutil

from rlmem.callbacks.checkpoint_files import no_checkpoint
from tests.runs.helpers import assert_same_run
from tests.torture.runner import forked, limit
from tests.torture.runs import BASE, command, pick, start


class _Full:
    """A file of a disk that has room for so many bytes, of all files together."""

    left = 0

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        _Full.left -= len(data)
        if _Full.left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._file.name)
        return self._file.write(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _full_disk(rng: random.Random) -> str:
    _Full.left, plain = int(2 ** rng.uniform(6, 20)), os.fdopen

    def opened(descriptor: int, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        file = plain(descriptor, mode, *arguments, **options)
        return file if mode in ("r", "rb") else _Full(file)

    os.fdopen = opened  # pyright: ignore[reportAttributeAccessIssue]
    return f"room for {_Full.left} bytes"


def _no_more(rng: random.Random) -> str:
    """From some call on, one of those that take room on a disk fails."""
    name, left = rng.choice(["fsync", "mkdir", "link", "replace", "ftruncate"]), rng.randrange(150)
    plain: Callable = getattr(os, name)
    calls = 0

    def full(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return plain(*arguments, **options)

    setattr(os, name, full)
    return f"os.{name} after {left} calls"


def _file_size(rng: random.Random) -> str:
    size = int(2 ** rng.uniform(10, 18))
    limit(resource.RLIMIT_FSIZE, size)
    return f"files of {size} bytes"


def _descriptors(rng: random.Random) -> str:
    more = rng.randint(0, 24)
    limit(resource.RLIMIT_NOFILE, psutil.Process().num_fds() + more)
    return f"{more} more descriptors"


def _memory(rng: random.Random) -> str:
    more = int(2 ** rng.uniform(20, 28))
    limit(resource.RLIMIT_AS, psutil.Process().memory_info().vms + more)
    return f"{more >> 10} KiB more memory"


HOW = {
    "full disk": _full_disk,
    "full disk, a call": _no_more,
    "file size": _file_size,
    "descriptors": _descriptors,
    "memory": _memory,
}


def trial(rng: random.Random, folder: Path) -> str:
    """One kind of run with one kind of shortage."""
    name, overrides = pick(rng)
    while "a3c" in name:  # of several processes: no two runs are the same
        name, overrides = pick(rng)
    whole, cut, how = folder / "whole", folder / "cut", rng.choice(sorted(HOW))
    code = forked(lambda: start(whole, overrides), 120, folder / "whole.txt")
    assert code == 0, (name, code, (folder / "whole.txt").read_text()[-800:])
    what, seed = f"{name}: {how}", rng.random()

    def short() -> int:
        print(HOW[how](random.Random(seed)), flush=True)
        code, said = command([*BASE, *overrides, f"hydra.run.dir={cut}"])
        print(said)
        return code

    code = forked(short, 120, folder / "short.txt")
    said = (folder / "short.txt").read_text()
    assert "Traceback" not in said, f"{what}: {said[-900:]}"
    assert code in (0, 2), f"{what}: code {code}: {said[-500:]}"
    told = [line for line in said.splitlines() if line.startswith("rlmem: ")]
    assert len(told) == (code == 2), f"{what}: {said[-500:]}"
    assert no_checkpoint(cut) is None, f"{what}: half a checkpoint is left"
    code = forked(lambda: start(cut, overrides), 120, folder / "cut.txt")
    assert code == 0, f"{what}: then {(folder / 'cut.txt').read_text()[-800:]}"
    assert_same_run(whole, cut)
    return f"{what}, {said.splitlines()[0]}: {told[0] if told else 'it was enough'}"
