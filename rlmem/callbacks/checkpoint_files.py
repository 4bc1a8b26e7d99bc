"""The files of a checkpoint: whose they are, whether they are whole, and how one replaces another.

checksums.json says of each file but arrays, of which the state.json beside them says it, what size
and checksum it has, and of which run it is. So a file that is damaged, or another run's, is named.
"""

import json
import math
import os
import uuid
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlmem.checksums import (
    CHECKSUM,
    checksum_of,
    checksum_of_bytes,
    read_verified,
    verify,
    write_summed,
)
from rlmem.errors import UserError, one_line
from rlmem.memories.base.serialize import STATE_FILE, SavedState, load_state
from rlmem.run_files import (
    RUN_FILE,
    UNREADABLE,
    Kind,
    check_kinds,
    parse_json,
    read_bytes,
    read_json,
    remove,
    sync_folder,
    why_not,
    write_small,
)

FORMAT = 3
WITHOUT_CHECKSUMS = 2  # the format before, which is read as well
MANIFEST, CHECKSUMS = "manifest.json", "checksums.json"
MODEL, OPTIMIZER, BEST = "model.safetensors", "optimizer.safetensors", "best.ckpt"
MOST_MANIFEST = 2**24  # bytes
NEEDED = (MODEL, OPTIMIZER, MANIFEST, f"stream/{STATE_FILE}")

_COUNT, _SECONDS = Kind(int, low=0), Kind(int, float, low=0, high=1e12)
_KINDS = {
    "env_steps": _COUNT,
    "grad_steps": _COUNT,
    "memory_saved": Kind(bool, low=0),
    "best_return": Kind(int, float, low=-math.inf, high=math.inf, none=True),
    "last_evaluation": Kind(dict, low=0, none=True),
    "seconds": _SECONDS,
    "memory_bytes_peak": _COUNT,
}
_LATER_KINDS = {  # that earlier versions do not have
    "processes": Kind(int, low=1, high=2**16),
    "threads": Kind(int, low=1, high=2**12),
    "cpu_seconds": _SECONDS,
    "peak_rss_bytes": _COUNT,
    "evaluated_at": _COUNT,
    "loss": Kind(int, float, low=-math.inf, high=math.inf, none=True),
    "rows": Kind(dict, low=0),
    "summary": Kind(dict, low=0, none=True),
}
_EPISODES = Kind(list, low=0)
_NUMBER = Kind(int, float, low=-1e300, high=1e300)
_LATER_SCORES = {"successes": Kind(list, low=0, none=True), "unended": _COUNT}


# Writing.


def start_run_id(run_dir: Path, **about: str | int) -> None:
    """Give a run that begins anew an id; `about` is what else is known of it then."""
    write_small(run_dir / RUN_FILE, json.dumps({"id": uuid.uuid4().hex, **about}) + "\n")


def note_other_length(run_dir: Path, env_steps: int) -> None:
    """Write down that a run goes on from here with another length: what follows the length, such as
    PER's beta, does not go as in a run that had it from the start."""
    about = read_json(run_dir / RUN_FILE) or {}
    steps = sorted({*other_lengths(run_dir), env_steps})
    write_small(run_dir / RUN_FILE, json.dumps({**about, "length_changed_at": steps}) + "\n")


def other_lengths(run_dir: Path) -> list[int]:
    """Env steps at which a run's length was changed, rising; of most runs none."""
    found = (read_json(run_dir / RUN_FILE) or {}).get("length_changed_at")
    return found if isinstance(found, list) and all(type(n) is int for n in found) else []


def remove_best(run_dir: Path) -> None:
    """Remove the best model of a run that began here before and came to no checkpoint."""
    (run_dir / "checkpoints" / BEST).unlink(missing_ok=True)


def run_id(run_dir: Path) -> str | None:
    """The id of a run; None of one that earlier versions made, or that lost it."""
    found = (read_json(run_dir / RUN_FILE) or {}).get("id")
    return found if isinstance(found, str) else None


def run_of(folder: Path) -> Path:
    """The directory of the run that a checkpoint is of."""
    return folder.parents[1] if folder.parent.name == "checkpoints" else folder.parent


