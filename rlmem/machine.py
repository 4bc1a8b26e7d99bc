"""What this process may use of its machine, and what the machine may lack."""

import contextlib
import errno
import fcntl
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import IO

_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


def usable_cores() -> int:
    """Cores that this process may run on: a scheduler or a container may leave it a part."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def peak_rss_bytes() -> int:
    """Largest resident set of this process, since it began or since `reset_peak_rss`."""
    with contextlib.suppress(OSError):  # Linux, whose `ru_maxrss` begins at its parent's peak
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def reset_peak_rss() -> None:
    """Let `peak_rss_bytes` begin anew, where the system can (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def lock(file: IO, how: int) -> None:
    """`fcntl.flock`; nothing where the file system has no locks, as some network disks have none.

    Raises:
        BlockingIOError: another process holds it, and one is not to wait.
    """
    try:
        fcntl.flock(file, how)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def place_for_compiled_loops() -> None:
    """Let numba keep what it compiles among temporary files where it can write neither beside rlmem
    nor in the user's cache, as in a container or with a home that is read-only: it would end in an
    error there. What it keeps is code, so the folder is the user's alone."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    if "NUMBA_CACHE_DIR" in os.environ or any(map(_writable, (Path(__file__).parent, cache))):
        return
    with contextlib.suppress(OSError):  # no room there either: numba says so
        own = Path(tempfile.gettempdir(), f"rlmem-numba-{os.getuid()}")
        with contextlib.suppress(FileExistsError):
            own.mkdir(mode=0o700)
        found = own.lstat()
        if found.st_uid != os.getuid() or found.st_mode != stat.S_IFDIR | 0o700:
            own = Path(tempfile.mkdtemp(prefix="rlmem-numba-"))
        os.environ["NUMBA_CACHE_DIR"] = str(own)
        if "numba" in sys.modules:  # it has read its settings already
            sys.modules["numba"].config.CACHE_DIR = str(own)


def _writable(folder: Path) -> bool:
    """Whether a folder can be written to, or made where it is not there yet."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    return os.access(there, os.W_OK | os.X_OK)
