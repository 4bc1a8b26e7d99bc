"""A CSV file that a run appends rows to, and goes on with when it is resumed."""

import contextlib
import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from rlmem import distributed
from rlmem.errors import UserError, one_line
from rlmem.run_files import (
    LONGEST_COLUMN,
    append_text,
    is_column,
    is_number,
    new_text,
    table_text,
    whole_lines,
)


class CsvFile:
    """A CSV file that rows are appended to, flushed at each write.

    Of several processes the first writes it; in the others it stays as it is.

    Args:
        path: of the file.
        until: rows with more env_steps are dropped (they came after the checkpoint that a resumed
            run starts from).
        keep: rows that stay at most, as some at the very step of the checkpoint may have come
            after it; None where it does not say how many it knows.

    Attributes:
        rows: how many it holds.
    """

    def __init__(
        self, path: Path, columns: Sequence[str] | None, until: int, keep: int | None = None
    ) -> None:
        self.path, self.fixed = path, columns is not None
        self.columns = list(columns) if columns else None
        self.rows = 0
        self._file: IO[str] | None = None
        if distributed.rank == 0:
            self._make_anew(until, keep)

    def _make_anew(
        self, until: int = 2**63, keep: int | None = None, more: Sequence[str] = ()
    ) -> None:
        """Write the file again, with further columns that its rows have no values of."""
        kept: list[dict[str, str]] = []
        there: Sequence[str] = ()
        if was_there := os.path.lexists(self.path):
            there, rows = self._read()
            kept = [row for row in rows if _whole(row) and _steps(row) <= until][:keep]
            self._check(there, kept)
            if was_there and keep is not None and (lost := keep - len(kept)) > 0:
                raise UserError(
                    f"{self.path}: {lost} of the {keep} rows that the checkpoint knows are missing "
                    "or damaged; put the file back, or remove it to go on without them"
                )
        if kept:  # without a row, the header there may be half a line
            self.columns = list(there)
        if self.columns:
            self.columns += more
        self.rows = len(kept)
        # Written beside the old file and put in its place, so that no kill loses what was there.
        fresh = self.path.with_suffix(".new")
        with new_text(fresh, newline="") as file:
            if self.columns:
                writer = csv.DictWriter(file, self.columns, extrasaction="ignore")
                writer.writeheader()
                writer.writerows(kept)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self.path)
        self._file = append_text(self.path, newline="")

    def _read(self) -> tuple[Sequence[str], list[dict[str, str]]]:
        """The columns and rows of the file as it is.

        Raises:
            UserError: it cannot be read.
        """
        try:
            reader = csv.DictReader(io.StringIO(whole_lines(table_text(self.path))))
            there = reader.fieldnames or ()
            rows = list(reader)
        except (OSError, ValueError, csv.Error) as error:
            raise UserError(f"{self.path} cannot be read ({one_line(error)})") from None
        return there, rows

    def _check(self, columns: Sequence[str], rows: list[dict[str, str]]) -> None:
        """Refuse what no run writes, such as a cell that a spreadsheet computes.

        Raises:
            UserError: names it.
        """
        if odd := [name for name in columns if not is_column(name)] if rows else []:
            raise UserError(f"{self.path}: {one_line(odd[0])!r} is no column of a run")
        for row in rows:
            if odd := [cell for cell in row.values() if not is_number(cell)]:
                raise UserError(f"{self.path}: {one_line(odd[0])!r} is no number")

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Append rows; the first row ever names the columns if none were given, and a column that
        comes later is then added to all rows.

        Raises:
            UserError: a new name is one that no run could be resumed with; or the file is no longer
                at its path.
        """
        if self._file is None:
            return
        self._check_place(self._file)
        if not rows:
            return
        first = not self.columns
        new = [] if self.fixed else [name for name in rows[0] if name not in (self.columns or ())]
        if odd := [name for name in new if not is_column(name)]:
            raise UserError(
                f"{odd[0]!r}: cannot be the name of a metric; use printable characters, "
                f"{LONGEST_COLUMN} at most, and none of = + - @ in front"
            )
        self.columns = self.columns or list(rows[0])
        if not self.fixed and (more := [name for name in new if name not in self.columns]):
            self._file.close()
            self._make_anew(more=more)
        writer = csv.DictWriter(self._file, self.columns, extrasaction="ignore")
        if first:
            writer.writeheader()
        writer.writerows(rows)
        self._file.flush()
        self.rows += len(rows)

    def _check_place(self, file: IO[str]) -> None:
        """A run whose folder was moved would write its rows there and its checkpoints here.

        Raises:
            UserError: the file was moved, removed or replaced.
        """
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if os.path.samestat(os.stat(self.path), os.fstat(file.fileno())):
                return
        raise UserError(
            f"{self.path}: was moved, removed or replaced while the run wrote it, so the run ends "
            "here; resume=<where its folder is now> goes on from its last checkpoint"
        )

    def sync(self) -> None:
        """Bring the rows to the disk, from where a loss of power does not take them."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def _whole(row: dict[str, Any]) -> bool:
    """Whether a row has all its columns: a killed run can leave half a line."""
    return None not in row.values() and None not in row


def _steps(row: dict[str, str]) -> int:
    try:
        return int(row["env_steps"])
    except (ValueError, KeyError):
        return 2**63
