"""What the tests of the agents share."""

from rlmem.memories.base.batch import Batch


def part(batch: Batch, updates: slice) -> Batch:
    """Some of a batch's minibatches."""
    return {name: column[updates] for name, column in batch.items()}


def minibatch(batch: Batch) -> Batch:
    """Its first minibatch."""
    return {name: column[0] for name, column in batch.items()}
