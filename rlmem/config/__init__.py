"""The configuration room: compose `conf/`, check it, and run a task on it.

`run_hydra` is the one door of the command line: it composes, checks, runs (one job or a sweep),
and turns every mistake of the user's into one line and exit code 2. Nothing here imports torch,
so `--help` and a misspelt key answer at once.
"""

import hashlib
import os
import re
import shlex
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from rlmem.config import objective, plugins, sweep
from rlmem.config.errors import dashes, explain, misnamed
from rlmem.config.quoting import override_key, override_of, quote_paths
from rlmem.config.schema import CONF_DIR
from rlmem.config.validate import check, check_evaluate, check_output_dir
from rlmem.errors import UserError, one_line, printable, shortage

__all__ = ["CONF_DIR", "check", "check_evaluate", "check_output_dir", "compose", "run_hydra"]

_FULL_ERROR = "HYDRA_FULL_ERROR"
_CHECKS: dict[str, Callable[[DictConfig], Any]] = {"train": check, "evaluate": check_evaluate}
MULTIRUN = ("-m", "--multirun")
_USER_MISTAKE, _CRASH, _INTERRUPTED = 2, 1, 130


def safe_name(overrides: str) -> str:
    """A sweep job's folder name: one path component that a shell takes unquoted.

    `memory/sampler=rank+seed=1` -> `memory.sampler=rank+seed=1`. Where characters were lost, or
    beyond 200 bytes, a hash of the overrides keeps different jobs in different folders.
    """
    name = re.sub(r"[^\w.=+@-]+", "-", overrides.replace("/", ".")) or "defaults"
    if len(name.encode()) <= 200 and name == overrides.replace("/", "."):
        return name
    name = name.encode()[:190].decode(errors="ignore")
    return f"{name}-{hashlib.sha256(overrides.encode()).hexdigest()[:8]}"


# At import, because a sweep's worker processes get here only by unpickling the task.
objective.register()
OmegaConf.register_new_resolver("rlmem.safe_name", safe_name, replace=True)
# Hydra copies what it reads from, and in it the store of all options, once for each line of --help:
# half of its time. The store is one for the process, and gives out copies of what it holds anyway.
ConfigStore.__deepcopy__ = lambda store, memo: store  # pyright: ignore[reportAttributeAccessIssue]


def compose(config_name: str, overrides: Sequence[str] = ()) -> DictConfig:
    """The config that the command line would compose, also within a Hydra job.

    `paths.output_dir` is the current directory unless an override sets it.

    Raises:
        UserError: an override is wrong.
    """
    if line := misnamed(overrides):
        raise UserError(line)
    given = plugins.load(overrides)
    extra = [] if config_name != "train" else ["paths.output_dir=."]
    job = GlobalHydra.instance().hydra  # Hydra composes for one at a time
    GlobalHydra.instance().clear()
    try:
        with hydra.initialize_config_dir(str(CONF_DIR), version_base="1.3"):
            return hydra.compose(config_name, extra + [quote_paths(o) for o in given])
    except Exception as exc:
        line = explain(exc, given)
        if line is None:
            raise
        raise UserError(line) from exc
    finally:
        GlobalHydra.instance().hydra = job


def _resolved(override: str, cfg: DictConfig) -> str:
    """An override of a sweep's job as a single run has it: with values for its interpolations."""
    if "$\\{" not in override:
        return override
    key = override_key(override)
    return override_of(key, str(OmegaConf.select(cfg, key)))


class JobFailedError(Exception):
    """A sweep's job failed and has said so: (exit code)."""


