"""What every agent does in a Trainer step, and what it reads of a batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import lightning
import numpy as np
import torch
from torch import nn

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
        takes_sequences: whether it learns from batches [U, B, T] of runs of transitions.
        compiles: whether `_update`, a function of one minibatch, can be one compiled graph; then
            `optimizer` is a `FusedAdam`.
    """

    discrete: ClassVar[bool] = True
    has_action_values: ClassVar[bool] = False
    takes_sequences: ClassVar[bool] = False
    compiles: ClassVar[bool] = False
    optimizer: Any
    _update: Any

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self._by_flag: list[dict[str, Any]] | None = None  # see `_set_mode`

    def on_train_start(self) -> None:
        """Networks rest in evaluation mode; Lightning starts with training mode."""
        self._by_flag = None
        self.eval()

    def training_step(self, rounds: Rounds, batch_idx: int) -> dict[str, torch.Tensor]:
        """Learn from each batch before the next is played for; what `update` gave of the last
        (nothing where the last round drew none)."""
        outputs: dict[str, torch.Tensor] = {}
        for batch in rounds:
            outputs = {}
            if batch:
                self._set_mode(training=True)
                outputs = self.update(batch)
                self._set_mode(training=False)
                rounds.learned(batch, outputs)
            self.round_ended(rounds.episodes_ended)
        return outputs

    def _set_mode(self, training: bool) -> None:
        """`train()` or `eval()`, at a fiftieth of their time where they only set a flag."""
        if self._by_flag is None:
            own = any(type(module).train is not nn.Module.train for module in self.modules())
            self._by_flag = [] if own else [vars(module) for module in self.modules()]
        if not self._by_flag:
            self.train(training)
        for values in self._by_flag:
            values["training"] = training

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

    def act(self, observation: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
        """What evaluation plays: actions [E, ...] for observations [E, ...], random ones with
        probability `epsilon`."""
        raise NotImplementedError

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


def joined(found: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """What was found of each minibatch, columns [B, 1] and numbers [], as [U, B] and [U]."""
    together = {
        # Stacking one is a copy, and costs ten times what a view does.
        name: value.unsqueeze(0) if len(found) == 1 else torch.stack([f[name] for f in found])
        for name, value in found[0].items()
    }
    return {
        name: value.squeeze(-1) if value.dim() > 1 else value for name, value in together.items()
    }
