"""A machine that has no more of something: the disk, open files or memory end while a run trains.

The run says one line and ends with an exit code that is not 0, or, where what is missing was not
needed, goes on; the checkpoint before is whole, and once there is room the run ends as one that was
let alone.
"""

import errno
import os
import random
import resource
import signal
from pathlib import Path

import psutil

from rlmem.callbacks.checkpoint_files import no_checkpoint
from tests.runs.helpers import assert_same_run
from tests.torture.runner import Told, begun, forked, limit, waited
from tests.torture.runs import BASE, command, pick, start, whole
from tests.torture.writes import TAKING_ROOM, Writes

WRITES = 1100  # that one is picked from: about as many as a run has
CONTROL = Path("/sys/fs/cgroup")


def _full_disk(rng: random.Random) -> str:
    """From one write on, whatever takes room on a disk fails."""
    at = rng.randint(1, WRITES)

    def refuse(number: int, name: str) -> None:
        if number >= at and name in TAKING_ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    Writes(refuse).begin()
    return f"from write {at} on"


def _one_write(rng: random.Random) -> str:
    """A single write fails: whoever deletes something else makes room."""
    at = rng.randint(1, WRITES)

    def refuse(number: int, name: str) -> None:
        if number == at and name in TAKING_ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    Writes(refuse).begin()
    return f"write {at} alone"


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


def _cgroup(rng: random.Random) -> str:
    """The kernel ends a group of processes that takes more; where groups cannot be made, the
    address space is limited."""
    group = _group(os.getpid())
    more = int(2 ** rng.uniform(24, 28.5))
    try:
        group.mkdir()
        first = group.parent.name == "memory"
        (group / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(more))
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        return f"no control group; {_memory(rng)}"
    return f"control group, {more >> 10} KiB more memory"


def _group(pid: int) -> Path:
    first = CONTROL / "memory"  # of the first version
    return (first if first.is_dir() else CONTROL) / f"torture-{pid}"


HOW = {
    "full disk": _full_disk,
    "one write of a full disk": _one_write,
    "file size": _file_size,
    "descriptors": _descriptors,
    "address space": _memory,
    "control group": _cgroup,
}


def trial(rng: random.Random, folder: Path) -> Told:
    """One kind of run with one kind of shortage."""
    name, overrides = pick(rng)
    while "a3c" in name:  # of several processes: no two runs are the same
        name, overrides = pick(rng)
    alone, cut, how = whole(name, folder), folder / "cut", rng.choice(sorted(HOW))
    what, seed = f"{name}: {how}", rng.random()

    def short() -> int:
        print(HOW[how](random.Random(seed)), flush=True)
        code, said = command([*BASE, *overrides, f"hydra.run.dir={cut}"])
        print(said)
        return code

    child = begun(short, folder / "short.txt")
    code = waited(child, 120)
    if (group := _group(child)).is_dir():
        group.rmdir()
    said = (folder / "short.txt").read_text()
    what = f"{what}, {said.splitlines()[0]}"
    ended = how == "control group" and code == -signal.SIGKILL  # by the kernel, without a word
    assert "Traceback" not in said, f"{what}: {said[-900:]}"
    assert ended or code in (0, 2), f"{what}: code {code}: {said[-500:]}"
    told = [line for line in said.splitlines() if line.startswith("rlmem: ")]
    assert len(told) == (code == 2), f"{what}: {said[-500:]}"
    assert no_checkpoint(cut) is None, f"{what}: half a checkpoint is left"
    code = forked(lambda: start(cut, overrides), 120, folder / "cut.txt")
    assert code == 0, f"{what}: then {(folder / 'cut.txt').read_text()[-800:]}"
    assert_same_run(alone, cut)
    became = told[0] if told else "ended by the kernel" if ended else "it was enough"
    return Told(f"{what}: {became}", kinds=(how,))
