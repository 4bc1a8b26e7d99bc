"""What Lightning promises of agents and callbacks holds here too."""

from pathlib import Path
from typing import Any

import lightning
import torch

from rlmem.agents.dqn import DQN
from rlmem.config import check, compose
from rlmem.runs.run import Run
from tests.runs.helpers import TINY, rows_of


class Logging(DQN):
    """Logs its mean Q value now and then, from the 200th gradient step on."""

    def update(self, batch: Any) -> dict[str, torch.Tensor]:
        outputs = super().update(batch)
        if self.grad_steps >= 100:
            self.log("q_mean", float(self.grad_steps))
            self.log("loss", -1.0)  # a column of every run, which stays
        return outputs


class Seen(lightning.Callback):
    """A user's own."""

    def __init__(self) -> None:
        self.losses: list[torch.Tensor] = []
        self.logged: dict[str, float] = {}

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if outputs:
            self.losses.append(outputs["loss"])
        self.logged = {name: float(value) for name, value in trainer.callback_metrics.items()}


def test_a_callback_sees_outputs_and_what_an_agent_logs_joins_the_rows(tmp_path: Path) -> None:
    run = Run(check(compose("train", [*TINY, f"paths.output_dir={tmp_path}"])), tmp_path)
    seen = Seen()
    run.agent.__class__ = Logging
    run.trainer.callbacks.append(seen)
    run.restore()
    run.trainer.fit(run.agent, datamodule=run.data)
    run.close(run.summary("finished", None))
    assert seen.losses
    assert all(loss.shape == (1,) for loss in seen.losses)
    assert seen.logged["q_mean"] == run.agent.grad_steps
    rows = rows_of(tmp_path / "metrics.csv")
    assert [row["q_mean"] for row in rows] == ["", "101.0", "201.0"]
    assert all(float(row["loss"]) >= 0 for row in rows if row["loss"])
    assert list(rows[0])[-1] == "q_mean"
