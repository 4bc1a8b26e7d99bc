"""The types behind the group `memory`: see `rlmem.config.schema`."""

from dataclasses import dataclass
from typing import Any


@dataclass
class StorageConfig:
    """How a memory's bytes are held."""

    kind: str


@dataclass
class MemmapStorageConfig(StorageConfig):
    """Frames in a file of a directory."""

    directory: str


@dataclass
class SamplerConfig:
    """What a memory draws."""

    kind: str


@dataclass
class RankSamplerConfig(SamplerConfig):
    """Rank-based prioritisation (Schaul 2016)."""

    alpha: float
    beta_start: float
    beta_end: float
    beta_steps: int


@dataclass
class PrioritizedSamplerConfig(RankSamplerConfig):
    """Proportional prioritisation (Schaul 2016)."""

    eps: float


@dataclass
class MemoryConfig:
    """A composition of storage, sampler and writer."""

    name: str
    capacity: int
    budget: Any  # a union fails to merge in OmegaConf 2.3; check() holds it to null or a size
    storage: StorageConfig
    sampler: SamplerConfig


@dataclass
class ConsolidationConfig:
    """States at which an agent is held to its target network."""

    states: str
    batch_size: int
    inner_steps: int
    weight_start: float
    weight_end: float
    weight_steps: int


@dataclass
class MedqnMemoryConfig(MemoryConfig):
    """Consolidation in place of a large memory (Lan et al. 2023)."""

    consolidation: ConsolidationConfig


@dataclass
class HerMemoryConfig(MemoryConfig):
    """Hindsight experience replay (Andrychowicz et al. 2017)."""

    strategy: str
    k: int


@dataclass
class MetricConfig:
    """The distance of GWR's activity exp(-distance / scale)."""

    scale: Any  # a union fails to merge in OmegaConf 2.3; check() holds it to auto or a number > 0
    scale_samples: int


@dataclass
class EmbeddingConfig:
    """The space in which GWR searches."""

    kind: str
    dims: int


@dataclass
class GwrMemoryConfig(MemoryConfig):
    """Grow When Required replay (Hafez et al. 2023)."""

    prototype: str
    contexts: Any  # a union fails to merge in OmegaConf 2.3; check() holds it to auto or a count
    links: bool
    terminals: str
    episodes: str
    eviction: str
    context_beta: float
    phi: float
    tau_b: float
    tau_n: float
    kappa: float
    eps_b: float
    eps_n: float
    max_age: int
    metric: MetricConfig
    embedding: EmbeddingConfig
