"""What every agent does in a Trainer step, and what it reads of a batch."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import lightning
import torch
from tensordict import TensorDict

from rlmem.collect.module import Rounds
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

    Attributes:
        discrete: whether its actions are numbers; else they are points of a box.
        has_action_values: whether `online` gives the values of all actions of a state.
    """

    discrete: ClassVar[bool] = True
    has_action_values: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, rounds: Rounds, batch_idx: int) -> dict[str, Any]:
        """Learn from each batch before the next is played for; what `learn` gave of the last."""
        outputs: dict[str, Any] = {}
        for batch in rounds:
            outputs = self.learn(batch)
            rounds.learned(batch, outputs)
        return outputs

    def learn(self, batch: TensorDict) -> dict[str, Any]:
        """Gradient steps on a batch [U, B], U >= 0.

        Returns:
            `td_error` float32 [U, B] and `loss` [U], detached.
        """
        raise NotImplementedError


def drop_gradients(parameters: Iterable[torch.Tensor]) -> None:
    """What `optimizer.zero_grad()` does, without its profiling, which costs more."""
    for parameter in parameters:
        parameter.grad = None


def read_batch(batch: TensorDict, discounts: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The columns of a batch [U, B] that need no gradient, for all U minibatches at once.

    Args:
        discounts: [n_step + 1], gamma to the power of the steps that a transition spans.

    Returns:
        observation, next observation [U, B, ...], reward, discount and weight [U, B, 1]. The
        discount is 0 where the episode terminated, and there only: a truncated one is bootstrapped
        from.
    """
    following: Any = batch["next"]
    return (
        batch["observation"],
        following["observation"],
        following["reward"],
        discounts.take(batch["steps_to_next"]).masked_fill_(following["terminated"], 0),
        batch["weight"],
    )
