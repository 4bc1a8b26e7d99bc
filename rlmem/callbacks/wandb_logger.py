"""The same rows in Weights & Biases, over env steps; offline when there is no key.

`step=` is never passed: W&B then drops rows that are not monotone. A resumed run starts a new W&B
run in the same group, because offline runs cannot be appended to; the CSV files hold the whole.
"""

import os
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from rlmem.errors import UserError


class WandbLogger:
    """Sends rows to one W&B run, started at the first row.

    Args:
        cfg: the whole configuration; `logger.wandb` names project, entity, group, tags and mode.
        run_dir: W&B's own files go into its `wandb/`.
        name: of the W&B run.

    Raises:
        UserError: wandb is not installed.
    """

    def __init__(self, cfg: DictConfig, run_dir: Path, name: str) -> None:
        try:
            import wandb
        except ImportError:
            raise UserError("logger=wandb needs wandb: pip install 'rlmem[wandb]'") from None
        self._wandb, self._cfg, self._run_dir, self._name = wandb, cfg, run_dir, name
        self._run: Any = None

    def _mode(self) -> str:
        chosen = self._cfg.logger.wandb.mode or os.environ.get("WANDB_MODE")
        if chosen:
            return chosen
        has_key = bool(os.environ.get("WANDB_API_KEY")) or self._wandb.api.api_key is not None
        return "online" if has_key else "offline"

    def _start(self) -> Any:
        options = self._cfg.logger.wandb
        mode = self._mode()
        if mode == "offline":
            print(f"W&B offline; send it later with: wandb sync {self._run_dir}/wandb/offline-*")
        try:
            run = self._init(options, mode)
        except self._wandb.errors.Error as error:
            if mode != "online":
                raise
            print(f"W&B cannot be reached ({error}): the run is recorded offline", flush=True)
            run = self._init(options, "offline")
        run.define_metric("env_steps")
        run.define_metric("*", step_metric="env_steps")
        return run

    def _init(self, options: Any, mode: str) -> Any:
        return self._wandb.init(
            project=options.project,
            entity=options.entity,
            group=options.group or f"{self._cfg.env.name}/{self._cfg.memory.name}",
            tags=list(options.tags or []),
            job_type="train",
            name=self._name,
            dir=str(self._run_dir),
            mode=mode,
            config=OmegaConf.to_container(self._cfg, resolve=True),
            reinit="finish_previous",
            settings=self._wandb.Settings(console="off", silent=True),
        )

    def log(self, row: dict[str, Any]) -> None:
        """Send one row without its empty cells."""
        if self._run is None:
            self._run = self._start()
        self._run.log({name: value for name, value in row.items() if value is not None})

    def close(self, status: str, summary: dict[str, Any]) -> None:
        """Finish the W&B run; a failed run is shown as failed."""
        if self._run is None:
            return
        plain = {k: v for k, v in summary.items() if isinstance(v, (int, float, str))}
        self._run.summary.update(plain)
        self._run.finish(exit_code=0 if status == "finished" else 1)
        self._run = None
