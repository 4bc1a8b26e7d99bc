"""From a memory's configuration to the memory: which storage, sampler and writer it is made of."""

from typing import Any, Protocol

import numpy as np

from rlmem.memories.embedding import Identity, RandomProjection
from rlmem.memories.memory import ReplayMemory
from rlmem.memories.samplers.base import ReplaySampler
from rlmem.memories.samplers.prioritized import PrioritizedSampler, RankSampler
from rlmem.memories.samplers.uniform import CombinedSampler, LatestSampler, UniformSampler
from rlmem.memories.samplers.visits import VisitSampler
from rlmem.memories.storages.frames import FrameStorage
from rlmem.memories.storages.map import MapStorage
from rlmem.memories.writers.gwr import GWRWriter
from rlmem.memories.writers.ring import RingWriter


class TransitionSpec(Protocol):
    """What a memory must know of the environment."""

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Shape of one frame."""
        ...

    @property
    def dtype(self) -> np.dtype:
        """Of a frame."""
        ...

    @property
    def stack(self) -> int:
        """Frames in an observation."""
        ...

    @property
    def num_envs(self) -> int:
        """Environments that write in turn."""
        ...

    @property
    def num_actions(self) -> int:
        """Size of the discrete action set."""
        ...

    @property
    def input_scale(self) -> float:
        """Factor that brings stored values into [0, 1]: 1/255 for pixels."""
        ...

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of a stacked observation."""
        ...


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
    if cfg.storage.kind == "map":
        storage, writer = _map(
            cfg, spec, n_step, gamma, activation_threshold, habituation_threshold, seed
        )
        return ReplayMemory(storage, VisitSampler(storage.projected_edges), writer, seed=seed)
    ring = FrameStorage(
        cfg.capacity,
        spec.frame_shape,
        spec.dtype,
        stack=spec.stack,
        num_envs=spec.num_envs,
        n_step=n_step,
        gamma=gamma,
    )
    sampler = _sampler(cfg.sampler, cfg.capacity, batch_size)
    return ReplayMemory(ring, sampler, RingWriter(), seed=seed)


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
    return CombinedSampler() if cfg.kind == "combined" else UniformSampler()


def _map(
    cfg: Any,
    spec: TransitionSpec,
    n_step: int,
    gamma: float,
    activation_threshold: float,
    habituation_threshold: float,
    seed: int,
) -> tuple[MapStorage, GWRWriter]:
    shape, pixels = spec.observation_shape, len(spec.observation_shape) == 3
    kind, scale = cfg.embedding.kind, cfg.metric.scale
    if kind == "auto":
        kind = "random_projection" if pixels else "identity"
    if kind == "random_projection":
        embedding = RandomProjection(shape, cfg.embedding.dims, seed, spec.input_scale)
    else:
        embedding = Identity(shape, spec.input_scale)
    if scale == "auto" and not pixels:
        scale = 1.0  # the paper's: its thresholds are of unscaled vectors
    storage = MapStorage(
        cfg.capacity,
        shape,
        spec.dtype,
        embedding.dims,
        contexts=cfg.contexts,
        num_actions=spec.num_actions,
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
        seed=seed,
    )
    return storage, writer
