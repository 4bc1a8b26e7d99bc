"""A plugin for tests: what each process of a run holds at its end, and one that fails."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning
from safetensors.torch import save_file

from rlmem import distributed
from rlmem.errors import UserError
from rlmem.registry import part
from rlmem.settings import Settings, setting


@dataclass(kw_only=True)
class OfEachSettings(Settings):
    """Which process fails, and when."""

    fails: int = setting(-1, help="number of the process that fails; -1: none")
    moves: int = setting(-1, help="number of the process whose weights move by themselves")


@part("callbacks", "of_each", settings=OfEachSettings)
class OfEach(lightning.Callback):
    """Writes each process's weights into the run directory."""

    def __init__(self, settings: OfEachSettings, run: Any, run_dir: Path) -> None:
        self.settings, self.run_dir = settings, run_dir

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        """Fail, or move a weight."""
        if self.settings.fails == distributed.rank:
            raise UserError("agent.lr=7: too much for this process")
        if self.settings.moves == distributed.rank:
            next(pl_module.parameters()).data.add_(1e-3)

    def on_train_end(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        """Write."""
        state = {n: t.contiguous() for n, t in pl_module.state_dict().items() if "_extra" not in n}
        save_file(state, self.run_dir / f"weights_{trainer.global_rank}.safetensors")
