"""What a memory gives an agent: a plain dict of tensors, all minibatches of a round at once."""

import torch
from tensordict import TensorDict

# Columns of U minibatches of B transitions:
#   observation, next_observation   [U, B, *observation_shape], as they are stored
#   action                          int64 [U, B], or float32 [U, B, A] in a box
#   reward, weight                  float32 [U, B, 1]; weights are ones unless the sampler has some
#   terminated, truncated           bool [U, B, 1]
#   steps_to_next                   int64 [U, B, 1], transitions that the reward spans
#   index                           int64 [U, B] on the CPU, what the sampler drew
# and the columns that an agent, a sampler or a transform adds.
Batch = dict[str, torch.Tensor]

# What TorchRL holds under "next".
_NEXT = {"next_observation": "observation", "reward": "reward"} | {
    flag: flag for flag in ("terminated", "truncated")
}


def ones_of(shape: tuple[int, ...]) -> torch.Tensor:
    """Weights of draws that have none, whatever torch's default dtype and device are."""
    return torch.ones(*shape, 1, dtype=torch.float32, device="cpu")


def as_tensordict(batch: Batch, shape: tuple[int, ...]) -> TensorDict:
    """A batch with TorchRL's keys, of the same tensors; ("next", "done") is added, and
    `steps_to_next` stands a second time where TorchRL's value estimators look for it: without it
    they would discount the value behind a return over several steps as one step.

    Args:
        shape: batch size; every column's leading dimensions.
    """
    flat = {name: column for name, column in batch.items() if name not in _NEXT}
    if "steps_to_next" in batch:
        flat["steps_to_next_obs"] = batch["steps_to_next"]
    following = {key: batch[name] for name, key in _NEXT.items()}
    following["done"] = batch["terminated"] | batch["truncated"]
    # Without the checks of the public constructor, a tenth of what a sample of vectors takes.
    return TensorDict._new_unsafe(  # pyright: ignore[reportPrivateUsage]
        {**flat, "next": following}, batch_size=torch.Size(shape)
    )
