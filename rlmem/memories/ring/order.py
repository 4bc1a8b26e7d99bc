"""Whether a ring is written in the order of time.

A ring holds the observation after a step once, as its successor's. Rows of several environments
that are written as if of one have no successors, nor have shuffled ones: nothing is lost, but each
takes the bytes of two, each stack is of one frame and each return of one step.
"""

import warnings

import numpy as np

from rlmem.memories.ring.records import RingArrays

ENOUGH = 64  # transitions that tell


def warn_of_gaps(arrays: RingArrays) -> None:
    """Give a UserWarning if most transitions that are held lead to none and end no episode."""
    head = arrays.head
    held = arrays.slots_of(int(head["written"] - head["window"]), int(head["written"]))
    # The newest of each environment waits for its successor.
    lost = int(np.count_nonzero(arrays.rows["after"][held] == 0)) - int(head["num_envs"])
    if lost > len(held) // 2:
        warnings.warn(
            f"of the first {len(held)} transitions {lost} end with an observation that none begins "
            "with: they take twice the bytes, and stacks and returns of several steps are cut "
            "there. Write them in the order of time; where several environments write, give "
            "num_envs= and each row's env_id",
            stacklevel=3,
        )
