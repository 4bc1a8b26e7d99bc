"""One training run, from its configuration to its summary."""

import contextlib
import gc
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from rlmem import distributed, registry
from rlmem.agents.compiled import check_compiles
from rlmem.allocator import keep_freed_memory
from rlmem.callbacks.checkpoint_files import find_checkpoint, note_other_length
from rlmem.callbacks.progress import summary_line, summary_table
from rlmem.callbacks.weights import begins_anew
from rlmem.config.quoting import override_key
from rlmem.config.run_directory import saved_config
from rlmem.config.schema import TrainSettings
from rlmem.config.sweep_place import Place, place_of_this_job
from rlmem.errors import OccupiedError, UserError, shortage
from rlmem.machine import reset_peak_rss
from rlmem.runs import others, processes
from rlmem.runs.preflight import preflight, slow_precision
from rlmem.runs.repeatable import repeatable
from rlmem.runs.resume import (
    command_to_go_on,
    finished_summary,
    follows,
    lock_run,
    other_length,
    resolve_run_dir,
    write_config,
)
from rlmem.runs.run import Run
from rlmem.runs.summary import no_episode_ended, nothing_learned
from rlmem.runs.sweep_job import job_line
from rlmem.runs.threads import choose_threads
from rlmem.setting_keys import idle_keys


def _quiet() -> None:
    """Silence what Lightning says about training loops that are not ours."""
    import logging

    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")


def _long_enough(cfg: TrainSettings, done: dict[str, Any]) -> bool:
    """Whether a finished run has come to the length that is asked for."""
    episodes = cfg.trainer.max_episodes
    enough = episodes is not None and (done.get("episodes") or 0) >= episodes
    return enough or done["env_steps"] >= cfg.trainer.max_env_steps


def train(cfg: TrainSettings, at_once: int = 1) -> Any:
    """Train one run and return its objective, a number or a pair, for a search.

    Args:
        at_once: see `train_run`.

    Raises:
        UserError, SystemExit: see `train_run`.
    """
    return cfg.objective.build().value(train_run(cfg, at_once)[1])


def train_run(cfg: TrainSettings, at_once: int = 1) -> tuple[Path, dict[str, Any]]:
    """Train one run; its directory and the content of its summary.json.

    Args:
        at_once: runs on this machine at the same time, this one among them, so that it is said
            whether the memories of all fit. A job of a sweep knows.

    Raises:
        UserError: a mistake in the configuration, or the machine has no more of what a run takes.
        SystemExit: 128 + the signal's number after a signal, when the run is saved.
    """
    on_gpu = cfg.trainer.accelerator != "cpu" and torch.cuda.is_available()
    if cfg.trainer.accelerator == "gpu" and not on_gpu:
        raise UserError("trainer.accelerator=gpu: torch finds no GPU here; use cpu or auto")
    if cfg.trainer.compile is True:
        check_compiles(cfg.agent.part.cls, on_gpu)
    with processes.met(cfg):
        place = _place(cfg) if distributed.rank == 0 else None
        folder, resuming, done = distributed.from_first(place)
        run_dir = Path(folder)
        job = place_of_this_job()
        if done:
            _say((f"{job.name}: " if job else "") + f"finished already: {run_dir}")
            return run_dir, done
        if job and distributed.rank == 0:
            _say(job_line(job))
        try:
            with others.made(_train_here, cfg, run_dir, resuming):
                return run_dir, _train_here(cfg, run_dir, resuming, at_once)
        except UserError:
            raise
        except (OSError, MemoryError, RuntimeError, ImportError, ValueError) as error:
            if (spent := shortage(error)) is None:
                raise
            saved = find_checkpoint(run_dir) is not None
            again = f"; make room and go on with: {command_to_go_on(run_dir)}" if saved else ""
            raise UserError(f"{spent}; the run cannot go on{again}") from error


def _place(cfg: TrainSettings) -> tuple[str, bool, dict[str, Any] | None]:
    """Where a run writes, whether it goes on with what is there, and its summary if it is done."""
    multirun = place_of_this_job() is not None
    run_dir, resuming = resolve_run_dir(cfg, Path(cfg.paths.output_dir), multirun)
    done = finished_summary(run_dir)
    return str(run_dir), resuming, done if done and _long_enough(cfg, done) else None


def _say(text: str) -> None:
    """Print, in the first process."""
    if distributed.rank == 0:
        print(text, flush=True)


def _train_here(
    cfg: TrainSettings, run_dir: Path, resuming: bool, at_once: int = 1
) -> dict[str, Any]:
    """What each process of a run does; the summary."""
    started = time.perf_counter()
    _quiet()
    gc.collect()  # a run before this one: its parts hold each other, and with them its memory
    reset_peak_rss()
    run, job = Run(cfg, run_dir), place_of_this_job()
    # Whatever fails from here on, all that was opened is let go of, the last first.
    with contextlib.ExitStack() as opened:
        opened.callback(torch.set_flush_denormal, False)
        opened.callback(run.let_go)
        opened.enter_context(lock_run(run_dir))
        if distributed.rank == 0:
            _check_still_to_do(cfg, run_dir, resuming)
        cut_off = not resuming and _has_rows(run_dir / "metrics.csv")
        changed = follows(saved_config(run_dir) or {}, cfg) if resuming else []
        _prepare(cfg, run, run_dir, job, at_once)
        if cut_off:
            _say(
                "WARNING: the run that lay there had no checkpoint, so this one begins anew; "
                f"the first is saved after checkpoint.every={cfg.checkpoint.every} env steps"
            )
        if resuming:
            _say("; ".join([f"resumed at {run.stream.env_steps:,} env steps", *changed]))
        summary = _fit(run)
        learns = run.stream.memory.draws
    seconds = time.perf_counter() - started
    if job is None:
        _say(summary_table(summary, seconds))
        if learns and not (run_dir / "checkpoints/last/memory").is_dir() and not run.stopped:
            _say(
                "Its memory was not kept; with checkpoint.keep_memory_when_finished=true a run can "
                "go on for longer later, and its memory be looked at."
            )
    else:
        _say(("" if job.alone else f"job {job.number}: ") + summary_line(summary, seconds))
    if learns and (warning := nothing_learned(summary)):
        _say(warning)
    if cut := no_episode_ended(summary, cfg.checkpoint.reseed_every, cfg.env.num_envs):
        _say(cut)
    if stopped := run.signals.received or run.stopped:
        run.signals.pass_on()
        _say(f"go on with: {command_to_go_on(run_dir)}")
        sys.exit(128 + stopped)
    return summary


