"""Which run a command goes on with, and whether it may."""

import contextlib
import fcntl
import math
import os
import time
from pathlib import Path
from typing import IO, Any

import yaml

from rlmem import distributed, machine
from rlmem.analysis.read.runs import ENV_ARGUMENTS, flatten
from rlmem.callbacks.checkpoint import read_manifest
from rlmem.callbacks.checkpoint_files import find_checkpoint, no_checkpoint, remove_leftovers
from rlmem.callbacks.records import COLUMNS, cut_files
from rlmem.config.quoting import shell_override
from rlmem.config.run_directory import check_folder, check_taken, no_run, saved_config
from rlmem.config.schema import TrainSettings
from rlmem.config.shares import processes_of
from rlmem.errors import OccupiedError, UserError
from rlmem.run_files import RUN_FILE, Kind, check_kinds, lock_file, why_not, write_small
from rlmem.runs.summary import read_summary, why_no_checkpoint, write_summary
from rlmem.setting_keys import free_keys

COUNT = Kind(int, low=0)  # of env steps
_SCORE = Kind(int, float, low=-1e300, high=1e300, none=True)
# What is asked of a finished run's summary where it has it; it may be another version's.
_ASKED = {"episodes": COUNT, "memory_bytes_peak": COUNT, "eval_return_mean": _SCORE}


def differences(saved: dict[str, Any], asked: TrainSettings) -> list[str]:
    """Keys that bind a run to its past and differ: 'agent.lr was 0.0001, is 0.001'.

    Settings say of a key that it is free to differ. What only fills other keys in is free too, and
    a key that the saved run does not have is of a version after it.
    """
    free = (*free_keys(asked), "objective.", "logger.", "callbacks.", "env.recommended.")
    return [line for key, line in _changed(saved, asked) if not key.startswith(free)]


def follows(saved: dict[str, Any], asked: TrainSettings) -> list[str]:
    """Keys of agent and memory that may differ and do, as a schedule over the run's length does
    where that is another: 'memory.sampler.beta_steps was 20000, is 40000'."""
    free = tuple(free_keys(asked))
    return [
        line
        for key, line in _changed(saved, asked)
        if key.startswith(("agent.", "memory.")) and key.startswith(free)
    ]


def other_length(saved: dict[str, Any], asked: TrainSettings) -> bool:
    """Whether a run is to be of another length than it was."""
    trainer, now = saved.get("trainer") or {}, asked.trainer
    before = trainer.get("max_env_steps"), trainer.get("max_episodes")
    return bool(trainer) and before != (now.max_env_steps, now.max_episodes)


def _changed(saved: dict[str, Any], asked: TrainSettings) -> list[tuple[str, str]]:
    """Keys of a saved configuration that are asked for otherwise, and a line of each."""
    before, now = flatten(saved), flatten(asked.values)
    # The environment's own arguments are open: one that was added makes another task.
    before = {key: "not given" for key in now if key.startswith(ENV_ARGUMENTS)} | before
    return [
        (key, f"{key} was {before[key]}, is {now.get(key)}")
        for key in sorted(before)
        if before[key] != now.get(key)
    ]


def write_config(cfg: TrainSettings, run_dir: Path) -> None:
    """Write config.yaml, and the overrides that `resume=<run directory>` is to repeat."""
    overrides = [o for o in cfg.overrides if not o.startswith("resume=")]
    files = {run_dir / "config.yaml": cfg.values, run_dir / "overrides.yaml": overrides}
    for path, content in files.items():
        write_small(path, yaml.safe_dump(content, sort_keys=False))


def command_to_go_on(run_dir: Path) -> str:
    """What goes on with a run, as a shell takes it."""
    return f"python train.py {shell_override('resume', str(run_dir))}"


