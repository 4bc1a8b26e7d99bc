"""runs.npz: what a report needs of finished runs, in one file small enough for a repository.

It is numpy's own archive, a zip of columns without pickle: `np.load("runs.npz")` opens it.

    header              uint8 [bytes]   JSON: each run's folder, configuration, overrides, summary,
                                        means, and how many points of each column are its own
    env_steps, ...      float32 [points of all runs], one column for each of CURVES
    evaluated_at, ...   float32 [evaluations of all runs], one for each of EVALUATED; files of
                        before have none

What all configurations share is written once. The zip has a CRC-32 of each column, so a damaged
file is refused. The same runs give the same bytes.
"""

import io
import json
import os
import zipfile
import zlib
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from rlmem.analysis.read.curves import CURVES, EVALUATED, POINTS
from rlmem.analysis.read.runs import Run
from rlmem.errors import one_line
from rlmem.run_files import new_file, open_regular, parse_json

if TYPE_CHECKING:
    import numpy as np

FORMAT = 1
MOST_BYTES = 64 * 2**20  # unpacked
UNREADABLE = (OSError, ValueError, EOFError, RecursionError, RuntimeError)  # zip files raise all
UNREADABLE += (zipfile.BadZipFile, zlib.error)
SCALAR = str | int | float | None  # a bool is an int


def write_record(path: Path, runs: Sequence[Run]) -> None:
    """Write runs whose folders lie below the file's own, in their order.

    Nothing in it names a folder of this machine: `paths` is left out of the configurations.
    """
    import numpy as np

    configs = [
        {key: value for key, value in run.config.items() if not key.startswith("paths.")}
        for run in runs
    ]
    first = configs[0] if configs else {}
    shared = {
        key: value
        for key, value in first.items()
        if all(_same(config.get(key, configs), value) for config in configs)
    }
    described = [
        {
            "folder": run.folder.relative_to(path.parent).as_posix(),
            "config": {key: value for key, value in config.items() if key not in shared},
            "overrides": run.overrides,
            "summary": run.summary,
            "means": run.means,
            "points": len(run.curves["env_steps"]),
            "evaluations": len(run.curves["evaluated_at"]),
        }
        for run, config in zip(runs, configs, strict=True)
    ]
    header = {"format": FORMAT, "config": shared, "runs": described}
    columns: Any = {
        name: np.concatenate([np.empty(0, np.float32), *(run.curves[name] for run in runs)])
        for name in (*CURVES, *EVALUATED)
    }
    text = np.frombuffer(json.dumps(header, separators=(",", ":")).encode(), np.uint8)
    fresh = path.with_suffix(".new")
    with os.fdopen(new_file(fresh), "wb") as file:
        np.savez_compressed(file, header=text, **columns)
    fresh.replace(path)


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other  # 1 and True are not the same


def read_record(path: Path) -> list[Run]:
    """The runs of a file; none if it is not there.

    Raises:
        ValueError: it cannot be read, or holds something else.
    """
    import numpy as np

    if not os.path.lexists(path):
        return []
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            if sum(info.file_size for info in archive.infolist()) > MOST_BYTES:
                raise ValueError(f"unpacked it has more than {MOST_BYTES:,} bytes")
            header = parse_json(_column(archive, "header", np.uint8).tobytes())
            own = EVALUATED if f"{EVALUATED[0]}.npy" in archive.namelist() else ()
            columns = {name: _column(archive, name, np.float32) for name in (*CURVES, *own)}
        return _runs(path.parent, header, columns)
    except KeyError as error:
        raise ValueError(f"it lacks {error.args[0]}") from None
    except UNREADABLE as error:
        raise ValueError(one_line(error, 200)) from None


def _column(archive: zipfile.ZipFile, name: str, dtype: "type[np.generic]") -> "np.ndarray":
    """One array, of which type and length are compared with the bytes before any is made."""
    import numpy as np

    file = io.BytesIO(archive.read(f"{name}.npy"))
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError(f"{name} is no array of version 1.0")
    shape, _, found = np.lib.format.read_array_header_1_0(file)
    content = file.read()
    if found != dtype or len(shape) != 1 or shape[0] * found.itemsize != len(content):
        raise ValueError(f"{name} is no row of {np.dtype(dtype)}, or not whole")
    return np.frombuffer(content, dtype)


def _runs(folder: Path, header: Any, columns: dict[str, "np.ndarray"]) -> list[Run]:
    import numpy as np

    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    shared, described = header["config"], header["runs"]
    if not _is_flat(shared) or not isinstance(described, list):
        raise ValueError("its header holds something else")
    for run in described:
        _check(run)
    parts = _parted(columns, CURVES, [run["points"] for run in described])
    of_all = [run.get("evaluations", 0) for run in described]
    none = dict.fromkeys(EVALUATED, np.empty(0, np.float32))
    played = _parted(none | columns, EVALUATED, of_all)
    found = []
    for run, curve, evaluations in zip(described, parts, played, strict=True):
        curves, about = curve | evaluations, shared | run["config"]
        if type(about.get("seed")) is not int:
            raise ValueError(f"{run['folder']} has no seed")
        found.append(
            Run(
                folder / run["folder"], about, run["summary"], curves, run["means"],
                run["overrides"],
            )
        )  # fmt: skip
    return found


def _parted(
    columns: dict[str, "np.ndarray"], names: Sequence[str], counts: list[int]
) -> list[dict[str, "np.ndarray"]]:
    """Of each run its own part of the columns.

    Raises:
        ValueError: they are longer or shorter than all parts together.
    """
    ends = list(accumulate(counts, initial=0))
    if any(len(columns[name]) != ends[-1] for name in names):
        raise ValueError("its columns have other lengths than its header says")
    return [{name: columns[name][a:b] for name in names} for a, b in pairwise(ends)]


def _check(run: Any) -> None:
    """Raises ValueError unless it describes a run."""
    if not isinstance(run, dict) or not isinstance(run.get("folder"), str):
        raise ValueError("a run has no folder")
    inside = PurePosixPath(run["folder"])
    if inside.is_absolute() or ".." in inside.parts or "\0" in run["folder"]:
        raise ValueError(f"{run['folder']!r} is no folder below its own")
    overrides, points = run["overrides"], (run["points"], run.get("evaluations", 0))
    whole = (
        _is_flat(run["config"])
        and _is_flat(run["means"])
        and isinstance(run["summary"], dict)
        and isinstance(overrides, list)
        and all(isinstance(each, str) for each in overrides)
        and all(type(count) is int and 0 <= count <= POINTS for count in points)
    )
    if not whole:
        raise ValueError(f"what it says of {run['folder']} is something else")


def _is_flat(mapping: Any) -> bool:
    return isinstance(mapping, dict) and all(isinstance(v, SCALAR) for v in mapping.values())