class _Job:
    """The task with its check; picklable, because launchers send it to worker processes."""

    def __init__(self, task: Callable[[Any], Any], config_name: str, show: bool) -> None:
        self.task = task
        self.config_name = config_name
        self.show = show  # tracebacks for user errors too
        self.error: Exception | None = None
        self.before: set[Path] = set()  # folders that were there before Hydra made its own

    def __call__(self, cfg: DictConfig) -> Any:
        """Run the task; a single run keeps its exception, a sweep's job reports it here."""
        folder = Path(HydraConfig.get().runtime.output_dir)
        if trains := self.config_name == "train":  # evaluate.py's folder is the user's own
            sweep.clear_error(folder)
        try:
            settings = _CHECKS[self.config_name](cfg)
            if trains:
                settings.overrides = [_resolved(o, cfg) for o in HydraConfig.get().overrides.task]
                check_output_dir(settings.paths.output_dir)
            return self.task(settings)
        except Exception as exc:
            if HydraConfig.get().mode == RunMode.RUN:
                self.error = exc  # raised by Hydra it would come with lines of Hydra's own
                return None
            code = self._report(exc)
            what = str(exc) if isinstance(exc, UserError) else f"{type(exc).__name__}: {exc}"
            if trains:
                sweep.write_error(folder, what, code)
            failure = JobFailedError(code)
        finally:
            _remove_unused(folder, self.before)
        # Raised here it has no context: Hydra keeps it to the sweep's end, and would keep with it
        # the frames of the run, so its memory.
        raise failure

    def _report(self, exc: Exception) -> int:
        config = HydraConfig.get()
        job = f"job {config.job.num + 1} ({' '.join(config.overrides.task)}) failed"
        if isinstance(exc, UserError):
            return _user_mistake(exc, f"{job}: {exc}", self.show)
        traceback.print_exception(exc)
        _say(f"{job}: {type(exc).__name__}: {exc}")
        return _CRASH


def run_hydra(
    task: Callable[[Any], Any], config_name: str, argv: Sequence[str] | None = None
) -> int:
    """Compose `conf/<config_name>.yaml` with the command line and run the task on it.

    Args:
        task: a module-level function of the settings (`rlmem.config.schema`).
        config_name: `train` or `evaluate`.
        argv: the arguments after the program's name; `sys.argv[1:]` by default.

    Returns:
        The exit code: 0, 2 for a user's mistake or a machine without room (one line on stderr,
        and a traceback with debug=true or HYDRA_FULL_ERROR=1), 130 after Ctrl-C. A sweep runs every
        job, lists at its end those that failed, and returns the code of the first of them.

    Raises:
        Exception: what the task raised in a single run, if it is not a UserError.
    """
    # Hydra takes overrides behind its own options only where all stand together.
    arguments = sorted(sys.argv[1:] if argv is None else argv, key=lambda a: a not in MULTIRUN)
    overrides = [a for a in arguments if not a.startswith("-")]
    debug = any(re.fullmatch(r"\+{0,2}debug=(true|1|yes|on)", o.lower()) for o in overrides)
    show = debug or os.environ.get(_FULL_ERROR) == "1"
    job = _Job(task, config_name, show)
    main = hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name=config_name)
    sweep.SweepRecord.current = None
    try:
        if line := dashes(arguments) or misnamed(arguments):
            raise UserError(line)
        if any(a in MULTIRUN for a in arguments) or any(map(_searches, overrides)):
            _check_folder_of_jobs(overrides)
        arguments = plugins.load(arguments)
        plugins.set_defaults()
        job.before = _folders_before(overrides)
        with _exceptions_come_through(), _command_line([quote_paths(a) for a in arguments]):
            main(job)()
    except JobFailedError as exc:
        return _end_of_sweep(exc.args[0])
    except KeyboardInterrupt:
        _say("interrupted")
        return _INTERRUPTED
    except Exception as exc:
        spent = None if isinstance(exc, UserError) else shortage(exc)
        if spent:
            return _user_mistake(exc, f"{spent}; with more room the same command goes on", show)
        line = str(exc) if isinstance(exc, UserError) else explain(exc, overrides)
        if line is not None:
            if sweep.SweepRecord.current:
                sweep.SweepRecord.current.forget()
            return _user_mistake(exc, line, show)
        if not sweep.SweepRecord.current:
            raise
        if sweep.SweepRecord.current.search and "Record does not exist" in str(exc):
            # Optuna's, where no trial has a value. Those that failed have said so.
            none = "the search made no trial; use hydra.sweeper.n_trials=1 or more"
            failed = sweep.SweepRecord.current.failed()
            return _end_of_sweep(0) if failed else _user_mistake(exc, none, show)
        lost = sweep.lost_job(exc, sweep.SweepRecord.current.folder)
        if lost is None or show:
            traceback.print_exception(exc)
        if lost is not None:
            _say(lost)
        return _end_of_sweep(_CRASH)
    if job.error is not None:
        line = str(job.error) if isinstance(job.error, UserError) else shortage(job.error)
        if line is not None:
            return _user_mistake(job.error, line, show)
        raise job.error
    return _end_of_sweep(0)