def _check_still_to_do(cfg: TrainSettings, run_dir: Path, resuming: bool) -> None:
    """Another process may have trained here between the look into the folder and its lock.

    Raises:
        OccupiedError: it has.
    """
    done = finished_summary(run_dir)
    begun = not resuming and find_checkpoint(run_dir) is not None
    if begun or (done and _long_enough(cfg, done)):
        raise OccupiedError(
            f"{run_dir}: another process has trained there just now; the same command again sees it"
        )


def _has_rows(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.stat().st_size > 0
    return False


def _without_effect(cfg: TrainSettings, agent: Any) -> Iterator[str]:
    """Warnings of what a user gave that changes nothing: keys beside the values of others, those
    that the agent does not read in this run, and the first `threshold.*` where the memory has no
    thresholds."""
    idle = idle_keys(cfg)
    for key, given in {override_key(o): o for o in cfg.overrides if o[:1] != "~"}.items():
        unread = any(f"{key}.".startswith(f"agent.{name}.") for name in agent.unread)
        if why := idle.get(key) or (unread and agent.unread_with):
            yield f"WARNING: {given}: has no effect with {why}"
    thresholds = [o for o in cfg.overrides if override_key(o).split(".")[0] == "threshold"]
    if thresholds and not getattr(cfg.memory.part.cls, "thresholds", False):
        have = registry.marked("memory", "thresholds")
        why = f"memory={cfg.memory.name} reads no thresholds; memory={have} does"
        yield f"WARNING: {thresholds[0]}: {why}"


def _prepare(cfg: TrainSettings, run: Run, run_dir: Path, job: Place | None, at_once: int) -> None:
    """Set up the process, say what the run takes, and go on from its checkpoint if there is one.
    A job of a sweep says nothing that is of this machine and not of its run."""
    threads = 0
    if distributed.rank == 0:
        threads = choose_threads(cfg.trainer.threads, run.agent, run_dir, cfg.trainer.devices)
    torch.set_num_threads(distributed.from_first(threads))
    keep_freed_memory()
    # Adam's moments fade into denormal numbers, which cost a small network a tenth of its speed.
    torch.set_flush_denormal(True)
    if job is None:
        _say(f"run directory: {run_dir}")
    # A run that ends by its episodes may be far shorter than its env steps allow.
    steps = None if cfg.trainer.max_episodes else cfg.trainer.max_env_steps
    beside = job.here if job else at_once
    fits, *warned = preflight(run.stream.memory, distributed.size, steps, beside).splitlines()
    held, _, room = fits.partition("; ")
    for line in [held, *([] if job else [room]), *warned]:
        _say(line)
    if slow := slow_precision(cfg.trainer.precision, run.trainer.strategy.root_device.type):
        _say(slow)
    for line in _without_effect(cfg, run.agent):
        _say(line)
    if run.agent.remark:
        _say(f"WARNING: {run.agent.remark}")
    if lost := begins_anew(run.agent):
        _say(
            f"WARNING: agent={cfg.agent.name}: a checkpoint keeps its optimizer alone; what it "
            f"keeps as {', '.join(lost)} begins anew on resume"
        )
    run.restore()
    if distributed.rank == 0:
        if run.stream.env_steps and other_length(saved_config(run_dir) or {}, cfg):
            note_other_length(run_dir, run.stream.env_steps)
        write_config(cfg, run_dir)
        # Of the segment that is gone on with.
        (run_dir / "summary.json").unlink(missing_ok=True)


def _fit(run: Run) -> dict[str, Any]:
    """Train, and write the summary whatever happens; the summary."""
    status, error, summary = "failed", None, None
    try:
        with repeatable(run.trainer.strategy.root_device):
            summary = run.fit()
    except BaseException as exc:
        # Of Ctrl-C Lightning makes a SystemExit.
        if run.signals.received and isinstance(exc, KeyboardInterrupt | SystemExit):
            status = "interrupted"  # a second signal, or one in the final evaluation
        elif isinstance(exc, SystemExit) and isinstance(exc.__context__, KeyboardInterrupt):
            status = "interrupted"  # while Lightning sets up, before the run's own handlers
            raise KeyboardInterrupt from None
        else:
            whole = "".join(traceback.format_exception_only(exc)).strip()
            error = str(exc) if isinstance(exc, UserError) else whole
            raise
    finally:
        summary = summary or run.summary(status, error)
        run.close(summary)
    return summary
