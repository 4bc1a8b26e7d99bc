"""A command's arguments, looked at before Hydra reads them."""

import re
from collections.abc import Iterable, Sequence

from rlmem.config.groups import config_groups, config_options
from rlmem.errors import UserError

MULTIRUN = ("-m", "--multirun")
# Hydra's options, as `python train.py --help` of any program with Hydra takes them.
_OPTIONS = "help hydra-help version cfg resolve package run multirun shell-completion config-path"
_OPTIONS += " config-name config-dir experimental-rerun info"
SWEEP_FOLDER = "hydra.sweep.dir"
_RUN_FOLDERS = "paths.output_dir=", "hydra.run.dir="


def dashes(arguments: list[str]) -> str | None:
    """One line for the first override that is written as an option, `--seed=1` or `-seed=1`, or
    None.

    Hydra would answer with the seven lines of its own usage.
    """
    for argument in arguments:
        option, equals, value = argument.lstrip("-").partition("=")
        known = any(name.startswith(option) for name in _OPTIONS.split())
        one = re.match(r"-\w[\w.]+=", argument)  # one dash: a letter is an option of Hydra's
        if (one or argument.startswith("--")) and option and not known:
            given = f"{option}={value if equals else '...'}"
            return f"{argument}: overrides have no dashes; write {given}"
    return None


def options_first(arguments: Sequence[str]) -> list[str]:
    """Hydra's options with their values, then the overrides, which Hydra takes only where all stand
    together.

    >>> options_first(["memory=per", "--cfg", "job", "env=pong", "-m"])
    ['--cfg', 'job', '-m', 'memory=per', 'env=pong']
    """
    options, overrides = [], []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        plain = "=" not in argument and argument[:1] != "~"  # no override, so an option's value
        own = argument[:1] == "-" or (plain and before[:1] == "-")
        (options if own else overrides).append(argument)
    return options + overrides


def misnamed(arguments: Sequence[str]) -> str | None:
    """One line for the first override that gives a part the name of another, `memory.name=per`, or
    None: it would be the old part under the new name."""
    for argument in arguments:
        group, dot, rest = argument.lstrip("+").partition(".name=")
        for name in re.findall(r"\w+", rest) if dot else ():
            if group in config_groups() and name in config_options(group):
                return f"{argument}: would change the name alone; write {group}={name}"
    return None


def searches(override: str) -> bool:
    """Whether it makes a sweep of the command without -m."""
    key, _, value = override.lstrip("+").partition("=")
    return key == "hparams_search" and value not in ("", "null")


def names_folder(overrides: Iterable[str]) -> bool:
    """Whether an override names the folder of one run: the same by the next command too."""
    return any(o.lstrip("+").startswith(_RUN_FOLDERS) and "${now" not in o for o in overrides)


def check_no_sweep(overrides: Iterable[str]) -> None:
    """Refuse a sweep's folder where there is no sweep.

    Raises:
        UserError: names the override.
    """
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        if key == SWEEP_FOLDER:
            raise UserError(f"{override}: is of a sweep; add -m, or write hydra.run.dir={value}")


def check_folders(overrides: Sequence[str], several: bool) -> None:
    """Refuse a folder without a name, and one folder for all jobs of a sweep, which each have one
    below the sweep's.

    Raises:
        UserError: names the override.
    """
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        if key in ("hydra.run.dir", SWEEP_FOLDER) and value.strip("'\" ") in ("", "null"):
            raise UserError(f"{override}: names no folder; such as {key}=outputs/mine")
        if several and f"{key}=" in _RUN_FOLDERS:
            raise UserError(f"{override}: is of one run; a sweep takes {SWEEP_FOLDER}={value}")
