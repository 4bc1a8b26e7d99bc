"""What a stream is told of its run, and seeds; apart from memories, which take long to import."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np


@dataclass(frozen=True)
class StreamConfig:
    """What the stream needs to know; steps are env steps (agent decisions over all envs)."""

    seed: int
    max_env_steps: int
    learning_starts: int
    batch_size: int
    updates: int  # minibatches a round
    vector_steps: int  # steps of the vector env a round
    reseed_every: int
    reward_clip: bool
    max_episodes: int | None = None  # episodes after which the run is over as well
    terminal_reward: float | None = None  # of a termination, unclipped; None: the env's


class SeedOf(IntEnum):
    """What a run draws apart from the rest, each from a seed of its own; the numbers are those of
    every recorded run: a changed one makes other runs."""

    WEIGHTS = 0
    ACTIONS = 1
    EPISODES = 2
    EVALUATION = 3
    REPLAY = 4
    SCORE = 5  # of a run's networks afterwards: evaluate.py and the pictures of maps
    ACTION_NOISE = 6
    WORKER_EPISODES = 7
    PROCESS = 8  # a worker of A3C, or a process of a run over several


def derive_seed(*parts: int) -> int:
    """An independent seed in [0, 2^31) of integers: the run's seed, a `SeedOf`, which one."""
    # By spawn key: a plain sequence of them is padded with zeros, so (s, 2) would be (s, 2, 0).
    sequence = np.random.SeedSequence(parts[0], spawn_key=parts[1:])
    return int(sequence.generate_state(1)[0] >> 1)