def write_checksums(folder: Path, known: Mapping[str, Mapping[str, int]]) -> None:
    """Write checksums.json, the last of a checkpoint's files.

    Args:
        known: path in the folder -> checksum that was summed while it was written. Of the rest,
            which are small, they are made here.
    """
    run_dir = run_of(folder)
    if (own := run_id(run_dir)) is None:
        start_run_id(run_dir)
        own = run_id(run_dir)
    paths = (path for path in sorted(folder.rglob("*")) if path.suffix != ".npy" and path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in paths}
    files = {name: known.get(name) or checksum_of(path) for name, path in names.items()}
    text = json.dumps({"run": own, "files": files}, indent=1)
    content = {"checksum": zlib.crc32(text.encode()), "text": text}
    write_json(folder / CHECKSUMS, content)


def write_json(path: Path, content: Any) -> dict[str, int]:
    """Write JSON and bring it to the disk; its checksum."""
    text = json.dumps(content, indent=2).encode()
    return write_summed(path, lambda file: file.write(text))


def put_in_place(fresh: Path, folder: Path) -> None:
    """Let a complete checkpoint stand where the one before it stood; nobody meets half of one.

    A link that stands there is taken away and what it leads to is left alone.
    """
    old = folder.with_name(folder.name + ".old")
    for path in (*(p for p in fresh.rglob("*") if p.is_dir()), fresh):
        sync_folder(path)
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        remove(old)  # not before: where a kill has left nothing but it, it is the only one
        os.replace(folder, old)
    os.replace(fresh, folder)
    sync_folder(folder.parent)
    remove(old)


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed save left beside a complete checkpoint."""
    for suffix in (".new", ".old"):
        other = folder.with_name(f"last{suffix}")
        if other != folder:
            remove(other)


# Reading.


def find_checkpoint(run_dir: Path) -> Path | None:
    """The newest complete checkpoint of a run, or None."""
    # `.old` is all there is when a save was killed between its two renames.
    for name in ("last", "last.old"):
        folder = run_dir / "checkpoints" / name
        if os.path.lexists(folder / MANIFEST):
            return folder
    return None


def no_checkpoint(run_dir: Path) -> str | None:
    """What is wrong with a checkpoint that is there and is none; None where there is none.

    A save puts a whole one in its place, so no kill leaves a part of one there.
    """
    folder = run_dir / "checkpoints" / "last"
    if os.path.lexists(folder) and find_checkpoint(run_dir) is None:
        return f"{folder / MANIFEST} is missing: the checkpoint is damaged"
    return None


class CheckpointFiles:
    """The files of one checkpoint, each verified when it is asked for.

    Args:
        folder: of it.

    Attributes:
        of_run: the id of its run as start_run_id takes it; {} where none is told.

    Raises:
        UserError: its manifest or its checksums are damaged, of another version or another run's.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, run_of(folder)
        self._files: dict[str, dict[str, int]] | None = None
        self.of_run: dict[str, str] = {}
        try:
            if os.path.lexists(folder / CHECKSUMS):
                self._files = self._read_checksums()
            self.manifest = self._read_manifest()
        except ValueError as error:
            raise UserError(str(error)) from None

    def _read_checksums(self) -> dict[str, dict[str, int]]:
        path = self.folder / CHECKSUMS
        try:
            outer = parse_json(read_bytes(path, MOST_MANIFEST, self.root))
            if zlib.crc32(outer["text"].encode()) != outer["checksum"]:
                raise ValueError("its own checksum is wrong")
            content = parse_json(outer["text"])
            check_kinds(content, {"run": Kind(str, low=0), "files": Kind(dict, low=0)})
            for name, about in content["files"].items():
                check_kinds(about, CHECKSUM)
                if name.startswith("/") or ".." in name.split("/"):
                    raise ValueError(f"{one_line(name)} is no file of it")
            for name in NEEDED:
                if name not in content["files"]:
                    raise ValueError(f"it lacks {name}")
        except OSError as error:
            raise ValueError(f"{path} {why_not(error)}") from None
        except (*UNREADABLE, KeyError, AttributeError, TypeError) as error:
            raise ValueError(f"{path} is damaged ({one_line(error)})") from None
        own = run_id(self.root)
        if own is not None and content["run"] != own:
            raise ValueError(
                f"{self.folder} is of another run: {CHECKSUMS} names {one_line(content['run'])}, "
                f"{self.root / RUN_FILE} {own}"
            )
        self.of_run = {"id": content["run"]}
        return content["files"]

    def _read_manifest(self) -> dict[str, Any]:
        path = self.folder / MANIFEST
        try:
            content = read_bytes(path, MOST_MANIFEST, self.root)
            manifest: Any = None
            try:
                manifest = parse_json(content)
                self._check_format(manifest)
            finally:  # of a damaged file, that it is damaged is the reason
                if self._files is not None:
                    verify(path, checksum_of_bytes(content), self._files[MANIFEST])
            check_manifest(manifest)
        except UserError:
            raise
        except OSError as error:
            raise ValueError(f"{path} {why_not(error)}") from None
        except UNREADABLE as error:
            if str(error).startswith(str(path)):
                raise
            raise ValueError(f"{path} cannot be read ({one_line(error)})") from None
        return manifest

    def _check_format(self, manifest: Any) -> None:
        if not isinstance(manifest, dict):
            raise ValueError("it holds no mapping")
        known = (WITHOUT_CHECKSUMS, FORMAT)
        if (found := manifest.get("format")) not in known:
            self._files = None  # another version's may mean something else
            raise UserError(
                f"{self.folder}: checkpoint format {one_line(found)}, this version reads "
                f"{' and '.join(map(str, known))}"
            )
        if found == FORMAT and self._files is None:
            raise UserError(f"{self.folder / CHECKSUMS} is missing")

    def expected(self, name: str) -> dict[str, int] | None:
        """Size and checksum of a file; None in a checkpoint of an earlier version.

        Raises:
            ValueError: the checkpoint has no such file.
        """
        if self._files is None:
            return None
        if name not in self._files:
            raise ValueError(f"{self.folder / name} is no file of this checkpoint ({CHECKSUMS})")
        return self._files[name]

    def has(self, name: str) -> bool:
        """Whether the checkpoint was saved with a file."""
        if self._files is None:
            return os.path.lexists(self.folder / name)
        return name in self._files

    def state(self, name: str) -> SavedState:
        """A saved state in it.

        Raises:
            ValueError: it is damaged.
        """
        self.verify(f"{name}/{STATE_FILE}")
        return load_state(self.folder / name)

    def verify(self, name: str) -> None:
        """Compare a file's checksum.

        Raises:
            ValueError: it is missing, damaged, or another's.
        """
        if (expected := self.expected(name)) is not None:
            read_verified(self.folder / name, expected, self.root)

    def verify_states(self, below: str) -> None:
        """Compare the checksums of all states below a folder."""
        names = [name for name in self._files or () if name.startswith(f"{below}/")]
        for name in names:
            self.verify(name)


def check_manifest(manifest: Mapping[str, Any]) -> None:
    """Refuse a manifest whose values no run saves.

    Raises:
        ValueError: names the key.
    """
    later = {name: kind for name, kind in _LATER_KINDS.items() if name in manifest}
    check_kinds(manifest, {**_KINDS, **later})
    check_kinds(manifest.get("rows") or {}, dict.fromkeys(manifest.get("rows") or {}, _COUNT))
    if (scored := manifest["last_evaluation"]) is not None:
        check_kinds(scored, {"returns": _EPISODES, "lengths": _EPISODES})
        lists = [scored[name] for name in ("returns", "lengths")]
        if not all(value in _NUMBER for values in lists for value in values) or not lists[0]:
            raise ValueError("its last_evaluation holds no numbers")
        later = {name: kind for name, kind in _LATER_SCORES.items() if name in scored}
        check_kinds(scored, later)
        if unknown := scored.keys() - {"returns", "lengths", *_LATER_SCORES}:
            raise ValueError(f"its last_evaluation holds {min(unknown)!r:.80}")
