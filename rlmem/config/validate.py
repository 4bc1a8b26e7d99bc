"""From a composed configuration to settings: every key checked, before anything is built."""

import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlmem import registry
from rlmem.config.errors import example, explain
from rlmem.config.groups import goes_with, plain_values
from rlmem.config.schema import EvaluateSettings, TrainSettings
from rlmem.config.shares import check_shares, processes_of, share_of
from rlmem.errors import UserError
from rlmem.setting_keys import all_parts
from rlmem.settings import UnknownKeyError, fill


def check(cfg: DictConfig) -> TrainSettings:
    """The settings of a training config, fully composed.

    Raises:
        UserError: the first key whose value cannot work, and what would.
    """
    values = _resolve(cfg)
    paths = values.get("paths") or {}
    if not isinstance(paths, dict):
        raise UserError(f"paths={paths}: has keys of its own; write paths.output_dir={paths}")
    if paths.get("output_dir") is None:
        raise UserError("paths.output_dir=null: a run needs a folder; leave the key out")
    registry.load_plugins(values.get("plugins"))
    return read_settings(values)


def read_settings(values: dict[str, Any], *, lenient: bool = False) -> TrainSettings:
    """The settings of plain values, such as those of a run's config.yaml.

    Args:
        lenient: the values are of a saved run, which another version may have written: what they
            lack is today's default, and keys that are unknown today are passed over.

    Raises:
        UserError: a value cannot work.
    """
    try:
        settings = fill(TrainSettings, values, lenient=lenient)
    except UnknownKeyError as error:
        raise UserError(f"{error}{goes_with(error.key)}") from None
    settings.values = values
    check_shares(settings)
    _check_parts(settings)
    if (size := processes_of(settings.trainer)) > 1:
        try:
            _check_parts(share_of(settings, size, settings.seed))
        except UserError as error:
            where = f"in each of {size} processes, which has 1/{size} of what is divided"
            raise UserError(f"{where}: {error}") from None
    _check_schedule(settings)
    agent = settings.agent.part and settings.agent.part.cls
    compiles = getattr(agent, "compiles", True)
    on_gpu = settings.trainer.accelerator != "cpu" and getattr(agent, "recordable", True)
    if settings.trainer.compile is True and not (compiles or on_gpu):
        raise UserError(
            f"trainer.compile=true: the update of agent={settings.agent.name} cannot be compiled; "
            "leave the key out"
        )
    return settings


def _check_parts(settings: TrainSettings) -> None:
    """What each part says of its own settings beside those of the others."""
    for chosen in all_parts(settings):
        needs = getattr(chosen.part and chosen.part.cls, "check", None)
        if needs is not None:
            needs(chosen, settings)


def check_evaluate(cfg: DictConfig) -> EvaluateSettings:
    """The settings of `evaluate.py`.

    Raises:
        UserError: the first key whose value cannot work, and what would.
    """
    values = _resolve(cfg, missing_ok=("run",))
    run = "" if values["run"] in (None, "???") else values["run"]
    if not isinstance(run, str):
        raise UserError(f"run={run}: must be a run directory, such as run=outputs/...")
    settings = fill(EvaluateSettings, {**values, "run": run})
    if settings.mode in ("score", "map") and not settings.run:
        raise UserError("run is not set; give the run directory, such as run=outputs/...")
    if settings.mode == "score" and settings.out is not None:
        raise UserError(
            f"out={settings.out}: scores go into the run's own evaluation/; leave the key out"
        )
    _check_read(settings)
    if settings.mode == "plot":
        settings.runs = [settings.run] * bool(settings.run) + settings.runs
        if not settings.runs:
            raise UserError("runs=[]: nothing to plot; give run directories, such as runs=[a,b]")
    for key in ("sweep", "external", "outsiders"):
        value = getattr(settings, key)
        if not isinstance(value, str) and not (
            isinstance(value, list) and all(isinstance(part, str) for part in value)
        ):
            raise UserError(f"{key}={value}: must be a path or a list of them, such as [a,b]")
    alone = settings.mode == "report" and (settings.external or settings.outsiders)
    if settings.mode in ("report", "status") and not settings.sweep and not alone:
        raise UserError(
            "sweep=[]: nothing to look at; give the folder of a sweep, such as "
            "sweep=multirun/2026-01-01_12-00-00, or several: sweep=[a,b]"
        )
    registry.load_plugins(settings.plugins)
    return settings