def _searches(override: str) -> bool:
    """Whether it makes a sweep of the command without -m."""
    key, _, value = override.lstrip("+").partition("=")
    return key == "hparams_search" and value not in ("", "null")


def _check_folder_of_jobs(overrides: Sequence[str]) -> None:
    """Refuse one folder for all jobs of a sweep, which each have one below the sweep's."""
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        if key in ("paths.output_dir", "hydra.run.dir"):
            raise UserError(f"{override}: is of one run; a sweep takes hydra.sweep.dir={value}")


def _end_of_sweep(code: int) -> int:
    """List what failed of a sweep, or say how to go on with what is done; the exit code, of the
    first that failed where there is none."""
    current = sweep.SweepRecord.current
    failed = current.failed() if current else []
    if current and not (current.jobs or current.search):
        current.forget()
        _say("the sweep has no jobs: a glob(...) found no option, or a list is empty")
        return _USER_MISTAKE
    if current and failed:
        listed = printable(sweep.failure_list(failed, current.folder))
        print(f"rlmem: {listed}", file=sys.stderr, flush=True)
    elif current and code == 0:
        print(
            "compare them: python evaluate.py mode=report "
            f"{printable(shlex.quote(f'sweep={current.folder}'))}"
        )
    return code or next((exit_code for _, _, exit_code in failed), 0)


def _folders_before(overrides: Sequence[str]) -> set[Path]:
    """The folders that are there already, of those that a run's own may be put into."""
    above = [Path("outputs"), *Path("outputs").glob("*"), *Path("outputs").glob("*/*")]
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        if key in ("hydra.run.dir", "hydra.sweep.dir"):
            named = Path(value.strip("'\"")).absolute()
            above += [named, *named.parents]
    here = Path.cwd()
    return {here, *here.parents, *(folder.absolute() for folder in above if folder.is_dir())}


def _remove_unused(output_dir: Path, before: set[Path]) -> None:
    """Remove the directory that Hydra made for a job that left nothing there but Hydra's own files,
    and those above it, as far as they are empty and were made for it.

    So it is when the command was wrong, or when the job went on with a run in another directory.

    Args:
        before: folders that are not this command's to remove.
    """
    output_dir = output_dir.absolute()
    try:
        if not {p.name for p in output_dir.iterdir()} <= {".hydra"}:
            return
        shutil.rmtree(output_dir / ".hydra", ignore_errors=True)
        for folder in [output_dir, *output_dir.parents][:4]:
            if folder in before:
                return
            folder.rmdir()
    except OSError:
        return


def _user_mistake(exc: Exception, line: str, show: bool) -> int:
    if show:
        traceback.print_exception(exc)
    _say(line)
    return _USER_MISTAKE


def _say(line: str) -> None:
    print(f"rlmem: {one_line(line, 10_000)}", file=sys.stderr, flush=True)


@contextmanager
def _exceptions_come_through() -> Iterator[None]:
    """Hydra prints its composition errors and exits, unless this variable is set."""
    before = os.environ.get(_FULL_ERROR)
    os.environ[_FULL_ERROR] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_FULL_ERROR]
        else:
            os.environ[_FULL_ERROR] = before


@contextmanager
def _command_line(arguments: list[str]) -> Iterator[None]:
    """Hydra reads its arguments from sys.argv only."""
    before = sys.argv
    sys.argv = [before[0] if before else "rlmem", *arguments]
    try:
        yield
    finally:
        sys.argv = before
