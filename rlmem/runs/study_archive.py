"""runs.zip of a study: what its report reads of the finished runs, small enough for a repository.

With it a fresh clone makes the same page, and goes on where the study stands.
"""

import zipfile
import zlib

import yaml

from rlmem.errors import UserError
from rlmem.runs.study_file import Job, Study

NAME = "runs.zip"
FILES = ("config.yaml", "overrides.yaml", "summary.json", "metrics.csv")
MAX_BYTES = 64 * 2**20  # of one file in it
UNREADABLE = (OSError, ValueError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error)


def pack(study: Study) -> int:
    """Write the finished runs as the study asks for them; how many. The same runs, the same
    bytes."""
    path = study.folder / NAME
    fresh = path.with_suffix(".new")
    packed = 0
    with zipfile.ZipFile(fresh, "w") as archive:
        for job in study.all_jobs(study.columns):
            contents = _contents(study, job) if job.done and not job.outdated else {}
            packed += bool(contents)
            for name, content in contents.items():  # ZipInfo's date is a constant
                info = zipfile.ZipInfo(_inside(study, job, name))
                archive.writestr(info, content, zipfile.ZIP_DEFLATED, 9)
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
            for job in study.all_jobs(study.columns):
                names = {name: _inside(study, job, name) for name in FILES}
                if (job.folder / "config.yaml").exists() or not there.issuperset(names.values()):
                    continue
                contents = {name: _read(archive, inside) for name, inside in names.items()}
                if _overrides(contents["overrides.yaml"]) != [*job.overrides]:
                    continue
                job.folder.mkdir(parents=True, exist_ok=True)
                for name in reversed(FILES):  # config.yaml last: with it the run is there
                    (job.folder / name).write_bytes(contents[name])
                unpacked += 1
    except UNREADABLE as error:
        raise UserError(f"{path}: cannot be read ({error}); remove it to run all anew") from None
    return unpacked


def _inside(study: Study, job: Job, name: str) -> str:
    """A file's name in the archive."""
    return (job.folder / name).relative_to(study.folder).as_posix()


def _contents(study: Study, job: Job) -> dict[str, str]:
    """A run's files as the archive holds them, naming no folder of this machine; none if one of
    them is damaged: the report leaves such a run out as well."""
    try:
        contents = {name: (job.folder / name).read_text() for name in FILES}
        config = yaml.safe_load(contents["config.yaml"])
        config["paths"]["output_dir"] = _inside(study, job, ".")
    except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
        return {}
    return contents | {"config.yaml": yaml.safe_dump(config, sort_keys=False)}


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).file_size > MAX_BYTES:
        raise ValueError(f"{name} is larger than {MAX_BYTES} bytes")
    return archive.read(name)


def _overrides(content: bytes) -> list[str]:
    try:
        return list(yaml.safe_load(content) or [])
    except (TypeError, yaml.YAMLError):
        return []
