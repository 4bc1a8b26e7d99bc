"""A process that runs jobs for another one ends when that one is gone, however it went.

A pool's worker cannot see it: it waits for its next job at a pipe whose both ends it holds, so it
would wait for ever, with all that it has imported (some 600 MB). Or it would find jobs there that
nobody waits for any more.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator

_INTERVAL = 1.0  # seconds between two looks
_busy = threading.Lock()  # held while a job runs
_watching: tuple[int, int] | None = None  # this process (a fork of it is another) and its parent


def parent_is_gone() -> bool:
    """Whether this process ran jobs for one that has ended."""
    return _watching is not None and (_watching[0] == os.getpid() and _watching[1] != os.getppid())


@contextlib.contextmanager
def job_for(parent: int | None) -> Iterator[None]:
    """A job runs. From the first one on this process ends with its parent: at once between two
    jobs; else it is told by SIGTERM, as a run saves itself then, and ends behind the job.

    Args:
        parent: the process that waits for the job. Nothing is done where it did not make this one:
            it runs its jobs itself, or on another machine.
    """
    global _watching
    if _watching is None:
        if parent is None or os.getppid() != parent:
            yield
            return
        _watching = os.getpid(), parent
        threading.Thread(target=_end_with_parent, daemon=True).start()
    with _busy:  # which no job that would begin after the parent's end gets any more
        if parent_is_gone():
            os._exit(1)
        yield


def _end_with_parent() -> None:
    while not parent_is_gone():
        time.sleep(_INTERVAL)
    if _busy.locked():
        os.kill(os.getpid(), signal.SIGTERM)
    _busy.acquire()
    os._exit(1)
