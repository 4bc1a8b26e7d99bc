"""States on disk: one `.npy` a large array, one JSON for the rest, with checksums; nothing is
pickled."""

import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

State = Mapping[str, Any]  # name -> array, function that makes one, or JSON value
_FILES = "files"  # key of state.json that holds each array file's size and checksum
_BLOCK = 2**22  # bytes read or written at once


def save_state(
    folder: Path, state: State, previous: Path | None = None, reuse: Iterable[str] = ()
) -> None:
    """Write a flat state into a folder.

    Arrays are written as they lie in memory, without a second copy; a function's array is let go
    of before the next is made. `state.json` is written last.

    Args:
        previous, reuse: folder of an earlier state, and its arrays that belong to this state too:
            they are not written again, but linked (copied where the file system has no links).
    """
    folder.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = {}
    files: dict[str, Any] = {}
    if previous is not None:
        known = load_state(previous).files
        for name in reuse:
            link(previous / f"{name}.npy", folder / f"{name}.npy")
            files[name] = known[name]
    for name, value in state.items():
        made = value() if callable(value) else value
        if isinstance(made, np.ndarray):
            files[name] = _write_array(folder / f"{name}.npy", made)
        else:
            values[name] = made
    values[_FILES] = files
    with (folder / "state.json").open("w") as file:
        json.dump(values, file)
        _to_disk(file)
    for path in folder.glob("*.npy"):
        if path.stem not in files:  # of a state that was here before
            path.unlink()


class SavedState(Mapping[str, Any]):
    """A saved state, read as it is asked for: arrays are memory-mapped, never all at once.

    An array's checksum is verified when it is first asked for.

    Raises:
        ValueError: on access to an array, if its file is damaged.
    """

    def __init__(self, folder: Path, values: dict[str, Any]) -> None:
        self.folder = folder
        self.files: dict[str, dict[str, int]] = values.pop(_FILES)
        self.values_: dict[str, Any] = values
        self._verified: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        if name not in self.files:
            return self.values_[name]
        path = self.folder / f"{name}.npy"
        if name not in self._verified:
            _verify(path, self.files[name])
            self._verified.add(name)
        return np.load(path, mmap_mode="r", allow_pickle=False)

    def intact(self, names: Iterable[str]) -> bool:
        """Whether the files of arrays are there in full size."""
        paths = {self.folder / f"{name}.npy": self.files[name]["bytes"] for name in names}
        return all(p.is_file() and p.stat().st_size == size for p, size in paths.items())

    def __iter__(self) -> Iterator[str]:
        return iter([*self.values_, *self.files])

    def __len__(self) -> int:
        return len(self.values_) + len(self.files)


def load_state(folder: Path) -> SavedState:
    """Open what `save_state` wrote.

    Raises:
        FileNotFoundError: the folder or its `state.json` is missing.
        ValueError: `state.json` is damaged.
    """
    path = folder / "state.json"
    try:
        return SavedState(folder, json.loads(path.read_text()))
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is damaged ({error})") from None


def link(source: Path, target: Path) -> None:
    """Let two names stand for one file, in place of what the second was; a copy where the file
    system has no links. Whoever changes such a file must write it anew."""
    if target.exists() and source.samefile(target):
        return
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _write_array(path: Path, array: np.ndarray) -> dict[str, int]:
    path.unlink(missing_ok=True)  # another folder may hold a link to what is there
    with path.open("wb") as file:
        checked = _Checksum(file.write)
        np.lib.format.write_array(checked, np.ascontiguousarray(array), allow_pickle=False)
        _to_disk(file)
    return {"bytes": checked.size, "crc32": checked.crc}


class _Checksum:
    """A file to write to, which sums up what passes."""

    def __init__(self, write: Callable[[Any], Any]) -> None:
        self._write, self.size, self.crc = write, 0, 0

    def write(self, data: Any) -> None:
        """Pass on and sum up."""
        view = memoryview(data).cast("B")
        self.size += len(view)
        self.crc = zlib.crc32(view, self.crc)
        self._write(view)


def _verify(path: Path, expected: dict[str, int]) -> None:
    crc, size = 0, 0
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                size += len(block)
                crc = zlib.crc32(block, crc)
    except FileNotFoundError:
        raise ValueError(f"{path} is missing") from None
    if size != expected["bytes"]:
        raise ValueError(f"{path} is damaged: {size} bytes in place of {expected['bytes']}")
    if crc != expected["crc32"]:
        raise ValueError(f"{path} is damaged: its checksum is wrong")


def _to_disk(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
