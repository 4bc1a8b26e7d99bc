"""What a sweep was asked for, and which of its jobs failed, as files in its folder.

`sweep.json` holds every command that was given for the folder, with its jobs; so
`evaluate.py mode=status` knows the jobs that never started. A job that fails leaves `error.json`
in its own folder until it runs again.
"""

import contextlib
import copy
import fcntl
import json
import pkgutil
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from hydra._internal.config_loader_impl import get_overrides_dirname
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from rlmem import machine
from rlmem.config import interrupt
from rlmem.config.quoting import shell_override
from rlmem.machine import usable_cores
from rlmem.run_files import Kind, lock_file, read_json, write_small

SWEEP_FILE, ERROR_FILE = "sweep.json", "error.json"


@dataclass
class Sweep:
    """A sweep that this process has started.

    Attributes:
        jobs: folder -> overrides; empty for a search, whose jobs are drawn one after another.
        before: the commands that its folder knew already.
    """

    folder: Path
    jobs: dict[str, list[str]]
    before: list[dict[str, Any]]
    search: bool = False

    def forget(self) -> None:
        """Take the command back: it was wrong, nothing of it has started."""
        with _locked(self.folder):
            _write(self.folder / SWEEP_FILE, {"commands": self.before})

    def failed(self) -> list[tuple[str, str, int]]:
        """Jobs that failed: folder, error, exit code. One that has finished did not, though the
        same command, given a second time meanwhile, may have failed to start it."""
        names = self.jobs or sorted(file.parent.name for file in self.folder.glob("*/error.json"))
        ended = (name for name in names if not _is_finished(self.folder / name))
        errors = [(name, read_json(self.folder / name / ERROR_FILE)) for name in ended]
        return [(name, str(e.get("error", "it failed")), _code(e)) for name, e in errors if e]


def _code(error: dict[str, Any]) -> int:
    code = error.get("exit_code")
    return int(code) if code is not None and code in Kind(int, low=1, high=255) else 1


class JobFailedError(Exception):
    """A sweep's job failed and has said so: (exit code)."""


class FailedJob(JobReturn):
    """What Hydra keeps of a job that failed: asked for its value, it raises what the job raised,
    without the line that Hydra's own would write between ours."""

    @property
    def return_value(self) -> Any:
        raise self._return_value


class FailedJobOfGrid(FailedJob):
    """One of a grid, that has said so: the others follow, in batches after it too. The command
    keeps the first one's exit code."""

    @property
    def return_value(self) -> Any:
        SweepRecord.code = SweepRecord.code or self._return_value.args[0]


