"""The configuration room: compose `conf/`, check it, and run a task on it.

`run_hydra` is the one door of the command line: it composes, checks, runs (one job or a sweep),
and turns every mistake of the user's into one line and exit code 2. Nothing here imports torch,
so `--help` and a misspelt key answer at once.
"""

import hashlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from rlmem.config import interrupt, objective, plugins, sweep
from rlmem.config.arguments import (
    MULTIRUN,
    check_folders,
    dashes,
    misnamed,
    options_first,
    searches,
)
from rlmem.config.errors import explain
from rlmem.config.job import CRASH, USER_MISTAKE, Job, say, user_mistake
from rlmem.config.quoting import quote_paths, shell_override
from rlmem.config.schema import CONF_DIR
from rlmem.config.sweep import JobFailedError
from rlmem.config.validate import check, check_evaluate, check_output_dir
from rlmem.errors import UserError, printable, shortage
from rlmem.version import __version__

__all__ = ["CONF_DIR", "check", "check_evaluate", "check_output_dir", "compose", "run_hydra"]

_FULL_ERROR = "HYDRA_FULL_ERROR"


def safe_name(overrides: str) -> str:
    """A sweep job's folder name: one path component that a shell takes unquoted.

    `memory/sampler=rank+seed=1` -> `memory.sampler=rank+seed=1`. Where characters were lost, or
    beyond 200 bytes, a hash of the overrides keeps different jobs in different folders.
    """
    # Of keys a dot says as much as a slash; the values a/b and a.b are two.
    plain = re.sub(r"(^|\+)[\w./@]+(?==)", lambda key: key[0].replace("/", "."), overrides)
    name = re.sub(r"[^\w.=+@-]+", "-", plain) or "defaults"
    if len(name.encode()) <= 200 and name == plain:
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
        with (
            interrupt.kept(),
            hydra.initialize_config_dir(str(CONF_DIR), version_base="1.3"),
        ):
            return hydra.compose(config_name, extra + [quote_paths(o) for o in given])
    except Exception as exc:
        line = explain(exc, given)
        if line is None:
            raise
        raise UserError(line) from exc
    finally:
        GlobalHydra.instance().hydra = job


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
    arguments = options_first(sys.argv[1:] if argv is None else argv)
    overrides = [a for a in arguments if not a.startswith("-")]
    debug = any(re.fullmatch(r"\+{0,2}debug=(true|1|yes|on)", o.lower()) for o in overrides)
    show = debug or os.environ.get(_FULL_ERROR) == "1"
    job = Job(task, config_name, show)
    main = hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name=config_name)
    sweep.SweepRecord.begin()
    interrupt.forget()
    if "--version" in arguments:  # Hydra would tell its own
        print(f"rlmem {__version__}")
        return 0
    try:
        if line := dashes(arguments) or misnamed(arguments):
            raise UserError(line)
        several = any(a in MULTIRUN for a in arguments) or any(map(searches, overrides))
        check_folders(overrides, several)
        arguments = plugins.load(arguments)
        plugins.set_defaults()
        job.before = _folders_before(overrides)
        quoted = [quote_paths(a) for a in arguments]
        with _exceptions_come_through(), _command_line(quoted), interrupt.kept():
            main(job)()
    except JobFailedError as exc:
        return _end_of_sweep(exc.args[0])
    except KeyboardInterrupt:
        return _end_of_sweep(interrupt.EXIT_CODE)
    except SystemExit as ended:  # a signal ended the run, which is saved
        if not sweep.SweepRecord.current:
            raise
        return _end_of_sweep(ended.code if isinstance(ended.code, int) else CRASH)
    except Exception as exc:
        return _ended_by(exc, overrides, show)
    finally:
        sweep.SweepRecord.tidy()
    if job.error is not None:
        line = str(job.error) if isinstance(job.error, UserError) else shortage(job.error)
        if line is not None:
            return user_mistake(job.error, line, show)
        raise job.error
    return _end_of_sweep(sweep.SweepRecord.code)


def _ended_by(exc: Exception, overrides: list[str], show: bool) -> int:
    """Tell what ended a command before its jobs did; the exit code.

    Raises:
        Exception: `exc`, if it is no mistake of the user's and of no sweep.
    """
    current = sweep.SweepRecord.current
    spent = None if isinstance(exc, UserError) else shortage(exc)
    if spent:
        return user_mistake(exc, f"{spent}; with more room the same command goes on", show)
    line = str(exc) if isinstance(exc, UserError) else explain(exc, overrides)
    if line is not None:
        if current:
            current.forget()
        return user_mistake(exc, line, show)
    if not current:
        raise exc
    if current.search and "Record does not exist" in str(exc):
        # Optuna's, where no trial has a value. Those that failed have said so.
        none = "the search made no trial; use hydra.sweeper.n_trials=1 or more"
        return _end_of_sweep(0) if current.failed() else user_mistake(exc, none, show)
    lost = sweep.lost_job(exc, current.folder)
    if lost is None or show:
        traceback.print_exception(exc)
    if lost is not None:
        say(lost)
    return _end_of_sweep(CRASH)


def _end_of_sweep(code: int) -> int:
    """List what failed of a sweep, or say how to go on with what is done; the exit code, of the
    first that failed where there is none."""
    current = sweep.SweepRecord.current
    failed = current.failed() if current else []
    if sweep.SweepRecord.none or (current and not (current.jobs or current.search)):
        if current:
            current.forget()
        say("the sweep has no jobs: glob(...) finds options of groups only, or a list is empty")
        return USER_MISTAKE
    if current and failed:
        listed = printable(sweep.failure_list(failed, current.folder))
        print(f"rlmem: {listed}", file=sys.stderr, flush=True)
    if code > 128:  # a signal's number and 128
        again = current and shell_override("hydra.sweep.dir", str(current.folder))
        say("interrupted" + (f"; the same command with {again} goes on" if again else ""))
    elif current and not failed and code == 0:
        print(
            "compare them: python evaluate.py mode=report "
            f"{printable(shell_override('sweep', str(current.folder)))}"
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
