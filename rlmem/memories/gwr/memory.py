"""GWR-R as a memory: a map, the writer that grows it, and a sampler of its edges.

Hafez, Immisch, Weber, Wermter 2023 (arXiv 2305.02054). Settings, checks and how a budget is turned
into a number of nodes stand here; the map itself in `map`, growing it in `writer` and `step`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from rlmem.errors import UserError
from rlmem.memories.base.build import MemorySettings, Needs, capacity_or_budget
from rlmem.memories.base.pictures import Picture, PictureContext, Table
from rlmem.memories.gwr.embedding import Embedding
from rlmem.memories.gwr.map import MapStorage
from rlmem.memories.gwr.records import MOST_RECORDS, MapOptions
from rlmem.memories.gwr.rule import RuleSettings
from rlmem.memories.gwr.writer import GWRWriter
from rlmem.memories.memory import ReplayMemory
from rlmem.memories.replay import read_budget
from rlmem.registry import check_name, find_suited, part, parts
from rlmem.settings import Settings, beside, part_of, setting


def _contexts(value: Any) -> str | None:
    fits = value == "auto" or (type(value) is int and 0 <= value <= 1000)
    return None if fits else "auto or a whole number from 0 to 1000; the paper has 4"


def _unprojected(settings: "EmbeddingSettings") -> tuple[str, ...]:
    chosen = parts("memory/map/embedding").get(settings.kind)
    return ("kind",) if chosen is not None and chosen.cls.is_observation else ()


@dataclass(kw_only=True)
class EmbeddingSettings(Settings):
    """The space of the nearest-node search."""

    kind: str = setting()
    dims: int = setting(at_least=1, at_most=65_536, idle=lambda s: _unprojected(s))


def _still(settings: "GwrSettings") -> tuple[str, ...]:
    """What leaves the neighbours of a node where they are."""
    return beside(links=False)(settings) or beside(prototype="exemplar")(settings)


@dataclass(kw_only=True)
class GwrSettings(RuleSettings, MemorySettings):
    """Grow When Required replay (Hafez et al. 2023)."""

    extends = "gwr"

    capacity: int = capacity_or_budget()
    storage: Any = part_of("memory/map/storage")
    sampler: Any = part_of("memory/map/sampler")
    prototype: str = setting(choices=("auto", "moving", "exemplar"))
    contexts: Any = setting(check=_contexts)
    context_beta: float = setting(at_least=0, at_most=1, idle=beside(contexts=0))
    eps_b: float = setting(at_least=0, at_most=1, idle=beside(prototype="exemplar"))
    eps_n: float = setting(at_least=0, at_most=1, idle=lambda s: _still(s))
    terminals: str = setting(choices=("edge", "node"))
    eviction: str = setting(choices=("auto", "merge", "lru"))
    embedding: EmbeddingSettings = setting()


@part("memory/map/storage", "map")
class Map:
    """The only storage of a map, which `GwrMemory` makes."""


@part("memory", "gwr", settings=GwrSettings)
class GwrMemory:
    """A map of states that grows when required."""

    colours: ClassVar = {"gwr": 2, "gwr_plain": 10, "gwr_released": 18}  # in figures

    thresholds = True  # `threshold.*` are its keys

    @classmethod
    def check(cls, settings: GwrSettings, run: Any) -> None:
        """What goes together.

        Raises:
            UserError: it does not.
        """
        if settings.budget is not None:
            read_budget(settings.budget)
        for key, one_step, more in (("terminals", "node", "edge"), ("episodes", "joined", "apart")):
            if getattr(settings, key) == one_step and run.agent.n_step > 1:
                raise UserError(
                    f"agent.n_step={run.agent.n_step}: with memory.{key}={one_step} an edge is of "
                    f"one step; use agent.n_step=1, or memory.{key}={more}"
                )
        check_name("memory/map/embedding", settings.embedding.kind, "memory.embedding.kind")
        samples = settings.metric.scale_samples
        measured = settings.metric.scale == "auto" and getattr(run.env.part.cls, "images", False)
        processes = run.trainer.devices * run.trainer.num_nodes  # each has a map
        if measured and samples >= run.trainer.max_env_steps // processes:
            of_each = f" of {processes} processes" if processes > 1 else ""
            raise UserError(
                f"memory.metric.scale_samples={samples}: the run ends before the map begins, at "
                f"trainer.max_env_steps={run.trainer.max_env_steps}{of_each}; lower the one or "
                "raise the other"
            )

    @classmethod
    def build(cls, settings: GwrSettings, needs: Needs) -> ReplayMemory:
        """Compose the memory.

        Raises:
            UserError: the budget does not hold three nodes.
        """
        make = partial(_make, settings, needs)
        if settings.budget is None:
            return make(settings.capacity)
        return _largest(make, read_budget(settings.budget))

    @staticmethod
    def pictures(memory: ReplayMemory, context: PictureContext) -> Iterable[Picture | Table]:
        """See `rlmem.memories.base.pictures`."""
        from rlmem.memories.gwr.pictures import map_pictures

        return map_pictures(memory, context)


def _make(
    settings: GwrSettings, needs: Needs, capacity: int, budget: int | None = None
) -> ReplayMemory:
    """The map of so many nodes, with what `auto` stands for decided by the observations."""
    spec = needs.spec
    shape, pixels = spec.observation_shape, len(spec.observation_shape) == 3
    metric, contexts, prototype = settings.metric, settings.contexts, settings.prototype
    if metric.scale == "auto" and not pixels:
        metric = replace(metric, scale=1.0)  # the paper's: its thresholds are of unscaled vectors
    if contexts == "auto":  # a stack of frames holds its past
        contexts = 0 if pixels else 4
    if prototype == "auto":  # an average of frames does not compress
        prototype = "exemplar" if pixels else "moving"
    space = find_suited(
        "memory/map/embedding", settings.embedding.kind, "memory.embedding.kind", spec
    ).cls
    embedding: Embedding = space.build(settings.embedding, needs)
    own_keys = space.is_observation and spec.dtype == np.float32 and spec.input_scale == 1.0
    storage = MapStorage(
        capacity,
        shape,
        spec.dtype,
        None if own_keys else embedding.dims,
        num_actions=spec.num_actions,
        action_shape=spec.action_shape,
        stack=spec.stack,
        options=MapOptions(
            contexts=contexts,
            prototype=prototype,
            node_terminals=settings.terminals == "node",
            evict=_evicts(settings),
            budget=budget,
        ),
    )
    writer = GWRWriter(
        needs.threshold.activation,
        needs.threshold.habituation,
        embedding=embedding,
        num_envs=spec.num_envs,
        n_step=needs.n_step,
        gamma=needs.gamma,
        rule=replace(settings, metric=metric),
        seed=needs.seed,
    )
    sampler = settings.sampler.build(needs, storage.projected_edges)
    return ReplayMemory(storage, sampler, writer, seed=needs.seed, budget=budget)


def _evicts(settings: GwrSettings) -> bool:
    """Whether a full map lets go of nodes: a budget takes room for edges too, without which what
    is merged is lost."""
    automatic = settings.eviction == "auto" and settings.budget is not None
    return automatic or settings.eviction == "lru"


def _largest(make: Callable[..., ReplayMemory], budget: int) -> ReplayMemory:
    """The map of as many nodes as the budget holds without links, edges, their places in the
    sampler and compressed observations, whose room a map takes as it grows.

    Raises:
        UserError: not even three nodes fit.
    """
    small, large = (_minimum_bytes(make(n)) for n in (1000, 2000))
    a_node = (large - small) / 1000
    empty = small - 1000 * a_node
    minimum = sum(make(3).projected_footprint().values())
    if budget < minimum:
        raise UserError(
            f"memory.budget={budget}: a map takes {empty:.0f} bytes, and {a_node:.0f} a node "
            f"without links and edges; use memory.budget={minimum} or more"
        )
    least = make(3)
    warmup = least.writer.warmup_footprint + sum(least.storage.footprint().values())
    if budget < warmup:
        raise UserError(
            f"memory.budget={budget}: the observations behind memory.metric.scale=auto take "
            f"{warmup} bytes until it is known; use more, or fewer memory.metric.scale_samples"
        )
    nodes = max(3, int((budget - empty) / a_node))
    return make(min(nodes, MOST_RECORDS), budget)


def _minimum_bytes(memory: ReplayMemory) -> int:
    grow = {"links", "edges", "sampler_tree", "priorities"} | (
        {"prototypes"} if memory.storage.compresses else set()
    )
    return sum(size for name, size in memory.projected_footprint().items() if name not in grow)
