"""What every agent does in a Trainer step, and what it reads of a batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import lightning
import numpy as np
import torch

from rlmem.collect.module import Rounds
from rlmem.memories.base.batch import Batch
from rlmem.settings import Settings, setting


@dataclass(kw_only=True)
class AgentSettings(Settings):
    """The keys that every agent has; their values stand in conf/common/agent.yaml."""

    extends = "/common/agent@_here_"

    name: str = setting()
    gamma: float = setting(at_least=0, at_most=1)
    batch_size: int = setting(at_least=1)
    n_step: int = setting(at_least=1)
    learning_starts: int = setting(at_least=0)
    train_every: int = setting(at_least=1)
    updates_per_step: int = setting(at_least=1)


class Learner(lightning.LightningModule):
    """Learns from the batches of a Trainer step as they come; optimizes by itself.

    A subclass says how it learns (`update`) and plays (`act`, `explore`, `epsilon`). Its networks
    rest in evaluation mode and are in training mode while it learns.

    Attributes:
        discrete: whether its actions are numbers; else they are points of a box.
        has_action_values: whether `online` gives the values of all actions of a state.
    """

    discrete: ClassVar[bool] = True
    has_action_values: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, rounds: Rounds, batch_idx: int) -> dict[str, torch.Tensor]:
        """Learn from each batch before the next is played for; what `update` gave of the last
        (nothing where the last round drew none)."""
        outputs: dict[str, torch.Tensor] = {}
        for batch in rounds:
            outputs = {}
            if batch:
                outputs = self.update(batch)
                rounds.learned(batch, outputs)
            self.round_ended(rounds.episodes_ended)
        return outputs

    def update(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Gradient steps on U minibatches [U, B].

        Returns:
            `loss` [U] and `td_error` [U, B], detached; where it gives `priority` [U, B], a
            prioritized memory takes that in place of the TD errors.
        """
        raise NotImplementedError

    def round_ended(self, episodes_ended: int) -> None:
        """A round is played and learned from, in which so many episodes ended."""

    def columns(self) -> Mapping[str, tuple[tuple[int, ...], Any]]:
        """Name -> (shape, dtype) of what `explore` gives of each transition beside its action."""
        return {}

    def explore(
        self, observation: np.ndarray, epsilon: float, rng: np.random.Generator
    ) -> np.ndarray:
        """What training plays: actions [E, ...] for observations [E, ...]."""
        raise NotImplementedError


def minibatches(batch: Batch, discounts: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The columns of a batch that every loss reads.

    Args:
        discounts: [n_step + 1], gamma to the power of the steps that a transition spans.

    Returns:
        observation, next observation [U, B, ...], reward, discount and weight [U, B, 1]. The
        discount is 0 where the episode terminated, and there only: a truncated one is bootstrapped
        from.
    """
    discount = discounts.take(batch["steps_to_next"]).masked_fill_(batch["terminated"], 0)
    return (
        batch["observation"],
        batch["next_observation"],
        batch["reward"],
        discount,
        batch["weight"],
    )
