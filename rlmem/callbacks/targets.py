"""Copying the target network at the end of episodes, of which an agent knows nothing."""

from typing import Any

from tensordict import TensorDict

from rlmem.collect.collector import EnvStepStream


class EpisodeTargets:
    """Calls `agent.update_target()` at the end of each round in which an episode ended."""

    def __init__(self, stream: EnvStepStream, agent: Any) -> None:
        self.stream, self.agent = stream, agent

    def learned(self, batch: TensorDict, outputs: dict[str, Any]) -> None:
        """Once, however many episodes ended."""
        if self.stream.episode_ended:
            self.agent.update_target()


def target_updates(cfg: Any, stream: EnvStepStream, agent: Any) -> list[EpisodeTargets]:
    """The listener, where the configuration asks for it."""
    asked = getattr(cfg.agent, "target_update_every", None) == "episode"
    return [EpisodeTargets(stream, agent)] if asked else []
