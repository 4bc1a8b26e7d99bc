"""What is read from a run directory and how, and how it is written: the one place that decides.

A stranger may have written any of it. So only regular files are read, none that a link leads to
outside the run, none larger than it may be, and what they hold is looked at before it is used.
Every function raises OSError or ValueError (`UNREADABLE` names them all), with a reason in a few
words; who calls says of which file, in one line.
"""

import json
import os
import re
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO

import yaml

UNREADABLE = (OSError, ValueError, RecursionError, yaml.YAMLError)
RUN_FILE = "run.json"  # of a run, written first: its id, and its environment's name
MOST_TEXT = 2**20  # bytes of a small file
MOST_TABLE = 2**30  # of a CSV file
MOST_DEPTH = 32  # mappings and lists in each other
MOST_LINKS = 100_000  # entries of a run directory that are looked at
FOREIGN = frozenset({"wandb"})  # folders of a run in which a library keeps links of its own

_FAST_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast
LONGEST_COLUMN = 200  # characters of a name


# Reading.


def open_regular(path: Path, root: Path | None = None) -> BinaryIO:
    """Open a file to read.

    Args:
        root: folder that a link must not lead out of; None: the file's own.

    Raises:
        OSError: it is not there, no regular file (a FIFO would be waited for, a device never
            ends), or a link that leads outside.
    """
    if path.is_symlink() or root is not None:
        _check_inside(path, root or path.parent)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("not a regular file")
    return os.fdopen(descriptor, "rb")


def _check_inside(path: Path, root: Path) -> None:
    if not path.resolve().is_relative_to(root.resolve()):
        raise OSError("a link out of the run directory, not a regular file of it")


def read_bytes(path: Path, most_bytes: int = MOST_TEXT, root: Path | None = None) -> bytes:
    """The content of a file.

    Raises:
        OSError: see `open_regular`.
        ValueError: it is larger than `most_bytes`.
    """
    with open_regular(path, root) as file:
        # As much as is there: reading sets so much memory aside.
        content = file.read(min(os.fstat(file.fileno()).st_size, most_bytes) + 1)
    if len(content) > most_bytes:
        raise ValueError(f"larger than {most_bytes:,} bytes")
    return content


def read_small(path: Path, most_bytes: int = MOST_TEXT) -> str:
    """The text of a small file; it must be UTF-8."""
    return read_bytes(path, most_bytes).decode()


def parse_json(text: str | bytes) -> Any:
    """JSON in UTF-8 of bounded depth."""
    text = text if isinstance(text, str) else text.decode()
    # Bounded before it is parsed: the parser goes down by the stack, and at the stack's end
    # whatever else Python does just then fails as well.
    if _brackets(text) > 8 * MOST_DEPTH:
        raise ValueError("nested too deep")
    content = json.loads(text)
    _check_depth(content)
    return content


def parse_yaml(text: str) -> Any:
    """YAML of bounded depth, without aliases: a few of them in each other stand for more nodes
    than memory holds."""
    # Nesting costs the parser's own stack, so it is bounded before it is parsed.
    if (
        max(map(_indent, text.splitlines()), default=0) > 40 * MOST_DEPTH
        or _brackets(text) > 8 * MOST_DEPTH
    ):
        raise ValueError("nested too deep")
    content = yaml.load(text, _NoAliases if "*" in text else _FAST_YAML)
    _check_depth(content)
    return content


class _NoAliases(yaml.SafeLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it holds an alias")
        return super().compose_node(parent, index)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" -?"))


def _brackets(text: str) -> int:
    """How deep brackets can stand in each other at most."""
    depth = deepest = 0
    for mark in re.findall(r"[\[\]{}]", text):
        depth = max(0, depth + (1 if mark in "[{" else -1))
        deepest = max(deepest, depth)
    return deepest


def _check_depth(content: Any, left: int = MOST_DEPTH) -> None:
    if isinstance(content, str):
        content.encode()  # half of a character, as JSON can name it, is written nowhere
    if isinstance(content, dict | list):
        if left == 0:
            raise ValueError(f"nested deeper than {MOST_DEPTH}")
        for part in [*content, *content.values()] if isinstance(content, dict) else content:
            _check_depth(part, left - 1)


def read_json(path: Path, most_bytes: int = MOST_TEXT) -> dict[str, Any] | None:
    """The mapping in a file, None where there is none or a damaged one."""
    try:
        content = parse_json(read_small(path, most_bytes))
    except UNREADABLE:
        return None
    return content if isinstance(content, dict) else None


def table_text(path: Path) -> str:
    """The text of a CSV file, which a kill may have cut off anywhere."""
    return read_bytes(path, MOST_TABLE).decode(errors="replace").replace("\0", "")


