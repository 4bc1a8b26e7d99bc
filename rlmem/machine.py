"""What this process may use of its machine, and what the machine may lack."""

import errno
import fcntl
import os
from typing import IO

_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


def usable_cores() -> int:
    """Cores that this process may run on: a scheduler or a container may leave it a part."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