# The keys that not every mode reads, and the modes that do.
_PLAYS = ("score", "map")
_READ_BY = {
    "run": (*_PLAYS, "plot"),
    **dict.fromkeys(("episodes", "epsilon", "seed", "checkpoint"), _PLAYS),
    "video": ("score",),
    "runs": ("plot",),
    "sweep": ("report", "status"),
    **dict.fromkeys(("external", "outsiders"), ("report",)),
    **dict.fromkeys(("project", "entity"), ("dashboard",)),
    "out": ("map", "report", "plot", "dashboard"),
}


def _check_read(settings: EvaluateSettings) -> None:
    """Refuse a key that was given and that the mode does not read.

    Raises:
        UserError: names it, and the modes that read it.
    """
    plain = plain_values("evaluate") | {"run": ""}
    for key, modes in _READ_BY.items():
        value = getattr(settings, key)
        if settings.mode not in modes and value != plain[key]:
            raise UserError(
                f"{key}={value}: is not of mode={settings.mode} but of {', '.join(modes)}; leave "
                "it out"
            )


def check_output_dir(
    path: str | Path,
    key: str = "paths.output_dir",
    works: str = "hydra.run.dir=outputs/mine",
) -> None:
    """Make a directory and write to it once, so that a run does not fail at its end.

    Args:
        key: that names it, works: what would.

    Raises:
        UserError: the directory cannot be made or written to.
    """
    try:
        os.makedirs(path, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as exc:
        raise UserError(
            f"{key}={path}: cannot write there ({exc.strerror}); "
            f"give a folder that you may write to, such as {works}"
        ) from exc


def _resolve(cfg: DictConfig, missing_ok: tuple[str, ...] = ()) -> dict[str, Any]:
    for key in _missing(cfg):
        if key in missing_ok:
            continue
        raise UserError(f"{key} is not set; give it, such as {key}={example(cfg, key)}")
    try:
        values = OmegaConf.to_container(cfg, resolve=True)
    except OmegaConfBaseException as exc:
        raise UserError(explain(exc, [])) from exc
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def _missing(node: DictConfig, prefix: str = "") -> Iterator[str]:
    """Keys that are to be given and are not."""
    for name in node:
        child, key = node._get_node(name), f"{prefix}{name}"
        if child is None or child._is_none() or child._is_interpolation():
            continue
        if child._is_missing():
            yield key
        elif isinstance(child, DictConfig):
            yield from _missing(child, f"{key}.")


def _check_schedule(run: TrainSettings) -> None:
    agent, num_envs = run.agent, run.env.num_envs
    max_env_steps = run.trainer.max_env_steps
    if agent.learning_starts >= max_env_steps:
        raise UserError(
            f"agent.learning_starts={agent.learning_starts}: the run ends before, at "
            f"trainer.max_env_steps={max_env_steps}; lower the one or raise the other"
        )
    train_every, updates = agent.train_every, agent.updates_per_step
    env_steps = train_every * updates
    if env_steps % num_envs:
        several = f" and agent.updates_per_step={updates}" if updates > 1 else ""
        processes = processes_of(run.trainer)  # each has as many envs
        counts = range(processes, min(env_steps, 64) + 1, processes)
        fits = [str(n) for n in counts if env_steps % n == 0]
        works = f"agent.updates_per_step={num_envs // math.gcd(train_every, num_envs)}"
        if fits:
            works = f"env.num_envs={', '.join(fits[:-1])}{' or ' * (len(fits) > 1)}{fits[-1]}"
        raise UserError(
            f"agent.train_every={train_every}{several} with env.num_envs={num_envs}: "
            f"{env_steps} env steps a round cannot be shared evenly by {num_envs} envs; "
            f"use {works}"
        )
