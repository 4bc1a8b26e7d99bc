"""What types cannot say: ranges, names and combinations, checked before anything is built."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlmem.config.combinations import (
    check_agent,
    check_consolidation,
    check_hindsight,
    check_memory,
    check_schedule,
    get,
)
from rlmem.config.errors import choose_from, did_you_mean, explain
from rlmem.config.objective import check_objective
from rlmem.config.ranges import EVALUATE_NAMES, EVALUATE_RANGES, TRAIN_NAMES, TRAIN_RANGES, Range
from rlmem.errors import UserError


def check(cfg: DictConfig) -> None:
    """Check a training config, fully composed.

    Raises:
        UserError: the first key whose value cannot work, and what would.
    """
    _check_keys(cfg)
    values = _resolve(cfg, throw_on_missing=True)
    if values["paths"]["output_dir"] is None:
        raise UserError("paths.output_dir=null: a run needs a folder; leave the key out")
    _check_ranges(values, TRAIN_RANGES)
    _check_names(values, TRAIN_NAMES)
    check_memory(values)
    check_consolidation(values)
    check_hindsight(values)
    check_agent(values["agent"], values["env"])
    check_schedule(values)
    check_objective(values["objective"])


def check_evaluate(cfg: DictConfig) -> None:
    """Check the config of `evaluate.py`.

    Raises:
        UserError: the first key whose value cannot work, and what would.
    """
    _check_keys(cfg)
    values = _resolve(cfg, throw_on_missing=False)
    _check_ranges(values, EVALUATE_RANGES)
    _check_names(values, EVALUATE_NAMES)
    if values["mode"] in ("score", "map") and values["run"] == "???":
        raise UserError("run is not set; give the run directory, such as run=outputs/...")
    if values["mode"] == "plot" and not values["runs"]:
        raise UserError("runs=[]: nothing to plot; give run directories, such as runs=[a,b]")
    for key in ("sweep", "external", "outsiders"):
        value = values[key]
        if not isinstance(value, str) and not (
            isinstance(value, list) and all(isinstance(part, str) for part in value)
        ):
            raise UserError(f"{key}={value}: must be a path or a list of them, such as [a,b]")
    if values["mode"] in ("report", "status") and not values["sweep"]:
        raise UserError(
            "sweep=[]: nothing to look at; give the folder of a sweep, such as "
            "sweep=multirun/2026-01-01_12-00-00, or several: sweep=[a,b]"
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


def _resolve(cfg: DictConfig, throw_on_missing: bool) -> dict[str, Any]:
    try:
        values = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=throw_on_missing)
    except OmegaConfBaseException as exc:
        raise UserError(explain(exc, [])) from exc
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def _check_keys(cfg: DictConfig, prefix: str = "") -> None:
    """Keys forced in with + or ++ that no schema knows: nothing would read them."""
    schema = OmegaConf.get_type(cfg)
    known = [f.name for f in fields(schema)] if is_dataclass(schema) else [str(k) for k in cfg]
    for name in map(str, cfg):
        key = f"{prefix}{name}"
        if name not in known:
            near = did_you_mean(name, known).replace("mean ", f"mean {prefix}")
            raise UserError(f"+{key}: no such key, nothing reads it{near or '; leave it out'}")
        child = cfg._get_node(name)
        if isinstance(child, DictConfig) and not (
            child._is_missing() or child._is_none() or child._is_interpolation()
        ):
            _check_keys(child, f"{key}.")


def _check_ranges(values: Mapping[str, Any], ranges: Mapping[str, Range]) -> None:
    for key, allowed in ranges.items():
        value = get(values, key)
        for number in value if isinstance(value, list) else [value]:
            if number is not None and number not in allowed:
                raise UserError(f"{key}={value}: must be {allowed}")


def _check_names(values: Mapping[str, Any], names: Mapping[str, tuple[str, ...]]) -> None:
    for key, allowed in names.items():
        value = get(values, key)
        if value is not None and value not in allowed:
            what = key.split(".")[-2 if key.endswith(".kind") else -1]
            raise UserError(f"{key}={value}: no such {what}{choose_from(value, allowed)}")
