"""Memories of RL agents as TorchRL parts: storages, samplers and writers that count their bytes.

Needs torch, torchrl, numba and zstandard only: neither Lightning nor Hydra nor W&B.
"""

from rlmem.memories.embedding import Identity, RandomProjection
from rlmem.memories.memory import ReplayMemory
from rlmem.memories.samplers.edges import (
    PrioritizedEdgeSampler,
    UniformEdgeSampler,
    VisitSampler,
)
from rlmem.memories.samplers.prioritized import PrioritizedSampler, RankSampler
from rlmem.memories.samplers.uniform import (
    CombinedSampler,
    LatestSampler,
    NewestSampler,
    UniformSampler,
)
from rlmem.memories.storages.compressed import CompressedFrameStorage
from rlmem.memories.storages.dense import DenseStorage
from rlmem.memories.storages.frames import FrameStorage
from rlmem.memories.storages.map import MapStorage
from rlmem.memories.transforms.consolidation import BoundedStates, Consolidation, StoredStates
from rlmem.memories.transforms.hindsight import HindsightTransform
from rlmem.memories.writers.gwr import GWRWriter
from rlmem.memories.writers.ring import RingWriter

__all__ = [
    "BoundedStates",
    "CombinedSampler",
    "CompressedFrameStorage",
    "Consolidation",
    "DenseStorage",
    "FrameStorage",
    "GWRWriter",
    "HindsightTransform",
    "Identity",
    "LatestSampler",
    "MapStorage",
    "NewestSampler",
    "PrioritizedEdgeSampler",
    "PrioritizedSampler",
    "RandomProjection",
    "RankSampler",
    "ReplayMemory",
    "RingWriter",
    "StoredStates",
    "UniformEdgeSampler",
    "UniformSampler",
    "VisitSampler",
]
