"""One job of a study, in a process of its own: a run in the job's folder, from its start or on."""

import contextlib
import multiprocessing
import signal
import threading
import traceback
from collections.abc import Iterator
from multiprocessing import resource_tracker
from typing import Any

import yaml

from rlmem.callbacks.checkpoint_files import find_checkpoint
from rlmem.config import check, compose
from rlmem.config.run_directory import saved_config
from rlmem.config.sweep import clear_error, write_error
from rlmem.errors import OccupiedError, UserError, file_error
from rlmem.orphan import job_for
from rlmem.run_files import append_text, write_small
from rlmem.runs.resume import differences
from rlmem.runs.study_file import StudyJob

_told_to_end = threading.Event()  # in a worker: by a signal that ended its job


def run_job(job: StudyJob, at_once: int = 1) -> str | None:
    """Train one job to its end in this process; the error's line if it failed.

    What it prints goes to log.txt in its folder. A run that was cut off goes on.

    Args:
        at_once: jobs with such a memory that may run at the same time.

    Raises:
        SystemExit: a signal ended and saved it. The pool may have handed this worker another job
            already, which is then not begun.
        OccupiedError: another command runs it.
    """
    above = getattr(multiprocessing.parent_process(), "pid", None)
    if _told_to_end.is_set():
        raise SystemExit(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with job_for(above), _interruptible():
            return _trained(job, at_once)
    except OSError as error:  # of the job's own files
        return file_error(error, job.folder)
    except (KeyboardInterrupt, SystemExit):
        _told_to_end.set()
        raise SystemExit(1) from None


@contextlib.contextmanager
def kept_for_a_job() -> Iterator[None]:
    """Processes that are started meanwhile keep Ctrl-C for their first job: one that met it while
    it imports would end in a traceback, and say nothing of its job."""
    resource_tracker.ensure_running()  # it unblocks signals when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C interrupts, also one that came before; between two jobs it waits again."""
    before = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _trained(job: StudyJob, at_once: int) -> str | None:
    from rlmem.runs.train import train

    job.folder.mkdir(parents=True, exist_ok=True)
    clear_error(job.folder)
    if not job.is_here:  # else they stay those of the run that lies there
        write_small(job.folder / "overrides.yaml", yaml.safe_dump(list(job.overrides)))
    with (
        append_text(job.folder / "log.txt") as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        try:
            cfg = composed(job)
            cfg.log.progress = False
            if find_checkpoint(job.folder):
                cfg.resume = "auto"  # not a run that was given: every key comes from study.yaml
            settings = check(cfg)
            settings.overrides = list(job.overrides)
            _check_unchanged(job, settings)
            train(settings, at_once)
        except OccupiedError:
            raise
        except Exception as exc:
            what = str(exc) if isinstance(exc, UserError) else f"{type(exc).__name__}: {exc}"
            line = " ".join(what.split())
            traceback.print_exc()
            write_error(job.folder, line, 1)
            return line
    return None


def _check_unchanged(job: StudyJob, settings: Any) -> None:
    """Raise a UserError where a run was cut off that was begun with another configuration."""
    saved = saved_config(job.folder) if settings.resume else None
    if saved and (changed := differences(saved, settings)):
        raise UserError(
            f"{changed[0]} since this run was cut off; remove {job.folder} to run it anew, or give "
            "what it had in study.yaml to go on"
        )


def composed(job: StudyJob) -> Any:
    """Its configuration. The folder is set behind the overrides: its name may be none that they
    can hold."""
    cfg = compose("train", job.overrides)
    cfg.paths.output_dir = str(job.folder)
    return cfg