def lock_run(run_dir: Path) -> IO[str]:
    """Hold a run directory until the returned file is closed (or the process ends); of several
    processes the first holds it for all.

    Raises:
        OccupiedError: another process is training there.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    try:
        lock = lock_file(run_dir / ".lock")
    except OSError as error:
        raise UserError(f"{run_dir}/.lock {why_not(error)}") from None
    if distributed.rank:
        return lock
    for _ in range(5):  # who reads a sweep's status holds it for an instant
        try:
            machine.lock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            time.sleep(0.02)
    lock.close()
    raise OccupiedError(f"{run_dir}: another process is training there; wait or stop it")


def finished_summary(run_dir: Path) -> dict[str, Any] | None:
    """The summary of a run that has finished, None of one that has not.

    A run has finished when its last checkpoint says so. One that was killed after that, before
    its summary.json, or when it was to go on for longer, is left here as it had finished.

    Raises:
        UserError: another process is training there, or the summary or the checkpoint is damaged.
    """
    summary = read_summary(run_dir)
    if summary and summary.get("status") == "finished":
        mend = "remove it, and its last checkpoint says so"
        _check_summary(summary, f"{run_dir}/summary.json", mend)
        return summary
    folder = find_checkpoint(run_dir)
    manifest = read_manifest(folder) if folder else {}
    if folder is None or not (summary := manifest.get("summary")):
        return None
    _check_summary(summary, f"{folder}/manifest.json", "put it back as it was")
    with lock_run(run_dir):
        cut_files(run_dir, manifest)
        remove_leftovers(folder)
        write_summary(run_dir, summary)
    return summary


def _check_summary(summary: dict[str, Any], where: str, mend: str) -> None:
    """Refuse a finished run's summary without what a command that meets it asks of it."""
    try:
        there = {name: kind for name, kind in _ASKED.items() if name in summary}
        check_kinds(summary, {"env_steps": COUNT, **there})
    except ValueError as error:
        raise UserError(f"{where}: is damaged, as {error}; {mend}") from None


def _is_locked(run_dir: Path) -> bool:
    try:
        lock_run(run_dir).close()
    except UserError:
        return True
    return False


def _saved(run_dir: Path) -> dict[str, Any]:
    """The configuration of a run that is gone on with.

    Raises:
        UserError: it cannot be read, so that nobody knows whose checkpoint lies there.
    """
    saved = saved_config(run_dir)
    if saved is None:
        raise UserError(
            f"{run_dir}/config.yaml is missing or damaged, and a run lies there; put it back, or "
            "give another directory"
        )
    return saved


def _check_whole(run_dir: Path) -> None:
    """Raise a UserError where a checkpoint lies that is none: it would be written over."""
    if why := no_checkpoint(run_dir):
        raise UserError(f"{why}; put it back, or remove {run_dir}/checkpoints to start anew")


def resolve_run_dir(cfg: TrainSettings, output_dir: Path, multirun: bool) -> tuple[Path, bool]:
    """Where this command runs, and whether it resumes what lies there.

    Raises:
        UserError: there is nothing to resume, it is of another configuration, or the output
            directory holds another run.
    """
    if multirun and output_dir.is_symlink():  # the user has named the sweep's folder alone
        raise UserError(f"{output_dir} is a link, and jobs write below their sweep; remove it")
    # A folder of the user's own, in which a run begins, may have links of any kind.
    if multirun or any(
        map(os.path.lexists, (output_dir / "config.yaml", output_dir / "checkpoints"))
    ):
        check_folder(output_dir)
    if cfg.resume is None:
        _check_whole(output_dir)
        if not _holds_run(output_dir):  # at most one that was begun
            _check_foreign(output_dir)
            return output_dir, False
        _saved(output_dir)
        if multirun:  # the same sweep again: go on with its jobs
            return _checked(output_dir, cfg), find_checkpoint(output_dir) is not None
        raise UserError(
            f"{output_dir}: holds a run already; {shell_override('resume', str(output_dir))} goes "
            "on with it; for a new run give another directory (hydra.run.dir=..., or "
            "run_dir=... in Python)"
        )
    if cfg.resume == "auto":
        found = output_dir if multirun or _holds_run(output_dir) else None
        if not (found or cfg.folder_is_named):
            found = _newest_unfinished(output_dir, cfg)
        if found:
            check_folder(found)
        _check_whole(found or output_dir)
        if found is None or find_checkpoint(found) is None:
            _check_foreign(output_dir)
            return output_dir, False
        return _checked(found, cfg), True
    run_dir = Path(cfg.resume).resolve()
    if saved_config(run_dir) is None:
        raise no_run(run_dir, f"resume={cfg.resume}")
    _checked(run_dir, cfg)
    check_taken(cfg)
    check_folder(run_dir)
    _check_whole(run_dir)
    if find_checkpoint(run_dir) is None:
        first = f"the first is due after checkpoint.every={cfg.checkpoint.every} env steps"
        why = why_no_checkpoint(run_dir, f"it has no checkpoint yet ({first}): start it anew")
        raise UserError(f"resume={cfg.resume}: {why}")
    return run_dir, True


