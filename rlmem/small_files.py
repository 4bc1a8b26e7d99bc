"""Reading small files that a stranger may have written: whole, bounded, and nothing but text."""

import stat
from pathlib import Path


def read_small(path: Path, most_bytes: int = 2**20) -> str:
    """The text of a small file.

    Raises:
        OSError: it is not there, or no regular file: a FIFO would be waited for, a device never
            ends.
        ValueError: it is larger than `most_bytes`, or not UTF-8.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError("not a regular file")
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"larger than {most_bytes:,} bytes")
    return content.decode()
