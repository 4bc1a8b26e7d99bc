"""Files with a checksum: summed up as they are written, compared when they are read."""

import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlmem.run_files import Kind, new_file, open_regular, read_bytes, why_not

BLOCK = 2**22  # bytes read at once
CHECKSUM = {"bytes": Kind(int, low=0), "crc32": Kind(int, low=0, high=2**32 - 1)}


class Summed:
    """A file to write to, which sums up what passes: nothing is read again for a checksum.

    Attributes:
        size, crc: bytes so far, and their CRC-32.
    """

    def __init__(self, write: Callable[[Any], Any]) -> None:
        self._write, self.size, self.crc = write, 0, 0

    def write(self, data: Any) -> None:
        """Pass on and sum up."""
        view = memoryview(data).cast("B")
        self.size += len(view)
        self.crc = zlib.crc32(view, self.crc)
        self._write(view)

    @property
    def checksum(self) -> dict[str, int]:
        return {"bytes": self.size, "crc32": self.crc}


def write_summed(path: Path, write: Callable[[Summed], Any]) -> dict[str, int]:
    """Write a new file and bring it to the disk; its size and checksum.

    Args:
        write: is given what to write to.
    """
    with os.fdopen(new_file(path), "wb") as file:
        summed = Summed(file.write)
        write(summed)
        file.flush()
        os.fsync(file.fileno())
    return summed.checksum


def checksum_of(path: Path, root: Path | None = None) -> dict[str, int]:
    """Size and checksum of a file, which is read for it."""
    size = crc = 0
    with open_regular(path, root) as file:
        while block := file.read(BLOCK):
            size += len(block)
            crc = zlib.crc32(block, crc)
    return {"bytes": size, "crc32": crc}


def checksum_of_bytes(content: bytes) -> dict[str, int]:
    """Size and checksum of what was read."""
    return {"bytes": len(content), "crc32": zlib.crc32(content)}


def verify(path: Path, found: Mapping[str, int], expected: Mapping[str, int]) -> None:
    """Compare a checksum.

    Raises:
        ValueError: it is another; names the file.
    """
    if found["bytes"] != expected["bytes"]:
        raise ValueError(
            f"{path} is damaged: {found['bytes']} bytes in place of {expected['bytes']}"
        )
    if found["crc32"] != expected["crc32"]:
        raise ValueError(f"{path} is damaged: its checksum is wrong")


def verify_file(path: Path, expected: Mapping[str, int], root: Path | None = None) -> None:
    """Read a file and compare its checksum.

    Raises:
        ValueError: it is missing, no file of its own, or damaged; names it and says why.
    """
    try:
        if (size := path.stat().st_size) != expected["bytes"] and path.is_file():
            raise ValueError(f"{path} is damaged: {size} bytes in place of {expected['bytes']}")
        found = checksum_of(path, root)
    except OSError as error:
        raise ValueError(f"{path} {why_not(error)}") from None
    verify(path, found, expected)


def read_verified(path: Path, expected: Mapping[str, int], root: Path | None = None) -> bytes:
    """The content of a file, read once and compared with its checksum.

    Raises:
        ValueError: see `verify_file`.
    """
    try:
        content = read_bytes(path, expected["bytes"], root)
    except OSError as error:
        raise ValueError(f"{path} {why_not(error)}") from None
    except ValueError:  # it is larger
        raise ValueError(f"{path} is damaged: more than {expected['bytes']} bytes") from None
    verify(path, checksum_of_bytes(content), expected)
    return content
