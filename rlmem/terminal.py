"""Standard output that outlives its reader: a run is not lost with its terminal."""

import contextlib
import errno
import os
import sys
from typing import Any

GONE = frozenset({errno.EPIPE, errno.EIO})  # the pipe's reader has ended, the terminal hung up


class Lasting:
    """A text stream whose reader may go away: from then on nothing is written, and nothing fails.

    Args:
        stream: a file of the process; what else it can do is asked of it.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, if somebody reads it."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._part(error)
            return len(text)

    def flush(self) -> None:
        """Hand on what was written, if somebody reads it."""
        try:
            self._stream.flush()
        except OSError as error:
            self._part(error)

    def _part(self, error: OSError) -> None:
        if error.errno not in GONE:
            raise error
        # The stream keeps what it could not write and tries again, at the process's end as well.
        with contextlib.suppress(OSError, ValueError):
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self._stream.fileno())
            os.close(nothing)


def outlive_the_reader() -> None:
    """Let the output of this process be such streams."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, Lasting):
            setattr(sys, name, Lasting(stream))