def _check_foreign(folder: Path) -> None:
    """Refuse a folder with files of a run's names that no run has begun with: run.json is the first
    that one writes.

    Raises:
        UserError: names one.
    """
    if os.path.lexists(folder / RUN_FILE):
        return
    if there := [name for name in (*COLUMNS, "summary.json") if os.path.lexists(folder / name)]:
        raise UserError(
            f"{folder}: holds {there[0]} of another program, which a run would write over; give "
            "another directory (hydra.run.dir=..., or run_dir=... in Python)"
        )


def _holds_run(folder: Path) -> bool:
    """Whether there is something that a new run would write over: it goes first."""
    finished = (read_summary(folder) or {}).get("status") == "finished"
    return finished or find_checkpoint(folder) is not None


def _checked(run_dir: Path, asked: TrainSettings) -> Path:
    saved = _saved(run_dir)
    had, have = _processes(saved), processes_of(asked.trainer)
    if had != have:
        raise UserError(
            f"resume={run_dir}: that run has {had} process{'es' * (had > 1)}, and "
            f"trainer.devices={asked.trainer.devices} trainer.num_nodes={asked.trainer.num_nodes} "
            f"ask for {have}; use trainer.devices={had} trainer.num_nodes=1"
        )
    if passed := _passed(run_dir, saved, asked):
        reached, before = passed
        raise UserError(
            f"trainer.max_env_steps={asked.trainer.max_env_steps}: {run_dir} is at {reached} env "
            f"steps already, of {before}; use {reached} or more"
        )
    changed = differences(saved, asked)
    if changed:
        more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
        raise UserError(
            f"resume={run_dir}: that run has other settings: {changed[0]}{more}; give the same "
            "overrides, or only resume=<run directory>, which repeats them"
        )
    return run_dir


def _passed(run_dir: Path, saved: dict[str, Any], asked: TrainSettings) -> tuple[int, int] | None:
    """Env steps that a run has made and was to make, if it is past those that are asked for."""
    folder, wanted = find_checkpoint(run_dir), asked.trainer.max_env_steps
    reached = read_manifest(folder)["env_steps"] if folder else 0
    before = (saved.get("trainer") or {}).get("max_env_steps", wanted)
    return (reached, before) if wanted < min(before, reached) else None


def _is_past(run_dir: Path, saved: dict[str, Any], asked: TrainSettings) -> bool:
    with contextlib.suppress(UserError):  # damaged: who goes on with it is told
        return _passed(run_dir, saved, asked) is not None
    return False


def _processes(saved: dict[str, Any]) -> int:
    """Processes of a run, of which the configuration is given."""
    trainer = saved.get("trainer") or {}
    counts = (trainer.get("devices", 1), trainer.get("num_nodes", 1))
    return math.prod(count if isinstance(count, int) else 1 for count in counts)


def _newest_unfinished(output_dir: Path, asked: TrainSettings) -> Path | None:
    """The newest run beside `output_dir` with this configuration that did not finish."""
    candidates = [
        config.parent
        for config in output_dir.parent.glob("*/config.yaml")
        if config.parent != output_dir
        and find_checkpoint(config.parent) is not None
        and (read_summary(config.parent) or {}).get("status") != "finished"
        and (saved := saved_config(config.parent)) is not None
        and _processes(saved) == processes_of(asked.trainer)
        and not differences(saved, asked)
        and saved.get("label") == asked.values.get("label")
        and not _is_past(config.parent, saved, asked)
        and not _is_locked(config.parent)
    ]
    return max(candidates, key=lambda d: (d / "config.yaml").stat().st_mtime, default=None)
