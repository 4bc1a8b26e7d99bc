"""Small files of text: read bounded, as a stranger may have written them; written whole or not."""

import json
import os
import stat
from pathlib import Path
from typing import Any


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


def read_json(path: Path, most_bytes: int = 2**20) -> dict[str, Any] | None:
    """The mapping in a file, None where there is none or a damaged one."""
    try:
        content = json.loads(read_small(path, most_bytes))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def write_small(path: Path, text: str) -> None:
    """Write a file in one step, so that nobody reads half of it."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    os.replace(fresh, path)
