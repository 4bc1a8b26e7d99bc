"""Where `conf/` lies, and the keys that are no part's own: how long, how often, what is written.

The dataclasses hold types and ranges only; every value, its unit and its meaning stand once, in
`conf/`. What agents, memories, environments and other parts have of keys, they declare themselves
(`rlmem.registry`): here stands only where in the configuration they are.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlmem.settings import Settings, part_of, parts_of, setting

_PACKAGE = Path(__file__).resolve().parents[1]
# Installed, conf/ is the package rlmem.conf; in a checkout it stands beside the package.
CONF_DIR = next((d for d in (_PACKAGE / "conf", _PACKAGE.parent / "conf") if d.is_dir()), _PACKAGE)


@dataclass(kw_only=True)
class ThresholdSettings(Settings):
    """GWR's two thresholds, which sweeps are over."""

    activation: float = setting(above=0, at_most=1)
    habituation: float = setting(above=0, at_most=1)


def _rounds(value: Any) -> str | None:
    fits = value == "auto" or (type(value) is int and 1 <= value <= 10**6)
    return None if fits else "auto or a whole number from 1 to 1000000"


def _compile(value: Any) -> str | None:
    return None if isinstance(value, bool) or value == "auto" else "true, false or auto"


def _label(value: Any) -> str | None:
    """A run's files hold it, and are read again."""
    plain = value is None or (isinstance(value, str) and value.isprintable() and "${" not in value)
    return None if plain else "a line of letters, digits, signs and plain spaces, without ${"


@dataclass(kw_only=True)
class TrainerSettings(Settings):
    """How long and on what a run trains."""

    max_env_steps: int = setting(at_least=1, free=True)
    max_episodes: int | None = setting(at_least=1, free=True)
    rounds: Any = setting(check=_rounds, free=True)
    compile: Any = setting(False, check=_compile, free=True)
    accelerator: str = setting(choices=("auto", "cpu", "gpu"), free=True)
    devices: int = setting(1, at_least=1, at_most=1024, free=True)
    num_nodes: int = setting(1, at_least=1, at_most=65_536, free=True)
    strategy: str = setting("auto", choices=("auto", "ddp"), free=True)
    precision: str = setting(choices=("32-true", "bf16-mixed"))
    threads: int | None = setting(at_least=1, at_most=4096, free=True)


@dataclass(kw_only=True)
class EvaluationSettings(Settings):
    """Evaluation episodes during and after training."""

    every: int | None = setting(at_least=1, free=True)
    episodes: int = setting(at_least=1, at_most=10**6, free=True)
    epsilon: float = setting(at_least=0, at_most=1, free=True)
    video: bool = setting(free=True)


@dataclass
class CheckpointSettings(Settings):
    """Resumable checkpoints."""

    every: int = setting(at_least=1, free=True)
    reseed_every: int = setting(at_least=1)
    keep_memory_when_finished: bool = setting(free=True)


@dataclass
class LogSettings(Settings):
    """Metrics rows, pictures and the progress bar."""

    every: int = setting(at_least=1, free=True)
    diagnostics: bool = setting(free=True)
    map_every: int | None = setting(at_least=1, free=True)
    progress: bool = setting(free=True)


@dataclass
class PathsSettings(Settings):
    """Where a run writes."""

    output_dir: str = setting(free=True)


@dataclass(kw_only=True)
class TrainSettings(Settings):
    """The settings of a run.

    Attributes:
        values: the same, as plain resolved containers: what config.yaml holds.
        overrides: that the run was asked for with; `resume=<run directory>` repeats them.
        folder_is_named: the user has named this very run's folder, so `resume=auto` looks nowhere
            else.
    """

    # What needs no part's module stands first: its mistakes are told at once.
    seed: int = setting(at_least=0, at_most=2**32 - 1)
    label: str | None = setting(check=_label, free=True)
    resume: str | None = setting(free=True)
    plugins: list[str] = setting([], free=True)
    debug: bool = setting(free=True)
    threshold: ThresholdSettings = setting()
    trainer: TrainerSettings = setting()
    evaluation: EvaluationSettings = setting()
    checkpoint: CheckpointSettings = setting()
    log: LogSettings = setting()
    paths: PathsSettings = setting()
    objective: Any = part_of("objective")
    env: Any = part_of("env", by=("kind", "suite"))
    agent: Any = part_of("agent", by=("kind", "name"))
    memory: Any = part_of("memory")
    logger: dict[str, Any] = parts_of("logger")
    callbacks: dict[str, Any] = parts_of("callbacks")
    values: dict[str, Any] = field(init=False, repr=False, default_factory=dict)
    overrides: list[str] = field(init=False, repr=False, default_factory=list)
    folder_is_named: bool = field(init=False, repr=False, default=False)


@dataclass(kw_only=True)
class EvaluateSettings(Settings):
    """The settings of `evaluate.py`."""

    mode: str = setting(choices=("score", "map", "report", "status", "plot", "dashboard"))
    run: str = setting()
    episodes: int = setting(at_least=1)
    epsilon: float | None = setting(at_least=0, at_most=1)
    video: bool = setting()
    seed: int | None = setting(at_least=0, at_most=2**32 - 1)
    checkpoint: str = setting(choices=("last", "best"))
    runs: list[str] = setting()
    sweep: Any = setting()
    external: Any = setting()
    outsiders: Any = setting()  # the old name of external
    out: str | None = setting()
    project: str = setting()
    entity: str | None = setting()
    plugins: list[str] = setting([])
    debug: bool = setting()
