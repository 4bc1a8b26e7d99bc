"""States on disk: one `.npy` a large array, one JSON for the rest, with checksums; nothing is
pickled."""

import contextlib
import json
import os
import re
import shutil
import tokenize
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlmem.checksums import CHECKSUM, Summed, verify, verify_file, write_summed
from rlmem.errors import UserError
from rlmem.run_files import (
    UNREADABLE,
    check_kinds,
    new_file,
    parse_json,
    read_bytes,
    remove,
    sync_folder,
    why_not,
    write_small,
)

State = Mapping[str, Any]  # name -> array, function that makes one, or JSON value
STATE_FILE = "state.json"
MOST_STATE = 2**28  # bytes of state.json
SPOT_CHECK = 2**24  # bytes of linked files that a save reads again, beside what it writes
_FILES = "files"  # key of state.json that holds each array file's size, checksum and time
_CHECKSUM = "crc32"  # key of state.json, the last: of the text before it
# What numpy raises of a file that is no array, also where Python cannot read its header.
_NO_ARRAY = (ValueError, SyntaxError, TypeError, OverflowError, EOFError, RecursionError)
_NO_ARRAY += (MemoryError, tokenize.TokenError)
_NAME = re.compile(r"[\w.-]{1,200}")  # of an array: no way out of its folder


def save_state(
    folder: Path, state: State, previous: Path | None = None, reuse: Iterable[str] = ()
) -> None:
    """Write a flat state into a folder.

    Arrays are written as they lie in memory, without a second copy; a function's array is let go
    of before the next is made. `state.json` is written last. Of what was in the folder, the
    earlier state's files are replaced or removed, and no others.

    Args:
        previous, reuse: folder of an earlier state, and its arrays that belong to this state too:
            they are not written again, but linked (copied where the file system has no links).

    Raises:
        UserError: another part's state is in the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    earlier = _arrays_before(folder, state)
    values: dict[str, Any] = {}
    files: dict[str, Any] = {}
    if previous is not None:
        known = load_state(previous).files
        for name in reuse:
            link(previous / f"{name}.npy", folder / f"{name}.npy")
            files[name] = known[name] | _time_of(folder / f"{name}.npy")
    for name, value in state.items():
        made = value() if callable(value) else value
        made = made.numpy(force=True) if isinstance(made, torch.Tensor) else made
        if isinstance(made, np.ndarray):
            files[name] = _write_array(folder / f"{name}.npy", made)
        else:
            values[name] = made.item() if isinstance(made, np.generic) else made
    _write_values(folder / STATE_FILE, values | {_FILES: files})
    for name in earlier - files.keys():
        (folder / f"{name}.npy").unlink(missing_ok=True)


def _arrays_before(folder: Path, state: State) -> set[str]:
    """Names of the arrays of an earlier state in a folder, whose place `state` takes."""
    try:
        earlier = load_state(folder)
    except (FileNotFoundError, ValueError):  # none, or a damaged one
        return set()
    if earlier and not earlier.keys() & state.keys():
        raise UserError(
            f"{folder} holds another part's state ({', '.join(sorted(earlier)[:3])}): save each "
            "part into a folder of its own"
        )
    return set(earlier.files)


def _write_values(path: Path, values: Mapping[str, Any]) -> None:
    try:
        text = json.dumps(values)[:-1].encode()
    except TypeError as error:
        kinds = {name: type(value).__name__ for name, value in values.items()}
        raise TypeError(
            f"{path.parent.name}: its state cannot be saved ({error}): {kinds}; a state holds "
            "arrays, numbers, texts, and lists and dicts of these"
        ) from None
    end = f', "{_CHECKSUM}": {zlib.crc32(text)}}}'.encode()
    write_summed(path, lambda file: file.write(text + end))


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
        for name, about in self.files.items():
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r:.80} is no name of an array")
            check_kinds(about, CHECKSUM)

    def __getitem__(self, name: str) -> Any:
        if name not in self.files:
            return self.values_[name]
        path = self.folder / f"{name}.npy"
        if name not in self._verified:
            verify_file(path, self.files[name])
            self._verified.add(name)
        try:
            return np.load(path, mmap_mode="r", allow_pickle=False)
        except _NO_ARRAY as error:
            raise ValueError(f"{path} is no array ({error})"[:300]) from None

    def intact(self, names: Iterable[str]) -> bool:
        """Whether the files of arrays are as they were written.

        Those that were changed since, by their time, are read again; of the others each save reads
        some, chosen at random, until they come to SPOT_CHECK bytes, as a disk can lose bytes
        without a word.
        """
        left, checked = SPOT_CHECK, sorted(names, key=lambda name: os.urandom(8))
        try:
            for name in checked:
                path, about = self.folder / f"{name}.npy", self.files[name]
                changed = _time_of(path)["mtime_ns"] != about.get("mtime_ns")
                if changed or left > 0:
                    verify_file(path, about)
                    left -= 0 if changed else about["bytes"]
        except (OSError, ValueError):
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter([*self.values_, *self.files])

    def __len__(self) -> int:
        return len(self.values_) + len(self.files)


# Several states that belong together, each in a folder of its own below one.
_FRESH, _WHOLE = ".new", "whole"


@contextlib.contextmanager
def saving_whole(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    """A folder to save states into that take the place of those below `folder` all together.

    They are put there one by one, once all are on the disk and a mark beside them says so. Until
    the last is in its place `where_saved` finds the others where they were written, and the next
    save puts them there first: what lies below `folder` without them is whole no more.

    Args:
        names: of the states.

    Raises:
        UserError: something else has one of these names below `folder`.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: a memory is saved into a folder")
    for name in names:
        _check_place(folder / name)
    fresh = folder / _FRESH
    if (fresh / _WHOLE).exists():
        _put_in_place(fresh, folder)
    remove(fresh)
    fresh.mkdir(parents=True)
    yield fresh
    for path in (*fresh.iterdir(), fresh):
        sync_folder(path)
    write_small(fresh / _WHOLE, "")
    sync_folder(fresh)
    _put_in_place(fresh, folder)