class SweepRecord(Callback):
    """Hydra's callback that writes down what a sweep was asked for, and lets a job that failed
    speak for itself.

    `current` is the sweep of this process, as Hydra gives nobody its callbacks; `none` says that
    a command which is no sweep's asked for no job; `code` is that of a job that failed.
    """

    current: ClassVar[Sweep | None] = None
    none: ClassVar[bool] = False
    code: ClassVar[int] = 0
    _litter: ClassVar[Path | None] = None

    @classmethod
    def begin(cls) -> None:
        """Forget the command before."""
        cls.current, cls.none, cls.code, cls._litter = None, False, 0, None

    @classmethod
    def tidy(cls) -> None:
        """Remove Hydra's file of a command that is no sweep's, however it ended."""
        if cls._litter is not None:
            cls._litter.unlink(missing_ok=True)

    def on_multirun_start(
        self, config: DictConfig, config_name: str | None = None, **kwargs: Any
    ) -> None:
        """Write sweep.json before the first job; a search goes on with its study."""
        with contextlib.suppress(ImportError):  # the launcher's own to say
            launcher = pkgutil.resolve_name(config.hydra.launcher["_target_"])
            interrupt.prepare(launcher, waits="n_jobs" in config.hydra.launcher)
        if config_name != "train":  # scores of several runs, each in its run's own folder
            file = Path(config.hydra.sweep.dir, "multirun.yaml")
            SweepRecord._litter = None if file.exists() else file
            with contextlib.suppress(HydraException):
                SweepRecord.none = not _jobs(config.hydra)
            return
        hydra = config.hydra
        folder, trials, made = Path(hydra.sweep.dir), 0, 0
        jobs: dict[str, list[str]] = {}
        # What fails here fails in the sweeper too, and is reported then.
        with contextlib.suppress(OSError, ImportError, HydraException):
            if "n_trials" in hydra.sweeper:
                folder.mkdir(parents=True, exist_ok=True)
                from rlmem.config.study import go_on

                trials = int(hydra.sweeper.n_trials)
                with read_write(hydra), open_dict(hydra):
                    hydra.sweeper.n_trials = go_on(hydra.sweeper, folder)
                made = trials - hydra.sweeper.n_trials
            else:
                jobs = job_folders(config)
                folder.mkdir(parents=True, exist_ok=True)
            command = {
                "overrides": _as_given(hydra),
                "launcher": hydra.runtime.choices["hydra/launcher"],
                "at_once": at_once(hydra, len(jobs)),
                "trials": trials,
                "made": made,
                "jobs": jobs,
            }
            with _locked(folder):
                found = (read_json(folder / SWEEP_FILE, 2**30) or {}).get("commands")
                before = (
                    [c for c in found if isinstance(c, dict)] if isinstance(found, list) else []
                )
                aside = hydra.job.config.override_dirname.exclude_keys
                asked = _without(command["overrides"], aside)
                others = [c for c in before if _without(c.get("overrides"), aside) != asked]
                found = Sweep(folder, jobs, before, search="n_trials" in hydra.sweeper)
                SweepRecord.current = found  # before there is a trace of it
                _write(folder / SWEEP_FILE, {"commands": [*others, command]})

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """In the process that ran the job, before its launcher hands the return on."""
        if job_return.status == JobStatus.FAILED:
            said = isinstance(job_return._return_value, JobFailedError)
            grid = "n_trials" not in config.hydra.sweeper  # a search draws others by what failed
            job_return.__class__ = FailedJobOfGrid if said and grid else FailedJob


def _without(overrides: Any, keys: Collection[str]) -> Any:
    """Overrides but those of keys that make no other job; anything else that a file may hold as it
    is."""
    if not isinstance(overrides, list):
        return overrides
    return [o for o in overrides if str(o).partition("=")[0].lstrip("+") not in keys]


def _as_given(hydra: DictConfig) -> list[str]:
    """The command's overrides. Each job resolves the interpolations in them by itself."""
    given = OmegaConf.to_container(hydra.overrides.task, resolve=False)
    assert isinstance(given, list)
    return [str(override) for override in given]


def _jobs(hydra: DictConfig) -> list[list[str]]:
    """The overrides of each job of a grid."""
    parser = OverridesParser.create(GlobalHydra.instance().config_loader())
    params = OmegaConf.to_container(hydra.sweeper.get("params") or OmegaConf.create({}))
    assert isinstance(params, dict)
    given = [f"{key}={value}" for key, value in params.items()] + _as_given(hydra)
    (jobs,) = BasicSweeper.split_arguments(parser.parse_overrides(given), None)
    return jobs


def job_folders(config: DictConfig) -> dict[str, list[str]]:
    """The jobs of a grid: folder -> overrides.

    Composing a thousand configurations takes minutes; so the name, which is made of the
    overrides, plain keys that they set and names of chosen options are all that is resolved: what
    else an option brings is the command's in hydra.sweep.subdir.
    """
    whole = copy.deepcopy(config)
    hydra = whole.hydra
    parser = OverridesParser.create(GlobalHydra.instance().config_loader())
    names = hydra.job.config.override_dirname
    found = {}
    with read_write(whole), open_dict(whole):
        for number, overrides in enumerate(_jobs(hydra)):
            parsed = parser.parse_overrides(overrides)
            hydra.job.num = number
            hydra.job.override_dirname = get_overrides_dirname(
                parsed,
                exclude_keys=names.exclude_keys,
                item_sep=names.item_sep,
                kv_sep=names.kv_sep,
            )
            for key, value in ((o.key_or_group, o.value()) for o in parsed if not o.is_delete()):
                if OmegaConf.is_dict(OmegaConf.select(whole, key)) and isinstance(value, str):
                    key = f"{key}.name"  # an option of a group: this is what it brings for sure
                if "/" not in key and not OmegaConf.is_dict(OmegaConf.select(whole, key)):
                    with contextlib.suppress(OmegaConfBaseException):  # the job says what is wrong
                        OmegaConf.update(whole, key, value)
            found[str(hydra.sweep.subdir)] = overrides
    return found


