"""The same rows in Weights & Biases, by section, over env steps; offline when there is no key.

`step=` is never passed: W&B then drops rows that are not monotone. Offline runs cannot be appended
to (`resume` is ignored without a word), so each segment of a resumed run is a W&B run of its own,
`<id>-<segment>`, in the same group, with `run.id` in its configuration; no two segments ever have
the same id. The CSV files hold the whole.
"""

import copy
import json
import os
import secrets
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlmem.callbacks.checkpoint import read_manifest
from rlmem.callbacks.checkpoint_files import BEST, MODEL, find_checkpoint
from rlmem.config.schema import TrainSettings
from rlmem.errors import UserError, need, one_line
from rlmem.integrations.wandb_dashboard import (
    MEMORY_TABLE,
    THRESHOLD_COLUMNS,
    THRESHOLD_TABLE,
    VIDEO,
    has_key,
    sent_name,
)
from rlmem.registry import part
from rlmem.run_files import parse_json, read_small, write_small
from rlmem.settings import Settings, setting

MODES = ("online", "offline", "disabled")
FORMER_MODES = {"dryrun": "offline", "run": "online"}  # in WANDB_MODE; W&B still takes them
FLUSH_SECONDS = 1.0  # a kill loses what W&B has not written; by default that is up to 15 s
MODEL_FILES = (
    f"checkpoints/last/{MODEL}",
    f"checkpoints/{BEST}",
    "config.yaml",
    "summary.json",
)


def next_segment(run_dir: Path) -> tuple[str, int]:
    """The run's id and the number of its next segment, taken at once and never given again."""
    path = run_dir / "wandb.json"
    try:
        known = parse_json(read_small(path))
        run_id, segment = str(known["id"]), int(known["segments"]) + 1
    except (OSError, ValueError, KeyError, TypeError):
        run_id, segment = secrets.token_hex(6), 1
    write_small(path, json.dumps({"id": run_id, "segments": segment}) + "\n")
    return run_id, segment


def _has_thresholds(cfg: TrainSettings) -> bool:
    """Whether the memory reads `threshold.*`."""
    return getattr(cfg.memory.part.cls, "thresholds", False)


def default_group(cfg: TrainSettings) -> str:
    """Environment, agent, memory and what tells sweeps of one memory apart, but not the seed."""
    parts = [cfg.env.name, cfg.agent.name, cfg.memory.name]
    if _has_thresholds(cfg):
        parts.append(f"{cfg.threshold.activation:g}-{cfg.threshold.habituation:g}")
    if cfg.memory.budget is not None:
        parts.append(str(cfg.memory.budget))
    return "/".join(parts)


def plain_config(cfg: TrainSettings) -> dict[str, Any]:
    """The configuration as W&B can filter it: no lists, and no keys that the run did not read."""
    config = copy.deepcopy(cfg.values)
    del config["env"]["recommended"]  # other keys were filled from it
    if not _has_thresholds(cfg):
        del config["threshold"]
    return _without_lists(config)


def _without_lists(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_lists(value) for key, value in node.items()}
    return ", ".join(map(str, node)) if isinstance(node, list) else node


@contextmanager
def _staged_in(folder: Path) -> Iterator[None]:
    """Let W&B keep the files of artifacts (a table is one) in a folder until they are sent.

    Its own place is in the home directory, where an offline run would leave half of itself.
    """
    given = os.environ.get("WANDB_DATA_DIR")
    os.environ["WANDB_DATA_DIR"] = given or str(folder)
    try:
        yield
    finally:
        if given is None:
            del os.environ["WANDB_DATA_DIR"]


@dataclass(kw_only=True)
class WandbSettings(Settings):
    """Weights & Biases."""

    project: str = setting(free=True)
    entity: str | None = setting(free=True)
    mode: str | None = setting(choices=MODES, free=True)
    group: str | None = setting(free=True)
    tags: list[str] = setting(free=True)
    log_model: bool = setting(free=True)


