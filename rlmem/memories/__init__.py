"""Memories of RL agents as TorchRL parts: storages, samplers and writers that count their bytes.

Needs torch, torchrl, numba, zstandard, psutil and PyYAML only: neither Lightning nor Hydra nor W&B.
"""

from rlmem.memories.compression.compressed import CompressedFrameStorage
from rlmem.memories.gwr.embedding import Identity, RandomProjection
from rlmem.memories.gwr.map import MapStorage
from rlmem.memories.gwr.records import MapOptions
from rlmem.memories.gwr.rule import MetricSettings, RuleSettings
from rlmem.memories.gwr.samplers import (
    PrioritizedEdgeSampler,
    UniformEdgeSampler,
    VisitSampler,
)
from rlmem.memories.gwr.writer import GWRWriter
from rlmem.memories.memory import ReplayMemory
from rlmem.memories.random_eviction import RandomEvictionWriter
from rlmem.memories.ring.dense import DenseStorage
from rlmem.memories.ring.frames import FrameStorage
from rlmem.memories.ring.writer import RingWriter
from rlmem.memories.samplers.prioritized import PrioritizedSampler
from rlmem.memories.samplers.rank import RankSampler
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
from rlmem.memories.values.dnd import DND, DNDRule

__all__ = [
    "DND",
    "BoundedStates",
    "CombinedSampler",
    "CompressedFrameStorage",
    "Consolidation",
    "DNDRule",
    "DenseStorage",
    "FrameStorage",
    "GWRWriter",
    "HindsightTransform",
    "Identity",
    "LatestSampler",
    "MapOptions",
    "MapStorage",
    "MetricSettings",
    "NewestSampler",
    "PrioritizedEdgeSampler",
    "PrioritizedSampler",
    "RandomEvictionWriter",
    "RandomProjection",
    "RankSampler",
    "ReplayMemory",
    "RingWriter",
    "RuleSettings",
    "SequenceSampler",
    "SlotStorage",
    "StoredStates",
    "UniformEdgeSampler",
    "UniformSampler",
    "VisitSampler",
]
