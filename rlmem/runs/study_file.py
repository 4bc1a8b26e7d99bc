"""What a study.yaml says: rows (settings), columns (environments), and the jobs that they make."""

import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml

from rlmem.analysis.compare.names import COMPUTED
from rlmem.analysis.read.record import read_record
from rlmem.analysis.read.runs import Run
from rlmem.config.quoting import override_key
from rlmem.errors import UserError, one_line
from rlmem.run_files import UNREADABLE, parse_yaml, read_small
from rlmem.runs.summary import read_summary

RECORD = "runs.npz"
KEYS = {
    "title", "common", "machine", "rows", "columns", "fifo", "baselines", "highlight", "first_seed",
}  # fmt: skip
_SET = {"seed", "label", "resume", "paths.output_dir", "hparams_search"}  # and all of Hydra's own
OF_MEMORY = re.compile(r"[~+]*(memory|threshold)\b")  # overrides that a FIFO beside does without
# What a FIFO beside a row holds as much of: its key, and the run's number that it is set to.
FIFOS = {
    "bytes": ("memory.budget", "memory_bytes_peak"),
    "entries": ("memory.capacity", "memory_entries"),
}


@dataclass(frozen=True)
class StudyJob:
    """One run of a study."""

    column: str
    row: str
    seed: int
    overrides: tuple[str, ...]
    folder: Path
    recorded: Run | None = None  # in the study's runs.npz
    machine: frozenset[str] = frozenset()  # keys that say how a run is computed, not what

    @property
    def name(self) -> str:
        return f"{self.column}: {self.row}, seed {self.seed}"

    @property
    def is_here(self) -> bool:
        """Whether its folder holds a run, which then counts in place of the recorded one."""
        return (self.folder / "config.yaml").exists()

    @property
    def summary(self) -> dict[str, Any]:
        """What it came to, {} as long as it has not."""
        if self.recorded and not self.is_here:
            return self.recorded.summary
        return read_summary(self.folder) or {}

    @property
    def finished(self) -> bool:
        return self.summary.get("status") == "finished"

    @property
    def outdated(self) -> bool:
        """Whether it is finished, but with other overrides than the study has for it now, those
        of its machine left aside."""
        made: Any = self.recorded and self.recorded.overrides
        if self.is_here:
            try:
                made = parse_yaml(read_small(self.folder / "overrides.yaml"))
            except UNREADABLE:
                return False
        return self.finished and self._asked(made) != self._asked(self.overrides)

    def _asked(self, overrides: Any) -> Any:
        """Overrides without the machine's, of today or of before; anything else that a file may
        hold as it is."""
        if not isinstance(overrides, list | tuple):
            return overrides
        return [o for o in overrides if override_key(str(o)) not in {*self.machine, *COMPUTED}]

    @property
    def done(self) -> bool:
        """Whether there is nothing to run: a recorded run of other overrides is run anew, one in
        its folder is left to whoever made it."""
        return self.finished and (self.is_here or not self.outdated)