@part("logger", "wandb", settings=WandbSettings)
class WandbLogger:
    """Sends rows to one W&B run, started at the first row.

    Args:
        settings: project, entity, mode, group, tags and log_model.
        cfg: those of the run.
        run_dir: W&B's own files go into its `wandb/`.
        name: of the W&B run.

    Raises:
        UserError: wandb is not installed, its key or WANDB_MODE is none, or there is no key for
            the mode online.
    """

    def __init__(
        self, settings: WandbSettings, cfg: TrainSettings, run_dir: Path, name: str
    ) -> None:
        wandb = need("wandb", "logger=wandb", "wandb")
        self._options = settings
        self._wandb, self._cfg, self._run_dir, self._name = wandb, cfg, run_dir.absolute(), name
        self._run: Any = None
        self._id, self._mode = "", self._chosen_mode()
        checkpoint = find_checkpoint(run_dir)
        self._from_env_steps = read_manifest(checkpoint)["env_steps"] if checkpoint else 0

    def _chosen_mode(self) -> str:
        given = os.environ.get("WANDB_MODE", "")
        chosen = self._options.mode or FORMER_MODES.get(given, given)
        if chosen in ("offline", "disabled"):
            return chosen
        if chosen not in ("", "online"):
            raise UserError(f"WANDB_MODE={given}: use one of {', '.join(MODES)}")
        if has_key(self._wandb):
            return "online"
        if chosen:
            key = "logger.wandb.mode" if self._options.mode else "WANDB_MODE"
            raise UserError(
                f"{key}=online: there is no W&B key here; run `wandb login`, or use "
                "logger.wandb.mode=offline"
            )
        return "offline"

    def _start(self) -> Any:
        mode = self._mode
        self._id, segment = next_segment(self._run_dir)
        if mode == "offline":
            folder = shlex.quote(str(self._run_dir))
            print(f"W&B offline; send it later with: wandb sync {folder}/wandb/offline-*")
        try:
            run = self._init(segment, mode)
        except self._wandb.errors.UsageError as error:  # what was set can never work
            raise self._refused(error) from None
        except self._wandb.errors.Error as error:
            if mode != "online":
                raise self._refused(error) from None
            print(f"W&B cannot be reached ({error}): the run is recorded offline", flush=True)
            self._wandb.teardown()  # its service still holds the run's id
            run = self._init(segment, "offline")
        except ValueError as error:  # such as a tag that is too long
            raise self._refused(error) from None
        run.define_metric("env_steps")
        run.define_metric("*", step_metric="env_steps")
        return run

    def _refused(self, error: Exception) -> UserError:
        options = self._options
        given = f"project={options.project}, entity={options.entity}, tags={options.tags}"
        return UserError(f"logger.wandb: W&B refuses {given} ({one_line(error)}); change them")

    def _init(self, segment: int, mode: str) -> Any:
        cfg, options = self._cfg, self._options
        tags = dict.fromkeys([cfg.memory.name, cfg.env.name, cfg.agent.name, *options.tags])
        this = {"id": self._id, "segment": segment, "from_env_steps": self._from_env_steps}
        return self._wandb.init(
            project=options.project,
            entity=options.entity,
            id=f"{self._id}-{segment}",
            group=options.group or default_group(cfg),
            tags=list(tags),
            job_type="train",
            name=self._name if segment == 1 else f"{self._name}-segment{segment}",
            dir=str(self._run_dir),
            mode=mode,
            config={**plain_config(cfg), "run": this},
            reinit="finish_previous",
            settings=self._wandb.Settings(
                console="off", silent=True, x_transaction_log_flush_interval=FLUSH_SECONDS
            ),
        )

    def log(self, row: dict[str, Any]) -> None:
        """Send one row without its empty cells, with the video if it is an evaluation's."""
        if self._run is None:
            self._run = self._start()
        sent = {sent_name(name): value for name, value in row.items() if value is not None}
        if row.get("eval_return_mean") is not None:
            video = self._run_dir / "videos" / f"eval_{row['env_steps']:09d}.mp4"
            if video.exists():
                sent[VIDEO] = self._wandb.Video(str(video), format="mp4")
        self._run.log(sent)

    def image(self, env_steps: int, name: str, path: Path) -> None:
        """Send a picture under a key of its own."""
        if self._run is None:
            self._run = self._start()
        self._run.log({"env_steps": env_steps, name: self._wandb.Image(str(path))})

    def close(self, status: str, summary: dict[str, Any]) -> None:
        """Send tables and model, and finish the W&B run; a failed run is shown as failed."""
        if self._run is None:
            return
        with _staged_in(self._run_dir / "wandb"):
            self._run.log({"env_steps": summary["env_steps"], **self._tables(summary)})
            if status == "finished" and self._options.log_model:
                self._run.log_artifact(self._model(summary))
        plain = {k: v for k, v in summary.items() if isinstance(v, (int, float, str))}
        self._run.summary.update(plain)
        self._run.finish(exit_code=0 if status == "finished" else 1)
        self._run = None

    def _tables(self, summary: dict[str, Any]) -> dict[str, Any]:
        """Bytes by component, and of a scored map one row for the dashboard's heatmap."""
        table, components = self._wandb.Table, summary["memory_components"]
        total = max(1, sum(components.values()))
        rows = [[name, size, size / total] for name, size in components.items()]
        tables = {MEMORY_TABLE: table(columns=["component", "bytes", "share"], data=rows)}
        if _has_thresholds(self._cfg) and summary["eval_return_mean"] is not None:
            values = {**asdict(self._cfg.threshold), **summary}
            row = [values[column] for column in THRESHOLD_COLUMNS]
            tables[THRESHOLD_TABLE] = table(columns=list(THRESHOLD_COLUMNS), data=[row])
        return tables

    def _model(self, summary: dict[str, Any]) -> Any:
        about = {key: summary[key] for key in ("env_id", "env_steps", "eval_return_mean", "seed")}
        artifact = self._wandb.Artifact(f"model-{self._id}", type="model", metadata=about)
        for path in (self._run_dir / file for file in MODEL_FILES):
            if path.exists():
                artifact.add_file(str(path), name=path.name)
        return artifact
