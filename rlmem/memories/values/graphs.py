"""The graph (GQ, GCMR, GBMR) as the memory of a run: of an agent without a network, whose keys are
the observations themselves, or of one whose network makes the keys and learns from a replay beside
the graph. Which of them it is, the agent says (`makes_keys`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from rlmem.errors import UserError
from rlmem.memories.base.build import Needs
from rlmem.memories.base.pictures import Overlay, Picture, PictureContext
from rlmem.memories.memory import ReplayMemory
from rlmem.memories.values.asked import (
    AskedMemory,
    capacity_of,
    check_asked,
    entries_within,
    key_size,
)
from rlmem.memories.values.episodic import (
    Episodic,
    EpisodicSettings,
    check_no_replay,
)
from rlmem.memories.values.graph import GraphMemory, Learning
from rlmem.memories.values.graph_reconstruction import Reconstruction
from rlmem.memories.values.trajectories import SCORES
from rlmem.registry import part
from rlmem.settings import Settings, beside, setting

# What `auto` stands for: by `memory.form`, and where a network makes the keys.
FORMS = {
    "sound": {"edges": "action", "first_weight": "target", "order": "backwards"},
    "released": {"edges": "pair", "first_weight": "reward", "order": "forwards"},
}
OBSERVATIONS = {"target": "step", "unit": "key", "dist_th": 0.0, "neighbours": 1}
NETWORK = {"target": "step", "unit": "step", "dist_th": 0.5, "neighbours": 50}
NETWORK["first_weight"] = "return"


def _every(value: Any) -> str | None:
    fits = value == "episode" or (type(value) is int and value >= 1)
    return None if fits else "episode, or a whole number of env steps from 1"


def _auto_or(kind: type, low: float) -> Any:
    """A check: `auto`, or a number of a kind from `low` on."""
    name = "a whole number" if kind is int else "a number"

    def check(value: Any) -> str | None:
        number = type(value) in (int, kind) and low <= value < float("inf")
        return None if value == "auto" or number else f"auto, or {name}, at least {low:g}"

    return check


def _of(*kinds: str) -> Any:
    """What is read where the key nodes are of these kinds."""
    return lambda settings: () if settings.key_nodes in kinds else ("key_nodes",)


@dataclass(kw_only=True)
class ReconstructSettings(Settings):
    """Paths between key nodes that are walked again."""

    key_nodes: str = setting(choices=("none", "centre", "degree", "cross"))
    most: int = setting(at_least=2, at_most=10**9, idle=_of("centre", "degree", "cross"))
    every: Any = setting(check=_every, idle=_of("centre", "degree", "cross"))
    order: str = setting(
        choices=("auto", "backwards", "forwards"), idle=_of("centre", "degree", "cross")
    )
    t1: float = setting(above=0, idle=_of("centre"))
    t2: float = setting(above=0, idle=_of("centre"))
    walks: int = setting(at_least=0, at_most=10**6, idle=_of("centre"))
    hops: int = setting(
        at_least=1, at_most=10**6, idle=lambda s: _of("centre")(s) or beside(walks=0)(s)
    )
    kept: int = setting(at_least=2, at_most=10**6, idle=_of("cross"))
    score: str = setting(choices=SCORES, idle=_of("cross"))


@dataclass(kw_only=True)
class GraphSettings(EpisodicSettings):
    """A graph's keys."""

    extends = "gq"

    form: str = setting(choices=tuple(FORMS))
    edges: str = setting(choices=("auto", "action", "pair"))
    first_weight: str = setting(choices=("auto", "target", "reward", "zero", "return"))
    target: str = setting(choices=("auto", "step", "return"))
    eta: float = setting(above=0, at_most=1)
    unit: str = setting(choices=("auto", "key", "step"))
    dist_th: Any = setting(check=_auto_or(float, 0))
    neighbours: Any = setting(check=_auto_or(int, 1))
    reconstruct: ReconstructSettings = setting()

    def chosen(self, name: str, network: bool) -> Any:
        """The value of a key, of `auto` what that stands for."""
        own = getattr(self if hasattr(self, name) else self.reconstruct, name)
        auto = FORMS[self.form] | (NETWORK if network else OBSERVATIONS)
        return auto[name] if own == "auto" else own