def whole_lines(text: str) -> str:
    """A table without a last line that was cut off: half a number is a number too."""
    return text[: text.rfind("\n") + 1]


def is_column(name: str) -> bool:
    """Whether this can be a column's name: printable, of at most LONGEST_COLUMN characters, with no
    space around it; and a spreadsheet computes what begins with = + - or @."""
    fits = 0 < len(name) <= LONGEST_COLUMN and name.isprintable() and name == name.strip()
    return fits and name[0] not in "=+-@"


def is_number(cell: str) -> bool:
    """Whether a cell of a run's table holds a number, nan and inf among them, or nothing."""
    try:
        float(cell or 0)
    except ValueError:
        return False
    return True


def check_links(run_dir: Path) -> None:
    """Refuse a run directory with a link that leads out of it: a run writes where it lies.

    Below the folders of FOREIGN libraries such a link may be to a file, as W&B's own to its log.

    Raises:
        OSError: it has one, or more entries than any run.
    """
    root, seen = run_dir.resolve(), 0
    for folder, folders, files in os.walk(run_dir):
        for name in (*folders, *files):
            path = Path(folder, name)
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                if _is_of_a_library(path.relative_to(run_dir)) and not path.is_dir():
                    continue
                raise OSError(f"{path} is a link that leads out of the run directory; remove it")
        seen += len(folders) + len(files)
        if seen > MOST_LINKS:
            raise OSError(f"{run_dir} has more than {MOST_LINKS:,} files, as no run has")


def _is_of_a_library(path: Path) -> bool:
    """Whether a path in a run directory is in a folder within a library's own: new files come
    beside that one only."""
    return path.parts[0] in FOREIGN and len(path.parts) > 2


class Kind:
    """What a value of a run's JSON must be.

    Args:
        types: of it; a truth value is no number.
        low, high: of a number, or of each of a list or mapping.
        none: whether it may be null.
    """

    def __init__(self, *types: type, low: float, high: float = 2**62, none: bool = False) -> None:
        self.types, self.low, self.high, self.none = types, low, high, none

    def __contains__(self, value: Any) -> bool:
        if value is None:
            return self.none
        if isinstance(value, bool) and bool not in self.types:
            return False
        return isinstance(value, self.types) and (
            not isinstance(value, int | float) or self.low <= value <= self.high
        )


def check_kinds(content: Mapping[str, Any], kinds: Mapping[str, Kind]) -> None:
    """Refuse a mapping whose values are missing or something else.

    Raises:
        ValueError: names the key and its value.
    """
    for name, kind in kinds.items():
        if name not in content:
            raise ValueError(f"it lacks {name}")
        if content[name] not in kind:
            raise ValueError(f"its {name} is {content[name]!r:.80}")


# Writing.


def new_file(path: Path) -> int:
    """A descriptor of an empty file in place of what was there, which is not written through: it
    may be a link, or have another name elsewhere."""
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o666)


def lock_file(path: Path) -> IO[str]:
    """Open a file to lock, made if it is not there; it is no link and nothing in it is changed."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o666), "r+")


def append_text(path: Path, newline: str | None = None) -> IO[str]:
    """Open a file to append text to; no link is followed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o666), "a", newline=newline, encoding="utf-8")


def plain_cells(rows: Any) -> Any:
    """A table (pandas) to write as CSV: texts that a spreadsheet would compute stand behind a '."""
    cells = [[plain_cell(cell) for cell in row] for row in rows.itertuples(index=False, name=None)]
    heads = [plain_cell(head) for head in rows.columns]
    # As objects: a whole number beside a fraction stays one.
    return type(rows)(cells, index=rows.index, columns=heads, dtype=object)


def plain_cell(value: Any) -> Any:
    """A cell of a CSV file; see `plain_cells`."""
    risky = isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r")
    return f"'{value}" if risky and not is_number(value) else value


def new_text(path: Path, newline: str | None = None) -> IO[str]:
    """Open a new file for text in place of what was there."""
    return os.fdopen(new_file(path), "w", newline=newline, encoding="utf-8")


def write_small(path: Path, text: str) -> None:
    """Write a file in one step, so that nobody reads half of it, not after a loss of power
    either."""
    fresh = path.with_suffix(".new")
    with new_text(fresh) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)


def remove(path: Path) -> None:
    """Remove what is left of a save, a link to it without what it leads to."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Bring a folder's own entries to the disk: a rename counts only then."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def why_not(error: OSError) -> str:
    """What is wrong with a file, behind its name."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return "is missing"
    return f"cannot be read: {error.strerror or error}"
