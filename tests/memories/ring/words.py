"""Frames that chunks share words of, and compressed storages of them."""

from typing import Any

import numpy as np

from tests.memories.helpers import RandomEnvs
from tests.memories.ring.test_ring_storages import make

FRAME = (1, 10, 20)
LANGUAGES = np.random.default_rng(1).integers(1, 256, (3, 60, 20), np.uint8)


class Words(RandomEnvs):
    """Frames of ten words each, of a language with sixty: chunks share nothing else."""

    language = 0

    def frame(self) -> np.ndarray:
        return LANGUAGES[self.language, self.rng.integers(60, size=10)].reshape(FRAME)


def words(num_envs: int = 2, end: float = 0.02) -> Words:
    return Words(np.random.default_rng(0), FRAME, np.uint8, num_envs, end)


def storage_of(capacity: int = 2000, **options: Any) -> Any:
    return make("compressed", capacity, FRAME, stack=2, num_envs=2, n_step=2, **options)


def filled(rows: int = 1200, **options: Any) -> Any:
    storage, envs = storage_of(**options), words()
    for _ in range(rows // 50):
        storage.append(envs.block(50))
    return storage


def learned(rows: int = 1200, **options: Any) -> Any:
    storage = filled(rows, **options)
    assert storage._packer._strings[2:].any()  # some need a dictionary
    return storage
