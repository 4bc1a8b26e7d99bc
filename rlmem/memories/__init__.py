"""Memories of RL agents as TorchRL parts: storages, samplers and writers that count their bytes.

Needs torch, torchrl, numba and zstandard only: neither Lightning nor Hydra nor W&B.
"""

from rlmem.memories.compression.compressed import CompressedFrameStorage
from rlmem.memories.gwr.embedding import Identity, RandomProjection
from rlmem.memories.gwr.map import MapStorage
from rlmem.memories.gwr.samplers import (
    PrioritizedEdgeSampler,
    UniformEdgeSampler,
    VisitSampler,
)
from rlmem.memories.gwr.writer import GWRWriter
from rlmem.memories.memory import ReplayMemory
from rlmem.memories.ring.dense import DenseStorage
from rlmem.memories.ring.frames import FrameStorage
from rlmem.memories.ring.writer import RingWriter
from rlmem.memories.samplers.prioritized import PrioritizedSampler, RankSampler
from rlmem.memories.samplers.sequence import SequenceSampler
from rlmem.memories.samplers.uniform import (
    CombinedSampler,
    LatestSampler,
    NewestSampler,
    UniformSampler,
)
from rlmem.memories.slots import SlotStorage
from rlmem.memories.transforms.consolidation import BoundedStates, Consolidation, StoredStates
from rlmem.memories.transforms.hindsight import HindsightTransform

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
    "SequenceSampler",
    "SlotStorage",
    "StoredStates",
    "UniformEdgeSampler",
    "UniformSampler",
    "VisitSampler",
]