@part("memory", "graph", settings=GraphSettings)
class GraphPart(Episodic):
    """GQ, and with reconstruction GCMR and GBMR."""

    colours: ClassVar = {"gq": 13, "gcmr": 26, "gbmr": 20}  # in figures

    keys_are_observations = True

    @classmethod
    def check(cls, settings: GraphSettings, run: Any) -> None:
        """What goes together.

        Raises:
            UserError: it does not.
        """
        network = run.agent.part.cls.makes_keys
        if network:
            super().check(settings, run)
        else:
            check_asked(settings, run)
            why = f"agent={run.agent.name} draws nothing, so memory={settings.name} has no replay"
            check_no_replay(settings, why)
            for name in ("first_weight", "target"):
                if getattr(settings, name) == "return":
                    raise UserError(
                        f"memory.{name}=return: agent={run.agent.name} learns from single steps; "
                        f"use memory.{name}=auto, or agent=nec"
                    )
        how = settings.reconstruct
        if how.t1 <= how.t2:
            raise UserError(
                f"memory.reconstruct.t1={how.t1}: must be above memory.reconstruct.t2={how.t2}"
            )
        if settings.entries < 2:
            raise UserError(f"memory.entries={settings.entries}: must be at least 2")
        if how.key_nodes == "cross" and how.kept > settings.entries:
            raise UserError(
                f"memory.reconstruct.kept={how.kept}: the kept episodes have together as many "
                f"steps as the graph has nodes; use {settings.entries} (memory.entries) or fewer"
            )
        neighbours = settings.chosen("neighbours", network)
        bounded = network or settings.budget is None or cls._bounds(settings)
        if bounded and neighbours > settings.entries:
            raise UserError(
                f"memory.neighbours={neighbours}: the graph has memory.entries={settings.entries} "
                f"nodes; use {settings.entries} or fewer"
            )

    @classmethod
    def build(cls, settings: GraphSettings, needs: Needs) -> ReplayMemory:
        """The memory of a run."""
        if needs.columns:
            return super().build(settings, needs)
        make = cls._maker(settings, needs, key_size(settings, needs), network=False)
        capacity, budget = capacity_of(settings, settings.entries, make)
        if cls._bounds(settings):
            capacity = min(capacity, settings.entries)
        neighbours = settings.chosen("neighbours", False)
        if capacity < neighbours:
            raise UserError(
                f"memory.budget={settings.budget}: holds {capacity} nodes, fewer than "
                f"memory.neighbours={neighbours}; use a larger memory.budget, or fewer neighbours"
            )
        return AskedMemory(make(capacity), needs, "nodes", budget)

    @staticmethod
    def _bounds(settings: GraphSettings) -> bool:
        """Whether `entries` was given, so that it holds under a budget too: else it is the
        capacity, in whose place a budget stands."""
        return settings.entries != settings.capacity

    @classmethod
    def values(cls, settings: GraphSettings, needs: Needs, budget: int | None) -> GraphMemory:
        (size,) = needs.columns["key"][0]
        make, nodes = cls._maker(settings, needs, size, network=True), settings.entries
        if budget is not None:
            nodes = min(nodes, entries_within(budget, make))
            neighbours = settings.chosen("neighbours", True)
            if nodes < max(2, neighbours):
                raise UserError(
                    f"memory.budget={settings.budget}: memory.share={settings.share} of it holds "
                    f"{nodes} nodes, fewer than memory.neighbours={neighbours}; use a larger "
                    "memory.budget or memory.share, or fewer neighbours"
                )
        return make(nodes)

    @classmethod
    def _maker(cls, settings: GraphSettings, needs: Needs, size: int, *, network: bool) -> Any:
        """What makes the graph of so many nodes."""
        how = settings.reconstruct
        chosen = {
            name: settings.chosen(name, network)
            for name in (
                "edges",
                "first_weight",
                "target",
                "unit",
                "dist_th",
                "neighbours",
                "order",
            )
        }
        learning = Learning(
            gamma=needs.gamma,
            eta=settings.eta,
            dist_th=float(chosen["dist_th"]),
            edges=chosen["edges"],
            first_weight=chosen["first_weight"],
            unit=chosen["unit"],
            returns=chosen["target"] == "return",
        )
        reconstruction = Reconstruction(
            key_nodes=how.key_nodes,
            most=how.most,
            every=how.every,
            order=chosen["order"],
            inner=how.t2,
            outer=how.t1,
            walks=how.walks,
            hops=how.hops,
            kept=how.kept,
            score=how.score,
        )

        def make(capacity: int) -> GraphMemory:
            generator = torch.Generator().manual_seed(needs.seed)
            return GraphMemory(
                capacity,
                size,
                needs.spec.num_actions,
                learning,
                reconstruction,
                generator,
                chosen["neighbours"],
                trains=network,
                num_envs=needs.spec.num_envs,
            )

        return make

    @staticmethod
    def pictures(memory: ReplayMemory, context: PictureContext) -> Iterable[Picture]:
        """See `rlmem.memories.base.pictures`."""
        from rlmem.memories.values.pictures import graph_pictures

        return graph_pictures(memory, context)

    @staticmethod
    def overlay(memory: ReplayMemory, context: PictureContext) -> Overlay | None:
        """See `rlmem.memories.base.pictures`."""
        from rlmem.memories.values.pictures_film import graph_overlay

        return graph_overlay(memory, context)
