"""An agent without a network: it asks its memory what actions are worth, and takes the best.

All learning is the memory's (`rlmem.memories.values`), and so are all bytes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlmem.agents.base import (
    AgentSettings,
    Learner,
    best_at_random,
    check_fixed,
    or_random,
)
from rlmem.errors import UserError
from rlmem.registry import marked, part
from rlmem.settings import setting


@dataclass(kw_only=True)
class TabularSettings(AgentSettings):
    """How often it tries something else."""

    extends = "tabular"

    epsilon: float = setting(at_least=0, at_most=1)


@part("agent", "tabular", settings=TabularSettings)
class Tabular(Learner):
    """Greedy with respect to the memory's values, ties at random.

    Args:
        settings: the `agent` node of the configuration.
        num_actions: number of discrete actions.
    """

    asks = True

    @classmethod
    def check(cls, settings: TabularSettings, run: Any) -> None:
        """What it needs.

        Raises:
            UserError: the memory does not answer, or learns only after further actions.
        """
        if not getattr(run.memory.part.cls, "keys_are_observations", False):
            raise UserError(
                f"memory={run.memory.name}: agent={settings.name} has no network, so its memory "
                "must answer for observations as they are; use "
                f"memory={marked('memory', 'keys_are_observations')}"
            )
        usual = {"batch_size": 1, "learning_starts": 0}
        check_fixed(settings, usual, "learns from each step as it comes, from the first on")
        steps = settings.train_every * settings.updates_per_step
        if steps != run.env.num_envs:
            raise UserError(
                f"agent.train_every={settings.train_every}: agent={settings.name} learns after "
                f"each step; use agent.train_every={run.env.num_envs} agent.updates_per_step=1"
            )

    @classmethod
    def build(cls, settings: TabularSettings, run: Any, spec: Any) -> "Tabular":
        """The agent for an environment; the memory says whether it can key it."""
        return cls(settings, spec.num_actions)

    def __init__(self, settings: TabularSettings, num_actions: int) -> None:
        super().__init__()
        self.cfg, self.num_actions = settings, num_actions
        self._values: Any = None

    def configure_optimizers(self) -> None:
        """None."""

    def join(self, memory: Any) -> None:
        """Ask this memory from here on."""
        self._values = memory.values

    def epsilon(self, env_steps: int) -> float:
        """The same throughout."""
        return self.cfg.epsilon

    def act(self, observation: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
        """Actions int64 [E] for observations [E, ...]; the memory stays as it is."""
        return self._play(observation, epsilon, rng, touch=False)

    def explore(
        self, observation: np.ndarray, epsilon: float, rng: np.random.Generator
    ) -> np.ndarray:
        """As `act`, and what is looked up counts as used."""
        return self._play(observation, epsilon, rng, touch=True)

    def _play(
        self, observation: np.ndarray, epsilon: float, rng: np.random.Generator, touch: bool
    ) -> np.ndarray:
        values, _ = self._values.read(self._values.embed(observation), touch=touch)
        return or_random(best_at_random(values, rng), epsilon, self.num_actions, rng)