class _KeysOnce(yaml.SafeLoader):
    """YAML in which no mapping has a key twice: only the last of two rows of a name would count."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        texts = (key for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        keys = (self.construct_object(key) for key in texts if not key.tag.endswith(":merge"))
        for name, times in Counter(keys).items():  # yes and true are one
            if times > 1:
                raise yaml.YAMLError(f"it has {name} twice in one place")
        return super().construct_mapping(node, deep)


def read_definition(folder: Path) -> dict[str, Any]:
    """What a folder's study.yaml holds.

    Raises:
        UserError: there is no such study, or its file cannot be read.
    """
    path = folder / "study.yaml"
    try:
        content = yaml.load(path.read_text(), _KeysOnce)
    except FileNotFoundError:
        found = sorted(p.parent.name for p in folder.parent.glob("*/study.yaml"))
        raise UserError(
            f"{folder}: no such study; in {folder.parent} there are {', '.join(found) or 'none'}"
        ) from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"{path} cannot be read ({one_line(error)})") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: needs rows and columns")
    return content


class Study:
    """The definition of a study and its jobs.

    Args:
        folder: with the study.yaml.

    Raises:
        UserError: there is no such study, or its definition is not understood.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, content = folder, read_definition(folder)
        if not {"rows", "columns"} <= content.keys():
            self._refuse("needs rows and columns")
        if "controls" in content:
            print(f"{folder}/study.yaml: controls is now called baselines", file=sys.stderr)
            content.setdefault("baselines", content.pop("controls"))
        if unknown := content.keys() - KEYS:
            self._refuse(
                f"unknown key {min(map(str, unknown))}; there are {', '.join(sorted(KEYS))}"
            )
        self.title = content.get("title", folder.name)
        if not isinstance(self.title, str):
            self._refuse(f"title={self.title}; a line of text")
        self.first_seed = self._first_seed("", content.get("first_seed", 0))
        self.common = self._overrides("common", content.get("common"))
        self.machine = self._overrides("machine", content.get("machine"))
        self.fifo = self._overrides("fifo", content.get("fifo"))
        self.rows = self._parts("rows", content["rows"], {"fifo", "seeds"})
        self.columns = self._parts(
            "columns", content["columns"], {"rows", "seeds", "skip", "first_seed"}
        )
        for column, part in self.columns.items():
            for key in ("rows", "skip"):
                if unknown := set(part[key]) - self.rows.keys():
                    self._refuse(f"{column} has {key}: {min(unknown)}, which is no row")
        try:
            runs = read_record(folder / RECORD)
        except ValueError as error:
            raise UserError(
                f"{folder}/{RECORD}: cannot be read ({error}); remove it to run all anew"
            ) from None
        self.recorded = {run.folder: run for run in runs}
        fifos = [fifo for rows in self.fifos().values() for fifo in rows.values()]
        self.baselines = self._named("baselines", content.get("baselines"), [*self.rows])
        lines = [*self.rows, *fifos]
        self.highlight = self._named("highlight", content.get("highlight"), lines)
        if taken := [row for row in self.rows if slug(row) in {slug(fifo) for fifo in fifos}]:
            self._refuse(f"row {taken[0]} is named like the FIFO of another")

    def _refuse(self, what: str) -> NoReturn:
        raise UserError(f"{self.folder}/study.yaml: {what}") from None

    def _parts(self, name: str, parts: Any, more: set[str]) -> dict[str, dict[str, Any]]:
        if not isinstance(parts, dict) or not parts:
            self._refuse(f"{name} must be a mapping, with one entry at least")
        folders = [slug(str(key)) for key in parts]
        if "" in folders or len(set(folders)) < len(folders):
            self._refuse(f"{name} must differ in their letters and digits")
        return {str(key): self._part(key, value, more) for key, value in parts.items()}

    def _overrides(self, name: Any, value: Any) -> list[str]:
        """Overrides as a command line or a list."""
        if isinstance(value, list) and all(isinstance(part, str) for part in value):
            given = value
        elif isinstance(value, str | None):
            try:
                given = shlex.split(value or "")
            except ValueError as error:
                self._refuse(f"{name}: {value}: {error}")
        else:
            self._refuse(f"{name}: {value}: not a line or a list of overrides")
        for override in given:
            key = override_key(override)
            if key in _SET or key.startswith("hydra"):
                self._refuse(f"{name}: {override}: the study sets it; leave it out")
        return given

    def _part(self, name: Any, value: Any, more: set[str]) -> dict[str, Any]:
        """A row or a column: its overrides, alone or in a mapping with further keys."""
        part = value if isinstance(value, dict) else {"overrides": value}
        if unknown := part.keys() - (keys := {"overrides", *more}):
            stray = min(map(str, unknown))
            self._refuse(f"{name} has an unknown key {stray}; there are {', '.join(sorted(keys))}")
        seeds = part.get("seeds", 1)
        if type(seeds) is not int or seeds < 1:
            self._refuse(f"{name} has seeds={seeds}; a number of runs")
        rows = part.get("rows") or {}
        if not isinstance(rows, dict):
            self._refuse(f"{name} has rows={rows}; a mapping from a row to its overrides here")
        skip = part.get("skip") or []
        if not isinstance(skip, list):
            self._refuse(f"{name} has skip={skip}; a list of rows that it goes without")
        return {
            "first_seed": self._first_seed(f"{name} has ", part.get("first_seed", self.first_seed)),
            "skip": [str(row) for row in skip],
            "overrides": self._overrides(name, part.get("overrides")),
            "seeds": seeds,
            "fifo": self._kinds(name, part.get("fifo")),
            "rows": {str(row): self._overrides(f"{name}, {row}", v) for row, v in rows.items()},
        }

    def _first_seed(self, of: str, value: Any) -> int:
        if type(value) is not int or value < 0:
            self._refuse(f"{of}first_seed={value}; a whole number from 0")
        return value

    def _kinds(self, name: Any, value: Any) -> list[str]:
        """The FIFOs beside a row: true for that of its bytes, or one name, or a list."""
        if value is None or isinstance(value, bool):
            return ["bytes"] if value else []
        kinds = value if isinstance(value, list) else [value]
        if not all(isinstance(kind, str) and kind in FIFOS for kind in kinds):
            self._refuse(f"{name} has fifo={value}; true, {', '.join(FIFOS)}, or a list of these")
        return [kind for kind in FIFOS if kind in kinds]

    def _named(self, key: str, value: Any, lines: Sequence[str]) -> list[str]:
        """Some lines of the table, each once."""
        if not isinstance(value, list | None):
            self._refuse(f"{key}={value}; a list of rows")
        named = [str(name) for name in value or []]
        if unknown := [name for name in named if name not in lines]:
            self._refuse(f"{key}: {unknown[0]} is no row; there are {'; '.join(lines)}")
        return list(dict.fromkeys(named))

    def seeds(self, column: str, row: str) -> range:
        """Those of a cell: as many as its row or its column asks for, whichever is more."""
        count = max(self.columns[column]["seeds"], self.rows[row]["seeds"])
        first = self.columns[column]["first_seed"]
        return range(first, first + count)

    def jobs(self, column: str) -> list[StudyJob]:
        """Those of a column that need no other job's result, seed by seed."""
        return [
            self._job(column, row, seed, self._setting(column, row))
            for row, seed in self._cells(column)
        ]

    def _setting(self, column: str, row: str) -> list[str]:
        """A row's overrides, and then what a column says of it."""
        return [*self.rows[row]["overrides"], *self.columns[column]["rows"].get(row, [])]

    def all_jobs(self, columns: Iterable[str]) -> Iterator[StudyJob]:
        """Those of some columns; the FIFOs beside a run once that run is there."""
        for column in columns:
            yield from self.jobs(column)
            yield from self.fifo_jobs(column)

    def _cells(self, column: str) -> list[tuple[str, int]]:
        """Rows and seeds of a column, the first seed of all rows first."""
        rows = [row for row in self.rows if row not in self.columns[column]["skip"]]
        cells = [(row, seed) for row in rows for seed in self.seeds(column, row)]
        return sorted(cells, key=lambda cell: cell[1])

    def fifo_jobs(self, column: str) -> Iterator[StudyJob]:
        """FIFOs of the same bytes or entries beside each finished run of the rows that ask: the
        same but for the memory and its thresholds. Recorded ones stay beside a recorded run that is
        made anew."""
        for row, seed in self._cells(column):
            beside = self._job(column, row, seed, self._setting(column, row))
            summary = beside.summary if beside.finished else {}
            if beside.recorded and not summary:
                summary = beside.recorded.summary
            kept = [each for each in self._setting(column, row) if not OF_MEMORY.match(each)]
            for kind in self.rows[row]["fifo"]:
                key, number = FIFOS[kind]
                size = summary.get(number)
                if size is None:  # or of a damaged summary
                    continue
                last = f"{key}={size}"
                job = self._job(column, fifo_of(row, kind), seed, [*kept, *self.fifo], last)
                if beside.finished or job.recorded:
                    yield job

    def finished(self, column: str) -> Counter[str]:
        """How many runs of each line of the table are finished."""
        return Counter(job.row for job in self.all_jobs([column]) if job.finished)

    def labels(self, column: str) -> dict[str, str]:
        """Lines of a column's table, each FIFO below its row: label -> row."""
        return {
            label: row
            for row, part in self.rows.items()
            if row not in self.columns[column]["skip"]
            for label in [row, *(fifo_of(row, kind) for kind in part["fifo"])]
        }

    def fifos(self) -> dict[str, dict[str, str]]:
        """Kind of FIFO -> row -> the FIFO's label, of the kinds that a row asks for."""
        asked = {
            kind: {
                row: fifo_of(row, kind) for row, part in self.rows.items() if kind in part["fifo"]
            }
            for kind in FIFOS
        }
        return {kind: rows for kind, rows in asked.items() if rows}

    def _job(
        self, column: str, label: str, seed: int, overrides: Sequence[str], *last: str
    ) -> StudyJob:
        """A job: what all have in common, its machine, its column, its row, then `last`."""
        folder = self.folder / "runs" / slug(column) / slug(label) / f"seed{seed}"
        quoted = "label='" + label.replace("\\", "\\\\").replace("'", "\\'") + "'"
        own = (*self.common, *self.machine, *self.columns[column]["overrides"], *overrides, *last)
        asked = (*own, quoted, f"seed={seed}")
        keys = frozenset(each.partition("=")[0] for each in self.machine)
        return StudyJob(column, label, seed, asked, folder, self.recorded.get(folder), keys)


def fifo_of(row: str, kind: str) -> str:
    """Label of the FIFO beside a row."""
    return f"FIFO of the {kind} of {row}"


def slug(name: str) -> str:
    """A folder's name."""
    return re.sub(r"[^\w.=-]+", "-", name).strip("-.").lower()
