"""Copying the target network at the end of episodes, of which an agent knows nothing."""

from typing import Any

import lightning
from omegaconf import DictConfig

from rlmem.data.stream import EnvStepStream


class EpisodeTargets(lightning.Callback):
    """Calls `agent.update_target()` at the end of each Trainer step in which an episode ended."""

    def __init__(self, stream: EnvStepStream) -> None:
        self.stream = stream

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Count from here; a resumed run's episodes before had their updates."""
        self._episodes = self.stream.episodes.count

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Once, however many episodes ended."""
        if self.stream.episodes.count > self._episodes:
            self._episodes = self.stream.episodes.count
            pl_module.update_target()


def target_updates(cfg: DictConfig, stream: EnvStepStream) -> list[EpisodeTargets]:
    """The callback, where the configuration asks for it."""
    agent = cfg.agent
    asked = "target_update_every" in agent and agent.target_update_every == "episode"
    return [EpisodeTargets(stream)] if asked else []