def _check_place(place: Path) -> None:
    """Refuse to put a state in the place of what is none."""
    if place.is_dir():
        held = {path.name for path in place.iterdir()}
        others = {name for name in held if not name.endswith(".npy")}
        free = others == {STATE_FILE} or not held
    else:
        free = not os.path.lexists(place)
    if not free:
        raise UserError(
            f"{place} is in the way and was not saved by a memory; save into a folder of its own"
        )


def _put_in_place(fresh: Path, folder: Path) -> None:
    for path in sorted(path for path in fresh.iterdir() if path.is_dir()):
        remove(folder / path.name)
        os.replace(path, folder / path.name)
    sync_folder(folder)
    remove(fresh / _WHOLE)
    remove(fresh)


def where_saved(folder: Path, name: str) -> Path:
    """Where the newest whole state of a name lies that `saving_whole` put below a folder."""
    fresh = folder / _FRESH
    moved = not (fresh / _WHOLE).exists() or not (fresh / name).exists()
    return (folder if moved else fresh) / name


def load_state(folder: Path) -> SavedState:
    """Open what `save_state` wrote.

    Raises:
        FileNotFoundError: the folder or its `state.json` is missing.
        ValueError: `state.json` is damaged.
    """
    path = folder / STATE_FILE
    try:
        content = read_bytes(path, MOST_STATE)
        values = parse_json(content)
        text, found, _ = content.rpartition(f', "{_CHECKSUM}": '.encode())
        crc = values.pop(_CHECKSUM, None)
        if found and crc is not None:  # earlier versions wrote none
            verify(path, {"bytes": 0, "crc32": zlib.crc32(text)}, {"bytes": 0, "crc32": crc})
        return SavedState(folder, values)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is missing") from None
    except OSError as error:
        raise ValueError(f"{path} {why_not(error)}") from None
    except (*UNREADABLE, KeyError, AttributeError, TypeError) as error:
        if str(error).startswith(str(path)):
            raise
        raise ValueError(f"{path} is damaged ({error})"[:300]) from None


def marks_of(folder: Path, names: Iterable[str]) -> dict[str, int]:
    """What tells saved states below a folder from any others: a `state.json` has the sizes,
    checksums and times of all its files."""
    files = {name: where_saved(folder, name) / STATE_FILE for name in names}
    return {name: zlib.crc32(read_bytes(file, MOST_STATE)) for name, file in files.items()}


def check_together(folder: Path, names: Iterable[str], marks: Any) -> None:
    """Refuse a state below a folder that was saved with others, or at another time.

    Args:
        marks: `marks_of` when they were saved; a name that is not among them is not looked at.

    Raises:
        ValueError: names it.
    """
    for name, mark in marks_of(folder, names).items():
        if not isinstance(marks, dict) or marks.get(name, mark) != mark:
            raise ValueError(f"{where_saved(folder, name)} was not saved together with the others")


def link(source: Path, target: Path) -> None:
    """Let two names stand for one file, in place of what the second was; a copy where the file
    system has no links. Whoever changes such a file must write it anew."""
    if target.exists() and source.samefile(target):
        return
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        with source.open("rb") as file, os.fdopen(new_file(target), "wb") as copy:
            shutil.copyfileobj(file, copy)
            copy.flush()
            os.fsync(copy.fileno())


def _write_array(path: Path, array: np.ndarray) -> dict[str, int]:
    made = np.ascontiguousarray(array)

    def write(file: Summed) -> None:
        np.lib.format.write_array(file, made, allow_pickle=False)  # pyright: ignore[reportArgumentType]

    return write_summed(path, write) | _time_of(path)


def _time_of(path: Path) -> dict[str, int]:
    """When a file was changed last: tells a later save whether it must be read again."""
    return {"mtime_ns": path.stat().st_mtime_ns}
