"""One job of a command: the task behind its check, what is said of its mistakes, its exit code."""

import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from rlmem import orphan
from rlmem.config import interrupt, sweep
from rlmem.config.arguments import check_no_sweep, names_folder
from rlmem.config.quoting import override_key, override_of
from rlmem.config.sweep import JobFailedError
from rlmem.config.validate import check, check_evaluate, check_output_dir
from rlmem.errors import OccupiedError, UserError, one_line

CHECKS: dict[str, Callable[[DictConfig], Any]] = {"train": check, "evaluate": check_evaluate}
USER_MISTAKE, CRASH = 2, 1


class Job:
    """The task with its check; picklable, because launchers send it to worker processes."""

    def __init__(self, task: Callable[[Any], Any], config_name: str, show: bool) -> None:
        self.task = task
        self.config_name = config_name
        self.show = show  # tracebacks for user errors too
        self.error: Exception | None = None
        self.before: set[Path] = set()  # folders that were there before Hydra made its own
        self.waits = os.getpid()  # for a launcher's processes

    def __call__(self, cfg: DictConfig) -> Any:
        """Run the task; a single run keeps its exception, a sweep's job reports it here."""
        folder = Path(HydraConfig.get().runtime.output_dir)
        trains = self.config_name == "train"  # evaluate.py's folder is the user's own
        try:
            with _interrupted_once(self.waits):
                if trains:
                    sweep.clear_error(folder)
                settings = CHECKS[self.config_name](cfg)
                given = HydraConfig.get().overrides
                if HydraConfig.get().mode == RunMode.RUN:
                    check_no_sweep(given.hydra)
                if trains:
                    settings.overrides = [_resolved(o, cfg) for o in given.task]
                    settings.folder_is_named = names_folder([*given.hydra, *given.task])
                    if settings.resume in (None, "auto"):
                        check_output_dir(settings.paths.output_dir)
                    else:
                        check_output_dir(settings.resume, "resume", "a copy of it")
                return self.task(settings)
        except JobFailedError as ended:
            failure = JobFailedError(*ended.args)  # without its frames, see below
        except Exception as exc:
            if not interrupt.in_job():
                interrupt.raise_if_came()
            if HydraConfig.get().mode == RunMode.RUN:
                self.error = exc  # raised by Hydra it would come with lines of Hydra's own
                return None
            if isinstance(exc, OccupiedError) and "n_trials" not in HydraConfig.get().sweeper:
                print(f"{_name()}: another command runs it and keeps it", flush=True)
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
        if isinstance(exc, UserError):
            return user_mistake(exc, f"{_name()} failed: {exc}", self.show)
        traceback.print_exception(exc)
        say(f"{_name()} failed: {type(exc).__name__}: {exc}")
        return CRASH


def _name() -> str:
    config = HydraConfig.get()
    return f"job {config.job.num + 1} ({' '.join(config.overrides.task)})"


@contextmanager
def _interrupted_once(waits: int) -> Iterator[None]:
    """Beside a launcher that waits, a job that Ctrl-C ends fails like any other, so that the
    launcher hears of the others too; and none begins after it in this process, which is not
    interrupted between two jobs. If the process that waits ends, this one ends behind its job.

    Args:
        waits: that process.

    Raises:
        JobFailedError: it was ended so.
        KeyboardInterrupt: Ctrl-C came before the job, beside any other launcher.
    """
    if not interrupt.in_job():
        interrupt.raise_if_came()
        yield
        return
    if interrupt.came():
        raise JobFailedError(interrupt.EXIT_CODE)
    interrupt.handle(signal.default_int_handler)
    try:
        with orphan.job_for(waits):
            yield
    except (KeyboardInterrupt, SystemExit) as ended:
        if isinstance(ended, SystemExit) and ended.code != interrupt.EXIT_CODE:
            raise
        if not interrupt.came():
            interrupt.mark()
        raise JobFailedError(interrupt.EXIT_CODE) from None
    finally:
        interrupt.handle(interrupt.mark)


def _resolved(override: str, cfg: DictConfig) -> str:
    """An override of a sweep's job as a single run has it: with values for its interpolations."""
    if "$\\{" not in override:
        return override
    key = override_key(override)
    return override_of(key, str(OmegaConf.select(cfg, key)))


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


def user_mistake(exc: Exception, line: str, show: bool) -> int:
    """Say a mistake in one line, behind a traceback where it is asked for; the exit code."""
    if show:
        traceback.print_exception(exc)
    say(line)
    return USER_MISTAKE


def say(line: str) -> None:
    """Print one line to stderr."""
    print(f"rlmem: {one_line(line, 10_000)}", file=sys.stderr, flush=True)
