"""What every agent reads of a sampled batch."""

from typing import Any

import torch
from tensordict import TensorDict


def read_batch(batch: TensorDict, discounts: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The columns of a batch [U, B] that need no gradient, for all U minibatches at once.

    Args:
        discounts: [n_step + 1], gamma to the power of the steps that a transition spans.

    Returns:
        observation, next observation [U, B, ...], reward, discount and weight [U, B]. The discount
        is 0 where the episode terminated, and there only: a truncated one is bootstrapped from.
    """
    following: Any = batch["next"]
    terminated = following["terminated"].squeeze(-1)
    return (
        batch["observation"],
        following["observation"],
        following["reward"].squeeze(-1),
        discounts[batch["steps_to_next"].squeeze(-1)] * ~terminated,
        batch["weight"].squeeze(-1),
    )
