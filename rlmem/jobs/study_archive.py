"""runs.zip of a study: what its report reads of the finished runs, small enough for a repository.

With it a fresh clone makes the same page, and goes on where the study stands.
"""

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import yaml

from rlmem.errors import UserError
from rlmem.jobs.study_file import Job, Study

NAME = "runs.zip"
FILES = ("config.yaml", "overrides.yaml", "summary.json", "metrics.csv")
MAX_BYTES = 64 * 2**20  # of one file in it
UNREADABLE = (OSError, ValueError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error)


def pack(study: Study) -> int:
    """Write the finished runs that the study asks for; how many. The same runs, the same bytes."""
    path = study.folder / NAME
    fresh = path.with_suffix(".new")
    packed = 0
    with zipfile.ZipFile(fresh, "w") as archive:
        for job in _jobs(study):
            if not (job.done and all((job.folder / name).is_file() for name in FILES)):
                continue
            packed += 1
            for name in FILES:  # ZipInfo's date is a constant
                info = zipfile.ZipInfo(_inside(study, job, name))
                archive.writestr(info, _content(study, job, name), zipfile.ZIP_DEFLATED, 9)
    if packed:
        fresh.replace(path)
    else:
        fresh.unlink()
    return packed


def unpack(study: Study) -> int:
    """Put runs of the archive in place that the study asks for and that have not begun; how many.

    A run counts only if it was made with the overrides that the study has for it now.

    Raises:
        UserError: the archive cannot be read.
    """
    path = study.folder / NAME
    if not path.is_file():
        return 0
    unpacked = 0
    try:
        with zipfile.ZipFile(path) as archive:
            there = set(archive.namelist())
            for job in _jobs(study):
                names = {name: _inside(study, job, name) for name in FILES}
                if (job.folder / "config.yaml").exists() or not there.issuperset(names.values()):
                    continue
                contents = {name: _read(archive, inside) for name, inside in names.items()}
                if _overrides(contents["overrides.yaml"]) != [*job.overrides]:
                    continue
                job.folder.mkdir(parents=True, exist_ok=True)
                for name, content in contents.items():
                    (job.folder / name).write_bytes(content)
                unpacked += 1
    except UNREADABLE as error:
        raise UserError(f"{path}: cannot be read ({error}); remove it to run all anew") from None
    return unpacked


def _jobs(study: Study) -> Iterator[Job]:
    """All of a study; FIFOs beside a run once that run is there."""
    for column in study.columns:
        yield from study.jobs(column)
        yield from study.fifo_jobs(column)


def _inside(study: Study, job: Job, name: str) -> str:
    """A file's name in the archive."""
    return (job.folder / name).relative_to(study.folder).as_posix()


def _content(study: Study, job: Job, name: str) -> str:
    """A file of a run as the archive holds it, which names no folder of this machine."""
    path = job.folder / name
    if name == "config.yaml":
        config = yaml.safe_load(path.read_text())
        config["paths"]["output_dir"] = Path(_inside(study, job, name)).parent.as_posix()
        return yaml.safe_dump(config, sort_keys=False)
    return path.read_text()


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).file_size > MAX_BYTES:
        raise ValueError(f"{name} is larger than {MAX_BYTES} bytes")
    return archive.read(name)


def _overrides(content: bytes) -> list[str]:
    try:
        return list(yaml.safe_load(content) or [])
    except (TypeError, yaml.YAMLError):
        return []