def at_once(hydra: DictConfig, jobs: int) -> int:
    """How many jobs the chosen launcher and sweeper run at the same time."""
    launcher, sweeper = hydra.launcher, hydra.sweeper
    limits = [jobs or int(sweeper.get("n_jobs", 1))]  # jobs are known of a grid only
    if sweeper.get("max_batch_size"):
        limits.append(int(sweeper.max_batch_size))
    if "n_jobs" in launcher:  # joblib: -1 is all cores, -2 all but one
        count = int(launcher.n_jobs)
        limits.append(count if count > 0 else max(1, usable_cores() + 1 + count))
    elif "array_parallelism" in launcher:
        limits.append(int(launcher.array_parallelism))
    elif "submitit_folder" not in launcher:  # submitit_local starts all of them
        limits.append(1)
    return min(limits)


def on_this_machine(hydra: DictConfig, jobs: int) -> int:
    """How many of a sweep's jobs share this machine's cores: those of an array have their own."""
    return 1 if "array_parallelism" in hydra.launcher else at_once(hydra, jobs)


def write_error(folder: Path, error: str, exit_code: int) -> None:
    """Leave in a job's folder why it failed."""
    if _is_finished(folder):
        return  # a run lies there that did not fail
    with contextlib.suppress(OSError):  # the folder may be what is wrong
        _write(folder / ERROR_FILE, {"error": error, "exit_code": exit_code})


def _is_finished(folder: Path) -> bool:
    return (read_json(folder / "summary.json", 2**24) or {}).get("status") == "finished"


def clear_error(folder: Path) -> None:
    """The job runs again."""
    with contextlib.suppress(OSError):
        (folder / ERROR_FILE).unlink(missing_ok=True)


def failure_list(failed: Iterable[tuple[str, str, int]], folder: Path, most: int = 50) -> str:
    """What a sweep says at its end of its failed jobs."""
    entries = [f"  {name}  {' '.join(error.split())}" for name, error, _ in failed]
    more = [f"  and {len(entries) - most} more"] if len(entries) > most else []
    again = f"the same command with {shell_override('hydra.sweep.dir', str(folder))}"
    title = f"{len(entries)} failed; {again} runs what failed again:"
    return "\n".join([title, *entries[:most], *more])


# What launchers raise of a job whose process ended without a word: submitit's and joblib's.
_LOST = {"UncompletedJobError", "TerminatedWorkerError"}


def lost_job(error: BaseException, folder: Path) -> str | None:
    """A line for a launcher's error of a job that was killed; None for any other error."""
    if not _LOST & {kind.__name__ for kind in type(error).__mro__}:
        return None
    said = " ".join(str(error).splitlines()[:2]).split(" with path")[0]
    job = said if said.startswith("Job ") else "a job"
    return (
        f"{job} was killed; others that were begun on a cluster go on. python evaluate.py "
        f"mode=status {shell_override('sweep', str(folder))} shows them; when none runs any more, "
        f"the same command with {shell_override('hydra.sweep.dir', str(folder))} runs what is "
        "missing"
    )


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One command at a time changes sweep.json."""
    with lock_file(folder / ".sweep.lock") as file:
        machine.lock(file, fcntl.LOCK_EX)
        yield


def _write(path: Path, content: dict[str, Any]) -> None:
    write_small(path, json.dumps(content, indent=1) + "\n")
