"""From a memory's configuration to the memory: which storage, sampler and writer it is made of."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rlmem.errors import UserError
from rlmem.memories.embedding import Identity, RandomProjection
from rlmem.memories.memory import ReplayMemory
from rlmem.memories.samplers.base import ReplaySampler
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
from rlmem.memories.spec import TransitionSpec
from rlmem.memories.storages.compressed import CompressedFrameStorage
from rlmem.memories.storages.dense import DenseStorage
from rlmem.memories.storages.frames import FrameStorage
from rlmem.memories.storages.map import MapStorage
from rlmem.memories.storages.map_records import MOST_RECORDS
from rlmem.memories.storages.ring import RingStorage
from rlmem.memories.storages.ring_kernels import ROW
from rlmem.memories.transforms.consolidation import BoundedStates, Consolidation, StoredStates
from rlmem.memories.transforms.hindsight import HindsightTransform
from rlmem.memories.writers.gwr import GWRWriter
from rlmem.memories.writers.ring import RingWriter
from rlmem.units import parse_bytes

RING_ROW = ROW.itemsize + 1  # bytes of a transition without its frame, at least


def make_memory(
    cfg: Any,
    spec: TransitionSpec,
    *,
    batch_size: int,
    n_step: int,
    gamma: float,
    activation_threshold: float,
    habituation_threshold: float,
    seed: int,
) -> ReplayMemory:
    """Compose a memory.

    Args:
        cfg: the `memory` node of the configuration: name, capacity, storage, sampler, and for gwr
            its own keys.
        spec: shapes of the environment's transitions.
        batch_size: transitions a minibatch (how many `none` has to remember).
        n_step, gamma: of the returns that are sampled.
        activation_threshold, habituation_threshold: of GWR.
        seed: of every draw.
    """
    budget = None if cfg.budget is None else parse_bytes(cfg.budget)
    if cfg.storage.kind == "map":
        make = partial(
            _map, cfg, spec, n_step, gamma, activation_threshold, habituation_threshold, seed
        )
        return make(cfg.capacity) if budget is None else _largest_map(make, budget)
    storage = _ring(cfg, spec, n_step, gamma, budget)
    sampler = _sampler(cfg.sampler, storage.max_size, batch_size)
    transforms = []
    if "consolidation" in cfg:
        transforms.append(_consolidation(cfg.consolidation, spec, storage))
    if "strategy" in cfg:
        transforms.append(_hindsight(cfg, spec, storage))
    return ReplayMemory(
        storage, sampler, RingWriter(), seed=seed, budget=budget, transforms=transforms
    )


def _ring(
    cfg: Any, spec: TransitionSpec, n_step: int, gamma: float, budget: int | None
) -> RingStorage:
    kind, images = cfg.storage.kind, len(spec.frame_shape) == 3
    if kind == "auto":
        kind = "compressed" if images else "frames"
    discrete = np.uint8 if spec.num_actions <= 256 else np.int64
    options = {
        "stack": spec.stack,
        "num_envs": spec.num_envs,
        "action_shape": spec.action_shape,
        "action_dtype": np.float32 if spec.action_shape else discrete,
        "n_step": n_step,
        "gamma": gamma,
        "budget": budget,
    }
    capacity = cfg.capacity
    if budget is not None:  # an upper bound; memory is taken as it is written
        least = 0 if kind == "compressed" else int(np.prod(spec.frame_shape)) * spec.dtype.itemsize
        capacity = budget // (RING_ROW + least) + spec.num_envs
    if kind == "memmap":
        options["directory"] = cfg.storage.directory
    rings = {
        "dense": DenseStorage,
        "frames": FrameStorage,
        "memmap": FrameStorage,
        "compressed": CompressedFrameStorage,
    }
    if kind not in rings:
        raise _unknown("memory.storage.kind", kind, [*rings, "auto", "map"])
    return rings[kind](capacity, spec.frame_shape, spec.dtype, **options)


def _consolidation(cfg: Any, spec: TransitionSpec, storage: RingStorage) -> Consolidation:
    bounds = cfg.states == "bounds"
    return Consolidation(
        BoundedStates(spec.frame_shape, spec.dtype) if bounds else StoredStates(storage),
        steps=cfg.inner_steps,
        batch_size=cfg.batch_size,
        weight_start=cfg.weight_start,
        weight_end=cfg.weight_end,
        weight_steps=cfg.weight_steps,
    )


def _hindsight(cfg: Any, spec: TransitionSpec, storage: RingStorage) -> HindsightTransform:
    goal = spec.goal
    assert goal is not None
    return HindsightTransform(
        storage.max_size,
        goal.size,
        goal.rules.reward,
        goal.rules.terminated,
        strategy=cfg.strategy,
        k=cfg.k,
    )


def _largest_map(make: Callable[..., ReplayMemory], budget: int) -> ReplayMemory:
    """The map of as many nodes as the budget holds with two links and two edges a node; where
    observations are compressed, as many as it would hold without them.

    Raises:
        UserError: not even three nodes fit.
    """
    small, large = (_least_bytes(make(n)) for n in (1000, 2000))
    a_node = (large - small) / 1000
    empty = small - 1000 * a_node
    least = sum(make(3).projected_footprint().values())
    if budget < least:
        raise UserError(
            f"memory.budget={budget}: a map takes {empty:.0f} bytes and {a_node:.0f} a node; use "
            f"more than {least}"
        )
    warmup = make(3).writer.warmup_footprint
    if budget < warmup:
        raise UserError(
            f"memory.budget={budget}: the observations behind memory.metric.scale=auto take "
            f"{warmup} bytes until it is known; use more, or fewer memory.metric.scale_samples"
        )
    nodes = max(3, int((budget - empty) / a_node))
    return make(min(nodes, MOST_RECORDS), budget)


def _least_bytes(memory: ReplayMemory) -> int:
    held = memory.projected_footprint()
    if memory.storage.compresses:
        held.pop("prototypes")
    return sum(held.values())


def _sampler(cfg: Any, capacity: int, batch_size: int) -> ReplaySampler:
    if cfg.kind == "prioritized":
        return PrioritizedSampler(
            capacity,
            alpha=cfg.alpha,
            beta_start=cfg.beta_start,
            beta_end=cfg.beta_end,
            beta_steps=cfg.beta_steps,
            eps=cfg.eps,
        )
    if cfg.kind == "rank":
        return RankSampler(
            capacity,
            alpha=cfg.alpha,
            beta_start=cfg.beta_start,
            beta_end=cfg.beta_end,
            beta_steps=cfg.beta_steps,
        )
    if cfg.kind == "latest":
        return LatestSampler(history=batch_size)
    plain = {"newest": NewestSampler, "combined": CombinedSampler, "uniform": UniformSampler}
    if cfg.kind not in plain:
        known = [*plain, "latest", "prioritized", "rank"]
        raise _unknown("memory.sampler.kind", cfg.kind, known)
    return plain[cfg.kind]()


def _unknown(key: str, kind: str, known: list[str]) -> UserError:
    return UserError(f"{key}={kind}: this memory takes {', '.join(sorted(known))}")


def _map(
    cfg: Any,
    spec: TransitionSpec,
    n_step: int,
    gamma: float,
    activation_threshold: float,
    habituation_threshold: float,
    seed: int,
    capacity: int,
    budget: int | None = None,
) -> ReplayMemory:
    shape, pixels = spec.observation_shape, len(spec.observation_shape) == 3
    kind, scale, contexts = cfg.embedding.kind, cfg.metric.scale, cfg.contexts
    prototype = cfg.prototype
    if kind == "auto":
        kind = "random_projection" if pixels else "identity"
    if kind not in ("random_projection", "identity"):
        raise _unknown("memory.embedding.kind", kind, ["auto", "identity", "random_projection"])
    if kind == "random_projection":
        stack = spec.stack if pixels else 1
        embedding = RandomProjection(shape, cfg.embedding.dims, seed, spec.input_scale, stack)
    else:
        embedding = Identity(shape, spec.input_scale)
    if scale == "auto" and not pixels:
        scale = 1.0  # the paper's: its thresholds are of unscaled vectors
    if contexts == "auto":  # a stack of frames holds its past
        contexts = 0 if pixels else 4
    if prototype == "auto":  # an average of frames does not compress
        prototype = "exemplar" if pixels else "moving"
    own_keys = kind == "identity" and spec.dtype == np.float32 and spec.input_scale == 1.0
    storage = MapStorage(
        capacity,
        shape,
        spec.dtype,
        None if own_keys else embedding.dims,
        contexts=contexts,
        num_actions=spec.num_actions,
        action_shape=spec.action_shape,
        prototype=prototype,
        stack=spec.stack,
        node_terminals=cfg.terminals == "node",
        evict=_evicts(cfg),
        budget=budget,
    )
    writer = GWRWriter(
        activation_threshold,
        habituation_threshold,
        stack=spec.stack,
        num_envs=spec.num_envs,
        embedding=embedding,
        eps_b=cfg.eps_b,
        eps_n=cfg.eps_n,
        tau_b=cfg.tau_b,
        tau_n=cfg.tau_n,
        kappa=cfg.kappa,
        max_age=cfg.max_age,
        context_beta=cfg.context_beta,
        phi=cfg.phi,
        metric_scale=scale,
        scale_samples=cfg.metric.scale_samples,
        n_step=n_step,
        gamma=gamma,
        links=cfg.links,
        joined=cfg.episodes == "joined",
        seed=seed,
    )
    return ReplayMemory(
        storage,
        _edge_sampler(cfg.sampler, storage.projected_edges),
        writer,
        seed=seed,
        budget=budget,
    )


def _edge_sampler(cfg: Any, edges: int) -> ReplaySampler:
    if cfg.kind == "prioritized":
        return PrioritizedEdgeSampler(
            edges,
            alpha=cfg.alpha,
            beta_start=cfg.beta_start,
            beta_end=cfg.beta_end,
            beta_steps=cfg.beta_steps,
            eps=cfg.eps,
        )
    plain = {"uniform": UniformEdgeSampler, "visits": VisitSampler}
    if cfg.kind not in plain:
        raise _unknown("memory.sampler.kind", cfg.kind, [*plain, "prioritized"])
    return plain[cfg.kind](edges)


def _evicts(cfg: Any) -> bool:
    """Whether a full map lets go of nodes: a budget takes room for edges too, without which what
    is merged is lost."""
    return cfg.eviction == "lru" or (cfg.eviction == "auto" and cfg.budget is not None)
